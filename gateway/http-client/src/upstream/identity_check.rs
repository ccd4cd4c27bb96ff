//! Identity checks: some endpoints, such as guards, have to name their process before anything is sent to them.

use std::{error::Error, fmt::Debug, future::Future, io, pin::Pin, sync::Arc};

use fencegate_policies::plan::Upstream;
use fencegate_process::clock::SharedClock;

use super::address::ResolvedEndpoint;
use crate::upstream::pooled_connection::PooledConnection;

/// Checks the identities of processes, and remembers the answers. All workers share it.
pub trait EndpointIdentityVerifier: Debug + Send + Sync {
    /// True if all endpoints of this upstream have to be checked before anything is sent to one of them.
    fn is_identity_check_required(&self, upstream: &Upstream) -> bool;

    /// Checks the process on a new connection, and leaves the connection ready for another exchange.
    fn check_identity<'a>(
        &'a self,
        pooled: &'a mut PooledConnection,
        upstream: &'a Upstream,
        clock: &'a SharedClock,
    ) -> IdentityFuture<'a>;

    /// Tells whether this address has to be checked. Only one caller gets [`IdentityCheckDue::Background`], and has to
    /// check it.
    fn check_due(&self, upstream: &Upstream, address: &ResolvedEndpoint) -> IdentityCheckDue;

    /// Marks the begin of an attempt. Must be called before an address is checked.
    fn start_attempt(&self) -> IdentityCheckStartSeq;

    /// Records that the check of this address failed without an answer. If the process was checked successfully after
    /// the attempt began, that result stays.
    fn record_failure(
        &self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        attempt: IdentityCheckStartSeq,
    );

    /// Checks that the answers do not contradict each other.
    ///
    /// # Errors
    /// Returns an error if the answers contradict each other, although all were checked just now; the log has the
    /// details.
    fn check_identities_consistent(&self, upstream: &Upstream) -> Result<(), BoxError>;

    /// True if `process` is the last known process at the address, and the answers of the upstream agree.
    fn is_trusted(&self, upstream: &Upstream, address: &ResolvedEndpoint, process: &Arc<str>) -> bool;
}

/// When the identity of the guard at an address has to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityCheckDue {
    /// Not now: the address was checked, or did not answer a moment ago.
    NotDue,
    /// Now, before anything is sent to any endpoint of the upstream.
    Before,
    /// Now, in the background: the address did not answer some time ago, and requests go to other addresses.
    Background,
}

/// The begin of an attempt, as the number of answers that were recorded before it.
#[derive(Debug, Clone, Copy)]
pub struct IdentityCheckStartSeq(pub u64);

/// Yields the name of the process that answers.
pub type IdentityFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<str>, IdentityCheckError>> + 'a>>;

/// The reason for which nothing is sent to a process.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The reason for which an identity check has failed.
#[derive(Debug)]
pub enum IdentityCheckError {
    Io(io::Error),
    /// The identity of the process cannot be checked.
    UnknownProcess(BoxError),
    /// The answer of the process contradicts another answer, which may be too old.
    Contradicted(BoxError),
    /// The process must not be trusted.
    Distrusted(BoxError),
}

impl From<io::Error> for IdentityCheckError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
