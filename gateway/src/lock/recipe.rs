//! The life of one lock node, from its creation to its proven removal, in one task.
//!
//! The task owns the node. Whoever asked for it may go away at any moment: the task notices at its next step and
//! removes the node. No operation is abandoned half way, because one that was sent may still take effect.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
    time::Duration,
};

use fencegate_policies::key::ResourceKey;
use tokio::{sync::oneshot, time::sleep};
use tracing::{debug, warn};

use super::layout::{self, Place};
use crate::{
    failpoint,
    randomness::{Guid, Randomness},
    session::{
        link::{Created, Failed, Fault, Kind, Link, Seen, Step},
        proof::Proof,
        supervise::Live,
    },
};

/// A request for the lock of a key.
pub struct Order {
    pub key: ResourceKey,
    pub patience: Patience,
    pub caller: oneshot::Sender<Result<Grant, NotGranted>>,
}

/// What to do when another one holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Wait,
    /// Give up at once.
    Try,
}

/// The lock, granted.
#[derive(Debug)]
pub struct Grant {
    /// E of the token.
    pub epoch: u64,
    /// S of the token.
    pub sequence: u32,
    pub proof: std::sync::Arc<Proof>,
    /// The node is removed when this is sent or dropped.
    pub over: oneshot::Sender<()>,
    /// Another one was before us.
    pub contended: bool,
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    #[error("another one holds it")]
    Locked,
    /// The session ended, or our node was taken away: ask again.
    #[error("the place in the queue was lost")]
    Lost,
    #[error("the key's queue has used up its numbers")]
    KeyLimit,
    #[error("{0}")]
    Service(String),
}

/// How far the attempt came when it had to end.
enum Stop {
    CallerGone,
    NotGranted(NotGranted),
}

impl From<NotGranted> for Stop {
    fn from(why: NotGranted) -> Self {
        Self::NotGranted(why)
    }
}

/// Our node.
struct Node {
    name: String,
    seen: Seen,
}

/// Above this a key's queue is not served: the server's counter sticks at 2^31 - 1, and nodes of equal number would
/// all hold.
const SEQUENCE_LIMIT: u32 = 1 << 30;

/// Runs one attempt to its end; returns when no node of it is left, or the session is over.
pub async fn contend<L: Link>(live: Rc<Live<L>>, order: Order, randomness: &dyn Randomness) {
    let Order { key, patience, mut caller } = order;
    let registered = Registered::enter(&live, Guid::new(randomness));
    let attempt = Attempt {
        live: &live,
        parent: live.paths.lock(&key),
        shard: live.paths.shard(&key),
        guid: registered.guid,
        may_exist: Cell::new(false),
        only: OnceCell::new(),
    };
    match attempt.acquire(patience, &mut caller).await {
        Ok((grant, over)) => {
            if caller.send(Ok(grant)).is_ok() {
                // An error is as good: the holder went away. Not cut short when the session ends: while the holder
                // works, closing a session that might still live would hand the key on.
                drop(over.await);
            }
        }
        Err(Stop::CallerGone) => debug!(%key, "caller gone while waiting for its lock"),
        Err(Stop::NotGranted(why)) => drop(caller.send(Err(why))),
    }
    attempt.clear().await;
}

/// An entry in the session's registry, for as long as a node of this GUID may exist.
struct Registered<'a, L: Link> {
    live: &'a Live<L>,
    guid: Guid,
}

impl<'a, L: Link> Registered<'a, L> {
    fn enter(live: &'a Live<L>, guid: Guid) -> Self {
        live.registry.borrow_mut().insert(guid);
        Self { live, guid }
    }
}

impl<L: Link> Drop for Registered<'_, L> {
    fn drop(&mut self) {
        self.live.registry.borrow_mut().remove(&self.guid);
    }
}

struct Attempt<'a, L> {
    live: &'a Live<L>,
    parent: String,
    shard: String,
    guid: Guid,
    /// A create was sent and not refused.
    may_exist: Cell<bool>,
    /// The node that an unambiguous answer named: there is no other.
    only: OnceCell<String>,
}

