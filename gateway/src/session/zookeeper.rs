//! The session on a real ensemble, through `zookeeper-client`.

use std::{cell::Cell, future::Future, pin::Pin, rc::Rc, time::Duration};

use fencegate_policies::plan;
use tokio::{sync::Notify, task::AbortHandle, time::timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, SessionState, Stat};

use super::link::{Connect, Created, Failed, Fault, Kind, Link, Seen, State, Step};

/// Connects to the servers of a policy.
#[derive(Debug, Clone)]
pub struct Servers {
    cluster: String,
    session_timeout: Duration,
}

impl Servers {
    pub fn of(policy: &plan::ZooKeeper) -> Self {
        Self { cluster: policy.servers.join(","), session_timeout: policy.session_timeout }
    }
}

impl Connect for Servers {
    type Link = Session;

    async fn connect(&self) -> Result<Session, Fault> {
        let connector = Client::connector().with_session_timeout(self.session_timeout);
        match connector.connect(&self.cluster).await {
            Ok(client) => Ok(Session::new(client)),
            Err(error) => Err(Fault::Refused(error.to_string())),
        }
    }
}

/// One session. The client library reports state changes through a channel that coalesces, so a task counts them.
pub struct Session {
    client: Client,
    changes: Rc<Changes>,
    counting: AbortHandle,
}

#[derive(Default)]
struct Changes {
    reconnects: Cell<u64>,
    any: Notify,
}

impl Session {
    fn new(client: Client) -> Self {
        let changes = Rc::<Changes>::default();
        let (mut watcher, counted) = (client.state_watcher(), changes.clone());
        let counting = tokio::task::spawn_local(async move {
            loop {
                let state = watcher.changed().await;
                // Coalesced changes may show `SyncConnected` only: whatever changed, it was a new connection.
                counted.reconnects.set(counted.reconnects.get() + 1);
                counted.any.notify_waiters();
                if state.is_terminated() {
                    return;
                }
            }
        });
        Self { client, changes, counting: counting.abort_handle() }
    }

    fn fault(&self, error: Error) -> Fault {
        fault(error, self.client.state())
    }
}

/// Only what is known to mean "nothing was done" is definite. All else is ambiguous: a connection time-out or reset is
/// an `Error::Custom`, not a `ConnectionLoss`, and later versions of the library may add more.
fn fault(error: Error, state: SessionState) -> Fault {
    match error {
        Error::NoNode => Fault::NoNode,
        Error::NodeExists => Fault::NodeExists,
        Error::NotEmpty => Fault::NotEmpty,
        Error::BadVersion => Fault::BadVersion,
        Error::NoAuth
        | Error::InvalidAcl
        | Error::NoChildrenForEphemerals
        | Error::BadArguments(_)
        | Error::QuotaExceeded
        | Error::Throttled
        | Error::Unimplemented
        | Error::NotReadOnly => Fault::Refused(error.to_string()),
        Error::SessionExpired | Error::ClientClosed => Fault::Over,
        _ if state.is_terminated() => Fault::Over,
        other => Fault::Ambiguous(other.to_string()),
    }
}

impl From<Stat> for Seen {
    fn from(stat: Stat) -> Self {
        Self { czxid: stat.czxid, owner: stat.ephemeral_owner, version: stat.version }
    }
}

impl From<Kind> for CreateMode {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Persistent => Self::Persistent,
            Kind::Container => Self::Container,
            Kind::Ephemeral => Self::Ephemeral,
            Kind::EphemeralSequential => Self::EphemeralSequential,
        }
    }
}

impl Link for Session {
    type Watch = Pin<Box<dyn Future<Output = ()>>>;

    fn id(&self) -> i64 {
        self.client.session_id().0
    }

    fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    fn state(&self) -> State {
        match self.client.state() {
            SessionState::SyncConnected => State::Connected,
            SessionState::Disconnected | SessionState::ConnectedReadOnly => State::Disconnected,
            SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => State::Over,
        }
    }

