//! A node under a name that is nobody's in particular: it is made while a place in line is ours, and given back with that.
//!
//! ZooKeeper deletes by path and version only, and versions begin anew with each node. So each transaction that makes the
//! node asks that our place in line is there, and the one that removes it removes the place as well: a name in line is
//! nobody else's ever, so what is asked for twice is done once, and no successor's node is taken for ours.

use std::{cell::RefCell, rc::Rc};

use fencegate_process::failpoint;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    attempt::Attempt,
    candidate::{Candidate, PAUSE, UNWRITTEN, refused},
    made::Made,
    registered::Registered,
    saying,
};
use crate::not_granted::NotGranted;
use crate::session::{
    link::{Failed, Fault, Kind, Link, Seen, Step},
    live::Live,
};

/// Such a node of one attempt. Whatever happens, [`ContestedNode::clear`] has to be the last call.
pub(super) struct ContestedNode<L: Link> {
    live: Rc<Live<L>>,
    /// Where it is, or was tried last.
    path: RefCell<Rc<str>>,
    /// By which we know the node again.
    says: String,
    /// How often it is written when it is made, and so its version.
    writes: u8,
    /// Our node: the transaction that made it.
    made: Made<i64>,
    /// For the bytes of its path.
    registered: Registered<L>,
}

/// What came of a try to make the node.
pub(super) enum Tried {
    Ours(Seen),
    /// It is somebody else's: the session that owns it. `None`: it was, until now.
    Taken(Option<i64>),
    /// There is nothing that it could be made below.
    NoParent,
}

impl<L: Link> ContestedNode<L> {
    /// Of whoever stands in `line`. `longest`: bytes of its path. That may wait for room.
    pub(super) async fn begin(line: &Attempt<L>, longest: usize, writes: u8) -> Result<Self, NotGranted> {
        let Candidate { live, guid, .. } = &line.candidate;
        let registered = Registered::enter(live, longest).await?;
        let says = saying::of(&live.member, *guid);
        let path = RefCell::new("".into());
        Ok(Self { live: live.clone(), path, says, writes, made: Made::default(), registered })
    }

    /// Where it is.
    pub(super) fn path(&self) -> Rc<str> {
        self.path.borrow().clone()
    }

    /// Tries until it is known whose the node is. `first`: the step that finds our place in line, and is refused where that
    /// is gone.
    ///
    /// After an answer that was lost it is asked for again. Should the first have been done, the second finds the node,
    /// which says that it is ours. None is done after our place in line is gone. So whatever was tried before is known when
    /// another node is.
    pub(super) async fn make(
        &self,
        candidate: &Candidate<L>,
        path: &str,
        first: Step<'_>,
    ) -> Result<Tried, NotGranted> {
        let (link, says) = (&self.live.link, self.says.as_bytes());
        let create = Step::Create { path, data: says, kind: Kind::Ephemeral };
        let writes = (0..self.writes).map(|_| Step::Set { path, data: says });
        let steps: Vec<_> = [first, create].into_iter().chain(writes).collect();
        self.path.replace(path.into());
        loop {
            self.made.sending(self.live.memory.highest());
            let made = link.commit(&steps);
            // Servers before 3.9 answer a create inside a transaction without its czxid: read it behind.
            let read = link.data(path);
            failpoint::pass("after_create_sent");
            let (made, read) = tokio::join!(made, read);
            match made {
                Ok(_) | Err(Failed { step: Some(1), fault: Fault::NodeExists }) => {
                    if let Some(tried) = self.whose(candidate, read).await? {
                        return Ok(tried);
                    }
                }
                Err(Failed { step: Some(0), fault: Fault::NoNode }) => return Err(NotGranted::Lost),
                Err(Failed { step: Some(1), fault: Fault::NoNode }) => return Ok(Tried::NoParent),
                Err(Failed { fault: Fault::Ambiguous(_), .. }) => candidate.again().await?,
                Err(Failed { fault, .. }) => return Err(refused(fault)),
            }
        }
    }

    /// Of what was read behind the try. `None`: not known.
    async fn whose(
        &self,
        candidate: &Candidate<L>,
        read: Result<(Vec<u8>, Seen), Fault>,
    ) -> Result<Option<Tried>, NotGranted> {
        let (says, seen) = match read {
            Ok(read) => read,
            // Gone since, whosever it was.
            Err(Fault::NoNode) => return Ok(Some(Tried::Taken(None))),
            Err(Fault::Ambiguous(_)) => return candidate.again().await.map(|()| None),
            Err(fault) => return Err(refused(fault)),
        };
        if says == self.says.as_bytes() {
            self.made.named(&seen.czxid);
            return Ok(Some(Tried::Ours(seen)));
        }
        self.made.nothing();
        Ok(Some(Tried::Taken(Some(seen.owner))))
    }

