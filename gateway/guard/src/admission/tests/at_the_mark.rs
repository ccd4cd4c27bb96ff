//! What happens exactly at a mark, at the floor and at the end of the largest jump.

use fencegate_policies::token::LARGEST_JUMP;

use super::*;
use crate::store::{CommitSeq, KeyWatermarks};

#[test]
fn a_write_under_the_token_of_a_read_is_stale_at_both_looks() {
    let mut first = register();
    first.announce(&read(20), NOW).expect("newer");
    assert!(matches!(first.announce(&write(20, 1), NOW), Err(AdmitError::Stale { .. })));
    let mut second = register();
    second.announce(&write(20, 1), NOW).expect("newer");
    second.raise(&read(20), NOW);
    assert!(matches!(second.settle(&write(20, 1), NOW), Err(AdmitError::Stale { .. })));
}

#[test]
fn a_read_under_the_token_of_a_write_is_stale_at_both_looks() {
    let mut first = register();
    first.announce(&write(20, 1), NOW).expect("newer");
    assert!(matches!(first.announce(&read(20), NOW), Err(AdmitError::Stale { .. })));
    let mut second = register();
    second.announce(&read(20), NOW).expect("newer");
    second.raise(&write(20, 1), NOW);
    assert!(matches!(second.settle(&read(20), NOW), Err(AdmitError::Stale { .. })));
}

/// It may have been forgotten between the two looks, and begun anew by somebody else.
#[test]
fn a_read_at_the_floor_is_refused_at_the_second_look_too() {
    let mut register = register();
    assert!(matches!(register.settle(&read(10), NOW), Err(AdmitError::Floor { floor: 10 })));
    assert!(matches!(register.settle(&read(11), NOW), Ok((AdmitDecision::Running(_), _))));
}

#[test]
fn the_largest_jump_is_believed_and_no_larger_one() {
    let farthest = remembered().floor + LARGEST_JUMP;
    assert!(matches!(register().announce(&write(farthest + 1, 1), NOW), Err(AdmitError::Future { .. })));
    register().announce(&write(farthest, 1), NOW).expect("believed");
}

#[test]
fn the_epochs_that_are_announced_of_the_guard_are_those_that_it_has_seen() {
    let mut register = register();
    assert_eq!((register.floor(), register.highest(), register.len()), (10, 10, 0));
    assert!(register.is_empty());
    register.announce(&write(20, 1), NOW).expect("newer");
    register.announce(&claim("b", 15, 1, Mode::Exclusive), NOW).expect("newer");
    assert_eq!((register.floor(), register.highest(), register.len()), (10, 20, 2));
    assert!(!register.is_empty());
}

/// Sent before that, it could be unknown to the guard that comes after a crash.
#[test]
fn a_claim_waits_for_the_newest_change_of_any_of_its_keys() {
    let mut register = register();
    let set = Claim { keys: vec![key("a"), key("b")].into(), ..write(25, 1) };
    assert_eq!(register.required_seq(&set), CommitSeq::default());
    let [early, late] = [3, 7].map(CommitSeq::new);
    for (claim, moment) in [(write(20, 1), early), (claim("b", 21, 1, Mode::Exclusive), late)] {
        let changes = register.announce(&claim, NOW).expect("newer");
        register.record_submitted(&changes, moment);
    }
    assert_eq!((register.required_seq(&write(20, 2)), register.required_seq(&set)), (early, late));
    let (_, at_work) = register.register(&write(20, 1), NOW);
    register.record_submitted(&at_work, late);
    assert_eq!(register.required_seq(&write(20, 2)), late, "what is at work has to be known as well");
}

#[test]
fn each_dispatch_in_flight_has_a_name_of_its_own_and_ends_alone() {
    let mut register = register();
    let (one, other) = (runs(&mut register, &read(20)), runs(&mut register, &read(21)));
    assert_ne!(one, other);
    register.end(&read(20), one, DispatchEnd::Known, NOW);
    assert!(waits(&mut register, &write(22, 1)), "the other reader is at work");
    register.end(&read(21), other, DispatchEnd::Known, NOW);
    assert!(matches!(register.settle(&write(22, 1), NOW), Ok((AdmitDecision::Running(_), _))));
}

