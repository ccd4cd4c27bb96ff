//! The session as the gateway uses it: the gateway's two client traits, on the ensemble in memory.

use std::{future::Future, rc::Rc, time::Duration};

use fencegate_zookeeper::session::client::{
    CreatedNode, MultiError, MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkConnectionState, ZkConnector,
    ZkError,
};
use tokio::time::{sleep_until, timeout};

use super::{
    client_sim::SessionClientSim,
    client_watches::SimWatch,
    ensemble::SimEnsemble,
    request::{ServerAnswer, ServerRequest},
    wire::Wire,
};

/// Creates sessions over one wire.
#[derive(Debug, Clone)]
pub struct SimConnector {
    ensemble: SimEnsemble,
    wire: Rc<Wire>,
    asked: Duration,
}

/// One session. Dropping it closes it as soon as there is a connection.
#[derive(Debug)]
pub struct SimSession {
    id: i64,
    conversation: Rc<SessionClientSim>,
}

impl SimEnsemble {
    /// A client that requests this session timeout.
    pub fn client(&self, wire: &Rc<Wire>, timeout: Duration) -> SimConnector {
        SimConnector { ensemble: self.clone(), wire: wire.clone(), asked: timeout }
    }
}

impl SimConnector {
    async fn wait_reachable(&self) {
        while !(self.wire.is_open() && self.ensemble.is_serving()) {
            self.wire.wait_mended().await;
        }
    }
}

impl ZkConnector for SimConnector {
    type Client = SimSession;

    async fn connect(&self) -> Result<SimSession, ZkError> {
        let reached = async {
            self.wait_reachable().await;
            sleep_until(self.wire.arrival()).await;
            self.wait_reachable().await;
        };
        if timeout(self.asked, reached).await.is_err() {
            return Err(ZkError::Refused("no server can be reached".to_owned()));
        }
        let granted = self.ensemble.negotiate(self.asked);
        let id = self.ensemble.open(granted);
        let conversation = SessionClientSim::start(self.ensemble.clone(), self.wire.clone(), id, granted);
        Ok(SimSession { id, conversation })
    }
}

impl SimSession {
    fn ask(
        &self,
        request: ServerRequest,
    ) -> impl Future<Output = Result<(ServerAnswer, Option<SimWatch>), MultiError>> {
        let watches = matches!(
            request,
            ServerRequest::Data { watch: true, .. } | ServerRequest::Children { watch: true, .. }
        );
        let refused = watches && self.conversation.take_watch_refusal();
        let asked = self.conversation.call(request);
        async move {
            if refused {
                // Fail after the server's answer, which proves that the session is alive.
                drop(asked.await);
                return Err(MultiError { step: None, fault: ZkError::Refused("throttled".into()) });
            }
            let heard = asked.await.unwrap_or(Err(MultiError { step: None, fault: ZkError::SessionEnded }));
            heard.map_err(|failed| match failed.fault {
                // The session is over, so the answer cannot become known any more.
                ZkError::Ambiguous(_) if self.state() == ZkConnectionState::Ended => {
                    MultiError { step: None, fault: ZkError::SessionEnded }
                }
                _ => failed,
            })
        }
    }
}

/// Awaits an answer and takes the content of its one expected form.
macro_rules! answered {
    ($asked:expr, $form:pat => $content:expr) => {
        match $asked.await {
            Ok($form) => Ok($content),
            Ok(other) => unreachable!("the server answered another request: {other:?}"),
            Err(failed) => Err(failed),
        }
    };
}

impl ZkClient for SimSession {
    type Watch = SimWatch;

    fn id(&self) -> i64 {
        self.id
    }

    fn negotiated_timeout(&self) -> Duration {
        self.conversation.timeout()
    }

    fn shortest_granted_timeout(&self) -> Option<Duration> {
        Some(self.conversation.timeout())
    }

    fn state(&self) -> ZkConnectionState {
        self.conversation.state()
    }

    fn reconnect_count(&self) -> u64 {
        self.conversation.change_count()
    }

    async fn state_changed(&self) {
        self.conversation.wait_changed().await;
    }

