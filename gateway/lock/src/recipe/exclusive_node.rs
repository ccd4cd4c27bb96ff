//! A lock that is one node for everybody: whoever makes it holds it, be it one of us or a program that knows nothing of us.
//!
//! There is no line at such a node, ZooKeeper deletes by path and version only, and versions begin anew with each node.
//! So ours stand in a line of their own first, as for every other key. Whoever is first there alone tries to make the
//! node, in a transaction that fails when its place in line is gone, and gives both back in one: a name in line is
//! nobody else's ever, so what is asked for twice is done once, and no successor's node is taken for ours.

use std::{cell::OnceCell, rc::Rc, sync::Arc};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
};
use fencegate_process::failpoint;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    attempt::Attempt,
    candidate::{AGAIN, CREATE_ROUNDS, Candidate, PAUSE, refused},
    foreign_parent,
    grant::{Caller, Grant, Stop},
    made::Made,
    registered::Registered,
    saying,
};
use crate::not_granted::NotGranted;
use crate::session::{
    evidence::Evidence,
    link::{Failed, Fault, Kind, Link, Seen, Step},
    live::Live,
};

/// One attempt at such a node. Whatever happens, [`ExclusiveNode::clear`] has to be the last call.
pub struct ExclusiveNode<L: Link> {
    /// In line with the others of the installation.
    line: Attempt<L>,
    /// Path of our node in line, once it is first.
    place: OnceCell<String>,
    path: String,
    /// By which we know the node again.
    says: String,
    /// Our node: the transaction that made it.
    made: Made<i64>,
    /// For the bytes of its path.
    registered: Registered<L>,
}

/// What came of a try to make the node.
enum Tried {
    Ours(Seen),
    /// It is somebody else's, or was until now.
    Taken,
}

/// How often a node of ours is written when it is made, and so its version. Programs that make one and leave it have 0,
/// those that write down afterwards who they are have 1: should a stranger remove ours, a delete that is on its way does
/// not hit theirs.
const WRITES: u8 = 3;

impl<L: Link> ExclusiveNode<L> {
    /// At `path`, for the key by which the installation knows it. That may wait for room.
    pub async fn begin(live: &Rc<Live<L>>, key: &ResourceKey, path: &str) -> Result<Self, NotGranted> {
        let line = Attempt::begin(live, key, &LockSite::Native, Mode::Exclusive).await?.towards(path);
        let registered = Registered::enter(live, path.len()).await?;
        Ok(Self {
            says: saying::of(&live.member, line.candidate.guid),
            line,
            place: OnceCell::new(),
            path: path.to_owned(),
            made: Made::default(),
            registered,
        })
    }

    fn candidate(&self) -> &Candidate<L> {
        &self.line.candidate
    }

    fn live(&self) -> &Live<L> {
        &self.candidate().live
    }

    /// Waits in line, and then until the node can be made.
    pub async fn acquire(&self, caller: &mut impl Caller) -> Result<Grant, Stop> {
        let first = self.line.acquire(caller).await?;
        let place = self.place.get_or_init(|| first.nodes.concat());
        let mut contended = first.contended;
        let seen = loop {
            if let Tried::Ours(seen) = self.make(place).await? {
                break seen;
            }
            contended = true;
            self.wait(caller).await?;
        };
        let live = self.live();
        if seen.owner != live.link.id() {
            // Another session made it: the proof we hold says nothing about that one, and none of this session does.
            live.over.cancel();
            return Err(NotGranted::Lost.into());
        }
        let before = self.made.before().expect("a node that was found is one whose create was sent");
        let epoch = live.epoch(seen.czxid, before)?;
        self.candidate().proven(caller).await?;
        let evidence = Arc::new(Evidence::of(live.proof.clone()));
        let nodes = [place.clone(), self.path.clone()].into();
        Ok(Grant { epoch, sequence: 0, evidence, nodes, contended })
    }

    /// Tries until it is known whose the node is.
    ///
    /// After an answer that was lost it is asked for again. Should the first have been done, the second finds the node,
    /// which says that it is ours. None is done after our place in line is gone.
    async fn make(&self, place: &str) -> Result<Tried, NotGranted> {
        let live = self.live();
        let (path, says) = (self.path.as_str(), self.says.as_bytes());
        let first = [
            Step::Check { path: place, version: ANY },
            Step::Create { path, data: says, kind: Kind::Ephemeral },
        ];
        let writes = (0..WRITES).map(|_| Step::Set { path, data: says });
        let steps: Vec<_> = first.into_iter().chain(writes).collect();
        let mut parents = 0;
        loop {
            self.made.sending(live.memory.highest());
            let made = live.link.commit(&steps);
            // Servers before 3.9 answer a create inside a transaction without its czxid: read it behind.
            let read = live.link.data(path);
            failpoint::pass("after_create_sent");
            let (made, read) = tokio::join!(made, read);
            match made {
                Ok(_) | Err(Failed { step: Some(1), fault: Fault::NodeExists }) => {
                    if let Some(tried) = self.whose(read).await? {
                        return Ok(tried);
                    }
                }
                Err(Failed { step: Some(0), fault: Fault::NoNode }) => return Err(NotGranted::Lost),
                Err(Failed { step: Some(1), fault: Fault::NoNode }) if parents < CREATE_ROUNDS => {
                    parents += 1;
                    foreign_parent::make(live, above(path), Kind::Persistent).await.map_err(refused)?;
                }
                Err(Failed { fault: Fault::Ambiguous(_), .. }) => self.candidate().again().await?,
                Err(Failed { fault, .. }) => return Err(refused(fault)),
            }
        }
    }

