//! One attempt at one key: its name below the key's parent, and the steps that single keys and sets share.

use std::{cell::Cell, rc::Rc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
};
use fencegate_process::{again, failpoint, randomness::Guid};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{foreign_parent, grant_record::GrantRecord, layout::Line};
use crate::not_granted::NotGranted;
use crate::session::{
    collected::LeftKey,
    link::{Failed, Fault, Kind, Link, Seen, Step},
    live::Live,
    paths::Paths,
};

/// One attempt at one key, among all that stand below the key's parent.
pub struct Candidate<L> {
    pub live: Rc<Live<L>>,
    /// How nodes are called there, and which stands before which.
    pub line: Line,
    pub parent: String,
    /// What `parent` lies in, of our own layout.
    shard: String,
    pub guid: Guid,
    pub mode: Mode,
    /// Whoever holds writes to the parent how it leaves (see [`super::delayed`]), and this is what it begins with; else
    /// empty.
    record: Vec<u8>,
    /// Nobody else stood below the parent when we last looked.
    alone: Cell<bool>,
    /// Among the session's own there.
    mark: u64,
}

/// Where the nodes of a lock stand, and how they are called there: found by [`Berth::of`] from the site of a key, and
/// the same for all attempts at it.
#[derive(Debug, Clone)]
pub struct Berth {
    line: Line,
    pub parent: String,
    shard: String,
}

impl Berth {
    /// # Errors
    /// Nobody stands in line there.
    pub fn of(paths: &Paths, key: &ResourceKey, site: &LockSite) -> Result<Self, NotGranted> {
        let Some(line) = Line::of(site) else {
            return Err(NotGranted::Service("the lock is a node that nobody stands in line for".into()));
        };
        Ok(Self { line, parent: paths.of_lock(key, site), shard: paths.shard(key) })
    }

    /// Of the longest path of a node there.
    pub fn bytes(&self) -> usize {
        self.parent.len() + self.line.name_bytes()
    }
}

/// A lock node of ours.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub seen: Seen,
}

impl<L: Link> Candidate<L> {
    pub fn new(live: Rc<Live<L>>, at: &Berth, guid: Guid, mode: Mode) -> Self {
        let Berth { line, parent, shard } = at.clone();
        let mark = live.registry.parents.joins(&parent);
        Self { line, parent, shard, live, guid, mode, record: Vec::new(), alone: Cell::new(false), mark }
    }

    /// Where another attempt at the same key stands.
    pub fn berth(&self) -> Berth {
        Berth { line: self.line, parent: self.parent.clone(), shard: self.shard.clone() }
    }

    /// The name of a node of ours that was given this number.
    pub fn numbered(&self, sequence: i64) -> String {
        self.line.numbered(self.guid, self.mode, sequence)
    }

    /// Of a node of ours; beyond all numbers where it has none.
    pub fn sequence(&self, name: &str) -> u32 {
        self.line.contender(name).map_or(u32::MAX, |ours| ours.sequence)
    }

    /// Its parent keeps a record.
    pub(super) fn keeps_record(&mut self) {
        self.record = GrantRecord::clean().bytes();
    }

    /// What stands in a parent that we make, and how long that stays: a record must outlast the last lock node.
    pub(super) fn above(&self) -> (&[u8], Kind) {
        let kind = if self.record.is_empty() { Kind::Container } else { Kind::Persistent };
        (&self.record, kind)
    }

