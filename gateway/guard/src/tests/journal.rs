//! How long operations are kept, and how much space they take.

use super::*;

/// An operation is forgotten after time that the guard has seen pass, whatever the wall clock shows.
#[tokio::test]
async fn operation_expires_by_observed_time() {
    let site = new_test_guard("");
    site.complete_operation(1, 3600).await.expect("done");
    wall_clock::AHEAD.set(10 * DAY);
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    assert!(site.is_known(1), "forgotten by a wall clock that was set ahead");
    site.clock.advance(Duration::from_secs(3599));
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    assert!(site.is_known(1));
    // The store's time outlives the process; the time between two processes does not count.
    let site = site.restarted();
    wall_clock::AHEAD.set(Duration::ZERO);
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    assert!(site.is_known(1));
    site.clock.advance(Duration::from_secs(3));
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    assert!(!site.is_known(1), "its time has passed, whatever the wall clock says");
}

/// Whether an operation may still run depends on time that the guard has seen pass, not on the wall clock.
#[tokio::test]
async fn may_still_run_ignores_wall_clock() {
    let site = new_test_guard("");
    let claim = TestGuard::claim("a", 50);
    let mut client = AlwaysWaitingClient;
    let mut wait_limit = ClientWaitLimit::new(&mut client, Duration::from_secs(1));
    let Ok(JournalLookup::New(reserved)) =
        site.guard.reserve_and_look_up(operation_request(1, 60, &claim), &mut wait_limit).await
    else {
        panic!("it is new")
    };
    let running = site.guard.admit(claim, Some(reserved), &mut wait_limit).await.expect("the newest");
    // This answer is complete, but leaves the outcome open: the service may still work.
    running.complete(stored_response(502, None)).await.expect("nothing to write");
    let entry = site.store.operation(&id(1)).expect("readable").expect("unknown");
    wall_clock::AHEAD.set(DAY);
    assert!(site.guard.may_still_run(&entry).await.expect("readable"), "by a wall clock that was set ahead");
    site.clock
        .advance(site.guard.config.max_execution + site.guard.config.send_within + Duration::from_secs(1));
    assert!(!site.guard.may_still_run(&entry).await.expect("readable"));
    wall_clock::AHEAD.set(Duration::ZERO);
}

/// An operation may still run until its whole time has passed, to the millisecond, although the journal counts
/// seconds.
#[tokio::test]
async fn may_still_run_never_ends_early() {
    let site = new_test_guard("max_execution: 31500ms\n");
    let longest = site.guard.config.max_execution + site.guard.config.send_within;
    // Moves the clock to 0.9 s, so that the next whole second of the store's time is near.
    site.clock.advance(Duration::from_millis(900));
    let entry = OperationJournalEntry {
        state: operation::JournalEntryState::Admitted,
        ..finished_entry(site.local_backend().store_time_seconds())
    };
    site.clock.advance(longest - Duration::from_millis(1));
    assert!(site.guard.may_still_run(&entry).await.expect("readable"), "a millisecond is left of it");
    site.clock.advance(Duration::from_secs(1));
    assert!(!site.guard.may_still_run(&entry).await.expect("readable"));
}

/// One sweep forgets all expired operations, in bounded batches.
#[tokio::test]
async fn sweep_forgets_expired_in_batches() {
    const MANY: u64 = 2500;
    let site = new_test_guard("");
    let entry = finished_entry(site.local_backend().store_time_seconds());
    let change = |number| StoreMutation::Operation { id: id(number), entry: entry.clone().into() };
    site.store.store.commit(&(0..MANY).map(change).collect::<Vec<_>>()).expect("written");
    assert_eq!(site.store.journal().entries, MANY);
    site.clock.advance(Duration::from_secs(100));
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    assert_eq!(site.store.journal(), JournalSize::default());
    assert!(site.store.largest.load(Ordering::SeqCst) <= 1000);
}

fn finished_entry(at: u64) -> OperationJournalEntry {
    OperationJournalEntry {
        format: 1,
        fingerprint: "ab".repeat(32),
        keys: vec![ResourceKey::parse("a").expect("a key")],
        token: FencingToken::new(7, 0, 1).expect("small"),
        method: "POST".into(),
        target: "/".into(),
        name: None,
        askable: true,
        admitted: 1,
        began: Some(at),
        keep: 50,
        state: operation::JournalEntryState::Done { at, answer: None },
    }
}

/// A full journal refuses new operations until older ones have expired.
#[tokio::test]
async fn full_journal_refuses_new_operations() {
    let site = new_test_guard("journal: {max_size: 1KiB}\n");
    let mut taken = 0;
    let refused = loop {
        match site.complete_operation(taken, 60).await {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, error::DispatchRefusedError::JournalFull { most: 1024, .. }), "{refused:?}");
    assert_eq!((refused.code().as_str(), refused.decision_label()), ("store", "journal-full"));
    assert!((1..20).contains(&taken), "{taken}");
    site.clock.advance(Duration::from_secs(62));
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    site.complete_operation(taken, 60).await.expect("there is room");
}

/// Bodies of responses take at most half of the journal; the rest is left for operations without their bodies.
#[tokio::test]
async fn response_bodies_take_half_of_journal() {
    let site = new_test_guard("journal: {max_size: 16KiB}\n");
    let body = Bytes::from(vec![b'x'; 1024]);
    let mut taken = 0;
    while site.store.journal().bytes < 16 << 10 {
        site.complete_operation_with(taken, 60, Some(&body)).await.expect("there is room");
        taken += 1;
        assert!(taken < 100, "it is never full");
    }
    assert!(taken > 20, "with its body, each takes more than a sixteenth: {taken}");
    assert_eq!(site.replay_operation(0, 60).await.body, Some(body.clone()));
    let last = site.replay_operation(taken - 1, 60).await;
    assert_eq!((last.status, last.body), (200, None));
    let refused = site.complete_operation_with(taken, 60, Some(&body)).await;
    assert!(matches!(refused, Err(error::DispatchRefusedError::JournalFull { .. })), "{refused:?}");
    site.clock.advance(Duration::from_secs(62));
    site.local_backend().sweep_keys_and_operations().await.expect("a sound store");
    site.complete_operation_with(taken, 60, Some(&body)).await.expect("there is room");
    assert_eq!(site.replay_operation(taken, 60).await.body, Some(body), "there is room for bodies, too");
}
