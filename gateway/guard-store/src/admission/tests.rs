mod at_the_mark;
mod at_work;
mod watched;

use std::{collections::HashMap, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::BootInstant;

use super::*;
use crate::{
    error::DispatchRefusedError,
    store::{
        CleanShutdownState, DurableKeyWatermarks, InDoubtExecutionRecord, RecoveredActiveKeys,
        RecoveredState, StoreIdentity, StoreMutation,
    },
};

fn recovered_state() -> RecoveredState {
    RecoveredState {
        identity: StoreIdentity { format: 1, store: "s".into(), ensemble: "e".into() },
        floor: 10,
        era: 0,
        time: 0,
        max_execution: None,
        marks: HashMap::new(),
        at_work: RecoveredActiveKeys::Keys(Vec::new()),
        clean_stop: Some(CleanShutdownState::default()),
    }
}

const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000);

fn claim(key: &str, epoch: u64, dispatch: u32, mode: LockMode) -> PresentedDispatch {
    PresentedDispatch {
        keys: vec![ResourceKey::parse(key).expect("a key")].into(),
        token: FencingToken::new(epoch, 0, dispatch).expect("small"),
        mode,
        era: None,
        parent: None,
    }
}

fn write_claim(epoch: u64, dispatch: u32) -> PresentedDispatch {
    claim("a", epoch, dispatch, LockMode::Exclusive)
}

fn read_claim(epoch: u64) -> PresentedDispatch {
    claim("a", epoch, 1, LockMode::Shared)
}

fn admission_table() -> AdmissionTable {
    AdmissionTable::new(&recovered_state(), NOW, EXECUTION)
}

const EXECUTION: Duration = Duration::from_secs(30);

fn key(name: &str) -> ResourceKey {
    ResourceKey::parse(name).expect("a key")
}

/// An admission table that begins with the stored state of the keys `a` and `b` after a kill.
fn table_after_kill(at_work: RecoveredActiveKeys, max_execution: Option<Duration>) -> AdmissionTable {
    let marks = ["a", "b"].map(|name| (key(name), DurableKeyWatermarks { write: Some(20), read: None }));
    let crashed =
        RecoveredState { marks: marks.into(), at_work, max_execution, clean_stop: None, ..recovered_state() };
    AdmissionTable::new(&crashed, NOW, EXECUTION)
}

fn evict(
    table: &mut AdmissionTable,
    idle_since: BootInstant,
    most: usize,
    now: BootInstant,
) -> Vec<StoreMutation> {
    let mut round = table.begin_eviction_pass(idle_since, most);
    table.evict_step(&mut round, 1000, now).changes
}

fn start_dispatch(table: &mut AdmissionTable, claim: &PresentedDispatch) -> DispatchId {
    table.check_and_raise_watermarks(claim, NOW).expect("newer");
    match table.check_and_register(claim, NOW).expect("the newest") {
        (AdmitDecision::Running(id), _) => id,
        (AdmitDecision::Wait { .. }, _) => panic!("nothing is in the way"),
    }
}

/// Only the first dispatch of a tenure writes to the store; later ones change nothing there.
#[test]
fn later_dispatch_of_grant_writes_nothing() {
    let mut table = admission_table();
    assert_eq!(table.check_and_raise_watermarks(&write_claim(20, 1), NOW).expect("newer").len(), 1);
    assert_eq!(table.check_and_raise_watermarks(&write_claim(20, 2), NOW).expect("newer").len(), 0);
    assert_eq!(table.check_and_raise_watermarks(&write_claim(21, 1), NOW).expect("newer").len(), 1);
}

/// A token of the same tenure that is not newer is a duplicate; a token of an older tenure is stale.
#[test]
fn repeated_dispatch_is_duplicate_older_stale() {
    let mut table = admission_table();
    table.check_and_raise_watermarks(&write_claim(20, 2), NOW).expect("newer");
    for dispatch in [1, 2] {
        let refused = table.check_and_raise_watermarks(&write_claim(20, dispatch), NOW);
        assert!(matches!(refused, Err(DispatchRefusedError::Duplicate { .. })), "{refused:?}");
    }
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(19, 9), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
}

