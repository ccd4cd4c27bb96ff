//! The database refuses a statement: there was too much in it, or something that it will never take.

use std::{sync::Arc, time::Duration};

use fencegate_guard::{
    operation::{State, Writing},
    postgres::{Look, Unavailable},
    register::Ended,
};
use fencegate_policies::operation::OperationId;
use fencegate_process::clock::ManualClock;
use fencegate_tests::{patience::patiently, shared_store::SharedStore};

use super::{
    deaths::{entry, reserved},
    steps::{admit, barrier, barrier_in_time, claim, opened, runs},
};

/// One end takes little time. All together take longer than the guard gives a statement.
const SLOW: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.06); RETURN old; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON at_work FOR EACH ROW EXECUTE FUNCTION slow()";
const ENDS: u64 = 40;

async fn nothing_is_at_work(store: &SharedStore) {
    let ended = async {
        while store.run("SELECT count(*) FROM at_work") != "0" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    patiently("the ends of all", ended, || store.run("SELECT count(*) FROM at_work")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_for_which_the_database_has_no_time_gets_smaller_until_it_has() {
    let store = SharedStore::fresh().await;
    let clock = Arc::new(ManualClock::default());
    let guard = opened(&store, &clock, "one").await;
    let mut running = Vec::new();
    for nth in 0..ENDS {
        running.push(runs(&guard, &claim(&format!("k{nth}"), 20 + nth, 1)).await);
    }
    store.run(SLOW);
    running.iter().for_each(|dispatch| guard.end(dispatch, Ended::Known));
    nothing_is_at_work(&store).await;
    barrier_in_time(&guard).await;
    runs(&guard, &claim("k0", 90, 1)).await;
}

#[tokio::test]
async fn an_end_whose_entry_is_refused_for_good_opens_its_key_and_gives_its_operation_back() {
    let store = SharedStore::fresh().await;
    let clock = Arc::new(ManualClock::default());
    let guard = opened(&store, &clock, "one").await;
    let (id, admitted) = (OperationId::of([1; 32]), entry(20));
    let held = reserved(&guard, id).await;
    let look = guard.admit(&claim("a", 20, 1), guard.name(), Some((&held, &admitted))).await;
    let Ok(Look::Running { dispatch, .. }) = look else { panic!("{look:?}") };
    store.run("ALTER TABLE operation ADD CONSTRAINT never CHECK (body IS NULL AND ends IS NULL) NOT VALID");
    let done = State::Done { at: 5, answer: None };
    let done =
        Writing::Entry(Box::new(fencegate_guard::operation::Entry { state: done, ..admitted.clone() }));
    let written = guard.finish(&dispatch, Ended::Known, held, done).await;
    assert!(matches!(written, Err(Unavailable::Refused(_))), "{written:?}");
    nothing_is_at_work(&store).await;
    barrier(&guard).await;
    assert!(matches!(admit(&guard, &claim("a", 21, 1)).await, Look::Running { .. }));
    drop(reserved(&guard, id).await);
    assert_eq!(guard.operation(&id).await, Ok(Some(admitted)), "nobody knows what became of it");
}
