//! Which keys have to wait after an unclean stop, and how many writes it costs to know them.

use super::*;
use crate::admission::{QuarantineReason, QuarantineScope};

const LINGER: Duration = Duration::from_secs(1);

fn settled(register: &mut AdmissionTable, claim: &Claim, now: BootInstant) -> (DispatchId, Vec<Change>) {
    register.announce(claim, now).expect("newer");
    match register.settle(claim, now).expect("the newest") {
        (AdmitDecision::Running(id), at_work) => (id, at_work),
        (AdmitDecision::Wait { .. }, _) => panic!("nothing is in the way"),
    }
}

fn rest(register: &mut AdmissionTable, now: BootInstant) -> Vec<Change> {
    register.release_resting(LINGER, 1000, now)
}

fn at_work(name: &str) -> Change {
    Change::AtWork { key: key(name) }
}

fn at_rest(name: &str) -> Change {
    Change::AtRest { key: key(name) }
}

#[test]
fn a_key_is_written_to_be_at_work_once_while_it_is_in_use_and_at_rest_some_time_after() {
    let mut register = register();
    let mut now = NOW;
    let mut written = Vec::new();
    for dispatch in 1..=100 {
        let (id, changes) = settled(&mut register, &write(20, dispatch), now);
        written.extend(changes);
        now = now + Duration::from_millis(30);
        assert_eq!(rest(&mut register, now), [], "in flight");
        register.end(&write(20, dispatch), id, DispatchEnd::Known, now);
        now = now + Duration::from_millis(900);
        assert_eq!(rest(&mut register, now), [], "used a moment ago");
    }
    assert_eq!(written, [at_work("a")]);
    assert_eq!(rest(&mut register, now + LINGER), [at_rest("a")]);
    assert_eq!(rest(&mut register, now + LINGER + LINGER), [], "once");
    assert_eq!(settled(&mut register, &write(20, 101), now + LINGER).1, [at_work("a")]);
}

#[test]
fn all_keys_of_a_set_are_at_work_and_readers_are_as_well() {
    let mut register = register();
    let set = Claim { keys: vec![key("a"), key("b")].into(), ..write(25, 1) };
    assert_eq!(settled(&mut register, &set, NOW).1, [at_work("a"), at_work("b")]);
    assert_eq!(settled(&mut register, &claim("r", 30, 1, Mode::Shared), NOW).1, [at_work("r")]);
    // A guard that only observes sends dispatches as well.
    assert_eq!(register.register(&claim("o", 30, 1, Mode::Exclusive), NOW).1, [at_work("o")]);
}

#[test]
fn what_is_in_doubt_is_at_work_until_the_doubt_is_over() {
    let mut register = register();
    for (name, epoch) in [("a", 20), ("b", 21)] {
        let one = claim(name, epoch, 1, Mode::Exclusive);
        let (id, _) = settled(&mut register, &one, NOW);
        register.end(&one, id, DispatchEnd::InDoubt { until: NOW + EXECUTION }, NOW);
    }
    let later = NOW + Duration::from_secs(20);
    assert_eq!(rest(&mut register, later), []);
    assert!(register.resolve(&[key("a")], write(20, 1).token, later));
    assert_eq!(rest(&mut register, later + LINGER), [at_rest("a")]);
    assert_eq!(register.doubts(), 1);
    assert_eq!(rest(&mut register, NOW + EXECUTION), []);
    assert_eq!(rest(&mut register, NOW + EXECUTION + LINGER), [at_rest("b")]);
    assert_eq!(register.doubts(), 0);
}

#[test]
fn after_an_unclean_stop_only_keys_that_were_at_work_wait() {
    let mut register = crashed(ActiveKeys::Keys(vec![key("a")]), None);
    assert_eq!(register.quarantine(NOW).map(|closed| closed.scope), Some(QuarantineScope::Keys(1)));
    let other = claim("b", 21, 1, Mode::Exclusive);
    assert!(matches!(
        register.announce(&claim("b", 20, 9, Mode::Exclusive), NOW),
        Err(AdmitError::Recovered { .. })
    ));
    settled(&mut register, &other, NOW);
    settled(&mut register, &claim("new", 21, 1, Mode::Exclusive), NOW);
    let both = Claim { keys: vec![key("a"), key("c")].into(), ..write(30, 1) };
    register.announce(&both, NOW).expect("newer");
    assert!(
        matches!(register.settle(&both, NOW), Err(AdmitError::Quarantine { .. })),
        "all of a set or none"
    );
    // The key stays in the store's list until then, so a second unclean stop loses nothing.
    assert_eq!(rest(&mut register, NOW + Duration::from_secs(29)), []);
    let evicted = evict(&mut register, NOW + EXECUTION, 0, NOW + Duration::from_secs(29));
    assert!(!evicted.contains(&Change::Forget { key: key("a") }), "{evicted:?}");
    assert_eq!(rest(&mut register, NOW + EXECUTION), []);
    assert_eq!(register.quarantine(NOW + EXECUTION), None);
    assert_eq!(rest(&mut register, NOW + EXECUTION + LINGER), [at_rest("a")]);
}

