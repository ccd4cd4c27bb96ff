//! A client library whose task has ended silently: the session claims to be connected, and every operation fails at
//! once. The gateway abandons the session and starts a new one.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_lock::manager::session_worker;
use fencegate_policies::plan::{CachedHoldLimits, LockReusePolicy};
use fencegate_tests::memory::{EnsembleSettings as Servers, SimEnsemble, UndeliveredRequestFate};
use fencegate_zookeeper::session::{
    active_session::{CurrentSession, SessionState},
    client::ZkError,
    supervisor::supervise_session,
};
use tokio::{
    join,
    sync::watch,
    task::spawn_local,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    faulty_client::{FaultInjector, FaultyClient, GatewayLockStack, clock, settings},
    simulated_time,
};

const T: Duration = Duration::from_secs(2);

fn library(doctor: &FaultInjector) -> FaultyClient {
    let ensemble = SimEnsemble::start(Servers::default());
    FaultyClient { ensemble, timeout: T, doctor: doctor.clone() }
}

/// From now on every operation of the library fails with an error that does not tell whether it was done.
fn end_task(doctor: &FaultInjector) {
    doctor.end_task(ZkError::Ambiguous("nobody listens".into()));
    doctor.wire().disconnect(UndeliveredRequestFate::Lost);
}

/// A session that answers nothing and does not end is abandoned, and another one replaces it.
#[test]
fn unanswering_session_is_given_up() {
    simulated_time::run(async {
        let doctor = FaultInjector::new();
        let (view, mut seen) = watch::channel(SessionState::NoSession("not yet".into()));
        let current = Rc::new(CurrentSession::default());
        let stop = CancellationToken::new();
        let settings = Rc::new(settings(clock(), T));
        let chores =
            session_worker::session_background_work(settings.clone(), Arc::default(), Arc::default());
        spawn_local(supervise_session(library(&doctor), settings, current, view, stop.clone(), chores));
        let first = wait_session(&mut seen).await;
        sleep(T * 3).await;
        assert_eq!(wait_session(&mut seen).await, first, "a session that answers is kept");

        end_task(&doctor);
        let gone = Instant::now();
        let next = async {
            loop {
                seen.changed().await.expect("supervised");
                let next = wait_session(&mut seen).await;
                if next != first {
                    return;
                }
            }
        };
        timeout(T * 10, next).await.expect("another session");
        assert!(gone.elapsed() < T * 5, "after {:?}", gone.elapsed());
        stop.cancel();
    });
}

async fn wait_session(seen: &mut watch::Receiver<SessionState>) -> i64 {
    let live = seen.wait_for(|view| matches!(view, SessionState::Active { .. })).await.expect("supervised");
    match &*live {
        SessionState::Active { deadline, .. } => deadline.session_id(),
        _ => unreachable!("waited for"),
    }
}

/// Keys of a session that was abandoned, held ones and new ones, are granted under the next session.
#[test]
fn keys_move_to_next_session() {
    simulated_time::run(async {
        let doctor = FaultInjector::new();
        let locks = GatewayLockStack::new(library(&doctor)).await;
        drop(locks.acquire(&["kept/1"], KEPT).await.expect("free"));
        let strict = locks.acquire(&["strict/1"], LockReusePolicy::Strict).await.expect("free");

        end_task(&doctor);
        drop(strict);
        let (kept, strict) =
            join!(locks.acquire(&["kept/2"], KEPT), locks.acquire(&["strict/2"], LockReusePolicy::Strict));
        assert!(
            kept.is_ok() && strict.is_ok(),
            "asked for under the session that was gone: {kept:?}, {strict:?}"
        );
        let (kept, strict) =
            join!(locks.acquire(&["kept/1"], KEPT), locks.acquire(&["strict/1"], LockReusePolicy::Strict));
        assert!(kept.is_ok() && strict.is_ok(), "held under it: {kept:?}, {strict:?}");
        drop((kept, strict));
        locks.stop().await;
    });
}

/// The task of a key yields although every operation of its session fails at once: the supervisor learns of the
/// session's end only with the next heartbeat.
#[test]
fn key_of_ended_session_yields() {
    simulated_time::run(async {
        let doctor = FaultInjector::new();
        let locks = GatewayLockStack::new(library(&doctor)).await;
        doctor.end_task(ZkError::SessionEnded);
        let kept = locks.acquire(&["kept"], KEPT).await;
        assert!(kept.is_ok(), "under the next session: {kept:?}");
        let asked = doctor.failed_requests();
        assert!((1..200).contains(&asked), "{asked} operations under a session that was over");
        drop(kept);
        locks.stop().await;
    });
}

const KEPT: LockReusePolicy = LockReusePolicy::Cached(CachedHoldLimits {
    linger: Duration::from_millis(250),
    max_local: 64,
    max_hold: Duration::from_millis(100),
    max_tenure: Duration::from_secs(600),
});
