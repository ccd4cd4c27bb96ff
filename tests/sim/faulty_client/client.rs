//! The faulty client library, and the control of its faults.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use fencegate_tests::memory::{SimEnsemble, SimSession, Wire};
use fencegate_zookeeper::session::client::{
    CreatedNode, MultiError, MultiOp, NodeCreateMode, NodeStat, ZkClient, ZkConnectionState, ZkConnector,
    ZkError,
};
use tokio::time::sleep;

use super::request_fate::{SessionRequest, ZkRequestFate};

type FaultRule = Box<dyn FnMut(SessionRequest<'_>) -> ZkRequestFate>;

/// Controls the faults of the library, for all of its sessions.
#[derive(Clone)]
pub(crate) struct FaultInjector(Rc<FaultState>);

struct FaultState {
    rule: RefCell<FaultRule>,
    /// The id of the newest session, and its connection.
    latest: RefCell<Option<(i64, Rc<Wire>)>>,
    /// The session whose task has ended silently: it claims to be connected, and every operation fails at once with
    /// this error.
    gone: RefCell<Option<(i64, ZkError)>>,
    /// The number of operations that the session has got since its task ended.
    asked: Cell<u32>,
}

/// After this number of immediate errors simulated time advances, so that a busy loop is counted and the simulation
/// ends.
const AT_ONCE: u32 = 10_000;

impl FaultInjector {
    pub(crate) fn new() -> Self {
        Self(Rc::new(FaultState {
            rule: RefCell::new(Box::new(|_| ZkRequestFate::Passes)),
            latest: RefCell::default(),
            gone: RefCell::default(),
            asked: Cell::new(0),
        }))
    }

    pub(crate) fn set_rule(&self, rule: impl FnMut(SessionRequest<'_>) -> ZkRequestFate + 'static) {
        *self.0.rule.borrow_mut() = Box::new(rule);
    }

    /// The connection of the newest session.
    pub(crate) fn wire(&self) -> Rc<Wire> {
        self.0.latest.borrow().as_ref().expect("a session").1.clone()
    }

    /// From now on the newest session answers every request with this error. It also sends no pings, so the server
    /// ends it after its timeout.
    pub(crate) fn end_task(&self, answers: ZkError) {
        let latest = self.0.latest.borrow().as_ref().expect("a session").0;
        self.0.gone.replace(Some((latest, answers)));
    }

    /// The number of operations that a session got after its task had ended.
    pub(crate) fn failed_requests(&self) -> u32 {
        self.0.asked.get()
    }

    fn ended_answer(&self, session: i64) -> Option<ZkError> {
        self.0.gone.borrow().as_ref().filter(|(gone, _)| *gone == session).map(|(_, answers)| answers.clone())
    }
}

pub(crate) struct FaultyClient {
    pub(crate) ensemble: SimEnsemble,
    pub(crate) timeout: Duration,
    pub(crate) doctor: FaultInjector,
}

pub(crate) struct FaultySession {
    session: SimSession,
    doctor: FaultInjector,
}

impl ZkConnector for FaultyClient {
    type Client = FaultySession;

    async fn connect(&self) -> Result<FaultySession, ZkError> {
        let wire = self.ensemble.wire();
        let session = self.ensemble.client(&wire, self.timeout).connect().await?;
        self.doctor.0.latest.replace(Some((session.id(), wire)));
        Ok(FaultySession { session, doctor: self.doctor.clone() })
    }
}

impl FaultySession {
    /// Decides the fate of a request. `Ok(Some(_))`: the caller sends the request, and replaces its answer by this
    /// error.
    async fn send_request(&self, asked: SessionRequest<'_>) -> Result<Option<ZkError>, ZkError> {
        self.send_commit(asked).await.map_err(|failed| failed.fault)
    }

    /// Decides the fate of a transaction, as [`Self::send_request`] does.
    async fn send_commit(&self, asked: SessionRequest<'_>) -> Result<Option<ZkError>, MultiError> {
        if let Some(answer) = self.doctor.ended_answer(self.session.id()) {
            let ills = &self.doctor.0;
            ills.asked.set(ills.asked.get() + 1);
            if ills.asked.get().is_multiple_of(AT_ONCE) {
                sleep(Duration::from_secs(1)).await;
            }
            return Err(MultiError { step: None, fault: answer });
        }
        let fate = (self.doctor.0.rule.borrow_mut())(asked);
        match fate {
            ZkRequestFate::Passes => Ok(None),
            ZkRequestFate::Refused(fault) => Err(MultiError { step: None, fault }),
            ZkRequestFate::RefusedAt(step, fault) => Err(MultiError { step: Some(step), fault }),
            ZkRequestFate::Done(fault) => Ok(Some(fault)),
        }
    }
}

fn replace_answer<T, E>(answer: Result<T, E>, instead: Option<E>) -> Result<T, E> {
    match instead {
        Some(fault) => Err(fault),
        None => answer,
    }
}

impl ZkClient for FaultySession {
    type Watch = <SimSession as ZkClient>::Watch;

    fn id(&self) -> i64 {
        self.session.id()
    }
    fn negotiated_timeout(&self) -> Duration {
        self.session.negotiated_timeout()
    }
    fn shortest_granted_timeout(&self) -> Option<Duration> {
        self.session.shortest_granted_timeout()
    }
    fn state(&self) -> ZkConnectionState {
        match self.doctor.ended_answer(self.session.id()) {
            Some(_) => ZkConnectionState::Connected,
            None => self.session.state(),
        }
    }
    fn reconnect_count(&self) -> u64 {
        self.session.reconnect_count()
    }
    async fn state_changed(&self) {
        self.session.state_changed().await;
        if self.doctor.ended_answer(self.session.id()).is_some() {
            std::future::pending().await
        }
    }
    async fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: NodeCreateMode,
    ) -> Result<CreatedNode, ZkError> {
        let instead = self.send_request(SessionRequest::Create { path, kind }).await?;
        replace_answer(self.session.create(path, data, kind).await, instead)
    }
    async fn create_with_acl_of(&self, path: &str, above: &str, kind: NodeCreateMode) -> Result<(), ZkError> {
        let instead = self.send_request(SessionRequest::Create { path, kind }).await?;
        replace_answer(self.session.create_with_acl_of(path, above, kind).await, instead)
    }
    async fn delete(&self, path: &str) -> Result<(), ZkError> {
        let instead = self.send_request(SessionRequest::Delete { path }).await?;
        replace_answer(self.session.delete(path).await, instead)
    }
    async fn children(&self, path: &str) -> Result<Vec<String>, ZkError> {
        let instead = self.send_request(SessionRequest::Children { path }).await?;
        replace_answer(self.session.children(path).await, instead)
    }
    async fn children_of(&self, paths: &[&str]) -> Result<Vec<Option<Vec<String>>>, ZkError> {
        let instead = self.send_request(SessionRequest::ChildrenOf { paths }).await?;
        replace_answer(self.session.children_of(paths).await, instead)
    }
    async fn stat(&self, path: &str) -> Result<Option<NodeStat>, ZkError> {
        let instead = self.send_request(SessionRequest::Other { path }).await?;
        replace_answer(self.session.stat(path).await, instead)
    }
    async fn data(&self, path: &str) -> Result<(Vec<u8>, NodeStat), ZkError> {
        let instead = self.send_request(SessionRequest::Data { path }).await?;
        replace_answer(self.session.data(path).await, instead)
    }
    async fn watch(&self, path: &str) -> Result<Self::Watch, ZkError> {
        let instead = self.send_request(SessionRequest::Other { path }).await?;
        replace_answer(self.session.watch(path).await, instead)
    }
    async fn watch_children(&self, path: &str) -> Result<(Vec<String>, Self::Watch), ZkError> {
        let instead = self.send_request(SessionRequest::Other { path }).await?;
        replace_answer(self.session.watch_children(path).await, instead)
    }
    async fn sync(&self, path: &str) -> Result<(), ZkError> {
        let instead = self.send_request(SessionRequest::Other { path }).await?;
        replace_answer(self.session.sync(path).await, instead)
    }
    async fn commit(&self, steps: &[MultiOp<'_>]) -> Result<Vec<Option<String>>, MultiError> {
        let failed = |fault| MultiError { step: None, fault };
        let instead = self.send_commit(SessionRequest::Commit { steps }).await?;
        replace_answer(self.session.commit(steps).await, instead.map(failed))
    }
    async fn ephemerals(&self, path: &str) -> Result<Vec<String>, ZkError> {
        let instead = self.send_request(SessionRequest::Other { path }).await?;
        replace_answer(self.session.ephemerals(path).await, instead)
    }
    async fn close(self) {
        self.session.close().await;
    }
}
