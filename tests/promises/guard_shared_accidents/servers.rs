//! A store whose database server is killed, frozen, restored from a snapshot or replaced by a standby either has lost
//! nothing, or is closed until everything that was admitted is over.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fencegate_guard_postgres::postgres::{
    InFlightDispatch, PostgresAdmissionOutcome, PostgresConfig, PostgresStore,
};
use fencegate_guard_store::{admission::DispatchEnd, error::DispatchRefusedError, store::StoreIdentity};
use fencegate_policies::operation::OperationId;
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    randomness::SystemRandomness,
};
use fencegate_testkit::{
    postgres::{PostgresServer, StandbyMode},
    wait::wait_until,
};
use fencegate_tests::shared_store::SharedStore;
use tokio::task::spawn_blocking;

use super::{
    deaths::reserve_operation,
    steps::{OVER, admit, claim, wait_processed, wait_processed_eventually},
};

/// A server of its own, and guards on it that send heartbeats by themselves.
pub(super) struct OwnPostgres {
    pub(super) server: PostgresServer,
    pub(super) store: SharedStore,
    clock: SharedClock,
}

impl OwnPostgres {
    pub(super) async fn start() -> Self {
        let server = spawn_blocking(|| PostgresServer::start(&[])).await.expect("no panic");
        let database = spawn_blocking({
            let database = server.database("postgres");
            move || {
                database.run("CREATE DATABASE own");
            }
        });
        database.await.expect("no panic");
        let store = SharedStore::in_database(server.database("own")).await;
        Self { server, store, clock: Arc::new(MachineClock) }
    }

    async fn open_guard(&self, store: &SharedStore, name: &str) -> PostgresStore {
        let guard = store.guard(self.clock.clone(), name).await;
        let tending = guard.clone();
        tokio::spawn(async move { tending.run_background().await });
        guard
    }
}

