//! The session on a real ensemble, through `zookeeper-client`.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::Either::{Left, Right},
};
use tokio::time::timeout;
use zookeeper_client::{
    Acl, Acls, Client, CreateMode, Error, MultiReadResult, MultiWriteError, MultiWriteResult, Permission,
    SessionState, Stat, StateWatcher,
};

use super::{
    acl::NodeAcls,
    client::{
        AclGrantee, CreatedNode, MultiError, MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkConnectionState,
        ZkError,
    },
    negotiated_timeout,
    polled_watch::{PolledWatches, WatchBudget, wait_fired},
};

/// A session on a real ensemble.
pub struct ZkSession {
    /// The client; the session ends when its last owner drops it.
    client: Rc<Client>,
    /// The watcher is read without waiting, so that a new connection is counted before any answer that came over it is
    /// used.
    watcher: RefCell<StateWatcher>,
    changes: Cell<u64>,
    /// The number of connections that are known to have been made, including the first one.
    connections: Cell<u64>,
    watches: Rc<WatchBudget>,
    looks: PolledWatches,
    /// The ACLs of the nodes that the session creates.
    access: Arc<NodeAcls>,
    /// The path and ACL of a node that is about to be replaced.
    kept: RefCell<Option<(String, Vec<Acl>)>>,
}

impl ZkSession {
    pub(super) fn new(client: Client, access: Arc<NodeAcls>) -> Self {
        let watcher = RefCell::new(client.state_watcher());
        Self {
            client: Rc::new(client),
            watcher,
            changes: Cell::new(0),
            connections: Cell::new(1),
            watches: Rc::default(),
            looks: PolledWatches::default(),
            access,
            kept: RefCell::default(),
        }
    }

    /// Counts the changes of state since the last check. Several changes may show as one state. So any change counts as
    /// a possible reconnect, but only a visible new connection counts among the connections.
    fn count_state_changes(&self) {
        while let Some(state) = self.watcher.borrow_mut().changed().now_or_never() {
            self.changes.set(self.changes.get() + 1);
            if state == SessionState::SyncConnected {
                self.connections.set(self.connections.get() + 1);
            }
        }
    }

    /// Gives an existing node the ACL of new nodes.
    ///
    /// # Errors
    /// Returns [`ZkError::NoNode`] if the node is gone. After any other error the node has the old ACL or the new one.
    pub(crate) async fn restrict_acl(&self, path: &str) -> Result<(), ZkError> {
        let set = self.client.set_acl(path, self.access.acls(), None).await;
        set.map(drop).map_err(|error| self.map_error(error))
    }

    /// Returns a watch that fires when the node's state differs from `stat`.
    fn poll_watch(&self, path: &str, stat: &Stat) -> <Self as ZkClient>::Watch {
        Box::pin(self.looks.watch(&self.client, path.to_owned(), stat))
    }

    fn map_error(&self, error: Error) -> ZkError {
        map_error(error, self.client.state())
    }
}

/// Permissions that allow changes, with the letters of ZooKeeper's own tools.
const CHANGES: [(Permission, &str); 4] = [
    (Permission::CREATE, "c"),
    (Permission::DELETE, "d"),
    (Permission::WRITE, "w"),
    (Permission::ADMIN, "a"),
];

const CLOSED: &str = "the node is closed to the identity that we show";

/// Refusal text if the nodes should be restricted to the identity of this session, but the server knows none.
const UNKNOWN: &str = "it knows no identity of ours that a node could be kept for: it asks for no certificate on this port, or knows no \
     such scheme";

/// Converts an error of the client library. Only errors that are known to mean "nothing was done" are definite. All
/// others are ambiguous: a time-out or reset of the connection is an `Error::Custom`, not a `ConnectionLoss`, and later
/// versions of the library may add more.
fn map_error(error: Error, state: SessionState) -> ZkError {
    match error {
        Error::NoNode => ZkError::NoNode,
        Error::NodeExists => ZkError::NodeExists,
        Error::NotEmpty => ZkError::NotEmpty,
        Error::BadVersion => ZkError::BadVersion,
        Error::NoAuth => ZkError::Denied(CLOSED),
        Error::InvalidAcl => ZkError::Denied(UNKNOWN),
        Error::NoChildrenForEphemerals
        | Error::BadArguments(_)
        | Error::QuotaExceeded
        | Error::Throttled
        | Error::Unimplemented
        | Error::NotReadOnly => ZkError::Refused(error.to_string()),
        Error::SessionExpired | Error::ClientClosed => ZkError::SessionEnded,
        _ if state.is_terminated() => ZkError::SessionEnded,
        other => ZkError::Ambiguous(other.to_string()),
    }
}