    /// Of what was read behind the try. `None`: not known.
    async fn whose(&self, read: Result<(Vec<u8>, Seen), Fault>) -> Result<Option<Tried>, NotGranted> {
        let (says, seen) = match read {
            Ok(read) => read,
            // Gone since, whosever it was.
            Err(Fault::NoNode) => return Ok(Some(Tried::Taken)),
            Err(Fault::Ambiguous(_)) => return self.candidate().again().await.map(|()| None),
            Err(fault) => return Err(refused(fault)),
        };
        if says == self.says.as_bytes() {
            self.made.named(&seen.czxid);
            return Ok(Some(Tried::Ours(seen)));
        }
        self.made.nothing();
        if KEPT_WITHOUT_SESSION.contains(&seen.owner) {
            return Err(NotGranted::Service(NO_LOCK.into()));
        }
        Ok(Some(Tried::Taken))
    }

    /// Returns when the node of somebody else may be gone.
    async fn wait(&self, caller: &mut impl Caller) -> Result<(), Stop> {
        caller.behind()?;
        failpoint::pass("while_waiting");
        match self.live().link.watch(&self.path).await {
            Ok(changed) => tokio::select! {
                () = changed => {}
                () = caller.gone() => {}
                () = self.live().over.cancelled() => return Err(NotGranted::Lost.into()),
            },
            Err(Fault::NoNode) => {}
            Err(Fault::Ambiguous(_)) => self.candidate().again().await?,
            Err(fault) => return Err(refused(fault).into()),
        }
        if caller.is_gone() { Err(Stop::CallerGone) } else { Ok(()) }
    }

    /// Returns when the node is not ours any more, calling `gone` with its path, or when the session is over.
    pub async fn watch_own(&self, gone: &impl Fn(&str)) {
        let link = &self.live().link;
        loop {
            let (watched, read) = (link.watch(&self.path), link.data(&self.path));
            let (watched, read) = tokio::join!(watched, read);
            failpoint::pass("while_watching");
            match (watched, read) {
                (Err(Fault::Over), _) | (_, Err(Fault::Over)) => return,
                (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_))) => {
                    if self.candidate().again().await.is_err() {
                        return;
                    }
                }
                (_, Err(Fault::NoNode)) => return gone(&self.path),
                (_, Ok((says, seen))) if !self.is_ours(&says, seen) => return gone(&self.path),
                (Ok(changed), Ok(_)) => changed.await,
                (Err(Fault::NoNode), _) => sleep(AGAIN).await,
                // It says no now. For as long nobody sees that the node goes.
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Whatever somebody has written into it since.
    fn is_ours(&self, says: &[u8], seen: Seen) -> bool {
        let told = match self.made.names() {
            Some(czxid) => seen.czxid == czxid,
            None => says == self.says.as_bytes(),
        };
        told && seen.owner == self.live().link.id()
    }

    /// Returns when neither the node nor our place in line is left, or the session is over.
    pub async fn clear(&self) {
        if let (Some(place), true) = (self.place.get(), self.made.may_exist()) {
            self.give_back(place).await;
        }
        self.line.clear().await;
        // From here on no create of ours can be done any more, however late.
        if self.made.may_exist() {
            self.remove_ours().await;
        }
        self.made.nothing();
    }

    /// Removes both in one transaction, if they are as we left them. Asked for again, it finds that our place in line is
    /// gone, and touches nothing.
    async fn give_back(&self, place: &str) {
        let (live, candidate) = (self.live(), self.candidate());
        let node = Step::Delete { path: &self.path, version: Some(WRITES.into()) };
        let own = Step::Delete { path: place, version: None };
        let steps = [own, node, Step::Delete { path: &candidate.parent, version: None }];
        while !live.registry.is_closing() {
            let last = candidate.is_alone();
            let steps = if last { &steps[..] } else { &steps[..2] };
            match live.link.commit(steps).await {
                Ok(_) => {
                    candidate.has_left(last);
                    self.line.was_removed();
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
                    warn!(%fault, path = live.paths.shown(&self.path), "lock node not removed yet");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Looks first, each time: only a node that is ours is removed, and only in the version in which it was seen.
    async fn remove_ours(&self) {
        let (live, path) = (self.live(), self.path.as_str());
        while !live.registry.is_closing() {
            let (synced, read) = (live.link.sync(path), live.link.data(path));
            let fault = match tokio::join!(synced, read) {
                (Ok(()), Ok((says, seen))) if self.is_ours(&says, seen) => {
                    let steps = [Step::Delete { path, version: Some(seen.version) }];
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
                    if self.candidate().again().await.is_err() {
                        return;
                    }
                }
                fault => {
                    debug!(%fault, path = live.paths.shown(&self.path), "looking again for what is left");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

const NO_LOCK: &str = "where the lock node is to be made stands one that ends with no session, and so is nobody's lock: \
                       remove it, or correct `lock_path`";

/// Any version: only that the node is there.
const ANY: i32 = -1;

/// What a server has for owner of a persistent node, and of a container.
const KEPT_WITHOUT_SESSION: [i64; 2] = [0, i64::MIN];

/// The node above.
fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

impl<L: Link> Drop for ExclusiveNode<L> {
    fn drop(&mut self) {
        if self.made.may_exist() {
            // Not cleared: it may still hold.
            self.registered.stays();
        }
    }
}
