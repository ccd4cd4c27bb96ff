//! Which keys have to wait after an unclean stop, and how many writes the list of keys at work costs.

use super::*;
use crate::admission::{QuarantineReason, QuarantineScope};

const LINGER: Duration = Duration::from_secs(1);

fn settle_claim(
    table: &mut AdmissionTable,
    claim: &PresentedDispatch,
    now: BootInstant,
) -> (DispatchId, Vec<StoreMutation>) {
    table.check_and_raise_watermarks(claim, now).expect("newer");
    match table.check_and_register(claim, now).expect("the newest") {
        (AdmitDecision::Running(id), at_work) => (id, at_work),
        (AdmitDecision::Wait { .. }, _) => panic!("nothing is in the way"),
    }
}

fn release_rested(table: &mut AdmissionTable, now: BootInstant) -> Vec<StoreMutation> {
    table.delist_idle_keys(LINGER, 1000, now)
}

fn at_work(name: &str) -> StoreMutation {
    StoreMutation::AtWork { key: key(name) }
}

fn at_rest(name: &str) -> StoreMutation {
    StoreMutation::AtRest { key: key(name) }
}

/// A key in use is written as at work once; it is written as at rest only after it was unused for some time.
#[test]
fn busy_key_is_marked_active_once() {
    let mut table = admission_table();
    let mut now = NOW;
    let mut written = Vec::new();
    for dispatch in 1..=100 {
        let (id, changes) = settle_claim(&mut table, &write_claim(20, dispatch), now);
        written.extend(changes);
        now = now + Duration::from_millis(30);
        assert_eq!(release_rested(&mut table, now), [], "in flight");
        table.end_dispatch(&write_claim(20, dispatch), id, DispatchEnd::Known, now);
        now = now + Duration::from_millis(900);
        assert_eq!(release_rested(&mut table, now), [], "used a moment ago");
    }
    assert_eq!(written, [at_work("a")]);
    assert_eq!(release_rested(&mut table, now + LINGER), [at_rest("a")]);
    assert_eq!(release_rested(&mut table, now + LINGER + LINGER), [], "once");
    assert_eq!(settle_claim(&mut table, &write_claim(20, 101), now + LINGER).1, [at_work("a")]);
}

/// All keys of a set are marked as at work, as are those of reads and of dispatches that are only observed.
#[test]
fn sets_and_reads_mark_keys_active() {
    let mut table = admission_table();
    let set = PresentedDispatch { keys: vec![key("a"), key("b")].into(), ..write_claim(25, 1) };
    assert_eq!(settle_claim(&mut table, &set, NOW).1, [at_work("a"), at_work("b")]);
    assert_eq!(settle_claim(&mut table, &claim("r", 30, 1, LockMode::Shared), NOW).1, [at_work("r")]);
    // A guard that only observes registers dispatches in this way. Their keys are at work, too.
    assert_eq!(table.register_dispatch(&claim("o", 30, 1, LockMode::Exclusive), NOW).1, [at_work("o")]);
}

/// A key in doubt stays marked as at work until its doubt is over.
#[test]
fn key_in_doubt_stays_active() {
    let mut table = admission_table();
    for (name, epoch) in [("a", 20), ("b", 21)] {
        let one = claim(name, epoch, 1, LockMode::Exclusive);
        let (id, _) = settle_claim(&mut table, &one, NOW);
        table.end_dispatch(&one, id, DispatchEnd::InDoubt { until: NOW + EXECUTION }, NOW);
    }
    let later = NOW + Duration::from_secs(20);
    assert_eq!(release_rested(&mut table, later), []);
    assert!(table.resolve_doubt(&[key("a")], write_claim(20, 1).token, later));
    assert_eq!(release_rested(&mut table, later + LINGER), [at_rest("a")]);
    assert_eq!(table.doubt_count(), 1);
    assert_eq!(release_rested(&mut table, NOW + EXECUTION), []);
    assert_eq!(release_rested(&mut table, NOW + EXECUTION + LINGER), [at_rest("b")]);
    assert_eq!(table.doubt_count(), 0);
}

/// After an unclean stop, only claims with a key that was at work wait for the end of the quarantine.
#[test]
fn unclean_stop_quarantines_only_active_keys() {
    let mut table = table_after_kill(RecoveredActiveKeys::Keys(vec![key("a")]), None);
    assert_eq!(table.quarantine(NOW).map(|closed| closed.scope), Some(QuarantineScope::Keys(1)));
    let other = claim("b", 21, 1, LockMode::Exclusive);
    assert!(matches!(
        table.check_and_raise_watermarks(&claim("b", 20, 9, LockMode::Exclusive), NOW),
        Err(DispatchRefusedError::Recovered { .. })
    ));
    settle_claim(&mut table, &other, NOW);
    settle_claim(&mut table, &claim("new", 21, 1, LockMode::Exclusive), NOW);
    let both = PresentedDispatch { keys: vec![key("a"), key("c")].into(), ..write_claim(30, 1) };
    table.check_and_raise_watermarks(&both, NOW).expect("newer");
    assert!(
        matches!(table.check_and_register(&both, NOW), Err(DispatchRefusedError::Quarantine { .. })),
        "all of a set or none"
    );
    // The key stays in the store's list until the quarantine ends, so a second unclean stop loses nothing.
    assert_eq!(release_rested(&mut table, NOW + Duration::from_secs(29)), []);
    let evicted = evict(&mut table, NOW + EXECUTION, 0, NOW + Duration::from_secs(29));
    assert!(!evicted.contains(&StoreMutation::Forget { key: key("a") }), "{evicted:?}");
    assert_eq!(release_rested(&mut table, NOW + EXECUTION), []);
    assert_eq!(table.quarantine(NOW + EXECUTION), None);
    assert_eq!(release_rested(&mut table, NOW + EXECUTION + LINGER), [at_rest("a")]);
}