    // Each method below sends its request *before* it builds its future, so requests are sent in the order of the
    // calls.

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: NodeCreateMode,
    ) -> impl Future<Output = Result<CreatedNode, ZkError>> {
        let asked = self.ask(ServerRequest::Create { path: path.to_owned(), data: data.to_owned(), kind });
        async { answered!(asked, (ServerAnswer::Created(created), _) => created).map_err(fault) }
    }

    /// Creates a node with the ACL of the node above it, which is read first and so has to exist.
    async fn create_with_acl_of(&self, path: &str, above: &str, kind: NodeCreateMode) -> Result<(), ZkError> {
        match self.stat(above).await? {
            Some(_) => self.create(path, b"", kind).await.map(drop),
            None => Err(ZkError::NoNode),
        }
    }

    fn delete(&self, path: &str) -> impl Future<Output = Result<(), ZkError>> {
        let asked = self.ask(ServerRequest::Delete { path: path.to_owned() });
        async { answered!(asked, (ServerAnswer::Done, _) => ()).map_err(fault) }
    }

    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>> {
        let asked = self.ask(ServerRequest::Children { path: path.to_owned(), watch: false });
        async { answered!(asked, (ServerAnswer::Children(children), _) => children).map_err(fault) }
    }

    fn children_of(&self, paths: &[&str]) -> impl Future<Output = Result<Vec<Option<Vec<String>>>, ZkError>> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let asked = self.ask(ServerRequest::ChildrenOf { paths });
        async { answered!(asked, (ServerAnswer::ChildrenOf(lists), _) => lists).map_err(fault) }
    }

    fn stat(&self, path: &str) -> impl Future<Output = Result<Option<NodeStat>, ZkError>> {
        let asked = self.ask(ServerRequest::Seen { path: path.to_owned() });
        async { answered!(asked, (ServerAnswer::Seen(seen), _) => seen).map_err(fault) }
    }

    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, NodeStat), ZkError>> {
        let asked = self.ask(ServerRequest::Data { path: path.to_owned(), watch: false });
        async { answered!(asked, (ServerAnswer::Data(data, seen), _) => (data, seen)).map_err(fault) }
    }

    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, ZkError>> {
        let asked = self.ask(ServerRequest::Data { path: path.to_owned(), watch: true });
        async { answered!(asked, (ServerAnswer::Data(..), Some(watch)) => watch).map_err(fault) }
    }

    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(Vec<String>, Self::Watch), ZkError>> {
        let asked = self.ask(ServerRequest::Children { path: path.to_owned(), watch: true });
        async {
            answered!(asked, (ServerAnswer::Children(children), Some(watch)) => (children, watch))
                .map_err(fault)
        }
    }

    fn sync(&self, path: &str) -> impl Future<Output = Result<(), ZkError>> {
        let asked = self.ask(ServerRequest::Sync { path: path.to_owned() });
        async { answered!(asked, (ServerAnswer::Done, _) => ()).map_err(fault) }
    }

    fn commit(&self, steps: &[MultiOp<'_>]) -> impl Future<Output = Result<Vec<Option<String>>, MultiError>> {
        let asked = self.ask(ServerRequest::Commit { steps: steps.iter().map(Into::into).collect() });
        async { answered!(asked, (ServerAnswer::Committed(made), _) => made) }
    }

    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, ZkError>> {
        let asked = self.ask(ServerRequest::Ephemerals { prefix: path.to_owned() });
        async { answered!(asked, (ServerAnswer::Ephemerals(paths), _) => paths).map_err(fault) }
    }

    async fn close(self) {
        let conversation = self.conversation.clone();
        drop(self);
        let closed = async {
            while conversation.state() != ZkConnectionState::Ended {
                conversation.wait_changed().await;
            }
        };
        // If the server does not answer, the session ends by its timeout.
        timeout(CLOSING, closed).await.ok();
    }
}

/// The time that the gateway's real session waits for the answer to its close.
const CLOSING: Duration = Duration::from_secs(2);

fn fault(failed: MultiError) -> ZkError {
    failed.fault
}

impl Drop for SimSession {
    fn drop(&mut self) {
        self.conversation.close();
    }
}
