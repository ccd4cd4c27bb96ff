//! A server without a clock of its own: it numbers transactions, keeps sessions, and fires watches.

use std::{collections::BTreeMap, time::Duration};

use fencegate_zookeeper::session::client::{MultiError, ZkError};

use super::{
    request::{OwnedMultiOp, RequestOutcome, ServerAnswer, ServerRequest},
    server_watches::{ServerWatches, WatchEvent, WatchKind},
    tree::ZnodeTree,
};

/// The state that survives the loss of a connection. Times count from the start of the ensemble.
#[derive(Debug)]
pub(super) struct SimServer {
    tick: Duration,
    tree: ZnodeTree,
    watches: ServerWatches,
    sessions: BTreeMap<i64, SessionExpiry>,
    /// The number of the last transaction. Its upper half is the epoch, which counts leaders.
    zxid: i64,
    /// The number of sessions that were ever created, also before a wipe, so that no id is given twice.
    sessions_made: i64,
    told: Vec<(i64, WatchEvent)>,
    rhythm: Option<ParentChurn>,
}

/// Other clients that create and remove a parent periodically.
#[derive(Debug)]
struct ParentChurn {
    parent: String,
    period: Duration,
    began: Option<Duration>,
}

/// The timeout of a session, and the time at which it expires without a message from its client.
#[derive(Debug)]
struct SessionExpiry {
    timeout: Duration,
    until: Duration,
}

/// An answer, with the number of the last transaction that it can have seen.
#[derive(Debug)]
pub(super) struct ServerReply {
    pub(super) zxid: i64,
    pub(super) outcome: RequestOutcome,
}

/// The server's answer to a client that reconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReconnectReply {
    Back,
    /// The session does not exist, or has expired.
    Expired,
    /// The client has seen transactions that this server has not, so every attempt is refused.
    Ahead,
}

/// The base of session ids. Real ids begin with the server's number and its start time.
const FIRST_SESSION: i64 = 0x0100_0000_0000_0000;

impl SimServer {
    pub(super) fn new(tick: Duration) -> Self {
        Self {
            tick,
            tree: ZnodeTree::default(),
            watches: ServerWatches::default(),
            sessions: BTreeMap::new(),
            zxid: 0,
            sessions_made: 0,
            told: Vec::new(),
            rhythm: None,
        }
    }

    /// Removes all data, all sessions, and the counter of transactions.
    pub(super) fn wipe(&mut self) {
        *self = Self { sessions_made: self.sessions_made, ..Self::new(self.tick) };
    }

    /// Elects a new leader, which begins the next epoch and gives every session its whole timeout again.
    pub(super) fn elect(&mut self, now: Duration) {
        self.zxid = ((self.zxid >> 32) + 1) << 32;
        let ids: Vec<i64> = self.sessions.keys().copied().collect();
        for id in ids {
            self.touch(id, now);
        }
    }

    pub(super) fn open(&mut self, timeout: Duration, now: Duration) -> i64 {
        self.zxid += 1;
        self.sessions_made += 1;
        let id = FIRST_SESSION + self.sessions_made;
        self.sessions.insert(id, SessionExpiry { timeout, until: now });
        self.touch(id, now);
        id
    }

    pub(super) fn reconnect(&mut self, session: i64, seen: i64, now: Duration) -> ReconnectReply {
        if seen > self.zxid {
            return ReconnectReply::Ahead;
        }
        if self.touch(session, now) { ReconnectReply::Back } else { ReconnectReply::Expired }
    }

    /// Forgets the watches of a session whose connection is lost.
    pub(super) fn detach(&mut self, session: i64) {
        self.watches.forget(session);
    }

    /// Sets a client's watch again after a reconnect. Returns its event at once if the node has changed since
    /// `seen`.
    pub(super) fn rewatch(
        &mut self,
        session: i64,
        path: &str,
        aspect: WatchKind,
        seen: i64,
    ) -> Option<WatchEvent> {
        let Some(last) = self.tree.last_change(path) else {
            return Some(WatchEvent::Deleted { path: path.to_owned() });
        };
        let since = match aspect {
            WatchKind::Data => last.written,
            WatchKind::Children => last.populated,
        };
        if since > seen {
            return Some(WatchEvent::Changed { path: path.to_owned(), aspect });
        }
        self.watches.set(session, path, aspect);
        None
    }

    /// Handles a request. `None` if the session does not exist: its connection is then closed without an answer.
    pub(super) fn handle(
        &mut self,
        session: i64,
        request: &ServerRequest,
        now: Duration,
    ) -> Option<ServerReply> {
        if !self.touch(session, now) {
            return None;
        }
        let outcome = match request {
            // `Sync` succeeds even for a path that does not exist.
            ServerRequest::Ping | ServerRequest::Sync { .. } => Ok(ServerAnswer::Done),
            ServerRequest::Close => {
                self.end(session);
                Ok(ServerAnswer::Done)
            }
            ServerRequest::Create { path, data, kind } => {
                let created = self.write(|tree, zxid| tree.create(path, data, *kind, session, zxid));
                single_outcome(created.map(|(_, created)| ServerAnswer::Created(created)))
            }
            ServerRequest::Delete { path } => {
                single_outcome(self.write(|tree, zxid| tree.delete(path, zxid)).map(|()| ServerAnswer::Done))
            }
            ServerRequest::Commit { steps } => {
                self.apply_churn(steps, now);
                self.write(|tree, zxid| commit(tree, steps, session, zxid)).map(ServerAnswer::Committed)
            }
            ServerRequest::Seen { path } => Ok(ServerAnswer::Seen(self.tree.stat(path))),
            ServerRequest::Ephemerals { prefix } => {
                Ok(ServerAnswer::Ephemerals(self.tree.ephemerals(session, prefix)))
            }
            ServerRequest::Children { path, watch } => {
                let children = self.tree.children(path);
                self.watch_if(*watch && children.is_ok(), session, path, WatchKind::Children);
                single_outcome(children.map(ServerAnswer::Children))
            }
            ServerRequest::ChildrenOf { paths } => {
                let lists = paths.iter().map(|path| self.tree.children(path).ok()).collect();
                Ok(ServerAnswer::ChildrenOf(lists))
            }
            ServerRequest::Data { path, watch } => {
                let data = self.tree.data(path);
                self.watch_if(*watch && data.is_ok(), session, path, WatchKind::Data);
                single_outcome(data.map(|(data, seen)| ServerAnswer::Data(data, seen)))
            }
        };
        Some(ServerReply { zxid: self.zxid, outcome })
    }