#[test]
fn a_doubt_is_over_for_who_knows_its_token_and_no_other_one_with_it() {
    let mut register = register();
    let until = NOW + Duration::from_secs(30);
    for reader in [read(20), read(21)] {
        let id = runs(&mut register, &reader);
        register.end(&reader, id, DispatchEnd::InDoubt { until }, NOW);
    }
    let of = |epoch| Token::new(epoch, 0, 1).expect("small");
    assert!(!register.resolve(&[key("a")], of(19), NOW), "nobody doubts it");
    assert!(register.resolve(&[key("a")], of(20), NOW));
    assert!(!register.resolve(&[key("a")], of(20), NOW), "it was over");
    assert!(waits(&mut register, &write(22, 1)), "the other doubt stands");
    assert!(register.resolve(&[key("a")], of(21), NOW));
    assert!(matches!(register.settle(&write(22, 1), NOW), Ok((AdmitDecision::Running(_), _))));
}

/// After a crash only epochs are known, and nothing of them is let in again; after an orderly end all of a token is.
#[test]
fn the_next_process_knows_marks_by_their_epochs_or_as_they_were() {
    let epochs = Epochs { write: Some(20), read: Some(25) };
    let known = |mark: Option<Watermark>| mark.map(|mark| (mark.token.number(), mark.exact));
    let (write, read) = recover_watermarks(&epochs, None);
    assert_eq!((known(write), known(read)), (Some((20, false)), Some((25, false))));
    assert_eq!(recover_watermarks(&Epochs::default(), None), (None, None));
    let of = |epoch| Token::new(epoch, 3, 4).ok();
    let whole = KeyWatermarks { key: key("a"), write: of(20), read: of(21) };
    let marks = recover_watermarks(&epochs, Some(&whole));
    let exact = |token: Option<Token>| token.map(|token| Watermark { token, exact: true });
    assert_eq!(marks, (exact(of(20)), exact(of(21))));
}

#[test]
fn only_what_says_where_it_was_called_from_is_called() {
    assert!(called(20, 2, 1).is_callback() && !write(20, 1).is_callback());
}

/// Nobody looks again before that: a request that is not told waits until its patience ends.
#[tokio::test]
async fn who_waits_is_told_of_each_end_and_of_each_newer_token() {
    let until = NOW + Duration::from_secs(30);
    type EndDispatch<'a> = &'a dyn Fn(&mut AdmissionTable, DispatchId);
    let ends: [EndDispatch<'_>; 3] = [
        &|register, running| register.end(&write(20, 1), running, DispatchEnd::Known, NOW),
        &|register, running| register.end(&write(20, 1), running, DispatchEnd::InDoubt { until }, NOW),
        &|register, _| drop(register.announce(&write(22, 1), NOW).expect("newer")),
    ];
    for end in ends {
        let mut register = register();
        let running = runs(&mut register, &write(20, 1));
        register.announce(&write(21, 1), NOW).expect("newer");
        let Ok((AdmitDecision::Wait { told, .. }, _)) = register.settle(&write(21, 1), NOW) else {
            panic!("somebody is at work")
        };
        end(&mut register, running);
        tokio::time::timeout(Duration::from_secs(10), told).await.expect("told");
    }
}

#[tokio::test]
async fn who_waits_for_a_doubt_is_told_when_it_is_over() {
    let mut register = register();
    let running = runs(&mut register, &write(20, 1));
    let until = NOW + Duration::from_secs(30);
    register.end(&write(20, 1), running, DispatchEnd::InDoubt { until }, NOW);
    register.announce(&write(21, 1), NOW).expect("newer");
    let Ok((AdmitDecision::Wait { told, .. }, _)) = register.settle(&write(21, 1), NOW) else {
        panic!("somebody may be at work")
    };
    assert!(register.resolve(&[key("a")], Token::new(20, 0, 1).expect("small"), NOW));
    tokio::time::timeout(Duration::from_secs(10), told).await.expect("told");
}

#[test]
fn a_read_that_is_newer_than_the_last_write_runs() {
    let mut register = register();
    let running = runs(&mut register, &write(20, 1));
    register.end(&write(20, 1), running, DispatchEnd::Known, NOW);
    runs(&mut register, &read(21));
}

#[test]
fn a_doubt_that_an_orderly_end_has_written_down_closes_its_key() {
    let token = Token::new(20, 0, 1).expect("small");
    let doubt = UnresolvedExecution {
        keys: vec![key("a")],
        token,
        mode: Mode::Exclusive,
        remaining: EXECUTION,
        place: None,
    };
    let clean_stop = Some(CleanShutdown { doubts: vec![doubt], ..CleanShutdown::default() });
    let mut register = AdmissionTable::new(&RecoveredState { clean_stop, ..remembered() }, NOW, EXECUTION);
    assert!(waits(&mut register, &write(21, 1)));
    runs(&mut register, &claim("b", 21, 1, Mode::Exclusive));
    let over = register.settle(&write(21, 1), NOW + EXECUTION);
    assert!(matches!(over, Ok((AdmitDecision::Running(_), _))));
}
