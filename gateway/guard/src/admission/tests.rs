mod at_the_mark;
mod at_work;
mod watched;

use std::{collections::HashMap, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use fencegate_process::clock::BootInstant;

use super::*;
use crate::{
    error::AdmitError,
    store::{ActiveKeys, Change, CleanShutdown, Epochs, RecoveredState, StoreIdentity, UnresolvedExecution},
};

fn remembered() -> RecoveredState {
    RecoveredState {
        identity: StoreIdentity { format: 1, store: "s".into(), ensemble: "e".into() },
        floor: 10,
        era: 0,
        time: 0,
        max_execution: None,
        marks: HashMap::new(),
        at_work: ActiveKeys::Keys(Vec::new()),
        clean_stop: Some(CleanShutdown::default()),
    }
}

const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000);

fn claim(key: &str, epoch: u64, dispatch: u32, mode: Mode) -> Claim {
    Claim {
        keys: vec![ResourceKey::parse(key).expect("a key")].into(),
        token: Token::new(epoch, 0, dispatch).expect("small"),
        mode,
        era: None,
        parent: None,
    }
}

fn write(epoch: u64, dispatch: u32) -> Claim {
    claim("a", epoch, dispatch, Mode::Exclusive)
}

fn read(epoch: u64) -> Claim {
    claim("a", epoch, 1, Mode::Shared)
}

fn register() -> AdmissionTable {
    AdmissionTable::new(&remembered(), NOW, EXECUTION)
}

const EXECUTION: Duration = Duration::from_secs(30);

fn key(name: &str) -> ResourceKey {
    ResourceKey::parse(name).expect("a key")
}

/// A register that begins with what the store knows of the keys `a` and `b` after a kill.
fn crashed(at_work: ActiveKeys, max_execution: Option<Duration>) -> AdmissionTable {
    let marks = ["a", "b"].map(|name| (key(name), Epochs { write: Some(20), read: None }));
    let crashed =
        RecoveredState { marks: marks.into(), at_work, max_execution, clean_stop: None, ..remembered() };
    AdmissionTable::new(&crashed, NOW, EXECUTION)
}

fn evict(
    register: &mut AdmissionTable,
    idle_since: BootInstant,
    most: usize,
    now: BootInstant,
) -> Vec<Change> {
    let mut round = register.eviction_pass(idle_since, most);
    register.evict(&mut round, 1000, now).changes
}

fn runs(register: &mut AdmissionTable, claim: &Claim) -> DispatchId {
    register.announce(claim, NOW).expect("newer");
    match register.settle(claim, NOW).expect("the newest") {
        (AdmitDecision::Running(id), _) => id,
        (AdmitDecision::Wait { .. }, _) => panic!("nothing is in the way"),
    }
}

#[test]
fn a_later_dispatch_of_a_tenure_costs_no_write() {
    let mut register = register();
    assert_eq!(register.announce(&write(20, 1), NOW).expect("newer").len(), 1);
    assert_eq!(register.announce(&write(20, 2), NOW).expect("newer").len(), 0);
    assert_eq!(register.announce(&write(21, 1), NOW).expect("newer").len(), 1);
}

#[test]
fn a_token_of_the_same_tenure_is_a_duplicate_and_an_older_one_stale() {
    let mut register = register();
    register.announce(&write(20, 2), NOW).expect("newer");
    for dispatch in [1, 2] {
        let refused = register.announce(&write(20, dispatch), NOW);
        assert!(matches!(refused, Err(AdmitError::Duplicate { .. })), "{refused:?}");
    }
    assert!(matches!(register.announce(&write(19, 9), NOW), Err(AdmitError::Stale { .. })));
}

#[test]
fn who_waited_is_let_in_only_if_it_is_still_exactly_the_newest() {
    let mut register = register();
    let old = write(20, 1);
    let running = runs(&mut register, &old);
    let (second, third) = (write(21, 1), write(22, 1));
    register.announce(&second, NOW).expect("newer");
    assert!(matches!(register.settle(&second, NOW), Ok((AdmitDecision::Wait { doubt: None, .. }, _))));
    register.announce(&third, NOW).expect("newer");
    register.end(&old, running, DispatchEnd::Known, NOW);
    assert!(matches!(register.settle(&second, NOW), Err(AdmitError::Stale { .. })));
    assert!(matches!(register.settle(&third, NOW), Ok((AdmitDecision::Running(_), _))));
}