/// A claim that waited runs only if its token is still exactly the newest; otherwise it is stale.
#[test]
fn waiter_runs_only_as_newest() {
    let mut table = admission_table();
    let old = write_claim(20, 1);
    let running = start_dispatch(&mut table, &old);
    let second = write_claim(21, 1);
    let third = write_claim(22, 1);
    table.check_and_raise_watermarks(&second, NOW).expect("newer");
    assert!(matches!(
        table.check_and_register(&second, NOW),
        Ok((AdmitDecision::Wait { doubt: None, .. }, _))
    ));
    table.check_and_raise_watermarks(&third, NOW).expect("newer");
    table.end_dispatch(&old, running, DispatchEnd::Known, NOW);
    assert!(matches!(table.check_and_register(&second, NOW), Err(DispatchRefusedError::Stale { .. })));
    assert!(matches!(table.check_and_register(&third, NOW), Ok((AdmitDecision::Running(_), _))));
}

/// A dispatch in doubt closes its key until the doubt is over, also for later dispatches of its own tenure.
#[test]
fn doubt_closes_key_for_own_grant() {
    let mut table = admission_table();
    let old = write_claim(20, 1);
    let running = start_dispatch(&mut table, &old);
    let until = NOW + Duration::from_secs(30);
    table.end_dispatch(&old, running, DispatchEnd::InDoubt { until }, NOW);
    let next = write_claim(20, 2);
    table.check_and_raise_watermarks(&next, NOW).expect("newer");
    assert!(matches!(
        table.check_and_register(&next, NOW),
        Ok((AdmitDecision::Wait { doubt: Some(_), .. }, _))
    ));
    assert!(matches!(table.check_and_register(&next, until), Ok((AdmitDecision::Running(_), _))));
}

/// A callback of the dispatch `parent` of its tenure.
fn callback_claim(epoch: u64, dispatch: u32, parent: u32) -> PresentedDispatch {
    let parent = FencingToken::new(epoch, 0, parent).ok();
    PresentedDispatch { parent, ..write_claim(epoch, dispatch) }
}

fn must_wait(table: &mut AdmissionTable, claim: &PresentedDispatch) -> bool {
    table.check_and_raise_watermarks(claim, NOW).expect("newer");
    matches!(table.check_and_register(claim, NOW), Ok((AdmitDecision::Wait { .. }, _)))
}

/// A callback runs beside the dispatch that called it and beside all callers above that; two callbacks of one caller
/// do not.
#[test]
fn callback_runs_beside_its_callers() {
    let mut table = admission_table();
    start_dispatch(&mut table, &write_claim(20, 1));
    assert!(must_wait(&mut table, &write_claim(20, 2)), "another dispatch of the tenure is none of its own");
    start_dispatch(&mut table, &callback_claim(20, 3, 1));
    start_dispatch(&mut table, &callback_claim(20, 4, 3));
    assert!(must_wait(&mut table, &callback_claim(20, 5, 1)), "one after the other");
    assert!(must_wait(&mut table, &callback_claim(20, 6, 3)), "one after the other");
}

/// A callback runs beside its parent only if the parent is in flight and of the same tenure.
#[test]
fn callback_needs_running_parent_of_grant() {
    let mut table = admission_table();
    start_dispatch(&mut table, &write_claim(20, 1));
    assert!(must_wait(&mut table, &callback_claim(20, 2, 7)), "no such dispatch");
    let parent = FencingToken::new(20, 0, 1).ok();
    let stranger = PresentedDispatch { parent, ..write_claim(21, 1) };
    assert!(must_wait(&mut table, &stranger), "of another tenure");
}

