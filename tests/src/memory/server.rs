//! A server without a clock of its own: it counts transactions, keeps the sessions, and fires the watches.

use std::{collections::BTreeMap, time::Duration};

use fencegate_zookeeper::session::client::{MultiError, ZkError};

use super::{
    request::{OwnedStep, RequestOutcome, ServerAnswer, ServerRequest},
    server_watches::{ServerWatches, WatchEvent, WatchKind},
    tree::ZnodeTree,
};

/// Everything that survives the loss of a connection. Times count from the start of the ensemble.
#[derive(Debug)]
pub(super) struct SimServer {
    tick: Duration,
    tree: ZnodeTree,
    watches: ServerWatches,
    sessions: BTreeMap<i64, SessionExpiry>,
    /// The last transaction. Its upper half counts the leaders.
    zxid: i64,
    /// Sessions ever made, by any ensemble of this life: no id is given twice.
    sessions_made: i64,
    told: Vec<(i64, WatchEvent)>,
    rhythm: Option<ParentChurn>,
}

/// Of other clients, which come to a parent and leave it.
#[derive(Debug)]
struct ParentChurn {
    parent: String,
    period: Duration,
    began: Option<Duration>,
}

/// How long a session lives without a message from its client.
#[derive(Debug)]
struct SessionExpiry {
    timeout: Duration,
    until: Duration,
}

/// An answer, stamped with the last transaction it can have seen.
#[derive(Debug)]
pub(super) struct ServerReply {
    pub(super) zxid: i64,
    pub(super) outcome: RequestOutcome,
}

/// What becomes of a client that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReconnectReply {
    Back,
    /// The session does not exist, or not any more.
    Expired,
    /// The client has seen transactions that this server has not: it is sent away, as often as it comes.
    Ahead,
}

/// Real ids begin with the server's number and the time it started.
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

    /// All data is lost, and with it the sessions and the counter of transactions.
    pub(super) fn wipe(&mut self) {
        *self = Self { sessions_made: self.sessions_made, ..Self::new(self.tick) };
    }

    /// A new leader counts from the next epoch, and gives every session its whole timeout again.
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

    /// The connection of a session is gone.
    pub(super) fn detach(&mut self, session: i64) {
        self.watches.forget(session);
    }

    /// Sets a client's watches again after it came back. What happened since `seen` fires them at once.
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

    /// `None` for a session that does not exist: its connection is closed without an answer.
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
            // Also for a path that is not.
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

    /// Ends a session and removes its nodes, all in one transaction. Whether there was one.
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

    /// Sessions that are to be ended by now.
    pub(super) fn expired(&self, now: Duration) -> Vec<i64> {
        self.sessions.iter().filter(|(_, lease)| lease.until <= now).map(|(id, _)| *id).collect()
    }

    pub(super) fn remove_empty_containers(&mut self) {
        for path in self.tree.empty_containers() {
            self.write(|tree, zxid| tree.delete(&path, zxid)).expect("an empty node can be deleted");
        }
    }

    /// A change by another client: no session of ours requested it.
    pub(super) fn steal(&mut self, path: &str) {
        // Also when another client was faster.
        self.write(|tree, zxid| tree.delete(path, zxid)).ok();
    }

    pub(super) fn flap_parent(&mut self, parent: &str, period: Duration) {
        self.rhythm = Some(ParentChurn { parent: parent.to_owned(), period, began: None });
    }

    /// Directly before these steps, where the rhythm of the other client demands it.
    fn apply_churn(&mut self, steps: &[OwnedStep], now: Duration) {
        let Some(rhythm) = &mut self.rhythm else { return };
        let below = |path: &str| path.strip_prefix(&rhythm.parent).is_some_and(|rest| rest.starts_with('/'));
        let meets = |step: &OwnedStep| matches!(step, OwnedStep::Create { path, .. } if below(path));
        if !steps.iter().any(meets) {
            return;
        }
        let phase = (now - *rhythm.began.get_or_insert(now)).as_nanos() % rhythm.period.as_nanos();
        if phase < rhythm.period.as_nanos() / 2 {
            let parent = rhythm.parent.clone();
            self.steal(&parent);
        }
    }

    /// Whom the requests since the last call concern.
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

    /// Every write is a transaction of its own, also one that fails.
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

    /// The server looks for expired sessions once in a tick, so a session lives to the end of the tick in which its
    /// timeout ends. Whether there is such a session.
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
    steps: &[OwnedStep],
    session: i64,
    zxid: i64,
) -> Result<Vec<Option<String>>, MultiError> {
    let mut apply = |step: &OwnedStep| match step {
        OwnedStep::Check { path, version } => tree.check(path, *version).map(|()| None),
        OwnedStep::Create { path, data, kind } => {
            tree.create(path, data, *kind, session, zxid).map(|(path, _)| Some(path))
        }
        OwnedStep::Set { path, data } => tree.set(path, data, zxid).map(|()| None),
        OwnedStep::Delete { path, version } => {
            tree.check(path, version.unwrap_or(-1)).and_then(|()| tree.delete(path, zxid)).map(|()| None)
        }
    };
    let results = steps.iter().enumerate();
    results.map(|(at, step)| apply(step).map_err(|fault| MultiError { step: Some(at), fault })).collect()
}