impl From<Stat> for NodeStat {
    fn from(stat: Stat) -> Self {
        Self {
            czxid: stat.czxid,
            owner: stat.ephemeral_owner,
            version: stat.version,
            created: stat.ctime.unsigned_abs(),
            modified: stat.mtime.unsigned_abs(),
            children: stat.num_children,
        }
    }
}

impl From<NodeCreateMode> for CreateMode {
    fn from(kind: NodeCreateMode) -> Self {
        match kind {
            NodeCreateMode::Persistent => Self::Persistent,
            NodeCreateMode::Container => Self::Container,
            NodeCreateMode::Ephemeral => Self::Ephemeral,
            NodeCreateMode::EphemeralSequential => Self::EphemeralSequential,
        }
    }
}

impl ZkClient for ZkSession {
    type Watch = Pin<Box<dyn Future<Output = ()>>>;

    fn id(&self) -> i64 {
        self.client.session_id().0
    }

    fn negotiated_timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    fn shortest_granted_timeout(&self) -> Option<Duration> {
        self.count_state_changes();
        negotiated_timeout::shortest_timeout(self.id(), self.connections.get())
    }

    fn state(&self) -> ZkConnectionState {
        match self.client.state() {
            SessionState::SyncConnected => ZkConnectionState::Connected,
            SessionState::Disconnected | SessionState::ConnectedReadOnly => ZkConnectionState::Disconnected,
            SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => {
                ZkConnectionState::Ended
            }
        }
    }

    fn reconnect_count(&self) -> u64 {
        self.count_state_changes();
        self.changes.get()
    }

    async fn state_changed(&self) {
        // Each wait has a watcher of its own, so that one wait does not consume the change that another one waits for.
        let mut watcher = self.client.state_watcher();
        watcher.changed().await;
    }