#[test]
fn a_doubt_closes_the_key_for_its_own_tenure_too_until_it_is_over() {
    let mut register = register();
    let old = write(20, 1);
    let running = runs(&mut register, &old);
    let until = NOW + Duration::from_secs(30);
    register.end(&old, running, DispatchEnd::InDoubt { until }, NOW);
    let next = write(20, 2);
    register.announce(&next, NOW).expect("newer");
    assert!(matches!(register.settle(&next, NOW), Ok((AdmitDecision::Wait { doubt: Some(_), .. }, _))));
    assert!(matches!(register.settle(&next, until), Ok((AdmitDecision::Running(_), _))));
}

/// A callback of the dispatch `parent` of its tenure.
fn called(epoch: u64, dispatch: u32, parent: u32) -> Claim {
    let parent = Token::new(epoch, 0, parent).ok();
    Claim { parent, ..write(epoch, dispatch) }
}

fn waits(register: &mut AdmissionTable, claim: &Claim) -> bool {
    register.announce(claim, NOW).expect("newer");
    matches!(register.settle(claim, NOW), Ok((AdmitDecision::Wait { .. }, _)))
}

#[test]
fn what_a_dispatch_calls_runs_beside_it_and_beside_all_that_has_called_it() {
    let mut register = register();
    runs(&mut register, &write(20, 1));
    assert!(waits(&mut register, &write(20, 2)), "another dispatch of the tenure is none of its own");
    runs(&mut register, &called(20, 3, 1));
    runs(&mut register, &called(20, 4, 3));
    assert!(waits(&mut register, &called(20, 5, 1)), "one after the other");
    assert!(waits(&mut register, &called(20, 6, 3)), "one after the other");
}

#[test]
fn only_what_is_in_flight_and_of_its_tenure_lets_it_run_beside() {
    let mut register = register();
    runs(&mut register, &write(20, 1));
    assert!(waits(&mut register, &called(20, 2, 7)), "no such dispatch");
    let parent = Token::new(20, 0, 1).ok();
    let stranger = Claim { parent, ..write(21, 1) };
    assert!(waits(&mut register, &stranger), "of another tenure");
}

#[test]
fn what_outlives_its_caller_keeps_the_key_and_a_doubt_about_either_closes_it() {
    let mut register = register();
    let (outer, inner) = (write(20, 1), called(20, 2, 1));
    let running = runs(&mut register, &outer);
    let begun = runs(&mut register, &inner);
    register.end(&outer, running, DispatchEnd::Known, NOW);
    let next = write(20, 3);
    assert!(waits(&mut register, &next), "what was called still runs");
    register.end(&inner, begun, DispatchEnd::Known, NOW);
    assert!(matches!(register.settle(&next, NOW), Ok((AdmitDecision::Running(_), _))));

    let until = NOW + Duration::from_secs(30);
    let inner = called(20, 4, 3);
    let begun = runs(&mut register, &inner);
    register.end(&inner, begun, DispatchEnd::InDoubt { until }, NOW);
    assert!(waits(&mut register, &called(20, 5, 3)), "what was called may be at work");
}

#[test]
fn a_doubtful_read_is_in_the_way_of_writes_only() {
    let mut register = register();
    let reader = read(20);
    let running = runs(&mut register, &reader);
    register.end(&reader, running, DispatchEnd::InDoubt { until: NOW + Duration::from_secs(30) }, NOW);
    runs(&mut register, &read(21));
    let writer = write(22, 1);
    register.announce(&writer, NOW).expect("newer");
    assert!(matches!(register.settle(&writer, NOW), Ok((AdmitDecision::Wait { .. }, _))));
}

#[test]
fn readers_run_beside_each_other_and_never_beside_a_writer() {
    let mut register = register();
    runs(&mut register, &read(22));
    runs(&mut register, &read(20));
    let writer = write(23, 1);
    register.announce(&writer, NOW).expect("newer");
    assert!(matches!(register.settle(&writer, NOW), Ok((AdmitDecision::Wait { .. }, _))));
    assert!(matches!(register.announce(&read(21), NOW), Err(AdmitError::Stale { .. })));
    assert!(matches!(register.announce(&write(21, 1), NOW), Err(AdmitError::Stale { .. })));
}

#[test]
fn after_an_unclean_stop_the_running_tenure_is_refused_once_and_nothing_runs_in_quarantine() {
    let mut register = crashed(ActiveKeys::Keys(vec![key("a")]), None);
    assert!(matches!(register.announce(&write(20, 7), NOW), Err(AdmitError::Recovered { epoch: 20 })));
    let next = write(21, 1);
    register.announce(&next, NOW).expect("newer");
    assert!(matches!(register.settle(&next, NOW), Err(AdmitError::Quarantine { .. })));
    assert!(matches!(register.settle(&next, NOW + EXECUTION), Ok((AdmitDecision::Running(_), _))));
}

