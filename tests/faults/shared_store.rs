//! Two guards with one PostgreSQL under load, for a minute each. A guard is killed or stands still. The server is
//! restarted, killed, or replaced by its standby. A connection is cut. No executions overlap, no stale request passes,
//! and nothing runs twice.
//!
//! 24 clients send requests.

mod fleet;

use std::time::Duration;

use fencegate_testkit::{
    child::Signal,
    fault_proxy::FaultProxy,
    postgres::{PostgresServer, StandbyMode, TestDatabase},
    wait::wait_until,
};
use tokio::{task::block_in_place, time::sleep};

use self::fleet::{GuardFleet, GuardNumber};

/// The length of a pause: longer than a guard waits for the other one's heartbeat.
const FROZEN: Duration = Duration::from_secs(8);
/// The time without faults between two of them.
const FAIR: Duration = Duration::from_secs(8);

fn server() -> PostgresServer {
    block_in_place(|| PostgresServer::start(&[]))
}

/// Waits until no key is at work. Polls, because the database sends no event for this.
async fn wait_keys_at_rest(database: &TestDatabase) {
    const AT_WORK: &str = "SELECT count(*) FROM fencegate.at_work WHERE key LIKE '%/rests-%'";
    while block_in_place(|| database.run(AT_WORK)) != "0" {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Executions stay apart, and keys that were at rest are served at once, when two guards are killed in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_killed_in_turn_stay_safe() {
    let server = server();
    let database = server.fresh_database();
    let mut fleet = GuardFleet::start(&database.url(), None).await;
    for which in [GuardNumber::One, GuardNumber::Two, GuardNumber::One, GuardNumber::Two] {
        sleep(FAIR).await;
        let resting = fleet.touch_new_keys().await;
        // A client gets its response a moment before the database has the end of the dispatch, so wait for the
        // database.
        wait_until("the ends of what was answered", wait_keys_at_rest(&database), || "").await;
        fleet.guard(which).signal(Signal::KILL);
        fleet.wait_serving(Duration::from_secs(1), &resting).await;
        sleep(FAIR / 2).await;
        fleet.restart(which).await;
    }
    fleet.assert_result(1000).await;
}

/// Executions stay apart when a guard is paused for longer than its lease. It then ends itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_paused_past_lease_stay_safe() {
    let server = server();
    let mut fleet = GuardFleet::start(&server.fresh_database().url(), None).await;
    for which in [GuardNumber::One, GuardNumber::Two, GuardNumber::One] {
        sleep(FAIR).await;
        fleet.guard(which).signal(Signal::STOP);
        sleep(FROZEN).await;
        fleet.guard(which).signal(Signal::CONT);
        let status = fleet.guard(which).exit().await;
        assert!(!status.success(), "taken for dead, it ends itself");
        fleet.restart(which).await;
    }
    fleet.assert_result(500).await;
}

/// Executions stay apart when the database server is restarted and killed, and the guards go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_restarts_and_kills_stay_safe() {
    let mut server = server();
    let mut fleet = GuardFleet::start(&server.fresh_database().url(), None).await;
    for accident in [PostgresServer::stop, PostgresServer::kill, PostgresServer::stop, PostgresServer::kill] {
        sleep(FAIR).await;
        block_in_place(|| {
            accident(&mut server);
            server.restart();
        });
        fleet.wait_all_running().await;
        fleet.wait_progress(Duration::from_secs(15)).await;
    }
    fleet.assert_result(500).await;
}

/// Executions stay apart when the database connection of one guard is cut and goes silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_guard_connection_stays_safe() {
    let server = server();
    let database = server.fresh_database();
    let cut = FaultProxy::start(database.address);
    let mut fleet = GuardFleet::start(&database.url(), Some(&database.url_at(&[cut.address]))).await;
    for _ in 0..3 {
        sleep(FAIR / 2).await;
        cut.break_all();
        sleep(FAIR / 2).await;
        cut.set_silent(true);
        sleep(FROZEN).await;
        cut.set_silent(false);
        fleet.wait_all_running().await;
    }
    fleet.assert_result(500).await;
}

/// A synchronous standby replaces a killed primary without a rollback, and executions stay apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synchronous_standby_replaces_killed_primary() {
    let mut primary = server();
    let standby = block_in_place(|| primary.standby(StandbyMode::Synchronously));
    let database = primary.fresh_database();
    let both = database.url_at(&[primary.address(), standby.address()]);
    let mut fleet = GuardFleet::start(&both, None).await;
    sleep(2 * FAIR).await;
    block_in_place(|| {
        primary.kill();
        standby.promote();
    });
    fleet.wait_all_running().await;
    fleet.wait_progress(Duration::from_secs(15)).await;
    sleep(2 * FAIR).await;
    assert!(!fleet.is_closed_after_rollback().await, "a synchronous standby has lost nothing");
    fleet.assert_result(500).await;
}