/// The quarantine lasts for the longer of the present and the former `max_execution`.
#[test]
fn quarantine_covers_longer_former_execution_limit() {
    let longer = Duration::from_secs(300);
    let table = table_after_kill(RecoveredActiveKeys::Keys(vec![key("a")]), Some(longer));
    assert_eq!(table.quarantine(NOW).map(|closed| closed.until), Some(NOW + longer));
    let table = table_after_kill(RecoveredActiveKeys::Keys(vec![key("a")]), Some(Duration::from_secs(1)));
    assert_eq!(table.quarantine(NOW).map(|closed| closed.until), Some(NOW + EXECUTION));
}

/// Without a list of the keys at work, every key is in quarantine, and the list is written when it ends.
#[test]
fn unknown_active_keys_quarantine_every_key() {
    for (list, reason) in [
        (RecoveredActiveKeys::NewStore, QuarantineReason::NewStore),
        (RecoveredActiveKeys::NotListed, QuarantineReason::OlderBuild),
    ] {
        let mut table = table_after_kill(list, None);
        assert_eq!(table.quarantine(NOW).map(|closed| closed.scope), Some(QuarantineScope::EveryKey(reason)));
        let new = claim("new", 21, 1, LockMode::Exclusive);
        table.check_and_raise_watermarks(&new, NOW).expect("newer");
        assert!(matches!(table.check_and_register(&new, NOW), Err(DispatchRefusedError::Quarantine { .. })));
        assert_eq!(
            release_rested(&mut table, NOW + Duration::from_secs(29)),
            [],
            "a second stop finds the same"
        );
        assert_eq!(release_rested(&mut table, NOW + EXECUTION), [StoreMutation::AtWorkListed]);
        assert_eq!(release_rested(&mut table, NOW + EXECUTION), []);
    }
}

/// A store that an older build left in order, without a list of keys at work, gets a list with the keys of all
/// doubts.
#[test]
fn clean_stop_without_list_lists_doubts() {
    let doubt = InDoubtExecutionRecord {
        keys: vec![key("d")],
        token: write_claim(15, 1).token,
        mode: LockMode::Exclusive,
        remaining: EXECUTION,
        place: None,
    };
    let stop = CleanShutdownState { doubts: vec![doubt], ..CleanShutdownState::default() };
    let left = RecoveredState {
        at_work: RecoveredActiveKeys::NotListed,
        clean_stop: Some(stop),
        ..recovered_state()
    };
    let mut table = AdmissionTable::new(&left, NOW, EXECUTION);
    assert_eq!(table.quarantine(NOW), None);
    assert_eq!(release_rested(&mut table, NOW), [at_work("d"), StoreMutation::AtWorkListed]);
}

/// A clean stop keeps an open quarantine for its keys; without one, the keys are released.
#[test]
fn clean_stop_keeps_open_quarantine() {
    let keys = RecoveredActiveKeys::Keys(vec![key("a")]);
    for (left, closed) in [(None, false), (Some(EXECUTION), true)] {
        let stop = CleanShutdownState { quarantine: left, ..CleanShutdownState::default() };
        let stopped = RecoveredState { at_work: keys.clone(), clean_stop: Some(stop), ..recovered_state() };
        let mut table = AdmissionTable::new(&stopped, NOW, EXECUTION);
        assert_eq!(table.quarantined_until(&[key("a")], NOW).is_some(), closed);
        assert_eq!(table.quarantined_until(&[key("b")], NOW), None);
        let rested = release_rested(&mut table, NOW + LINGER);
        assert_eq!(rested, if closed { vec![] } else { vec![at_rest("a")] });
    }
}

/// Eviction goes in batches, and takes the keys first that were unused for longest.
#[test]
fn eviction_takes_least_recently_used_first() {
    let mut table = admission_table();
    for (nth, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let now = NOW + Duration::from_secs(nth as u64);
        let one = claim(name, 20 + nth as u64, 1, LockMode::Exclusive);
        let (id, _) = settle_claim(&mut table, &one, now);
        table.end_dispatch(&one, id, DispatchEnd::Known, now);
    }
    let now = NOW + Duration::from_secs(10);
    table.check_and_raise_watermarks(&claim("a", 30, 1, LockMode::Exclusive), now).expect("newer");
    let mut round = table.begin_eviction_pass(NOW, 2);
    let forgotten = table.evict_step(&mut round, 2, now);
    assert!(forgotten.more);
    let names = |forgotten: IdleKeyEvictionStep| {
        let name = |change| match change {
            StoreMutation::Forget { key } => Some(key.as_str().to_owned()),
            _ => None,
        };
        forgotten.changes.into_iter().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(forgotten), ["b"], "`a` has been used since");
    assert_eq!(names(table.evict_step(&mut round, 2, now)), ["c"]);
    assert_eq!(names(table.evict_step(&mut round, 2, now)), [""; 0]);
    assert_eq!(table.len(), 2);
}

#[test]
fn quarantine_scope_shows_closed_keys() {
    let told = [
        QuarantineScope::Keys(1),
        QuarantineScope::Keys(2),
        QuarantineScope::EveryKey(QuarantineReason::NewStore),
    ]
    .map(|scope| scope.to_string());
    assert_eq!(told, ["1 key", "2 keys", "every key"]);
}
