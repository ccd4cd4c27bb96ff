//! Replaces the parent of a key whose queue has used up its numbers; below the new one the numbers begin again. Tokens
//! go on growing, because their first part comes from a czxid.
//!
//! The server counts children in 31 bits, and then gives the last number again and again, so several nodes would all
//! look like the first. Our limit is far below that. An attempt with a number above the limit removes its node and
//! waits until the parent is empty. Attempts with lower numbers are served as usual.

use fencegate_process::shown;
use tokio::time::sleep;
use tracing::info;

use super::{
    candidate::{Candidate, refused},
    grant::{Caller, Stop},
};
use crate::not_granted::NotGranted;
use crate::session::link::{Failed, Fault, Kind, Link, Step};

/// A parent whose numbers are used up.
pub struct FullParent<'a, L> {
    candidate: &'a Candidate<L>,
    /// Tells this parent from its successor: versions begin again, a czxid does not.
    czxid: i64,
}

impl<'a, L: Link> FullParent<'a, L> {
    /// Call this while a node of ours is below the parent, so that it cannot be replaced meanwhile.
    pub async fn mark(candidate: &'a Candidate<L>) -> Result<Self, NotGranted> {
        match candidate.live.link.seen(&candidate.parent).await {
            Ok(Some(seen)) => Ok(Self { candidate, czxid: seen.czxid }),
            Ok(None) | Err(Fault::Ambiguous(_)) => Err(NotGranted::Lost),
            Err(fault) => Err(refused(fault)),
        }
    }

    /// Returns when the parent is gone or replaced, by us or somebody else. Our own node below it has to be gone
    /// before.
    pub async fn replaced(self, caller: &mut impl Caller) -> Result<(), Stop> {
        let link = &self.candidate.live.link;
        loop {
            // The watch comes before the try, so that the end of a child in between is not missed.
            let changed = match link.watch_children(&self.candidate.parent).await {
                Ok((_, changed)) => changed,
                Err(Fault::NoNode) => return Ok(()),
                Err(Fault::Ambiguous(_)) => {
                    self.candidate.again().await?;
                    continue;
                }
                Err(fault) => return Err(refused(fault).into()),
            };
            if self.replace().await? {
                return Ok(());
            }
            caller.behind()?;
            if caller.asks_the_way() {
                // The contenders that are still below it are about to go, so nobody is sent on to them.
                caller.way(None)?;
            }
            tokio::select! {
                () = changed => {}
                // In case an event is lost.
                () = sleep(link.timeout()) => {}
                () = caller.gone() => return Err(Stop::CallerGone),
                () = self.candidate.live.over.cancelled() => return Err(NotGranted::Lost.into()),
            }
        }
    }

    /// Tries to remove the parent; true if it is gone. A removal can only hit an empty parent, so no lock is lost if it
    /// hits a successor.
    async fn replace(&self) -> Result<bool, NotGranted> {
        let (link, path) = (&self.candidate.live.link, &self.candidate.parent);
        let (data, seen) = match link.data(path).await {
            Ok(read) => read,
            Err(Fault::NoNode) => return Ok(true),
            Err(Fault::Ambiguous(_)) => return Ok(false),
            Err(fault) => return Err(refused(fault)),
        };
        if seen.czxid != self.czxid {
            return Ok(true);
        }
        if !data.is_empty() {
            // A former policy with `fencing: delay` left a grant record in this parent; it must not be lost.
            return Err(NotGranted::KeyLimit(
                "the parent of the key keeps a record, and its numbers are used up",
            ));
        }
        let steps = [
            Step::Delete { path, version: Some(seen.version) },
            Step::Create { path, data: &data, kind: Kind::Container },
        ];
        match link.commit(&steps).await {
            Ok(_) => {
                info!(parent = shown::path(&self.candidate.live.paths.locks(), path), "full queue replaced");
                Ok(true)
            }
            Err(Failed { fault: Fault::NoNode | Fault::BadVersion, .. }) => Ok(true),
            Err(Failed { fault: Fault::NotEmpty | Fault::Ambiguous(_), .. }) => Ok(false),
            Err(Failed { fault, .. }) => Err(refused(fault)),
        }
    }
}