/// A callback that outlives its caller keeps the key, and a doubt about the callback closes it.
#[test]
fn callback_outliving_caller_keeps_key() {
    let mut table = admission_table();
    let outer = write_claim(20, 1);
    let inner = callback_claim(20, 2, 1);
    let running = start_dispatch(&mut table, &outer);
    let begun = start_dispatch(&mut table, &inner);
    table.end_dispatch(&outer, running, DispatchEnd::Known, NOW);
    let next = write_claim(20, 3);
    assert!(must_wait(&mut table, &next), "what was called still runs");
    table.end_dispatch(&inner, begun, DispatchEnd::Known, NOW);
    assert!(matches!(table.check_and_register(&next, NOW), Ok((AdmitDecision::Running(_), _))));

    let until = NOW + Duration::from_secs(30);
    let inner = callback_claim(20, 4, 3);
    let begun = start_dispatch(&mut table, &inner);
    table.end_dispatch(&inner, begun, DispatchEnd::InDoubt { until }, NOW);
    assert!(must_wait(&mut table, &callback_claim(20, 5, 3)), "what was called may be at work");
}

#[test]
fn read_in_doubt_blocks_only_writes() {
    let mut table = admission_table();
    let reader = read_claim(20);
    let running = start_dispatch(&mut table, &reader);
    table.end_dispatch(&reader, running, DispatchEnd::InDoubt { until: NOW + Duration::from_secs(30) }, NOW);
    start_dispatch(&mut table, &read_claim(21));
    let writer = write_claim(22, 1);
    table.check_and_raise_watermarks(&writer, NOW).expect("newer");
    assert!(matches!(table.check_and_register(&writer, NOW), Ok((AdmitDecision::Wait { .. }, _))));
}

/// Readers run beside each other; a writer waits for them, and a read older than the writer's token is stale.
#[test]
fn readers_run_together_without_writer() {
    let mut table = admission_table();
    start_dispatch(&mut table, &read_claim(22));
    start_dispatch(&mut table, &read_claim(20));
    let writer = write_claim(23, 1);
    table.check_and_raise_watermarks(&writer, NOW).expect("newer");
    assert!(matches!(table.check_and_register(&writer, NOW), Ok((AdmitDecision::Wait { .. }, _))));
    assert!(matches!(
        table.check_and_raise_watermarks(&read_claim(21), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(21, 1), NOW),
        Err(DispatchRefusedError::Stale { .. })
    ));
}

/// After an unclean stop the recovered tenure is refused, and a newer one runs only once the quarantine is over.
#[test]
fn unclean_stop_refuses_tenure_then_quarantines() {
    let mut table = table_after_kill(RecoveredActiveKeys::Keys(vec![key("a")]), None);
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(20, 7), NOW),
        Err(DispatchRefusedError::Recovered { epoch: 20 })
    ));
    let next = write_claim(21, 1);
    table.check_and_raise_watermarks(&next, NOW).expect("newer");
    assert!(matches!(table.check_and_register(&next, NOW), Err(DispatchRefusedError::Quarantine { .. })));
    assert!(matches!(table.check_and_register(&next, NOW + EXECUTION), Ok((AdmitDecision::Running(_), _))));
}

/// The last write was evicted with its key, and a read has recreated the key: tokens up to the floor are still
/// refused.
#[test]
fn floor_holds_for_recreated_key() {
    let mut table = admission_table();
    let writer = write_claim(20, 1);
    let running = start_dispatch(&mut table, &writer);
    table.end_dispatch(&writer, running, DispatchEnd::Known, NOW);
    let later = NOW + Duration::from_secs(7200);
    let changes = evict(&mut table, NOW + Duration::from_secs(3600), usize::MAX, later);
    assert_eq!(changes.last(), Some(&StoreMutation::Floor(20)));
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(20, 2), later),
        Err(DispatchRefusedError::Floor { floor: 20 })
    ));
    table.check_and_raise_watermarks(&read_claim(25), later).expect("above the floor");
    assert!(matches!(
        table.check_and_raise_watermarks(&read_claim(15), later),
        Err(DispatchRefusedError::Floor { .. })
    ));
}

/// A key with a dispatch in flight or in doubt is not evicted.
#[test]
fn busy_key_is_kept() {
    let mut table = admission_table();
    let writer = write_claim(20, 1);
    let running = start_dispatch(&mut table, &writer);
    let later = NOW + Duration::from_secs(7200);
    assert!(evict(&mut table, later, 0, later).is_empty());
    table.end_dispatch(
        &writer,
        running,
        DispatchEnd::InDoubt { until: later + Duration::from_secs(1) },
        later,
    );
    assert!(evict(&mut table, later, 0, later).is_empty());
    assert!(!evict(&mut table, later, 0, later + Duration::from_secs(1)).is_empty());
}