    /// Neither when we last looked, nor by what this session is about to do.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.get() && self.live.registry.parents.has_one(self.mark)
    }

    pub(super) fn others_came(&self) {
        self.alone.set(false);
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    /// The path to ask for; the server appends the sequence number.
    pub fn requested(&self) -> String {
        self.path(&self.line.requested(self.guid, self.mode))
    }

    /// Who stands below the parent: then it is there, and whether we are the last to leave it.
    pub fn saw(&self, children: &[String]) {
        self.live.registry.parents.is_there(&self.parent);
        // A parent that other programs have is theirs: one of them may be about to make a node there, and kazoo's `Lock`
        // looks for it once only and then fails.
        self.alone
            .set(self.line.is_native() && self.line.made_by(children, self.guid).len() == children.len());
    }

    /// Makes what the key's parent belongs in, and of other programs' locks the parent as well.
    pub async fn create_above(&self) -> Result<(), NotGranted> {
        if !self.line.is_native() {
            let kind = foreign_parent::kind(self.line);
            return foreign_parent::make(&self.live, &self.parent, kind).await.map_err(refused);
        }
        match self.live.link.create(&self.shard, b"", Kind::Persistent).await {
            Ok(_) | Err(Fault::NodeExists | Fault::Ambiguous(_)) => Ok(()),
            Err(Fault::NoNode) => Err(NotGranted::Service(format!(
                "{} is missing; `{}` makes it",
                self.live.paths.locks(),
                again::command(again::Of::Gateway, "era init")
            ))),
            Err(fault) => Err(refused(fault)),
        }
    }

    /// Removes the parent, which we made and have no node below: the server removes none that never had a child.
    pub async fn take_parent_back(&self) {
        // Refused where somebody has come since, who removes it then, or has written to it.
        let steps = [Step::Delete { path: &self.parent, version: Some(UNWRITTEN) }];
        if self.live.link.commit(&steps).await.is_ok() {
            self.live.registry.parents.is_gone(&self.parent);
        }
    }

    /// The answer to a create was lost: did it happen? `None`: it did not, and will not, because a session that came
    /// back through another server has its old server's requests refused from then on.
    ///
    /// The lowest node of ours is adopted and every other removed.
    pub async fn recover(&self) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        'anew: loop {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            let (synced, children) = tokio::join!(synced, children);
            let children = match (synced, children) {
                // First: what an unsynced server does not show may exist.
                (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_))) => {
                    self.again().await?;
                    continue;
                }
                (Ok(()), Ok(children)) => children,
                (Ok(()) | Err(Fault::NoNode), Err(Fault::NoNode)) => return Ok(None),
                (Err(fault), _) | (_, Err(fault)) => return Err(refused(fault)),
            };
            self.saw(&children);
            let mut adopted = None;
            for name in self.line.made_by(&children, self.guid) {
                match self.live.link.seen(&self.path(name)).await {
                    Ok(Some(seen)) if adopted.is_none() => {
                        adopted = Some(Node { name: name.to_owned(), seen })
                    }
                    Ok(Some(_)) => self.remove(name).await,
                    Ok(None) => {}
                    Err(Fault::Ambiguous(_)) => {
                        self.again().await?;
                        continue 'anew;
                    }
                    Err(fault) => return Err(refused(fault)),
                }
            }
            return Ok(adopted.map(|node| (node, children)));
        }
    }

    /// The siblings; none when the parent is gone.
    pub async fn list(&self) -> Result<Vec<String>, NotGranted> {
        loop {
            match self.live.link.children(&self.parent).await {
                Ok(children) => {
                    self.saw(&children);
                    return Ok(children);
                }
                Err(Fault::NoNode) => return Ok(Vec::new()),
                Err(Fault::Ambiguous(_)) => self.again().await?,
                Err(fault) => return Err(refused(fault)),
            }
        }
    }

    /// To be called before what had an ambiguous end is tried again.
    ///
    /// # Errors
    /// The session was given up. Its library may have died without a word, and then all its operations end like this for
    /// ever. What it left the server removes with the session, and nobody here acts under it any more.
    pub async fn again(&self) -> Result<(), NotGranted> {
        if self.live.over.is_cancelled() {
            return Err(NotGranted::Lost);
        }
        sleep(AGAIN).await;
        Ok(())
    }

    /// Returns when no node of this attempt is there, calling `gone` with the key's parent, or when the session is over.
    pub async fn watch_own(&self, gone: &impl Fn(&str)) {
        loop {
            let children = match self.list().await {
                Ok(children) => children,
                Err(NotGranted::Lost) => return,
                // It says no now; what it does not show may go all the same.
                Err(_) => {
                    sleep(PAUSE).await;
                    continue;
                }
            };
            failpoint::pass("while_watching");
            let Some(own) = self.line.made_by(&children, self.guid).first().map(|name| self.path(name))
            else {
                return gone(&self.parent);
            };
            match self.live.link.watch(&own).await {
                Ok(changed) => changed.await,
                Err(Fault::NoNode | Fault::Ambiguous(_)) => sleep(AGAIN).await,
                Err(Fault::Over) => return,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Removes every node of this attempt, or returns because the session, and so they, are over or about to be. It
    /// looks instead of trusting what the attempt remembers: an answer may have been lost on the way here.
    pub async fn purge(&self) {
        // Whoever asked may have failed before it was sent, and what is made after the look would be nobody's.
        self.live.collected.settled().await;
        while !self.live.registry.is_closing() {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            match tokio::join!(synced, children) {
                (Ok(()), Ok(children)) => {
                    self.saw(&children);
                    for name in self.line.made_by(&children, self.guid) {
                        self.remove(name).await;
                    }
                    return;
                }
                (Err(Fault::Over), _) | (_, Err(Fault::Over)) | (Ok(()), Err(Fault::NoNode)) => return,
                (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_)))
                    if self.live.over.is_cancelled() =>
                {
                    return;
                }
                (Err(fault), _) | (_, Err(fault)) => {
                    debug!(%fault, parent = self.shown(&self.parent), "looking again for what is left");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Our node is gone, and `last`: the parent as well.
    pub(super) fn has_left(&self, last: bool) {
        if last {
            self.live.registry.parents.is_gone(&self.parent);
        }
    }

    /// Deletes until the node is known to be gone, or its session was given up: until then the next holder waits. The
    /// last to leave takes the parent along: keys are mostly new ones, and the server alone removes no more than 167
    /// empty parents in a second.
    pub async fn remove(&self, name: &str) {
        let path = self.path(name);
        while !self.live.registry.is_closing() {
            let last = self.is_alone();
            let removed =
                if last { self.remove_with_parent(&path).await } else { self.live.link.delete(&path).await };
            match removed {
                Ok(()) | Err(Fault::NoNode | Fault::Over) => return,
                Err(Fault::Ambiguous(_)) => match self.again().await {
                    Ok(()) => {}
                    Err(_over) => return,
                },
                Err(_) if last => self.others_came(),
                Err(fault) => {
                    warn!(%fault, path = self.shown(&path), "lock node not removed yet");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn shown(&self, path: &str) -> String {
        self.live.paths.shown(path)
    }

    /// Both or neither: the server refuses it as soon as anybody else stands below the parent. So a parent still goes only
    /// when it is empty, which is what makes tokens grow across parents. Whoever was about to make a node below it is told
    /// that there is none, and makes another one.
    ///
    /// Nor does it go where a holder has ever written to it: what that says is needed by the next one.
    ///
    /// An answer that was lost is asked for again: where it was done, our own node, whose name nobody else ever has, is
    /// what is missing, and a parent that somebody has made since is not touched.
    async fn remove_with_parent(&self, path: &str) -> Result<(), Fault> {
        let last = LeftKey { path: path.to_owned(), parent: self.parent.clone(), version: UNWRITTEN };
        let removed = self.live.last(last);
        // Before the answer: whoever of ours begins here now is behind this, and makes another one.
        self.has_left(true);
        match removed.await {
            Ok(()) => Ok(()),
            // Of the parent; our own node is as it was.
            Err(Failed { step: Some(1), fault: Fault::NoNode }) => Err(Fault::NotEmpty),
            Err(Failed { fault, .. }) => {
                if fault == Fault::NotEmpty {
                    self.live.registry.parents.is_there(&self.parent);
                }
                Err(fault)
            }
        }
    }
}

impl<L> Drop for Candidate<L> {
    fn drop(&mut self) {
        self.live.registry.parents.parts(self.mark);
    }
}

/// The version of a parent in which no holder has left a word, whichever of its lives it is.
pub(super) const UNWRITTEN: i32 = 0;

/// Before what had an ambiguous end is tried again: an error that comes at once must not come in a circle.
pub const AGAIN: Duration = Duration::from_millis(20);

/// Between two tries of what the server refuses to do (throttled, or an ACL in the way).
pub const PAUSE: Duration = Duration::from_millis(500);

/// How often a create begins again because a parent was removed as empty, or made, in between.
pub const CREATE_ROUNDS: usize = 16;

/// From then on parent and node are asked for one directly behind the other: where a key comes and goes all the time,
/// what the last answer said of its parent is not true any more.
pub const PATIENT_ROUNDS: usize = 4;

/// A definite refusal of the server.
pub fn refused(fault: Fault) -> NotGranted {
    match fault {
        Fault::Over => NotGranted::Lost,
        other => NotGranted::Service(other.to_string()),
    }
}
