//! A statement that the database refuses, because of its size or for good, holds up no other request, and closes no key
//! and no operation for good.

use std::{sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{PostgresAdmissionOutcome, PostgresError};
use fencegate_guard_store::{
    admission::DispatchEnd,
    operation::{JournalEntryState, JournalUpdate},
};
use fencegate_policies::operation::OperationId;
use fencegate_process::clock::ManualClock;
use fencegate_testkit::{
    fault_proxy::{CutPoint, FaultProxy},
    wait::wait_until,
};
use fencegate_tests::shared_store::SharedStore;

use super::{
    deaths::{entry, reserve_operation},
    steps::{admit, admit_running, claim, open_guard, wait_processed, wait_processed_eventually},
};

/// A trigger that makes each end take 60 ms. All ends together exceed the time limit of a statement.
const SLOW: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.06); RETURN old; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON at_work FOR EACH ROW EXECUTE FUNCTION slow()";
const ENDS: u64 = 40;

async fn assert_nothing_at_work(store: &SharedStore) {
    let ended = async {
        while store.run("SELECT count(*) FROM at_work") != "0" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the ends of all", ended, || store.run("SELECT count(*) FROM at_work")).await;
}

/// A batch for which the database has no time gets smaller until it is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_batch_shrinks_until_accepted() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store, &clock, "one").await;
    let mut running = Vec::new();
    for nth in 0..ENDS {
        running.push(admit_running(&guard, &claim(&format!("k{nth}"), 20 + nth, 1)).await);
    }
    store.run(SLOW);
    running.iter().for_each(|dispatch| guard.end_dispatch(dispatch, DispatchEnd::Known));
    assert_nothing_at_work(&store).await;
    wait_processed_eventually(&guard).await;
    admit_running(&guard, &claim("k0", 90, 1)).await;
}

/// An end whose entry is refused for good opens its key and releases its operation.
#[tokio::test]
async fn refused_entry_opens_key() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store, &clock, "one").await;
    let id = OperationId::from_bytes([1; 32]);
    let admitted = entry(20);
    let held = reserve_operation(&guard, id).await;
    let reply = guard.admit(&claim("a", 20, 1), guard.new_dispatch_name(), Some((&held, &admitted))).await;
    let Ok(PostgresAdmissionOutcome::Running { dispatch, .. }) = reply else { panic!("{reply:?}") };
    store.run("ALTER TABLE operation ADD CONSTRAINT never CHECK (body IS NULL AND ends IS NULL) NOT VALID");
    let done = JournalEntryState::Done { at: 5, answer: None };
    let done = JournalUpdate::Entry(Box::new(fencegate_guard_store::operation::OperationJournalEntry {
        state: done,
        ..admitted.clone()
    }));
    let written = guard.end_dispatch_with_outcome(&dispatch, DispatchEnd::Known, held, done).await;
    assert!(matches!(written, Err(PostgresError::Refused(_))), "{written:?}");
    assert_nothing_at_work(&store).await;
    wait_processed(&guard).await;
    assert!(matches!(admit(&guard, &claim("a", 21, 1)).await, PostgresAdmissionOutcome::Running { .. }));
    drop(reserve_operation(&guard, id).await);
    assert_eq!(guard.operation(&id).await, Ok(Some(admitted)), "nobody knows what became of it");
}

/// An end that the database refuses each time holds up no other request: later requests are answered, also where
/// another request of the same batch makes the guard send each request by itself.
#[tokio::test]
async fn failing_end_blocks_no_other_request() {
    let store = SharedStore::new().await;
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store, &clock, "one").await;
    let stuck = admit_running(&guard, &claim("stuck", 20, 1)).await;
    let other = admit_running(&guard, &claim("other", 20, 1)).await;
    store.run(
        "ALTER TABLE key ADD CONSTRAINT never CHECK (key <> 'never') NOT VALID;
        CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
        CREATE TRIGGER fails BEFORE DELETE ON at_work FOR EACH ROW WHEN (old.key = 'stuck') EXECUTE FUNCTION fails()",
    );
    let never = claim("never", 20, 1);
    let answered = async {
        guard.end_dispatch(&stuck, DispatchEnd::Known);
        let (refused, ()) = tokio::join!(guard.admit(&never, guard.new_dispatch_name(), None), async {
            guard.end_dispatch(&other, DispatchEnd::Known);
        });
        assert!(matches!(refused, Err(PostgresError::Refused(_))), "{refused:?}");
        while store.run("SELECT count(*) FROM at_work WHERE key = 'other'") != "0" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the others' answers", answered, || store.run("SELECT string_agg(key, ' ') FROM at_work"))
        .await;
    store.run("DROP TRIGGER fails ON at_work");
    assert_nothing_at_work(&store).await;
}

/// A right over an operation that was granted is released if its answer was lost and the database refuses the repeated
/// request.
#[tokio::test]
async fn lost_reservation_is_released() {
    let store = SharedStore::new().await;
    let proxy = FaultProxy::start(store.database.address);
    let clock = Arc::new(ManualClock::default());
    let guard = open_guard(&store.at_addresses(&[proxy.address]), &clock, "one").await;
    wait_processed(&guard).await;
    let id = OperationId::from_bytes([7; 32]);
    proxy.cut_next("reserve", CutPoint::Answer);
    let (reserved, ()) = tokio::join!(guard.reserve(id), async {
        proxy.wait_cut().await;
        // No other task of this runtime goes on meanwhile, and so neither does the next connection of the guard.
        assert_eq!(store.run("SELECT count(*) FROM held"), "1");
        store.run("ALTER TABLE held ADD CONSTRAINT never CHECK (waited) NOT VALID");
    });
    assert!(matches!(reserved, Err(PostgresError::Refused(_))));
    wait_processed(&guard).await;
    assert_eq!(store.run("SELECT count(*) FROM held"), "0");
}
