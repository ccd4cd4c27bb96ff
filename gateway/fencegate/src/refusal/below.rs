//! The refusals that a step can meet: those of the crates below, and those of our own trust in guards.

use fencegate_guard::refused as guard;
use fencegate_http::{listen::responder, upstream::pool::NotConnected};
use fencegate_lock::{
    once::denied as once,
    tenures::{chain::NotInside, keeper},
};
use fencegate_policies::key::BadKey;

use crate::trust::Distrust;

/// A refusal in the words of whoever made it. The table of reasons has a row for each of them.
#[derive(Debug, Clone, Copy)]
pub enum Below<'a> {
    /// A request has no key.
    Key(&'a BadKey),
    /// A request has no valid name for its operation.
    Name(&'a BadKey),
    /// What came to a listener was never a request.
    Listener(responder::Refused),
    Lock(&'a keeper::Refused),
    /// The request does not run inside the dispatch in which it was called.
    Call(NotInside),
    /// ZooKeeper's record of operations refuses it.
    Once(&'a once::Denied),
    Guard(guard::Word),
    /// There is no connection to the upstream.
    Pool(&'a NotConnected),
    /// There is a connection, but the guard at its other end is not believed.
    Trust(&'a Distrust),
}

impl<'a> From<&'a NotConnected> for Below<'a> {
    fn from(error: &'a NotConnected) -> Self {
        match error {
            NotConnected::Distrusted { why, .. } => why.downcast_ref().map_or(Self::Pool(error), Self::Trust),
            _ => Self::Pool(error),
        }
    }
}
