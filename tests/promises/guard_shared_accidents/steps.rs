//! Single steps of guards of a shared store: claims, heartbeats, and time that passes.

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{InFlightDispatch, PostgresAdmissionOutcome, PostgresStore};
use fencegate_guard_store::admission::PresentedDispatch;
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::ManualClock;
use fencegate_testkit::wait::wait_until;
use fencegate_tests::shared_store::SharedStore;

/// The time after which no admitted request is still at work.
pub(super) const OVER: Duration = Duration::from_secs(5);

pub(super) fn claim(name: &str, epoch: u64, dispatch: u32) -> PresentedDispatch {
    PresentedDispatch {
        keys: vec![ResourceKey::parse(name).expect("a key")].into(),
        token: FencingToken::new(epoch, 0, dispatch).expect("small"),
        mode: LockMode::Exclusive,
        era: None,
        parent: None,
    }
}

pub(super) async fn admit(guard: &PostgresStore, claim: &PresentedDispatch) -> PostgresAdmissionOutcome {
    guard.admit(claim, guard.new_dispatch_name(), None).await.expect("the database answers")
}

pub(super) async fn admit_running(guard: &PostgresStore, claim: &PresentedDispatch) -> InFlightDispatch {
    match admit(guard, claim).await {
        PostgresAdmissionOutcome::Running { dispatch, .. } => dispatch,
        other => panic!("{claim:?}: {other:?}"),
    }
}

/// Returns when the guard has done everything that was requested of it before.
pub(super) async fn wait_processed(guard: &PostgresStore) {
    guard.resolve_doubt(&[], claim("nobody", 1, 1).token).await.expect("the database answers");
}

/// Opens a guard on a manual clock, and passes the time in which a new store admits nothing.
pub(super) async fn open_guard(store: &SharedStore, clock: &Arc<ManualClock>, name: &str) -> PostgresStore {
    clock.advance(Duration::from_secs(1));
    let guard = store.guard(clock.clone(), name).await;
    advance_time(clock, &[&guard], OVER + Duration::from_secs(1)).await;
    guard
}

pub(super) async fn advance_time(clock: &ManualClock, guards: &[&PostgresStore], time: Duration) {
    let mut left = time;
    while left > Duration::ZERO {
        let step = left.min(Duration::from_secs(2));
        clock.advance(step);
        left -= step;
        for guard in guards.iter().chain(guards) {
            guard.send_heartbeat().await.expect("the database answers");
        }
    }
}

/// Repeats [`wait_processed`] until it succeeds: the first query after an interruption may be refused.
pub(super) async fn wait_processed_eventually(guard: &PostgresStore) {
    let answered = async { while guard.resolve_doubt(&[], claim("nobody", 1, 1).token).await.is_err() {} };
    wait_until("the database to answer", answered, || guard.status()).await;
}