impl<L: Link> Attempt<'_, L> {
    /// However this ends, [`Attempt::clear`] has to follow.
    async fn acquire(
        &self,
        patience: Patience,
        caller: &mut oneshot::Sender<Result<Grant, NotGranted>>,
    ) -> Result<(Grant, oneshot::Receiver<()>), Stop> {
        let (node, children) = self.create().await?;
        if node.seen.owner != self.live.link.id() {
            // Another session made it: the proof we hold says nothing about that one.
            return Err(NotGranted::Lost.into());
        }
        let sequence = layout::Contender::parse(&node.name).map_or(u32::MAX, |ours| ours.sequence);
        if sequence > SEQUENCE_LIMIT {
            return Err(NotGranted::KeyLimit.into());
        }
        let contended = self.stand_in_line(&node.name, children, patience, caller).await?;
        tokio::select! {
            () = self.live.proven() => {}
            () = caller.closed() => return Err(Stop::CallerGone),
            () = self.live.over.cancelled() => return Err(NotGranted::Lost.into()),
        }
        let epoch = epoch(self.live.base, node.seen.czxid)?;
        let (over, ended) = oneshot::channel();
        Ok((Grant { epoch, sequence, proof: self.live.proof.clone(), over, contended }, ended))
    }

    /// Makes the node, once, and lists its siblings behind it: one round trip when the parent exists.
    async fn create(&self) -> Result<(Node, Vec<String>), NotGranted> {
        for _ in 0..CREATE_ROUNDS {
            let requested = format!("{}/{}", self.parent, layout::requested(self.guid));
            self.may_exist.set(true);
            let create = self.live.link.create(&requested, b"", Kind::EphemeralSequential);
            let list = self.live.link.children(&self.parent);
            failpoint::pass("after_create_sent");
            let (created, children) = tokio::join!(create, list);
            match created {
                Ok(Created { seen, sequence }) => {
                    let name = format!("{}{sequence:010}", layout::requested(self.guid));
                    let name = self.only.get_or_init(|| name).clone();
                    let children = match children {
                        Ok(children) => children,
                        Err(_) => self.list().await?.unwrap_or_default(),
                    };
                    return Ok((Node { name, seen }, children));
                }
                Err(Fault::NoNode) => {
                    self.may_exist.set(false);
                    if let Some(found) = self.create_with_parent().await? {
                        return Ok(found);
                    }
                }
                Err(Fault::Ambiguous(_)) => {
                    if let Some(found) = self.recover().await? {
                        return Ok(found);
                    }
                }
                Err(fault) => return Err(refused(fault)),
            }
        }
        Err(NotGranted::Service("the lock node could not be made: its parent came and went".into()))
    }

    /// The key's first contender makes the parent as well. `None`: somebody else was faster, or the shard is missing
    /// and now there; begin again.
    async fn create_with_parent(&self) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        let requested = format!("{}/{}", self.parent, layout::requested(self.guid));
        let name = layout::first(self.guid);
        let path = format!("{}/{name}", self.parent);
        let steps = [
            Step::Create { path: &self.parent, data: b"", kind: Kind::Container },
            Step::Create { path: &requested, data: b"", kind: Kind::EphemeralSequential },
        ];
        self.may_exist.set(true);
        let made = self.live.link.commit(&steps);
        // Servers before 3.9 answer a create inside a transaction without its czxid: read it behind.
        let (seen, list) = (self.live.link.seen(&path), self.live.link.children(&self.parent));
        let (made, seen, children) = tokio::join!(made, seen, list);
        match (made, seen, children) {
            (Ok(()), Ok(Some(seen)), Ok(children)) => {
                let name = self.only.get_or_init(|| name).clone();
                Ok(Some((Node { name, seen }, children)))
            }
            (Ok(()), ..) | (Err(Failed { fault: Fault::Ambiguous(_), .. }), ..) => self.recover().await,
            (Err(Failed { fault: Fault::NodeExists, .. }), ..) => Ok(None),
            (Err(Failed { fault: Fault::NoNode, .. }), ..) => self.create_shard().await.map(|()| None),
            (Err(failed), ..) => Err(refused(failed.fault)),
        }
    }

    async fn create_shard(&self) -> Result<(), NotGranted> {
        match self.live.link.create(&self.shard, b"", Kind::Persistent).await {
            Ok(_) | Err(Fault::NodeExists | Fault::Ambiguous(_)) => Ok(()),
            Err(Fault::NoNode) => Err(NotGranted::Service(format!(
                "{} is missing; `fencegate era init` makes it",
                self.live.paths.locks()
            ))),
            Err(fault) => Err(refused(fault)),
        }
    }

    /// The answer to a create was lost: did it happen? `None`: it did not, and will not, because a session that came
    /// back through another server has its old server's requests refused from then on.
    ///
    /// The lowest node of ours is adopted and every other removed.
    async fn recover(&self) -> Result<Option<(Node, Vec<String>)>, NotGranted> {
        'anew: loop {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            let (synced, children) = tokio::join!(synced, children);
            let children = match (synced, children) {
                // First: what an unsynced server does not show may exist.
                (Err(Fault::Ambiguous(_)), _) | (_, Err(Fault::Ambiguous(_))) => continue,
                (Ok(()), Ok(children)) => children,
                (Ok(()) | Err(Fault::NoNode), Err(Fault::NoNode)) => return Ok(None),
                (Err(fault), _) | (_, Err(fault)) => return Err(refused(fault)),
            };
            let mut adopted = None;
            for name in layout::made_by(&children, self.guid) {
                match self.live.link.seen(&format!("{}/{name}", self.parent)).await {
                    Ok(Some(seen)) if adopted.is_none() => {
                        adopted = Some(Node { name: name.to_owned(), seen });
                    }
                    Ok(Some(_)) => self.remove(name).await,
                    Ok(None) => {}
                    Err(Fault::Ambiguous(_)) => continue 'anew,
                    Err(fault) => return Err(refused(fault)),
                }
            }
            return Ok(adopted.map(|node| (node, children)));
        }
    }

    /// Returns when the node is the first of its queue; whether it had to wait.
    async fn stand_in_line(
        &self,
        own: &str,
        mut children: Vec<String>,
        patience: Patience,
        caller: &mut oneshot::Sender<Result<Grant, NotGranted>>,
    ) -> Result<bool, Stop> {
        let mut contended = false;
        loop {
            let before = match layout::place(&children, own) {
                Place::First => return Ok(contended),
                Place::Gone => return Err(NotGranted::Lost.into()),
                Place::Behind(_) if patience == Patience::Try => return Err(NotGranted::Locked.into()),
                Place::Behind(before) => format!("{}/{before}", self.parent),
            };
            contended = true;
            match self.live.link.watch(&before).await {
                Ok(gone_or_changed) => tokio::select! {
                    () = gone_or_changed => {}
                    () = caller.closed() => return Err(Stop::CallerGone),
                    () = self.live.over.cancelled() => return Err(NotGranted::Lost.into()),
                },
                Err(Fault::NoNode | Fault::Ambiguous(_)) => {}
                Err(fault) => return Err(refused(fault).into()),
            }
            if caller.is_closed() {
                return Err(Stop::CallerGone);
            }
            // The event says that something changed, not that we are first; and our own node may be gone as well.
            children = self.list().await?.unwrap_or_default();
        }
    }

    /// The siblings; `None` when the parent is gone.
    async fn list(&self) -> Result<Option<Vec<String>>, NotGranted> {
        loop {
            match self.live.link.children(&self.parent).await {
                Ok(children) => return Ok(Some(children)),
                Err(Fault::NoNode) => return Ok(None),
                Err(Fault::Ambiguous(_)) => {}
                Err(fault) => return Err(refused(fault)),
            }
        }
    }

    /// Returns when no node of this attempt is left.
    async fn clear(&self) {
        match self.only.get() {
            Some(name) => self.remove(name).await,
            None => self.purge().await,
        }
    }

    /// Removes every node of this attempt, or returns because the session, and so they, are over. It looks instead of
    /// trusting what the attempt remembers: an answer may have been lost on the way here.
    async fn purge(&self) {
        while self.may_exist.get() {
            let (synced, children) =
                (self.live.link.sync(&self.parent), self.live.link.children(&self.parent));
            match tokio::join!(synced, children) {
                (Ok(()), Ok(children)) => {
                    for name in layout::made_by(&children, self.guid) {
                        self.remove(name).await;
                    }
                    return;
                }
                (Err(Fault::Over), _) | (_, Err(Fault::Over)) | (Ok(()), Err(Fault::NoNode)) => return,
                (Err(fault), _) | (_, Err(fault)) => {
                    debug!(%fault, parent = %self.parent, "looking again for what is left");
                    sleep(REMOVE_PAUSE).await;
                }
            }
        }
    }

    /// Deletes until the node is known to be gone: until then the next holder waits.
    async fn remove(&self, name: &str) {
        let path = format!("{}/{name}", self.parent);
        loop {
            match self.live.link.delete(&path).await {
                Ok(()) | Err(Fault::NoNode | Fault::Over) => return,
                Err(Fault::Ambiguous(_)) => {}
                Err(fault) => {
                    warn!(%fault, %path, "lock node not removed yet");
                    sleep(REMOVE_PAUSE).await;
                }
            }
        }
    }
}

/// How often a create begins again because its parent was removed as empty in between.
const CREATE_ROUNDS: usize = 16;

/// Between two tries to remove a node that the server refuses to remove (throttled, or an ACL in the way).
const REMOVE_PAUSE: Duration = Duration::from_millis(500);

/// E of a token. A zxid beyond 2^63 reads as negative: no token rather than a wrong one.
fn epoch(base: u64, czxid: i64) -> Result<u64, NotGranted> {
    u64::try_from(czxid)
        .ok()
        .filter(|czxid| *czxid > 0)
        .and_then(|czxid| base.checked_add(czxid))
        .filter(|epoch| i64::try_from(*epoch).is_ok())
        .ok_or_else(|| NotGranted::Service(format!("czxid {czxid} gives no token")))
}

fn refused(fault: Fault) -> NotGranted {
    match fault {
        Fault::Over => NotGranted::Lost,
        other => NotGranted::Service(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_czxid_that_gives_no_token_fails_closed() {
        assert_eq!(epoch(5, 7), Ok(12));
        for (base, czxid) in [(0, -1), (0, 0), (i64::MAX as u64, 1), (u64::MAX, 1)] {
            assert!(epoch(base, czxid).is_err(), "{base} {czxid}");
        }
    }
}
