//! Behaviour exactly at a watermark, at the floor and at the end of the largest jump.

use fencegate_policies::token::LARGEST_JUMP;

use super::*;
use crate::store::{CommitSeq, KeyWatermarks};

/// A write with the token of a read is stale, both at the first check and at the second one.
#[test]
fn write_with_read_token_is_stale() {
    let mut first = admission_table();
    first.check_and_raise_watermarks(&read_claim(20), NOW).expect("newer");
    assert!(matches!(
        first.check_and_raise_watermarks(&write_claim(20, 1), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
    let mut second = admission_table();
    second.check_and_raise_watermarks(&write_claim(20, 1), NOW).expect("newer");
    second.raise_watermarks(&read_claim(20), NOW);
    assert!(matches!(
        second.check_and_register(&write_claim(20, 1), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
}

/// A read with the token of a write is stale, both at the first check and at the second one.
#[test]
fn read_with_write_token_is_stale() {
    let mut first = admission_table();
    first.check_and_raise_watermarks(&write_claim(20, 1), NOW).expect("newer");
    assert!(matches!(
        first.check_and_raise_watermarks(&read_claim(20), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
    let mut second = admission_table();
    second.check_and_raise_watermarks(&read_claim(20), NOW).expect("newer");
    second.raise_watermarks(&write_claim(20, 1), NOW);
    assert!(matches!(
        second.check_and_register(&read_claim(20), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
}

/// Between the two checks of a read, its key may be evicted, and created again by another claim. The second
/// check refuses a read at the floor all the same.
#[test]
fn settle_refuses_read_at_floor() {
    let mut table = admission_table();
    assert!(matches!(
        table.check_and_register(&read_claim(10), NOW),
        Err(DispatchRefusedError::Floor { floor: 10 })
    ));
    assert!(matches!(table.check_and_register(&read_claim(11), NOW), Ok((AdmitDecision::Running(_), _))));
}

/// A token exactly `LARGEST_JUMP` above the floor is accepted; one above that is refused.
#[test]
fn largest_jump_is_accepted_larger_refused() {
    let farthest = recovered_state().floor + LARGEST_JUMP;
    assert!(matches!(
        admission_table().check_and_raise_watermarks(&write_claim(farthest + 1, 1), NOW),
        Err(DispatchRefusedError::Future { .. })
    ));
    admission_table().check_and_raise_watermarks(&write_claim(farthest, 1), NOW).expect("believed");
}

/// The floor and the highest epoch that the guard announces are those of the tokens that it has seen.
#[test]
fn floor_and_highest_follow_announced_epochs() {
    let mut table = admission_table();
    assert_eq!((table.epoch_floor(), table.highest_epoch(), table.len()), (10, 10, 0));
    assert!(table.is_empty());
    table.check_and_raise_watermarks(&write_claim(20, 1), NOW).expect("newer");
    table.check_and_raise_watermarks(&claim("b", 15, 1, LockMode::Exclusive), NOW).expect("newer");
    assert_eq!((table.epoch_floor(), table.highest_epoch(), table.len()), (10, 20, 2));
    assert!(!table.is_empty());
}

/// A claim waits until the newest change of any of its keys is durable. Sent earlier, it could be unknown to the
/// guard after a crash.
#[test]
fn claim_waits_for_newest_key_change() {
    let mut table = admission_table();
    let set = PresentedDispatch { keys: vec![key("a"), key("b")].into(), ..write_claim(25, 1) };
    assert_eq!(table.required_seq(&set), CommitSeq::default());
    let [early, late] = [3, 7].map(CommitSeq::new);
    for (claim, moment) in [(write_claim(20, 1), early), (claim("b", 21, 1, LockMode::Exclusive), late)] {
        let changes = table.check_and_raise_watermarks(&claim, NOW).expect("newer");
        table.record_submitted(&changes, moment);
    }
    assert_eq!((table.required_seq(&write_claim(20, 2)), table.required_seq(&set)), (early, late));
    let (_, at_work) = table.register_dispatch(&write_claim(20, 1), NOW);
    table.record_submitted(&at_work, late);
    assert_eq!(table.required_seq(&write_claim(20, 2)), late, "what is at work has to be known as well");
}

/// Each dispatch in flight has its own name, and its end leaves the others in flight.
#[test]
fn concurrent_dispatches_end_separately() {
    let mut table = admission_table();
    let one = start_dispatch(&mut table, &read_claim(20));
    let other = start_dispatch(&mut table, &read_claim(21));
    assert_ne!(one, other);
    table.end_dispatch(&read_claim(20), one, DispatchEnd::Known, NOW);
    assert!(must_wait(&mut table, &write_claim(22, 1)), "the other reader is at work");
    table.end_dispatch(&read_claim(21), other, DispatchEnd::Known, NOW);
    assert!(matches!(table.check_and_register(&write_claim(22, 1), NOW), Ok((AdmitDecision::Running(_), _))));
}

/// A doubt is resolved by its own token, once, and no other doubt ends with it.
#[test]
fn resolve_ends_only_doubt_of_token() {
    let mut table = admission_table();
    let until = NOW + Duration::from_secs(30);
    for reader in [read_claim(20), read_claim(21)] {
        let id = start_dispatch(&mut table, &reader);
        table.end_dispatch(&reader, id, DispatchEnd::InDoubt { until }, NOW);
    }
    let of = |epoch| FencingToken::new(epoch, 0, 1).expect("small");
    assert!(!table.resolve_doubt(&[key("a")], of(19), NOW), "nobody doubts it");
    assert!(table.resolve_doubt(&[key("a")], of(20), NOW));
    assert!(!table.resolve_doubt(&[key("a")], of(20), NOW), "it was over");
    assert!(must_wait(&mut table, &write_claim(22, 1)), "the other doubt stands");
    assert!(table.resolve_doubt(&[key("a")], of(21), NOW));
    assert!(matches!(table.check_and_register(&write_claim(22, 1), NOW), Ok((AdmitDecision::Running(_), _))));
}

/// After a crash only the epochs of watermarks are restored, and no token of such an epoch is admitted again;
/// after a clean stop the whole tokens are restored.
#[test]
fn restart_recovers_epochs_or_whole_watermarks() {
    let epochs = DurableKeyWatermarks { write: Some(20), read: Some(25) };
    let known = |mark: Option<TokenWatermark>| mark.map(|mark| (mark.token.number(), mark.exact));
    let (write, read) = recover_watermarks(&epochs, None);
    assert_eq!((known(write), known(read)), (Some((20, false)), Some((25, false))));
    assert_eq!(recover_watermarks(&DurableKeyWatermarks::default(), None), (None, None));
    let of = |epoch| FencingToken::new(epoch, 3, 4).ok();
    let whole = KeyWatermarks { key: key("a"), write: of(20), read: of(21) };
    let marks = recover_watermarks(&epochs, Some(&whole));
    let exact = |token: Option<FencingToken>| token.map(|token| TokenWatermark { token, exact: true });
    assert_eq!(marks, (exact(of(20)), exact(of(21))));
}

#[test]
fn only_claim_with_parent_is_callback() {
    assert!(callback_claim(20, 2, 1).is_callback() && !write_claim(20, 1).is_callback());
}

/// A waiting claim is notified of each end and of each newer token. Without a notification it waits until its time
/// limit.
#[tokio::test]
async fn end_and_newer_token_wake_waiter() {
    let until = NOW + Duration::from_secs(30);
    type EndDispatch<'a> = &'a dyn Fn(&mut AdmissionTable, DispatchId);
    let ends: [EndDispatch<'_>; 3] = [
        &|table, running| table.end_dispatch(&write_claim(20, 1), running, DispatchEnd::Known, NOW),
        &|table, running| {
            table.end_dispatch(&write_claim(20, 1), running, DispatchEnd::InDoubt { until }, NOW)
        },
        &|table, _| drop(table.check_and_raise_watermarks(&write_claim(22, 1), NOW).expect("newer")),
    ];
    for end in ends {
        let mut table = admission_table();
        let running = start_dispatch(&mut table, &write_claim(20, 1));
        table.check_and_raise_watermarks(&write_claim(21, 1), NOW).expect("newer");
        let Ok((AdmitDecision::Wait { told, .. }, _)) = table.check_and_register(&write_claim(21, 1), NOW)
        else {
            panic!("somebody is at work")
        };
        end(&mut table, running);
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("told");
    }
}

#[tokio::test]
async fn waiter_wakes_when_doubt_is_resolved() {
    let mut table = admission_table();
    let running = start_dispatch(&mut table, &write_claim(20, 1));
    let until = NOW + Duration::from_secs(30);
    table.end_dispatch(&write_claim(20, 1), running, DispatchEnd::InDoubt { until }, NOW);
    table.check_and_raise_watermarks(&write_claim(21, 1), NOW).expect("newer");
    let Ok((AdmitDecision::Wait { told, .. }, _)) = table.check_and_register(&write_claim(21, 1), NOW) else {
        panic!("somebody may be at work")
    };
    assert!(table.resolve_doubt(&[key("a")], FencingToken::new(20, 0, 1).expect("small"), NOW));
    tokio::time::timeout(Duration::from_secs(10), told).await.expect("told");
}

#[test]
fn read_newer_than_last_write_runs() {
    let mut table = admission_table();
    let running = start_dispatch(&mut table, &write_claim(20, 1));
    table.end_dispatch(&write_claim(20, 1), running, DispatchEnd::Known, NOW);
    start_dispatch(&mut table, &read_claim(21));
}

/// A doubt that a clean stop has written down closes its key after the restart, and no other key.
#[test]
fn doubt_of_clean_stop_closes_key() {
    let token = FencingToken::new(20, 0, 1).expect("small");
    let doubt = InDoubtExecutionRecord {
        keys: vec![key("a")],
        token,
        mode: LockMode::Exclusive,
        remaining: EXECUTION,
        place: None,
    };
    let clean_stop = Some(CleanShutdownState { doubts: vec![doubt], ..CleanShutdownState::default() });
    let mut table = AdmissionTable::new(&RecoveredState { clean_stop, ..recovered_state() }, NOW, EXECUTION);
    assert!(must_wait(&mut table, &write_claim(21, 1)));
    start_dispatch(&mut table, &claim("b", 21, 1, LockMode::Exclusive));
    let over = table.check_and_register(&write_claim(21, 1), NOW + EXECUTION);
    assert!(matches!(over, Ok((AdmitDecision::Running(_), _))));
}
