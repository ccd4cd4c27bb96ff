//! Servers that answer more slowly than heartbeats require. The gateway has no session deadline meanwhile, and keeps
//! the session, because a new session would be no faster.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_lock::manager::session_worker;
use fencegate_tests::memory::{EnsembleSettings, SimEnsemble};
use fencegate_zookeeper::session::{
    active_session::{CurrentSession, SessionState},
    supervisor::supervise_session,
};
use tokio::{
    sync::watch,
    task::spawn_local,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Level, subscriber::set_default};

use crate::{
    event_log::EventLog,
    faulty_client::{FaultInjector, FaultyClient, clock, settings},
    simulated_time,
};

const T: Duration = Duration::from_secs(12);
/// The latency of a message in one direction.
const SLOW: Duration = Duration::from_millis(1500);

/// A session whose heartbeats are acknowledged too slowly is kept but not ready, and that is logged once.
#[test]
fn slowly_acknowledged_session_is_kept() {
    let log = EventLog::default();
    simulated_time::run(async {
        let _collecting = set_default(log.subscriber(Level::INFO));
        let servers = EnsembleSettings::default();
        let doctor = FaultInjector::new();
        let library =
            FaultyClient { ensemble: SimEnsemble::start(servers), timeout: T, doctor: doctor.clone() };
        let clock = clock();
        let stop = CancellationToken::new();
        let (view, mut seen) = watch::channel(SessionState::NoSession("not yet".into()));
        let settings = Rc::new(settings(clock.clone(), T));
        let chores =
            session_worker::session_background_work(settings.clone(), Arc::default(), Arc::default());
        spawn_local(supervise_session(
            library,
            settings,
            Rc::new(CurrentSession::default()),
            view,
            stop.clone(),
            chores,
        ));
        seen.wait_for(|view| matches!(view, SessionState::Active { .. })).await.expect("supervised");
        let session = |view: &SessionState| match view {
            SessionState::Active { deadline, .. } => Some(deadline.session_id()),
            _ => None,
        };
        let first = session(&seen.borrow());
        sleep(T).await;
        assert!(seen.borrow().is_ready(&clock), "servers that answer at once");

        doctor.wire().delay(SLOW..SLOW);
        sleep(T * 6).await;
        assert_eq!(session(&seen.borrow()), first, "another one is no faster");
        assert!(!seen.borrow().is_ready(&clock), "nothing was proven for long");
        doctor.wire().delay(Duration::ZERO..Duration::ZERO);
        let ready = async {
            while !seen.borrow().is_ready(&clock) {
                sleep(T / 10).await;
            }
        };
        timeout(T, ready).await.expect("they are fast again");
        stop.cancel();
    });
    let log = log.text();
    assert!(!log.contains("nothing was acknowledged"), "every heartbeat was:\n{log}");
    let said = log.matches("heartbeats are acknowledged too slowly").count();
    assert_eq!(said, 1, "the operator is told, and once:\n{log}");
}
