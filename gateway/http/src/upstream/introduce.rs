//! Who has to say who they are before anything is sent to them.

use std::{error::Error, fmt::Debug, future::Future, io, pin::Pin, sync::Arc};

use fencegate_policies::plan::Upstream;
use fencegate_process::clock::SharedClock;

use super::address::Address;
use crate::upstream::pooled::Pooled;

/// Knows how to ask, and what was heard. Shared by all workers.
pub trait Introductions: Debug + Send + Sync {
    /// Nothing is sent to an endpoint of this upstream before each of them has been met.
    fn are_needed(&self, upstream: &Upstream) -> bool;

    /// Asks at the beginning of a connection, and leaves it ready for another exchange.
    fn introduce<'a>(
        &'a self,
        pooled: &'a mut Pooled,
        upstream: &'a Upstream,
        clock: &'a SharedClock,
    ) -> Introduced<'a>;

    /// Whether this address has to say who is there. [`Due::Beside`] is told to one caller, who asks.
    fn due(&self, upstream: &Upstream, address: &Address) -> Due;

    /// To be called before somebody looks for who is at an address.
    fn attempt(&self) -> Attempt;

    /// Nobody is there whom one could ask, or no longer. One that has said who it is since the attempt began is there all
    /// the same.
    fn lost(&self, upstream: &Upstream, address: &Arc<Address>, attempt: Attempt);

    /// Those that were met do not contradict each other.
    ///
    /// # Errors
    /// They do, although all of them were asked just now; the log says how.
    fn agree(&self, upstream: &Upstream) -> Result<(), Doubt>;

    /// The process is the one that answers at the address, as far as is known, and no other one is known of the upstream.
    fn is_believed(&self, upstream: &Upstream, address: &Address, process: &Arc<str>) -> bool;
}

/// When an address is asked who is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It has said so, or nobody was there a moment ago.
    Not,
    /// Before it has, nothing may be sent to any.
    Before,
    /// Nobody was there a while ago: while others are sent to.
    Beside,
}

/// When it was: how much had been noted before.
#[derive(Debug, Clone, Copy)]
pub struct Attempt(pub u64);

/// The process that is there, by the name that it gives itself.
pub type Introduced<'a> = Pin<Box<dyn Future<Output = Result<Arc<str>, Unmet>> + 'a>>;

/// Why nothing is sent there.
pub type Doubt = Box<dyn Error + Send + Sync>;

/// Nobody was met there.
#[derive(Debug)]
pub enum Unmet {
    Io(io::Error),
    /// What answers there cannot be asked.
    Stranger(Doubt),
    /// Who answers there says something else than others do, of whom one may have been asked too long ago.
    Contradicted(Doubt),
    /// Who answers there must not be believed.
    Distrusted(Doubt),
}

impl From<io::Error> for Unmet {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
