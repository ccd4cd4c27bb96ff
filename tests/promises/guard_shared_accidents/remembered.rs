//! After the database is restored from a snapshot, nothing is admitted before every live guard has reported the newest
//! token that it has learned of, and nothing older than those tokens afterwards.

use std::{path::PathBuf, sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{PostgresAdmissionOutcome, PostgresStore};
use fencegate_guard_store::{admission::DispatchEnd, error::DispatchRefusedError};
use fencegate_process::clock::ManualClock;
use fencegate_testkit::wait::wait_until;
use tempfile::TempDir;

use super::{
    servers::OwnPostgres,
    steps::{
        OVER, admit, admit_running, advance_time, claim, open_guard, wait_processed,
        wait_processed_eventually,
    },
};

/// Two guards that have learned the same, and a snapshot of their database. They send heartbeats only where the test
/// calls for them.
struct DatabaseSnapshot {
    own: OwnPostgres,
    clock: Arc<ManualClock>,
    one: PostgresStore,
    other: PostgresStore,
    folder: TempDir,
}

impl DatabaseSnapshot {
    async fn take() -> Self {
        let mut own = OwnPostgres::start().await;
        let clock = Arc::new(ManualClock::default());
        let one = open_guard(&own.store, &clock, "one").await;
        let other = own.store.guard(clock.clone(), "other").await;
        let folder = TempDir::with_prefix("fencegate-tests-").expect("a folder");
        run_request(&one, "a", 20).await;
        wait_processed(&other).await;
        own.server.stop();
        own.server.snapshot(&data(&folder));
        own.server.restart();
        let snapshot = Self { own, clock, one, other, folder };
        snapshot.send_heartbeats(&[&snapshot.one, &snapshot.other]).await;
        snapshot
    }

    fn restore(&mut self) {
        self.own.server.kill();
        self.own.server.restore(&data(&self.folder));
        self.own.server.restart();
    }

    /// Repeats the heartbeats: the first ones find connections that are gone.
    async fn send_heartbeats(&self, guards: &[&PostgresStore]) {
        for guard in guards {
            let beaten = async { while guard.send_heartbeat().await.is_err() {} };
            wait_until("a beat", beaten, || guard.status()).await;
        }
    }
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

/// A request that begins and ends. The first query after an interruption may be refused.
async fn run_request(guard: &PostgresStore, key: &str, epoch: u64) {
    wait_processed_eventually(guard).await;
    let dispatch = admit_running(guard, &claim(key, epoch, 1)).await;
    guard.end_dispatch(&dispatch, DispatchEnd::Known);
    wait_processed(guard).await;
}

async fn assert_recovered(guard: &PostgresStore, key: &str, epoch: u64) {
    let reply = admit(guard, &claim(key, epoch, 1)).await;
    assert!(
        matches!(reply, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Recovered { .. })),
        "{epoch} on {key}: {reply:?}"
    );
}

/// A guard without requests reports the tokens that a restored database has lost. The other guard learns of the rollback
/// by its first query, and has not learned what the idle one has announced.
#[tokio::test(flavor = "multi_thread")]
async fn idle_guard_reports_lost_tokens() {
    let mut snapshot = DatabaseSnapshot::take().await;
    run_request(&snapshot.one, "z", 30).await;
    run_request(&snapshot.other, "a", 100).await;
    snapshot.restore();
    let DatabaseSnapshot { clock, one, other, .. } = &snapshot;
    wait_processed_eventually(one).await;
    snapshot.send_heartbeats(&[one, other]).await;
    advance_time(clock, &[one, other], OVER + Duration::from_secs(1)).await;
    assert_recovered(one, "a", 50).await;
    admit_running(one, &claim("a", 101, 1)).await;
}

/// Nothing is admitted before every live guard has reported. The time that closes the keys passes with a single
/// heartbeat, because the database was away for as long.
#[tokio::test(flavor = "multi_thread")]
async fn quarantine_lasts_until_guards_report() {
    let mut snapshot = DatabaseSnapshot::take().await;
    run_request(&snapshot.one, "z", 30).await;
    run_request(&snapshot.other, "a", 100).await;
    snapshot.restore();
    let DatabaseSnapshot { clock, one, other, .. } = &snapshot;
    wait_processed_eventually(one).await;
    snapshot.send_heartbeats(&[one]).await;
    clock.advance(OVER + Duration::from_secs(1));
    snapshot.send_heartbeats(&[one]).await;
    let reply = admit(one, &claim("b", 31, 1)).await;
    assert!(
        matches!(reply, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Quarantine { .. })),
        "not all were heard: {reply:?}"
    );
    snapshot.send_heartbeats(&[other]).await;
    advance_time(clock, &[one, other], OVER + Duration::from_secs(1)).await;
    assert_recovered(one, "a", 50).await;
    admit_running(one, &claim("a", 101, 1)).await;
}

/// A guard that is gone keeps nothing closed for longer than others count it as alive.
#[tokio::test(flavor = "multi_thread")]
async fn dead_guard_is_not_awaited() {
    let mut snapshot = DatabaseSnapshot::take().await;
    run_request(&snapshot.one, "z", 30).await;
    snapshot.restore();
    let DatabaseSnapshot { clock, one, .. } = &snapshot;
    wait_processed_eventually(one).await;
    snapshot.send_heartbeats(&[one]).await;
    advance_time(clock, &[one], OVER + Duration::from_secs(3)).await;
    admit_running(one, &claim("a", 31, 1)).await;
}

/// A token that a guard has learned of counts like one that it has announced. This guard has lost nothing of its own, and
/// has learned of the last token of a guard that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn learned_tokens_survive_restore() {
    let mut snapshot = DatabaseSnapshot::take().await;
    run_request(&snapshot.other, "a", 100).await;
    snapshot.one.send_heartbeat().await.expect("the database answers");
    snapshot.restore();
    let DatabaseSnapshot { clock, one, .. } = &snapshot;
    wait_processed_eventually(one).await;
    assert_recovered(one, "a", 50).await;
    snapshot.send_heartbeats(&[one]).await;
    advance_time(clock, &[one], OVER + Duration::from_secs(3)).await;
    assert_recovered(one, "a", 50).await;
    admit_running(one, &claim("a", 101, 1)).await;
}