/// Repeats the claim, with a newer epoch each time, until it is admitted.
async fn wait_admitted(guard: &PostgresStore, key: &str, mut epoch: u64) -> (InFlightDispatch, u64) {
    let admitted = async {
        loop {
            if let Ok(PostgresAdmissionOutcome::Running { dispatch, .. }) =
                guard.admit(&claim(key, epoch, 1), guard.new_dispatch_name(), None).await
            {
                return (dispatch, epoch);
            }
            epoch += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("it to be let in", admitted, || guard.status()).await
}

/// A server that is killed forgets nothing, and under one that is frozen no guard keeps its lease.
#[tokio::test(flavor = "multi_thread")]
async fn killed_or_frozen_server_keeps_exclusion() {
    let mut own = OwnPostgres::start().await;
    let guard = own.open_guard(&own.store, "one").await;
    let (running, epoch) = wait_admitted(&guard, "a", 20).await;
    let (_, other) = wait_admitted(&guard, "b", epoch + 1).await;
    own.server.kill();
    own.server.restart();
    wait_processed_eventually(&guard).await;
    let again = admit(&guard, &claim("a", epoch, 1)).await;
    assert!(
        matches!(again, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Duplicate { .. })),
        "{again:?}"
    );
    let waits = admit(&guard, &claim("a", other + 1, 1)).await;
    assert!(matches!(waits, PostgresAdmissionOutcome::Wait { doubt: None, .. }), "{waits:?}");
    assert_eq!(guard.status().closed, None, "nothing was lost");
    guard.end_dispatch(&running, DispatchEnd::Known);
    let (_, last) = wait_admitted(&guard, "a", other + 2).await;
    own.server.freeze();
    let lapsed = async {
        while guard.membership().is_valid(own.clock.now()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the lease to end", lapsed, || guard.membership()).await;
    assert!(guard.admit(&claim("c", last + 1, 1), guard.new_dispatch_name(), None).await.is_err());
    own.server.thaw();
    wait_admitted(&guard, "c", last + 2).await;
    // No other guard counts this one as dead, so its lease is renewed. On a busy machine a renewal may come late.
    let renewed = async {
        while !guard.membership().is_valid(own.clock.now()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the lease to be renewed", renewed, || guard.membership()).await;
}

/// A database that has less than a guard has announced, because its machine was restored from a snapshot, is closed for
/// the quarantine, and then admits nothing older.
#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_database_is_quarantined() {
    let mut own = OwnPostgres::start().await;
    let guard = own.open_guard(&own.store, "one").await;
    let (first, epoch) = wait_admitted(&guard, "a", 20).await;
    guard.end_dispatch(&first, DispatchEnd::Known);
    wait_processed(&guard).await;
    let folder = tempfile::TempDir::new().expect("a folder");
    let copy = folder.path().join("data");
    own.server.stop();
    own.server.snapshot(&copy);
    own.server.restart();
    wait_processed_eventually(&guard).await;
    let (_, forgotten) = wait_admitted(&guard, "a", epoch + 10).await;
    own.server.kill();
    own.server.restore(&copy);
    own.server.restart();
    wait_processed_eventually(&guard).await;
    let closed = admit(&guard, &claim("a", forgotten + 1, 1)).await;
    assert!(
        matches!(closed, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Quarantine { .. })),
        "what was let in may run: {closed:?}"
    );
    let old = admit(&guard, &claim("a", forgotten - 1, 1)).await;
    assert!(
        matches!(old, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Recovered { .. })),
        "it was announced: {old:?}"
    );
    let (_, later) = wait_admitted(&guard, "a", forgotten + 2).await;
    assert!(later > forgotten);
    let old = admit(&guard, &claim("other", forgotten, 1)).await;
    assert!(
        matches!(old, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Recovered { .. })),
        "on every key: {old:?}"
    );
}

/// Lets the primary wait for no standby, and waits until a heartbeat of the guard has recorded it.
async fn wait_asynchronous(own: &OwnPostgres, guard: &PostgresStore) {
    own.server.disable_sync_standby();
    wait_noted(own, guard, "f").await;
}

async fn wait_noted(own: &OwnPostgres, guard: &PostgresStore, followed: &str) {
    let noted = async {
        while own.store.run("SELECT followed FROM store") != followed {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("a beat to note whether a standby follows", noted, || guard.status()).await;
}

/// An end that a failover has lost closes its key for as long as all keys are closed, and no longer. Everything was
/// acknowledged, and the standby that takes over has not got the last of it: the end of a dispatch, and the release of
/// the right over an operation.
#[tokio::test(flavor = "multi_thread")]
async fn lost_end_closes_key_during_quarantine() {
    let mut own = OwnPostgres::start().await;
    let standby = own.server.standby(StandbyMode::Synchronously);
    let both = own.store.at_addresses(&[own.server.address(), standby.address()]);
    let guard = own.open_guard(&both, "one").await;
    let (ended, epoch) = wait_admitted(&guard, "a", 20).await;
    let (_in_hand, other) = wait_admitted(&guard, "b", epoch + 1).await;
    let operation = OperationId::from_bytes([1; 32]);
    let right = reserve_operation(&guard, operation).await;
    let kept = reserve_operation(&guard, OperationId::from_bytes([2; 32])).await;
    // The standby has all of this, because the primary acknowledged nothing before.
    wait_asynchronous(&own, &guard).await;
    standby.pause_receiving();
    guard.end_dispatch(&ended, DispatchEnd::Known);
    drop((ended, right));
    wait_processed(&guard).await;
    assert_eq!(own.store.run("SELECT string_agg(key, '') FROM at_work"), "b");
    own.server.kill();
    standby.promote();
    let promoted = standby.database(&own.store.database.name);
    // The guard gets no request: it finds out by itself.
    let disowned = async {
        let open = "SELECT string_agg(key, '') FROM fencegate.at_work WHERE until IS NULL";
        while promoted.run(open) != "b" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the guard to say what it has in hand", disowned, || guard.status()).await;
    assert_eq!(promoted.run("SELECT encode(operation, 'hex') FROM fencegate.held"), "02".repeat(32));
    let began = Instant::now();
    let (_, last) = wait_admitted(&guard, "a", other + 1).await;
    let closed = began.elapsed();
    assert!(closed < OVER + Duration::from_secs(3), "closed for {closed:?}");
    let waits = admit(&guard, &claim("b", last + 1, 1)).await;
    assert!(matches!(waits, PostgresAdmissionOutcome::Wait { doubt: None, .. }), "it is at work: {waits:?}");
    drop((reserve_operation(&guard, operation).await, kept));
}

/// Several hosts of which none follows synchronously are refused as the store of a first guard. The URL names the hosts
/// that may take over, and the server is queried whether one of them has everything.
#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_standbys_are_refused() {
    let own = OwnPostgres::start().await;
    let standby = own.server.standby(StandbyMode::Later);
    let both = own.store.at_addresses(&[own.server.address(), standby.address()]);
    let clock = own.clock.clone();
    let refusal = async |name| both.try_guard(clock.clone(), name).await.err().expect("refused").to_string();
    let refused = refusal("one").await;
    assert!(refused.contains("`synchronous_standby_names` is empty"), "{refused}");
    let inspected = PostgresStore::inspect(&both.place).await.expect_err("refused").to_string();
    assert_eq!(inspected, refused);
    let unmade = PostgresConfig::parse(
        &own.store.database.url_at(&[own.server.address(), standby.address()]),
        None,
        "new",
    );
    let identity = StoreIdentity::new("12121212121212121212121212121212", &SystemRandomness);
    let unmade =
        PostgresStore::init(&unmade.expect("a URL"), &identity, 10).await.expect_err("refused").to_string();
    assert!(unmade.contains("`synchronous_standby_names` is empty"), "{unmade}");
    // One host only: which server takes over from it is not known here.
    let first = own.open_guard(&own.store, "first").await;
    both.guard(clock.clone(), "joins it").await;
    first.shut_down_cleanly().await.expect("in order");
}

/// A promoted standby that had everything goes on, and one that may lack something is closed.
#[tokio::test(flavor = "multi_thread")]
async fn failover_quarantines_unless_standby_complete() {
    for closes in [false, true] {
        let mut own = OwnPostgres::start().await;
        let standby = own.server.standby(StandbyMode::Synchronously);
        let both = own.store.at_addresses(&[own.server.address(), standby.address()]);
        let guard = own.open_guard(&both, "one").await;
        // The dispatch is kept: one that is dropped ends with the next connection.
        let (_in_hand, epoch) = wait_admitted(&guard, "a", 20).await;
        if closes {
            wait_asynchronous(&own, &guard).await;
        } else {
            wait_noted(&own, &guard, "t").await;
        }
        own.server.kill();
        standby.promote();
        wait_processed_eventually(&guard).await;
        let reply = admit(&guard, &claim("b", epoch + 1, 1)).await;
        if closes {
            assert!(
                matches!(reply, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Quarantine { .. })),
                "{reply:?}"
            );
            let old = admit(&guard, &claim("b", epoch, 1)).await;
            assert!(
                matches!(old, PostgresAdmissionOutcome::Rejected(DispatchRefusedError::Recovered { .. })),
                "{old:?}"
            );
        } else {
            assert!(
                matches!(reply, PostgresAdmissionOutcome::Running { .. }),
                "nothing is missing: {reply:?}"
            );
            let waits = admit(&guard, &claim("a", epoch + 2, 1)).await;
            assert!(matches!(waits, PostgresAdmissionOutcome::Wait { doubt: None, .. }), "{waits:?}");
        }
    }
}

/// Cancels the first decision that waits for a standby. It runs at the server before the decision is requested: the guard
/// waits for two seconds only, and its next connection waits for the store, which the heartbeat has locked.
const CANCEL: &str = "DO $$ BEGIN
    LOOP
        PERFORM pg_cancel_backend(pid) FROM pg_stat_activity
        WHERE wait_event = 'SyncRep' AND application_name LIKE 'fencegate decides%';
        EXIT WHEN FOUND;
        PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
    END LOOP;
END $$;";

/// A commit whose wait for a standby was cancelled is no answer, although the server reports such a commit as done, with
/// a warning.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_standby_wait_is_no_answer() {
    const WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let own = OwnPostgres::start().await;
    let guard = own.open_guard(&own.store, "one").await;
    let (_, epoch) = wait_admitted(&guard, "a", 20).await;
    let follow = |who: &str| {
        own.store.database.run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{who}'"));
        own.store.database.run("SELECT pg_reload_conf()");
    };
    follow("nobody");
    // The server reads the setting at its leisure. From the first heartbeat that waits on, every commit does.
    let waits = async {
        while own.store.database.run(WAITS) == "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("a heartbeat that waits for a standby", waits, || guard.status()).await;
    let mut cancels = own.store.database.session("b");
    cancels.run("SELECT 1;");
    let cancels = cancels.begin_raise(CANCEL, "none");
    let reply = guard.admit(&claim("b", epoch + 1, 1), guard.new_dispatch_name(), None).await;
    assert!(reply.is_err(), "a standby may not have it: {reply:?}");
    let cancelled = spawn_blocking(move || cancels.finish()).await.expect("no panic");
    assert!(cancelled.is_ok(), "no decision has waited for a standby: {cancelled:?}");
    follow("");
    wait_processed_eventually(&guard).await;
    assert_eq!(own.store.run("SELECT count(*) FROM at_work WHERE key = 'b'"), "0");
}
