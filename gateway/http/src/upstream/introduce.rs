//! Introductions: some endpoints have to name their process before anything is sent to them, as guards do.

use std::{error::Error, fmt::Debug, future::Future, io, pin::Pin, sync::Arc};

use fencegate_policies::plan::Upstream;
use fencegate_process::clock::SharedClock;

use super::address::Address;
use crate::upstream::pooled::Pooled;

/// Asks processes for their names, and remembers the answers. Shared by all workers.
pub trait Introductions: Debug + Send + Sync {
    /// Whether all endpoints of this upstream have to be asked before anything is sent to one of them.
    fn are_needed(&self, upstream: &Upstream) -> bool;

    /// Asks on a new connection, and leaves the connection ready for another exchange.
    fn introduce<'a>(
        &'a self,
        pooled: &'a mut Pooled,
        upstream: &'a Upstream,
        clock: &'a SharedClock,
    ) -> Introduced<'a>;

    /// Whether this address has to be asked. Only one caller gets [`Due::Beside`], and has to ask.
    fn due(&self, upstream: &Upstream, address: &Address) -> Due;

    /// Call this before an attempt to ask an address.
    fn attempt(&self) -> Attempt;

    /// Nobody could be asked at this address. A process that was asked successfully after the attempt began still
    /// counts.
    fn lost(&self, upstream: &Upstream, address: &Arc<Address>, attempt: Attempt);

    /// Checks that the answers do not contradict each other.
    ///
    /// # Errors
    /// The answers contradict each other, although all were asked just now; the log says how.
    fn agree(&self, upstream: &Upstream) -> Result<(), Doubt>;

    /// Whether this is the last known process at the address, and the upstream's answers agree.
    fn is_believed(&self, upstream: &Upstream, address: &Address, process: &Arc<str>) -> bool;
}

/// When an address has to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Not now: it was asked, or nobody answered there a moment ago.
    Not,
    /// Before anything is sent to any endpoint of the upstream.
    Before,
    /// In the background: nobody answered there some time ago, and requests go to others meanwhile.
    Beside,
}

/// The time of an attempt, as the number of answers noted before it.
#[derive(Debug, Clone, Copy)]
pub struct Attempt(pub u64);

/// The name of the process that answers.
pub type Introduced<'a> = Pin<Box<dyn Future<Output = Result<Arc<str>, Unmet>> + 'a>>;

/// Why nothing is sent there.
pub type Doubt = Box<dyn Error + Send + Sync>;

/// Why an introduction has failed.
#[derive(Debug)]
pub enum Unmet {
    Io(io::Error),
    /// The process there cannot be asked.
    Stranger(Doubt),
    /// Its answer contradicts another one, which may be too old.
    Contradicted(Doubt),
    /// The process there must not be trusted.
    Distrusted(Doubt),
}

impl From<io::Error> for Unmet {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