/// An eviction pass skips keys that have to stay, and ends when only such keys are left.
#[test]
fn eviction_pass_ends_past_busy_keys() {
    let mut table = admission_table();
    for name in ["a", "b", "c", "d"] {
        start_dispatch(&mut table, &claim(name, 20, 1, LockMode::Exclusive));
    }
    table.check_and_raise_watermarks(&claim("idle", 20, 1, LockMode::Exclusive), NOW).expect("newer");
    let later = NOW + Duration::from_secs(7200);
    let mut forgotten = Vec::new();
    let mut round = table.begin_eviction_pass(later, usize::MAX);
    let steps = (1..100).find(|_| {
        let IdleKeyEvictionStep { changes, more } = table.evict_step(&mut round, 2, later);
        forgotten.extend(changes);
        !more
    });
    assert!(forgotten.contains(&StoreMutation::Forget { key: key("idle") }), "{forgotten:?}");
    assert_eq!((table.len(), steps), (4, Some(5)), "four keys are in flight, and none is looked at for ever");
}

/// A set of keys moves no watermark unless its token is new enough for all of them.
#[test]
fn rejected_set_moves_no_watermark() {
    let mut table = admission_table();
    start_dispatch(&mut table, &claim("b", 30, 1, LockMode::Exclusive));
    let set = PresentedDispatch { keys: vec![key("a"), key("b")].into(), ..write_claim(25, 1) };
    assert!(matches!(table.check_and_raise_watermarks(&set, NOW), Err(DispatchRefusedError::Stale { .. })));
    start_dispatch(&mut table, &write_claim(24, 1));
}

/// A token farther above all known ones than the largest jump is refused; the first token of a later era may jump
/// once.
#[test]
fn token_far_above_all_is_refused() {
    let mut table = admission_table();
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(i64::MAX as u64, 1), NOW),
        Err(DispatchRefusedError::Future { .. })
    ));
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(0, 1), NOW),
        Err(DispatchRefusedError::Floor { .. })
    ));
    let later = |epoch| PresentedDispatch { era: Some(1), ..write_claim(epoch, 1) };
    let changes = table.check_and_raise_watermarks(&later(1 << 50), NOW).expect("of a later era");
    assert!(changes.contains(&StoreMutation::Era(1)), "in one transaction with its watermark: {changes:?}");
    let refused = table.check_and_raise_watermarks(&later(1 << 60), NOW);
    assert!(matches!(refused, Err(DispatchRefusedError::Future { .. })), "an era jumps once: {refused:?}");
}

/// A token that is refused does not use up the one jump of its era.
#[test]
fn refused_token_keeps_era_jump() {
    let mut table = admission_table();
    let later = |key, epoch| PresentedDispatch { era: Some(1), ..claim(key, epoch, 1, LockMode::Exclusive) };
    assert!(matches!(
        table.check_and_raise_watermarks(&later("a", 5), NOW),
        Err(DispatchRefusedError::Floor { .. })
    ));
    table.check_and_raise_watermarks(&later("a", 1 << 50), NOW).expect("the first of its era");
}

/// At a guard that only observes, a token that would have been refused raises no watermark that would admit others.
#[test]
fn observed_stale_token_raises_no_watermark() {
    let mut table = admission_table();
    assert_eq!(
        table.raise_watermarks(&write_claim(5, 1), NOW),
        [],
        "up to the floor its watermark may have been forgotten"
    );
    assert!(matches!(
        table.check_and_raise_watermarks(&write_claim(7, 1), NOW),
        Err(DispatchRefusedError::Floor { .. })
    ));
    assert_eq!(
        table.raise_watermarks(&write_claim(i64::MAX as u64, 1), NOW),
        [],
        "nothing would ever be newer"
    );
    start_dispatch(&mut table, &write_claim(20, 1));
}