    /// Ends a session and removes its nodes, all in one transaction. False if it does not exist.
    pub(super) fn end(&mut self, session: i64) -> bool {
        if self.sessions.remove(&session).is_none() {
            return false;
        }
        let nodes = self.tree.ephemerals(session, "/");
        let removed = self.write(|tree, zxid| nodes.iter().try_for_each(|path| tree.delete(path, zxid)));
        removed.expect("an ephemeral node has no children");
        self.watches.forget(session);
        true
    }

    /// The sessions that have to be ended by now.
    pub(super) fn expired(&self, now: Duration) -> Vec<i64> {
        self.sessions.iter().filter(|(_, lease)| lease.until <= now).map(|(id, _)| *id).collect()
    }

    pub(super) fn remove_empty_containers(&mut self) {
        for path in self.tree.empty_containers() {
            self.write(|tree, zxid| tree.delete(&path, zxid)).expect("an empty node can be deleted");
        }
    }

    /// Deletes a node as another client, whose session is not simulated.
    pub(super) fn steal(&mut self, path: &str) {
        // The node may not exist any more, so the result is ignored.
        self.write(|tree, zxid| tree.delete(path, zxid)).ok();
    }

    pub(super) fn flap_parent(&mut self, parent: &str, period: Duration) {
        self.rhythm = Some(ParentChurn { parent: parent.to_owned(), period, began: None });
    }

    /// Removes the parent as the other client, just before these steps, if it is due.
    fn apply_churn(&mut self, steps: &[OwnedMultiOp], now: Duration) {
        let Some(rhythm) = &mut self.rhythm else { return };
        let below = |path: &str| path.strip_prefix(&rhythm.parent).is_some_and(|rest| rest.starts_with('/'));
        let meets = |step: &OwnedMultiOp| matches!(step, OwnedMultiOp::Create { path, .. } if below(path));
        if !steps.iter().any(meets) {
            return;
        }
        let phase = (now - *rhythm.began.get_or_insert(now)).as_nanos() % rhythm.period.as_nanos();
        if phase < rhythm.period.as_nanos() / 2 {
            let parent = rhythm.parent.clone();
            self.steal(&parent);
        }
    }

    /// The watch events since the last call, each with the session that gets it.
    pub(super) fn take_events(&mut self) -> Vec<(i64, WatchEvent)> {
        std::mem::take(&mut self.told)
    }

    pub(super) fn tree(&self) -> &ZnodeTree {
        &self.tree
    }

    pub(super) fn tree_mut(&mut self) -> &mut ZnodeTree {
        &mut self.tree
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = i64> {
        self.sessions.keys().copied()
    }

    /// Runs a write as a transaction of its own. It gets a number even if it fails.
    fn write<T, E>(&mut self, write: impl FnOnce(&mut ZnodeTree, i64) -> Result<T, E>) -> Result<T, E> {
        self.zxid += 1;
        let zxid = self.zxid;
        let result = self.tree.atomically(|tree| write(tree, zxid));
        for change in self.tree.take_changes() {
            self.told.extend(self.watches.fire(&change));
        }
        result
    }

    fn watch_if(&mut self, wanted: bool, session: i64, path: &str, aspect: WatchKind) {
        if wanted {
            self.watches.set(session, path, aspect);
        }
    }

    /// Extends a session to the end of the tick in which its timeout ends, because the server looks for expired
    /// sessions once in a tick. False if the session does not exist.
    fn touch(&mut self, session: i64, now: Duration) -> bool {
        let Some(lease) = self.sessions.get_mut(&session) else { return false };
        let ticks = (now + lease.timeout).as_nanos() / self.tick.as_nanos() + 1;
        lease.until = self.tick * u32::try_from(ticks).expect("a simulation lasts days, not years");
        true
    }
}

fn single_outcome(result: Result<ServerAnswer, ZkError>) -> RequestOutcome {
    result.map_err(|fault| MultiError { step: None, fault })
}

fn commit(
    tree: &mut ZnodeTree,
    steps: &[OwnedMultiOp],
    session: i64,
    zxid: i64,
) -> Result<Vec<Option<String>>, MultiError> {
    let mut apply = |step: &OwnedMultiOp| match step {
        OwnedMultiOp::Check { path, version } => tree.check(path, *version).map(|()| None),
        OwnedMultiOp::Create { path, data, kind } => {
            tree.create(path, data, *kind, session, zxid).map(|(path, _)| Some(path))
        }
        OwnedMultiOp::Set { path, data } => tree.set(path, data, zxid).map(|()| None),
        OwnedMultiOp::Delete { path, version } => {
            tree.check(path, version.unwrap_or(-1)).and_then(|()| tree.delete(path, zxid)).map(|()| None)
        }
    };
    let results = steps.iter().enumerate();
    results.map(|(at, step)| apply(step).map_err(|fault| MultiError { step: Some(at), fault })).collect()
}
