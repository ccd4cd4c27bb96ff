//! One session of a gateway without tenures: a test calls the lock recipes itself.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use fencegate_lock::manager::session_worker;
use fencegate_recipe::grant::{LockAttemptError, LockAttemptObserver};
use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble, SimSession};
use fencegate_zookeeper::{
    error::GrantError,
    peer_endpoint::PeerEndpoint,
    peer_secret::PeerSecret,
    session::{
        self,
        active_session::{ActiveSession, CurrentSession, SessionState},
        client::ZkConnector,
        local_member::LocalMember,
        supervisor::supervise_session,
    },
};
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_local},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    faulty_client::{FaultInjector, FaultyClient, FaultySession, clock, settings},
    plan::ROOT,
};

/// The fingerprint of the gateway's plan.
const PLAN: u64 = 7;

pub(crate) struct SupervisedSession {
    pub(crate) ensemble: SimEnsemble,
    pub(crate) doctor: FaultInjector,
    current: Rc<CurrentSession<FaultySession>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    session_timeout: Duration,
}

impl SupervisedSession {
    /// Starts a gateway's session. Returns when it is established.
    pub(crate) async fn start(session_timeout: Duration) -> Self {
        let ensemble = SimEnsemble::start(EnsembleSettings::default());
        let doctor = FaultInjector::new();
        let library =
            FaultyClient { ensemble: ensemble.clone(), timeout: session_timeout, doctor: doctor.clone() };
        let (view, mut seen) = watch::channel(SessionState::NoSession("not yet".into()));
        let current = Rc::new(CurrentSession::default());
        let stop = CancellationToken::new();
        let clock = clock();
        let reach = PeerEndpoint { address: "gw:1".to_owned(), pass: PeerSecret::new(&SeededRng::new(1)) };
        let member = LocalMember::with_endpoint(PLAN, Some(reach));
        let settings = settings(clock.clone(), session_timeout);
        let settings = Rc::new(session::settings::SessionSettings { member, ..settings });
        let chores =
            session_worker::session_background_work(settings.clone(), Arc::default(), Arc::default());
        let task =
            spawn_local(supervise_session(library, settings, current.clone(), view, stop.clone(), chores));
        seen.wait_for(|view| view.is_ready(&clock)).await.expect("supervised");
        Self { ensemble, doctor, current, stop, task, session_timeout }
    }

    pub(crate) fn live(&self) -> Rc<ActiveSession<FaultySession>> {
        self.current.session().expect("a session")
    }

    /// Connects a session of another client.
    pub(crate) async fn connect_other(&self) -> SimSession {
        let wire = self.ensemble.wire();
        self.ensemble.client(&wire, self.session_timeout).connect().await.expect("a session")
    }

    /// The paths of all lock nodes.
    pub(crate) fn lock_nodes(&self) -> Vec<String> {
        let below = format!("{ROOT}/locks/");
        let of_a_key =
            |path: &String| path.strip_prefix(&below).is_some_and(|rest| rest.matches('/').count() == 2);
        self.ensemble.paths().into_iter().filter(of_a_key).collect()
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        timeout(self.session_timeout * 10, self.task).await.expect("it ends").expect("no panic");
    }
}

/// A request that waits until it is cancelled.
#[derive(Default)]
pub(crate) struct WaitingRequest {
    pub(crate) gone: CancellationToken,
    pub(crate) impatient: bool,
    pub(crate) behind: Rc<Cell<bool>>,
}

impl LockAttemptObserver for WaitingRequest {
    fn is_closed(&self) -> bool {
        self.gone.is_cancelled()
    }

    async fn closed(&mut self) {
        self.gone.cancelled().await;
    }

    fn on_waiting(&mut self) -> Result<(), LockAttemptError> {
        self.behind.set(true);
        if self.impatient { Err(GrantError::Locked.into()) } else { Ok(()) }
    }
}