    /// E of the token that it makes.
    pub(super) fn epoch(&self, seen: Seen) -> Result<u64, NotGranted> {
        if seen.owner != self.live.link.id() {
            // Another session made it: the proof we hold says nothing about that one, and none of this session does.
            self.live.over.cancel();
            return Err(NotGranted::Lost);
        }
        let before = self.made.before().expect("a node that was found is one whose create was sent");
        self.live.epoch(seen.czxid, before)
    }

    /// Whatever somebody has written into it since.
    pub(super) fn is_ours(&self, says: &[u8], seen: Seen) -> bool {
        let told = match self.made.names() {
            Some(czxid) => seen.czxid == czxid,
            None => says == self.says.as_bytes(),
        };
        told && seen.owner == self.live.link.id()
    }

    /// Returns when neither the node nor our place in line is left, or the session is over. `place`: its path, if the node
    /// was ever tried.
    pub(super) async fn clear(&self, line: &Attempt<L>, place: Option<&str>) {
        if let (Some(place), true) = (place, self.made.may_exist()) {
            self.give_back(line, place).await;
        }
        line.clear().await;
        // From here on no create of ours can be done any more, however late.
        if self.made.may_exist() {
            self.remove_ours(&line.candidate).await;
        }
        self.made.nothing();
    }

    /// Removes both in one transaction, if they are as we left them. Asked for again, it finds that our place in line is
    /// gone, and touches nothing.
    async fn give_back(&self, line: &Attempt<L>, place: &str) {
        let (live, candidate, path) = (&self.live, &line.candidate, self.path());
        let node = Step::Delete { path: &path, version: Some(self.writes.into()) };
        let own = Step::Delete { path: place, version: None };
        // Not one in which the holder of a lock with a record has left a word.
        let parent = Step::Delete { path: &candidate.parent, version: Some(UNWRITTEN) };
        let steps = [own, node, parent];
        while !live.registry.is_closing() {
            let last = candidate.is_alone();
            let steps = if last { &steps[..] } else { &steps[..2] };
            match live.link.commit(steps).await {
                Ok(_) => {
                    candidate.has_left(last);
                    line.was_removed();
                    return self.made.nothing();
                }
                Err(Failed { step: Some(2), .. }) => candidate.others_came(),
                // By a stranger, or by us and the answer was lost: the rest is looked at one by one.
                Err(Failed { fault: Fault::NoNode | Fault::BadVersion | Fault::Over, .. }) => return,
                Err(Failed { fault: Fault::Ambiguous(_), .. }) => {
                    if candidate.again().await.is_err() {
                        return;
                    }
                }
                Err(Failed { fault, .. }) => {
                    warn!(%fault, path = live.paths.shown(&path), "lock node not removed yet");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Looks first, each time: only a node that is ours is removed, and only in the version in which it was seen.
    async fn remove_ours(&self, candidate: &Candidate<L>) {
        let (live, path) = (&self.live, self.path());
        while !live.registry.is_closing() {
            let (synced, read) = (live.link.sync(&path), live.link.data(&path));
            let fault = match tokio::join!(synced, read) {
                (Ok(()), Ok((says, seen))) if self.is_ours(&says, seen) => {
                    let steps = [Step::Delete { path: &path, version: Some(seen.version) }];
                    match live.link.commit(&steps).await {
                        Ok(_) | Err(Failed { fault: Fault::NoNode, .. }) => return,
                        Err(Failed { fault, .. }) => fault,
                    }
                }
                // Nobody's, or somebody else's.
                (Ok(()), Ok(_)) | (Ok(()) | Err(Fault::NoNode), Err(Fault::NoNode)) => return,
                (Err(fault), _) | (_, Err(fault)) => fault,
            };
            match fault {
                Fault::Over => return,
                Fault::Ambiguous(_) | Fault::BadVersion => {
                    if candidate.again().await.is_err() {
                        return;
                    }
                }
                fault => {
                    debug!(%fault, path = live.paths.shown(&path), "looking again for what is left");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

impl<L: Link> Drop for ContestedNode<L> {
    fn drop(&mut self) {
        if self.made.may_exist() {
            // Not cleared: it may still hold.
            self.registered.stays();
        }
    }
}
