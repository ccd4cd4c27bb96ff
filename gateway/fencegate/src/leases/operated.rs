//! What operators have done about one lease, whichever listener let them in.

use std::sync::Arc;

use tracing::info;

use super::{
    holdings::Leases,
    id::Reference,
    lease::{Lease, Why},
};

/// Why an operator's word does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unheeded {
    /// No lease of this gateway is called so.
    Unknown,
    /// It is over already.
    Over,
    /// What its client is to be told is no line of 1 to 256 bytes.
    NoLine,
}

/// Bytes of what the client is told.
const LONGEST: usize = 256;

impl Leases {
    /// Asks the client of a lease to give it back: it sees so when it renews, and at once where it watches.
    ///
    /// # Errors
    /// There is none of that name here, it is over, or `why` is no line.
    pub fn revoke(&self, reference: &str, why: &str, operator: &str) -> Result<Arc<Lease>, Unheeded> {
        let why = line(why)?;
        let lease = self.named(reference)?;
        if lease.is_over() {
            return Err(Unheeded::Over);
        }
        lease.revoke(why);
        info!(lease = reference, operator, "lease.revoked");
        Ok(lease)
    }

    /// Ends a lease without its client. What runs under it runs on, and the lock is given on after that, and not before what its
    /// client was told is over. `why`: for the client, where nobody has given it a reason before.
    ///
    /// # Errors
    /// There is none of that name here, it is over, or `why` is no line.
    pub fn break_off(
        &self,
        reference: &str,
        why: Option<&str>,
        operator: &str,
    ) -> Result<Arc<Lease>, Unheeded> {
        let why = why.map(line).transpose()?;
        let lease = self.named(reference)?;
        if let Some(why) = why.filter(|_| !lease.is_over()) {
            lease.revoke(why);
        }
        if !self.ends(&lease, Why::Broken) {
            return Err(Unheeded::Over);
        }
        info!(lease = reference, operator, "lease.broken");
        Ok(lease)
    }

    /// By what operators call it, also for a while after its end.
    ///
    /// # Errors
    /// There is none of that name here.
    pub fn named(&self, reference: &str) -> Result<Arc<Lease>, Unheeded> {
        let lease = Reference::parse(reference).and_then(|reference| self.look_up(reference));
        lease.ok_or(Unheeded::Unknown)
    }
}

fn line(why: &str) -> Result<Arc<str>, Unheeded> {
    let is_line = !why.is_empty() && why.len() <= LONGEST && !why.chars().any(char::is_control);
    is_line.then(|| why.into()).ok_or(Unheeded::NoLine)
}