#[test]
fn quarantine_lasts_as_long_as_what_was_sent_under_an_older_and_longer_time() {
    let longer = Duration::from_secs(300);
    let register = crashed(ActiveKeys::Keys(vec![key("a")]), Some(longer));
    assert_eq!(register.quarantine(NOW).map(|closed| closed.until), Some(NOW + longer));
    let register = crashed(ActiveKeys::Keys(vec![key("a")]), Some(Duration::from_secs(1)));
    assert_eq!(register.quarantine(NOW).map(|closed| closed.until), Some(NOW + EXECUTION));
}

#[test]
fn every_key_waits_where_nobody_knows_which_are_at_work() {
    for (list, why) in [
        (ActiveKeys::NewStore, QuarantineReason::NewStore),
        (ActiveKeys::NotListed, QuarantineReason::OlderBuild),
    ] {
        let mut register = crashed(list, None);
        assert_eq!(register.quarantine(NOW).map(|closed| closed.scope), Some(QuarantineScope::EveryKey(why)));
        let new = claim("new", 21, 1, Mode::Exclusive);
        register.announce(&new, NOW).expect("newer");
        assert!(matches!(register.settle(&new, NOW), Err(AdmitError::Quarantine { .. })));
        assert_eq!(rest(&mut register, NOW + Duration::from_secs(29)), [], "a second stop finds the same");
        assert_eq!(rest(&mut register, NOW + EXECUTION), [Change::AtWorkListed]);
        assert_eq!(rest(&mut register, NOW + EXECUTION), []);
    }
}

#[test]
fn a_store_that_was_left_in_order_by_a_build_without_a_list_gets_one_with_all_doubts() {
    let doubt = UnresolvedExecution {
        keys: vec![key("d")],
        token: write(15, 1).token,
        mode: Mode::Exclusive,
        remaining: EXECUTION,
        place: None,
    };
    let stop = CleanShutdown { doubts: vec![doubt], ..CleanShutdown::default() };
    let left = RecoveredState { at_work: ActiveKeys::NotListed, clean_stop: Some(stop), ..remembered() };
    let mut register = AdmissionTable::new(&left, NOW, EXECUTION);
    assert_eq!(register.quarantine(NOW), None);
    assert_eq!(rest(&mut register, NOW), [at_work("d"), Change::AtWorkListed]);
}

#[test]
fn a_clean_stop_keeps_a_quarantine_for_its_keys_and_lets_others_rest() {
    let keys = ActiveKeys::Keys(vec![key("a")]);
    for (left, closed) in [(None, false), (Some(EXECUTION), true)] {
        let stop = CleanShutdown { quarantine: left, ..CleanShutdown::default() };
        let stopped = RecoveredState { at_work: keys.clone(), clean_stop: Some(stop), ..remembered() };
        let mut register = AdmissionTable::new(&stopped, NOW, EXECUTION);
        assert_eq!(register.quarantined_until(&[key("a")], NOW).is_some(), closed);
        assert_eq!(register.quarantined_until(&[key("b")], NOW), None);
        let rested = rest(&mut register, NOW + LINGER);
        assert_eq!(rested, if closed { vec![] } else { vec![at_rest("a")] });
    }
}

#[test]
fn keys_are_forgotten_in_batches_and_the_longest_unused_first() {
    let mut register = register();
    for (nth, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let now = NOW + Duration::from_secs(nth as u64);
        let one = claim(name, 20 + nth as u64, 1, Mode::Exclusive);
        let (id, _) = settled(&mut register, &one, now);
        register.end(&one, id, DispatchEnd::Known, now);
    }
    let now = NOW + Duration::from_secs(10);
    register.announce(&claim("a", 30, 1, Mode::Exclusive), now).expect("newer");
    let mut round = register.eviction_pass(NOW, 2);
    let forgotten = register.evict(&mut round, 2, now);
    assert!(forgotten.more);
    let names = |forgotten: EvictionStep| {
        let name = |change| match change {
            Change::Forget { key } => Some(key.as_str().to_owned()),
            _ => None,
        };
        forgotten.changes.into_iter().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(forgotten), ["b"], "`a` has been used since");
    assert_eq!(names(register.evict(&mut round, 2, now)), ["c"]);
    assert_eq!(names(register.evict(&mut round, 2, now)), [""; 0]);
    assert_eq!(register.len(), 2);
}

#[test]
fn people_are_told_how_much_is_closed() {
    let told = [
        QuarantineScope::Keys(1),
        QuarantineScope::Keys(2),
        QuarantineScope::EveryKey(QuarantineReason::NewStore),
    ]
    .map(|scope| scope.to_string());
    assert_eq!(told, ["1 key", "2 keys", "every key"]);
}
