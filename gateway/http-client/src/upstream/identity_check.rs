//! Identity checks: some endpoints have to name their process before anything is sent to them, as guards do.

use std::{error::Error, fmt::Debug, future::Future, io, pin::Pin, sync::Arc};

use fencegate_policies::plan::Upstream;
use fencegate_process::clock::SharedClock;

use super::address::ResolvedEndpoint;
use crate::upstream::pooled_connection::PooledConnection;

/// Checks the identities of processes, and remembers the answers. Shared by all workers.
pub trait EndpointIdentityVerifier: Debug + Send + Sync {
    /// Whether all endpoints of this upstream have to be checked before anything is sent to one of them.
    fn is_required(&self, upstream: &Upstream) -> bool;

    /// Checks on a new connection, and leaves the connection ready for another exchange.
    fn check_identity<'a>(
        &'a self,
        pooled: &'a mut PooledConnection,
        upstream: &'a Upstream,
        clock: &'a SharedClock,
    ) -> IdentityFuture<'a>;

    /// Whether this address has to be checked. Only one caller gets [`IdentityCheckDue::Background`], and has to check it.
    fn check_due(&self, upstream: &Upstream, address: &ResolvedEndpoint) -> IdentityCheckDue;

    /// Call this before an attempt to check an address.
    fn start_attempt(&self) -> IdentityCheckStartSeq;

    /// The check of this address failed without an answer. A process that was checked successfully after the attempt
    /// began still counts.
    fn record_failure(
        &self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        attempt: IdentityCheckStartSeq,
    );

    /// Checks that the answers do not contradict each other.
    ///
    /// # Errors
    /// The answers contradict each other, although all were checked just now; the log has the details.
    fn check_consistent(&self, upstream: &Upstream) -> Result<(), BoxError>;

    /// Whether this is the last known process at the address, and the upstream's answers agree.
    fn is_trusted(&self, upstream: &Upstream, address: &ResolvedEndpoint, process: &Arc<str>) -> bool;
}

/// When an address has to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityCheckDue {
    /// Not now: it was checked, or did not answer a moment ago.
    NotDue,
    /// Before anything is sent to any endpoint of the upstream.
    Before,
    /// In the background: it did not answer some time ago, and requests go to other addresses meanwhile.
    Background,
}

/// The time of an attempt, as the number of answers recorded before it.
#[derive(Debug, Clone, Copy)]
pub struct IdentityCheckStartSeq(pub u64);

/// The name of the process that answers.
pub type IdentityFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<str>, IdentityCheckError>> + 'a>>;

/// Why nothing is sent there.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why an identity check has failed.
#[derive(Debug)]
pub enum IdentityCheckError {
    Io(io::Error),
    /// The process there cannot be checked.
    UnknownProcess(BoxError),
    /// Its answer contradicts another one, which may be too old.
    Contradicted(BoxError),
    /// The process there must not be trusted.
    Distrusted(BoxError),
}

impl From<io::Error> for IdentityCheckError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