/// The key was forgotten with its last write, and a reader began it anew.
#[test]
fn a_key_that_a_reader_began_anew_knows_the_floor() {
    let mut register = register();
    let writer = write(20, 1);
    let running = runs(&mut register, &writer);
    register.end(&writer, running, DispatchEnd::Known, NOW);
    let later = NOW + Duration::from_secs(7200);
    let changes = evict(&mut register, NOW + Duration::from_secs(3600), usize::MAX, later);
    assert_eq!(changes.last(), Some(&Change::Floor(20)));
    assert!(matches!(register.announce(&write(20, 2), later), Err(AdmitError::Floor { floor: 20 })));
    register.announce(&read(25), later).expect("above the floor");
    assert!(matches!(register.announce(&read(15), later), Err(AdmitError::Floor { .. })));
}

#[test]
fn a_key_with_something_in_flight_or_in_doubt_is_not_forgotten() {
    let mut register = register();
    let writer = write(20, 1);
    let running = runs(&mut register, &writer);
    let later = NOW + Duration::from_secs(7200);
    assert!(evict(&mut register, later, 0, later).is_empty());
    register.end(&writer, running, DispatchEnd::InDoubt { until: later + Duration::from_secs(1) }, later);
    assert!(evict(&mut register, later, 0, later).is_empty());
    assert!(!evict(&mut register, later, 0, later + Duration::from_secs(1)).is_empty());
}

#[test]
fn a_round_of_forgetting_gets_behind_what_has_to_stay_and_ends_where_everything_has_to() {
    let mut register = register();
    for name in ["a", "b", "c", "d"] {
        runs(&mut register, &claim(name, 20, 1, Mode::Exclusive));
    }
    register.announce(&claim("idle", 20, 1, Mode::Exclusive), NOW).expect("newer");
    let later = NOW + Duration::from_secs(7200);
    let mut forgotten = Vec::new();
    let mut round = register.eviction_pass(later, usize::MAX);
    let steps = (1..100).find(|_| {
        let EvictionStep { changes, more } = register.evict(&mut round, 2, later);
        forgotten.extend(changes);
        !more
    });
    assert!(forgotten.contains(&Change::Forget { key: key("idle") }), "{forgotten:?}");
    assert_eq!(
        (register.len(), steps),
        (4, Some(5)),
        "four keys are in flight, and none is looked at for ever"
    );
}

#[test]
fn a_set_moves_no_mark_unless_all_its_keys_agree() {
    let mut register = register();
    runs(&mut register, &claim("b", 30, 1, Mode::Exclusive));
    let set = Claim { keys: vec![key("a"), key("b")].into(), ..write(25, 1) };
    assert!(matches!(register.announce(&set, NOW), Err(AdmitError::Stale { .. })));
    runs(&mut register, &write(24, 1));
}

#[test]
fn a_token_far_above_all_others_is_of_another_world() {
    let mut register = register();
    assert!(matches!(register.announce(&write(i64::MAX as u64, 1), NOW), Err(AdmitError::Future { .. })));
    assert!(matches!(register.announce(&write(0, 1), NOW), Err(AdmitError::Floor { .. })));
    let later = |epoch| Claim { era: Some(1), ..write(epoch, 1) };
    let changes = register.announce(&later(1 << 50), NOW).expect("of a later era");
    assert!(changes.contains(&Change::Era(1)), "in one transaction with its mark: {changes:?}");
    let refused = register.announce(&later(1 << 60), NOW);
    assert!(matches!(refused, Err(AdmitError::Future { .. })), "an era jumps once: {refused:?}");
}

#[test]
fn an_era_is_not_used_up_by_a_token_that_is_refused() {
    let mut register = register();
    let later = |key, epoch| Claim { era: Some(1), ..claim(key, epoch, 1, Mode::Exclusive) };
    assert!(matches!(register.announce(&later("a", 5), NOW), Err(AdmitError::Floor { .. })));
    register.announce(&later("a", 1 << 50), NOW).expect("the first of its era");
}

/// For a guard that only observes.
#[test]
fn what_would_have_been_refused_leaves_no_mark_that_lets_others_in() {
    let mut register = register();
    assert_eq!(register.raise(&write(5, 1), NOW), [], "up to the floor its mark may have been forgotten");
    assert!(matches!(register.announce(&write(7, 1), NOW), Err(AdmitError::Floor { .. })));
    assert_eq!(register.raise(&write(i64::MAX as u64, 1), NOW), [], "nothing would ever be newer");
    runs(&mut register, &write(20, 1));
}
