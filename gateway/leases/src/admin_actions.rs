//! The actions of operators on one lease, whichever listener they use.

use std::sync::Arc;

use fencegate_process::display::is_single_line;
use fencegate_protocol::lease_id::LeaseReference;
use tracing::info;

use super::{
    lease::{Lease, LeaseEndReason},
    lease_table::LeaseTable,
};

/// The reason for which an action has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminLeaseActionError {
    /// This gateway has no lease with this reference.
    NotFound,
    /// The lease is over.
    Over,
    /// The reason for the client is not a line of 1 to 256 bytes.
    InvalidReason,
}

/// The most bytes of a reason.
const MAX_REASON_LEN: usize = 256;

impl LeaseTable {
    /// Requests the client of a lease to release it. The client sees that when it renews, and at once if it watches.
    ///
    /// # Errors
    /// Returns an error if there is no such lease here, if the lease is over, or if `why` is not a line.
    pub fn request_release(
        &self,
        reference: &str,
        why: &str,
        operator: &str,
    ) -> Result<Arc<Lease>, AdminLeaseActionError> {
        let why = check_reason(why)?;
        let lease = self.find_by_reference(reference)?;
        if lease.is_over() {
            return Err(AdminLeaseActionError::Over);
        }
        lease.request_release(why);
        info!(lease = reference, operator, "lease.revoked");
        Ok(lease)
    }

    /// Ends a lease without its client. Requests under it continue. The lock is released when they have ended, and
    /// not before the promise to the client is over. `why` is the reason for the client, unless it received one
    /// before.
    ///
    /// # Errors
    /// Returns an error if there is no such lease here, if the lease is over, or if `why` is not a line.
    pub fn break_lease(
        &self,
        reference: &str,
        why: Option<&str>,
        operator: &str,
    ) -> Result<Arc<Lease>, AdminLeaseActionError> {
        let why = why.map(check_reason).transpose()?;
        let lease = self.find_by_reference(reference)?;
        if let Some(why) = why.filter(|_| !lease.is_over()) {
            lease.request_release(why);
        }
        if !self.try_end(&lease, LeaseEndReason::Broken) {
            return Err(AdminLeaseActionError::Over);
        }
        info!(lease = reference, operator, "lease.broken");
        Ok(lease)
    }

    /// A lease by its reference, also for a while after its end.
    ///
    /// # Errors
    /// Returns an error if there is no such lease here.
    pub fn find_by_reference(&self, reference: &str) -> Result<Arc<Lease>, AdminLeaseActionError> {
        let lease = LeaseReference::parse(reference).and_then(|reference| self.look_up(reference));
        lease.ok_or(AdminLeaseActionError::NotFound)
    }
}

fn check_reason(why: &str) -> Result<Arc<str>, AdminLeaseActionError> {
    let fits = !why.is_empty() && why.len() <= MAX_REASON_LEN && is_single_line(why);
    fits.then(|| why.into()).ok_or(AdminLeaseActionError::InvalidReason)
}
