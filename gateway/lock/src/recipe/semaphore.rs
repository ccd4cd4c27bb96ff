//! A lock that several hold at once, each with a permit of its own.
//!
//! Contenders stand in the line of the key. The first `N` of them may make one of `N` nodes beside it, each as its [`ContestedNode`]:
//! `permit-0` to `permit-<N-1>`. Whoever has made one holds the permit of that number. The token is made of that node,
//! because of the nodes under one name each is younger than all before it; of places in line that is not so, as one of the
//! first `N` may be slow, and take the permit of another that came behind it and has gone.

use std::{cell::OnceCell, rc::Rc, sync::Arc};

use fencegate_policies::{
    key::ResourceKey,
    permits::{Permit, Permits},
    plan::{LockSite, Mode},
};
use fencegate_process::failpoint;
use tokio::time::sleep;

use super::{
    attempt::Attempt,
    candidate::{AGAIN, Candidate, PAUSE, refused},
    contested_node::{ContestedNode, Tried},
    grant::{Caller, Grant, Stop},
    layout::{Prospect, named_for},
};
use crate::not_granted::NotGranted;
use crate::session::{
    evidence::Evidence,
    link::{Fault, Link, Seen, Step},
    live::Live,
};

/// One attempt at a permit. Whatever happens, [`Semaphore::clear`] has to be the last call.
pub struct Semaphore<L: Link> {
    permits: Permits,
    line: Attempt<L>,
    /// Path of our node in line, once it is among the first.
    place: OnceCell<String>,
    /// That may be ours.
    node: ContestedNode<L>,
}

/// The node of a permit is written between 0 and 7 times when it is made. Should a stranger remove it, and another of ours take
/// the permit before we know, a delete that is on its way mostly misses what that one made.
const WRITES: u8 = 8;

/// Tries before the list is looked at again: it may be old, and others try as well.
const TRIES: usize = 8;

impl<L: Link> Semaphore<L> {
    /// That may wait for room.
    pub async fn begin(live: &Rc<Live<L>>, key: &ResourceKey, permits: Permits) -> Result<Self, NotGranted> {
        if key.of_permit(permits.last()).is_none() {
            return Err(NotGranted::KeyLimit("the keys of the permits of this one are too long"));
        }
        let line = Attempt::begin(live, key, &LockSite::Semaphore { permits }, Mode::Exclusive).await?;
        let longest = line.candidate.path(&named_for(permits.last())).len();
        let mut writes = [0];
        live.randomness.fill(&mut writes);
        let node = ContestedNode::begin(&line, longest, writes[0] % WRITES).await?;
        Ok(Self { permits, line, place: OnceCell::new(), node })
    }

    fn candidate(&self) -> &Candidate<L> {
        &self.line.candidate
    }

    fn live(&self) -> &Live<L> {
        &self.candidate().live
    }

    /// Waits in line until it is among the first, and then takes a permit.
    pub async fn acquire(&self, caller: &mut impl Caller) -> Result<Grant, Stop> {
        let (own, mut children) = self.line.stand(caller).await?;
        let place = self.place.get_or_init(|| self.candidate().path(&own));
        let mut contended = false;
        let (permit, seen) = loop {
            if caller.is_gone() {
                return Err(Stop::CallerGone);
            }
            let seen = match Prospect::of(self.permits, &children, &own) {
                Prospect::Now(free) if !free.is_empty() => match self.take(place, &free).await? {
                    Some(taken) => break taken,
                    None => self.candidate().list().await?,
                },
                Prospect::Unlike => return Err(NotGranted::PermitsDiffer.into()),
                Prospect::Gone => return Err(NotGranted::Lost.into()),
                waits => {
                    contended = true;
                    caller.behind()?;
                    failpoint::pass("while_waiting");
                    match waits {
                        Prospect::Behind(before) => self.wait_behind(&own, before, caller).await?,
                        _ => self.wait_for_any(&own, caller).await?,
                    }
                }
            };
            children = seen;
        };
        let epoch = self.node.epoch(seen)?;
        self.candidate().proven(caller).await?;
        let evidence = Arc::new(Evidence::of(self.live().proof.clone()));
        let nodes = [place.clone(), self.node.path().to_string()].into();
        Ok(Grant { epoch, sequence: 0, permit: Some(permit), evidence, nodes, contended })
    }