    // Each method below calls the client *before* it builds its future: that is when the request is sent.

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: NodeCreateMode,
    ) -> impl Future<Output = Result<CreatedNode, ZkError>> {
        let options = CreateMode::from(kind).with_acls(Acls::new(self.access.acl_for(path)));
        let sent = self.client.create(path, data, &options);
        async move {
            let (stat, sequence) = sent.await.map_err(|error| self.map_error(error))?;
            Ok(CreatedNode { stat: stat.into(), sequence: sequence.into_i64() })
        }
    }

    async fn create_with_acl_of(&self, path: &str, above: &str, kind: NodeCreateMode) -> Result<(), ZkError> {
        let (acls, _) = self.client.get_acl(above).await.map_err(|error| self.map_error(error))?;
        let options = CreateMode::from(kind).with_acls(Acls::new(&acls));
        self.client.create(path, b"", &options).await.map(drop).map_err(|error| self.map_error(error))
    }

    fn delete(&self, path: &str) -> impl Future<Output = Result<(), ZkError>> {
        let sent = self.client.delete(path, None);
        async move { sent.await.map_err(|error| self.map_error(error)) }
    }

    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>> {
        let sent = self.client.list_children(path);
        async move { sent.await.map_err(|error| self.map_error(error)) }
    }

    fn children_of(&self, paths: &[&str]) -> impl Future<Output = Result<Vec<Option<Vec<String>>>, ZkError>> {
        let mut reader = self.client.new_multi_reader();
        let added = paths.iter().try_for_each(|path| reader.add_get_children(path));
        let sent = added.map(|()| reader.commit());
        let children = |result| match result {
            MultiReadResult::Children { children } => Some(children),
            _ => None,
        };
        async move {
            let read = match sent {
                Ok(sent) => sent.await,
                Err(error) => Err(error),
            };
            let results = read.map_err(|error| self.map_error(error))?;
            Ok(results.into_iter().map(children).collect())
        }
    }

    fn stat(&self, path: &str) -> impl Future<Output = Result<Option<NodeStat>, ZkError>> {
        let sent = self.client.check_stat(path);
        async move { sent.await.map(|stat| stat.map(NodeStat::from)).map_err(|error| self.map_error(error)) }
    }

    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, NodeStat), ZkError>> {
        let sent = self.client.get_data(path);
        async move { sent.await.map(|(data, stat)| (data, stat.into())).map_err(|error| self.map_error(error)) }
    }

    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, ZkError>> {
        // A data watch is set on an existing node only: an exists-watch on a missing node would stay at the server.
        let sent = match self.watches.try_acquire(path) {
            Some(room) => Left((room, self.client.get_and_watch_data(path))),
            None => Right(self.client.get_data(path)),
        };
        async move {
            match sent {
                Left((room, watched)) => {
                    let (_, _, watcher) = watched.await.map_err(|error| self.map_error(error))?;
                    Ok(wait_fired(watcher, room))
                }
                Right(read) => {
                    let (_, stat) = read.await.map_err(|error| self.map_error(error))?;
                    Ok(self.poll_watch(path, &stat))
                }
            }
        }
    }

    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(Vec<String>, Self::Watch), ZkError>> {
        let sent = match self.watches.try_acquire(path) {
            Some(room) => Left((room, self.client.get_and_watch_children(path))),
            None => Right(self.client.get_children(path)),
        };
        async move {
            match sent {
                Left((room, watched)) => {
                    let (children, _, watcher) = watched.await.map_err(|error| self.map_error(error))?;
                    Ok((children, wait_fired(watcher, room)))
                }
                Right(read) => {
                    let (children, stat) = read.await.map_err(|error| self.map_error(error))?;
                    Ok((children, self.poll_watch(path, &stat)))
                }
            }
        }
    }

    fn sync(&self, path: &str) -> impl Future<Output = Result<(), ZkError>> {
        let sent = self.client.sync(path);
        async move { sent.await.map_err(|error| self.map_error(error)) }
    }

    fn commit(&self, steps: &[MultiOp<'_>]) -> impl Future<Output = Result<Vec<Option<String>>, MultiError>> {
        let mut writer = self.client.new_multi_writer();
        let added = steps.iter().try_for_each(|step| match step {
            MultiOp::Check { path, version } => writer.add_check_version(path, *version),
            MultiOp::Create { path, data, kind } => {
                let kept = self.kept.borrow();
                let kept = kept.as_ref().filter(|(of, _)| of == path && *kind == NodeCreateMode::Persistent);
                let acls = kept.map_or(self.access.acl_for(path), |(_, acls)| acls.as_slice());
                writer.add_create(path, data, &CreateMode::from(*kind).with_acls(Acls::new(acls)))
            }
            MultiOp::Set { path, data } => writer.add_set_data(path, data, None),
            MultiOp::Delete { path, version } => writer.add_delete(path, *version),
        });
        let sent = added.map(|()| writer.commit());
        async move {
            let answer = match sent {
                Ok(sent) => sent.await,
                Err(error) => Err(MultiWriteError::from(error)),
            };
            let created = |result| match result {
                MultiWriteResult::Create { path, .. } => Some(path),
                _ => None,
            };
            answer.map(|results| results.into_iter().map(created).collect()).map_err(|error| match error {
                MultiWriteError::OperationFailed { index, source } => {
                    MultiError { step: Some(index), fault: self.map_error(source) }
                }
                MultiWriteError::RequestFailed { source } => {
                    MultiError { step: None, fault: self.map_error(source) }
                }
            })
        }
    }

    async fn save_acl_for_replacement(&self, path: &str) -> Result<(), ZkError> {
        let (acls, _) = self.client.get_acl(path).await.map_err(|error| self.map_error(error))?;
        self.kept.replace(Some((path.to_owned(), acls)));
        Ok(())
    }

    fn acl_grantees(&self, path: &str) -> impl Future<Output = Result<Vec<AclGrantee>, ZkError>> {
        let sent = self.client.get_acl(path);
        async move {
            let (acls, _) = sent.await.map_err(|error| self.map_error(error))?;
            let changing = acls.iter().filter_map(|acl| {
                let may: String = CHANGES
                    .iter()
                    .filter(|(one, _)| acl.permission().has(*one))
                    .map(|(_, word)| *word)
                    .collect();
                (!may.is_empty()).then(|| AclGrantee { who: format!("{}:{}", acl.scheme(), acl.id()), may })
            });
            Ok(changing.collect())
        }
    }

    async fn intended_writers(&self) -> Result<Option<Vec<String>>, ZkError> {
        if !self.access.is_restricted() {
            return Ok(None);
        }
        match self.client.list_auth_users().await {
            Ok(users) => {
                let known = users.iter().map(|user| (user.scheme(), user.user()));
                Ok(Some(self.access.intended_writers(known)))
            }
            // The request is supported since ZooKeeper 3.7.
            Err(Error::Unimplemented) => Ok(None),
            Err(error) => Err(self.map_error(error)),
        }
    }

    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>> {
        let sent = self.client.list_ephemerals(path);
        async move { sent.await.map_err(|error| self.map_error(error)) }
    }

    async fn close(self) {
        let mut watcher = self.client.state_watcher();
        drop(self);
        // The client closes the session when its last clone is dropped, which takes a few milliseconds. If the server
        // does not answer, the session ends by its timeout all the same.
        let closed = async { while !watcher.changed().await.is_terminated() {} };
        if timeout(CLOSING, closed).await.is_err() {
            tracing::warn!("the ZooKeeper session was not closed in time; it ends by its timeout");
        }
    }
}

/// The time that the close of a session may take.
const CLOSING: Duration = Duration::from_secs(2);
