//! Waits in line at one key: behind exactly the one directly before, for as long as anybody wants it, or until those who
//! may leave have been told the way to whoever holds.

use std::future::Future;

use fencegate_process::failpoint;

use super::{
    candidate::{Candidate, refused},
    grant::{Caller, Stop},
    layout::Rank,
    signpost::{self, Signpost},
};
use crate::not_granted::NotGranted;
use crate::{
    reach::Way,
    session::link::{Fault, Link},
};

impl<L: Link> Candidate<L> {
    /// Returns when the node holds; whether it had to wait.
    pub async fn stand_in_line(
        &self,
        own: &str,
        mut children: Vec<String>,
        caller: &mut impl Caller,
    ) -> Result<bool, Stop> {
        let mut contended = false;
        loop {
            let rank = self.line.rank(&children, own);
            if rank != Rank::Gone && self.line.is_of_permits(&children) {
                return Err(NotGranted::PermitsDiffer.into());
            }
            let before = match rank {
                Rank::First => return Ok(contended),
                Rank::Gone => return Err(NotGranted::Lost.into()),
                Rank::Behind(before) => self.path(before),
            };
            contended = true;
            caller.stands_behind(self.line.before(&children, own));
            caller.behind()?;
            failpoint::pass("while_waiting");
            let asks = caller.asks_the_way();
            let watched = self.live.link.watch(&before);
            // Beside the watch, and not behind it: who is sent on leaves a round trip earlier.
            let first = self.line.alone(&children).filter(|_| asks).map(|first| self.path(first));
            let read = first.as_deref().map(|first| self.live.link.data(first));
            match watched.await {
                Ok(gone_or_changed) => tokio::select! {
                    () = gone_or_changed => {}
                    stop = self.left(asks, read, caller) => return Err(stop),
                    () = self.live.over.cancelled() => return Err(NotGranted::Lost.into()),
                },
                Err(Fault::NoNode | Fault::Ambiguous(_)) => {}
                Err(fault) => return Err(refused(fault).into()),
            }
            if caller.is_gone() {
                return Err(Stop::CallerGone);
            }
            // The event says that something changed, not that we are first; and our own node may be gone as well.
            children = tokio::select! {
                children = self.list() => children?,
                () = caller.gone() => return Err(Stop::CallerGone),
            };
        }
    }

    /// Returns when nobody waits here any more: all have gone, or were sent on. `asks`: somebody may be, and `read` is
    /// on its way to tell where to.
    async fn left(
        &self,
        asks: bool,
        read: Option<impl Future<Output = Signpost>>,
        caller: &mut impl Caller,
    ) -> Stop {
        if asks {
            let way = match read {
                Some(read) => signpost::follow(&self.live, read.await).await,
                None => None,
            };
            if let Err(stop) = caller.way(way) {
                return stop;
            }
        }
        loop {
            caller.stirred().await;
            if caller.is_gone() {
                return Stop::CallerGone;
            }
            // Who has come since is not kept here until the one directly before us goes.
            if caller.asks_the_way()
                && let Err(stop) = caller.way(self.way().await)
            {
                return stop;
            }
        }
    }

    /// To whoever is first now; `None` where it cannot be reached.
    async fn way(&self) -> Option<Way> {
        let children = self.live.link.children(&self.parent).await.ok()?;
        let first = self.path(self.line.alone(&children)?);
        signpost::follow(&self.live, self.live.link.data(&first).await).await
    }

    /// After the node holds: until the session is proven, so that a grant can be used.
    pub async fn proven(&self, caller: &mut impl Caller) -> Result<(), Stop> {
        tokio::select! {
            () = self.live.proven() => Ok(()),
            () = caller.gone() => Err(Stop::CallerGone),
            () = self.live.over.cancelled() => Err(NotGranted::Lost.into()),
        }
    }
}