    /// `None`: others were faster, or the list was old.
    async fn take(&self, place: &str, free: &[Permit]) -> Result<Option<(Permit, Seen)>, NotGranted> {
        for permit in free.iter().take(TRIES) {
            let (node, number) = (self.candidate().path(&named_for(*permit)), permit.to_string());
            // Our place is there, and whoever watches it is told that we hold.
            let first = Step::Set { path: place, data: number.as_bytes() };
            match self.node.make(self.candidate(), &node, first).await? {
                Tried::Ours(seen) => return Ok(Some((*permit, seen))),
                Tried::Taken(_) => {}
                // Our place was below it.
                Tried::NoParent => return Err(NotGranted::Lost),
            }
        }
        Ok(None)
    }

    /// Returns the children when the one directly before us, which waits as we do, holds or has left.
    ///
    /// The list is made behind the watch. Where it still shows the other waiting, the other takes its permit later, and that
    /// is told.
    async fn wait_behind(
        &self,
        own: &str,
        before: &str,
        caller: &mut impl Caller,
    ) -> Result<Vec<String>, Stop> {
        let path = self.candidate().path(before);
        let (watched, listed) = (self.live().link.watch(&path), self.candidate().list());
        let (watched, children) = tokio::join!(watched, listed);
        let children = children?;
        match watched {
            Ok(changed) if Prospect::of(self.permits, &children, own) == Prospect::Behind(before) => {
                self.until(changed, caller).await?;
            }
            Ok(_) | Err(Fault::NoNode) => {}
            Err(Fault::Ambiguous(_)) => self.candidate().again().await?,
            Err(fault) => return Err(refused(fault).into()),
        }
        Ok(children)
    }

    /// Returns the children when somebody who holds may have left. Whoever comes is told of as well: only one contender of a
    /// key looks on like this.
    async fn wait_for_any(&self, own: &str, caller: &mut impl Caller) -> Result<Vec<String>, Stop> {
        match self.live().link.watch_children(&self.candidate().parent).await {
            Ok((children, changed)) => {
                let now = Prospect::of(self.permits, &children, own);
                if now == Prospect::Next || now == Prospect::Now(Vec::new()) {
                    self.until(changed, caller).await?;
                }
                Ok(children)
            }
            Err(Fault::NoNode) => Ok(Vec::new()),
            Err(Fault::Ambiguous(_)) => {
                self.candidate().again().await?;
                Ok(self.candidate().list().await?)
            }
            Err(fault) => Err(refused(fault).into()),
        }
    }

    async fn until(&self, changed: L::Watch, caller: &mut impl Caller) -> Result<(), Stop> {
        tokio::select! {
            () = changed => Ok(()),
            () = caller.gone() => Err(Stop::CallerGone),
            () = self.live().over.cancelled() => Err(NotGranted::Lost.into()),
        }
    }

    /// Returns when our place or our permit is not ours any more, calling `gone` with the path of that, or when the session
    /// is over. Without the place others would count one holder less; without the permit somebody else takes it.
    pub async fn watch_own(&self, gone: &impl Fn(&str)) {
        let (link, path) = (&self.live().link, self.node.path());
        let Some(place) = self.place.get() else { return };
        loop {
            let (stands, holds, read) = (link.watch(place), link.watch(&path), link.data(&path));
            let (stands, holds, read) = tokio::join!(stands, holds, read);
            failpoint::pass("while_watching");
            let faults = [stands.as_ref().err(), holds.as_ref().err(), read.as_ref().err()];
            if faults.contains(&Some(&Fault::Over)) {
                return;
            }
            if faults.iter().flatten().any(|fault| matches!(fault, Fault::Ambiguous(_))) {
                if self.candidate().again().await.is_err() {
                    return;
                }
                continue;
            }
            match (stands, holds, read) {
                (Err(Fault::NoNode), _, _) => return gone(place),
                (_, _, Err(Fault::NoNode)) => return gone(&path),
                (_, _, Ok((says, seen))) if !self.node.is_ours(&says, seen) => return gone(&path),
                (Ok(stands), Ok(holds), Ok(_)) => tokio::select! {
                    () = stands => {}
                    () = holds => {}
                },
                (_, Err(Fault::NoNode), _) => sleep(AGAIN).await,
                // It says no now. For as long nobody sees that one of them goes.
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Returns when neither the permit nor our place in line is left, or the session is over.
    pub async fn clear(&self) {
        self.node.clear(&self.line, self.place.get().map(String::as_str)).await;
    }
}
