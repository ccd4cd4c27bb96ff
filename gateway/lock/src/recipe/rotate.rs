//! What happens when a key's queue has used up its numbers: its parent is replaced by a new one, whose numbers begin
//! again. Tokens go on growing, because their first part is a czxid.
//!
//! The server counts children in 31 bits and then gives the last number for ever; several nodes of that number would
//! all look like the first. Far below it the numbers are their own seal: whoever is given one above the limit removes
//! its node and waits until the parent is empty, while those with numbers up to the limit are served as ever.

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
    /// Tells this parent from the one that replaces it: versions begin again, a czxid does not.
    czxid: i64,
}

impl<'a, L: Link> FullParent<'a, L> {
    /// To be called while the parent cannot be replaced, because a node of ours is below it.
    pub async fn mark(candidate: &'a Candidate<L>) -> Result<Self, NotGranted> {
        match candidate.live.link.seen(&candidate.parent).await {
            Ok(Some(seen)) => Ok(Self { candidate, czxid: seen.czxid }),
            Ok(None) | Err(Fault::Ambiguous(_)) => Err(NotGranted::Lost),
            Err(fault) => Err(refused(fault)),
        }
    }

    /// Returns when the parent is gone or replaced, by us or somebody else. We have no node below it any more.
    pub async fn replaced(self, caller: &mut impl Caller) -> Result<(), Stop> {
        let link = &self.candidate.live.link;
        loop {
            // First the watch, then the try: a child that goes in between is not missed.
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
                // Whoever is still below it is about to go, and nobody comes after.
                caller.way(None)?;
            }
            tokio::select! {
                () = changed => {}
                // Should an event be lost.
                () = sleep(link.timeout()) => {}
                () = caller.gone() => return Err(Stop::CallerGone),
                () = self.candidate.live.over.cancelled() => return Err(NotGranted::Lost.into()),
            }
        }
    }

    /// Whether this parent is not there any more. It serves liveness only: should another one be replaced in the same
    /// moment, it was empty, and nothing is lost but its count.
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
            // What another level of fencing left there counts for the life of this parent only.
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