    fn reconnects(&self) -> u64 {
        self.changes.reconnects.get()
    }

    async fn state_changed(&self) {
        self.changes.any.notified().await;
    }

    // Each method below calls the client *before* it builds its future: that is when the request is sent.

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: Kind,
    ) -> impl Future<Output = Result<Created, Fault>> {
        let options = CreateMode::from(kind).with_acls(Acls::anyone_all());
        let sent = self.client.create(path, data, &options);
        async move {
            let (stat, sequence) = sent.await.map_err(|error| self.fault(error))?;
            Ok(Created { seen: stat.into(), sequence: sequence.into_i64() })
        }
    }

    fn delete(&self, path: &str) -> impl Future<Output = Result<(), Fault>> {
        let sent = self.client.delete(path, None);
        async move { sent.await.map_err(|error| self.fault(error)) }
    }

    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, Fault>> {
        let sent = self.client.list_children(path);
        async move { sent.await.map_err(|error| self.fault(error)) }
    }

    fn seen(&self, path: &str) -> impl Future<Output = Result<Option<Seen>, Fault>> {
        let sent = self.client.check_stat(path);
        async move { sent.await.map(|stat| stat.map(Seen::from)).map_err(|error| self.fault(error)) }
    }

    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, Seen), Fault>> {
        let sent = self.client.get_data(path);
        async move { sent.await.map(|(data, stat)| (data, stat.into())).map_err(|error| self.fault(error)) }
    }

    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, Fault>> {
        // A data watch on an existing node: an exists-watch on a missing one would stay at the server.
        let sent = self.client.get_and_watch_data(path);
        async move {
            let (_, _, watcher) = sent.await.map_err(|error| self.fault(error))?;
            let watch: Self::Watch = Box::pin(async move { drop(watcher.changed().await) });
            Ok(watch)
        }
    }

    fn sync(&self, path: &str) -> impl Future<Output = Result<(), Fault>> {
        let sent = self.client.sync(path);
        async move { sent.await.map_err(|error| self.fault(error)) }
    }

    fn commit(&self, steps: &[Step<'_>]) -> impl Future<Output = Result<(), Failed>> {
        let mut writer = self.client.new_multi_writer();
        let added = steps.iter().try_for_each(|step| match step {
            Step::Check { path, version } => writer.add_check_version(path, *version),
            Step::Create { path, data, kind } => {
                writer.add_create(path, data, &CreateMode::from(*kind).with_acls(Acls::anyone_all()))
            }
            Step::Set { path, data } => writer.add_set_data(path, data, None),
            Step::Delete { path } => writer.add_delete(path, None),
        });
        let sent = added.map(|()| writer.commit());
        async move {
            let answer = match sent {
                Ok(sent) => sent.await,
                Err(error) => Err(MultiWriteError::from(error)),
            };
            answer.map(drop).map_err(|error| match error {
                MultiWriteError::OperationFailed { index, source } => {
                    Failed { step: Some(index), fault: self.fault(source) }
                }
                MultiWriteError::RequestFailed { source } => Failed { step: None, fault: self.fault(source) },
            })
        }
    }

    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, Fault>> {
        let sent = self.client.list_ephemerals(path);
        async move { sent.await.map_err(|error| self.fault(error)) }
    }

    async fn close(self) {
        let mut watcher = self.client.state_watcher();
        drop(self);
        // The client closes the session when its last clone has gone; its word takes a few milliseconds, and a server
        // that does not answer ends the session by its timeout all the same.
        let closed = async { while !watcher.changed().await.is_terminated() {} };
        if timeout(CLOSING, closed).await.is_err() {
            tracing::warn!("session not closed in time; it ends by its timeout");
        }
    }
}

/// How long a farewell to the server may take.
const CLOSING: Duration = Duration::from_secs(2);

impl Drop for Session {
    fn drop(&mut self) {
        self.counting.abort();
    }
}
