//! Doubts that end only with time in which an endpoint was seen to run.

use super::*;
use crate::dispatch_target::DispatchTarget;

const SECOND: Duration = Duration::from_secs(1);

fn watched() -> AdmissionTable {
    let mut register = register();
    register.watch(watch(&["one:80", "two:80"]), NOW);
    register
}

fn watch(endpoints: &[&str]) -> EndpointWatch {
    EndpointWatch { endpoints: endpoints.iter().map(ToString::to_string).collect(), interval: SECOND }
}

fn one() -> DispatchTarget {
    DispatchTarget::for_endpoint("one:80")
}

fn two() -> DispatchTarget {
    DispatchTarget::for_endpoint("two:80")
}

/// Asks a place once a second from `from` on, each time answered at once. Returns the moment after the last answer.
fn answers(
    register: &mut AdmissionTable,
    place: &DispatchTarget,
    from: BootInstant,
    times: u32,
) -> BootInstant {
    let mut now = from;
    for _ in 0..times {
        register.record_alive(place, LivenessAnswer { asked: now, answered: now }, now);
        now = now + SECOND;
    }
    now - SECOND
}

/// A write of `a` is in doubt, and was sent to this place.
fn in_doubt(register: &mut AdmissionTable, epoch: u64, place: Option<DispatchTarget>) {
    let old = write(epoch, 1);
    register.announce(&old, NOW).expect("newer");
    let (AdmitDecision::Running(id), _) = register.settle(&old, NOW).expect("the newest") else {
        panic!("free")
    };
    register.end(&old, id, DispatchEnd::InDoubt { until: NOW + EXECUTION }, NOW);
    register.record_target(id, place, EXECUTION, NOW);
}

/// Whether the next write of `a` has to wait.
fn is_closed(register: &mut AdmissionTable, epoch: u64, now: BootInstant) -> bool {
    let next = write(epoch, 1);
    register.announce(&next, now).expect("newer");
    match register.settle(&next, now).expect("the newest").0 {
        AdmitDecision::Wait { doubt, .. } => {
            assert!(doubt.expect("only a doubt is in the way") > now, "whoever waits would look without end");
            true
        }
        AdmitDecision::Running(id) => {
            register.end(&next, id, DispatchEnd::Known, now);
            false
        }
    }
}

#[test]
fn the_clock_alone_opens_nothing() {
    let mut register = watched();
    in_doubt(&mut register, 20, Some(one()));
    let later = NOW + EXECUTION * 100;
    assert!(
        register
            .release_resting(Duration::ZERO, 100, later)
            .iter()
            .all(|change| !matches!(change, Change::AtRest { .. }))
    );
    assert!(is_closed(&mut register, 21, later), "nobody has seen it run");
    assert_eq!(register.targets_to_probe(), [one()]);
}

#[test]
fn the_time_between_answers_counts_for_what_was_sent_there() {
    let mut register = watched();
    in_doubt(&mut register, 20, Some(one()));
    let now = answers(&mut register, &two(), NOW, 60);
    assert!(is_closed(&mut register, 21, now), "the other endpoint says nothing about this one");
    let now = answers(&mut register, &one(), now, 30);
    assert!(is_closed(&mut register, 22, now), "29 s lie between 30 answers");
    let now = answers(&mut register, &one(), now + SECOND, 1);
    assert!(!is_closed(&mut register, 23, now));
    assert!(register.targets_to_probe().is_empty());
    assert_eq!(register.doubts(), 0);
}

#[test]
fn nothing_counts_of_a_pause() {
    let mut register = watched();
    in_doubt(&mut register, 20, Some(one()));
    let now = answers(&mut register, &one(), NOW, 30);
    // It stands still for a minute, then one question is answered.
    let now = answers(&mut register, &one(), now + SECOND * 60, 1);
    assert!(is_closed(&mut register, 21, now), "a minute in which nobody saw it run");
    let now = answers(&mut register, &one(), now + SECOND, 1);
    assert!(!is_closed(&mut register, 22, now), "it ran again");
}

/// A process that stands still answers late. When it ran between question and answer is not known.
#[test]
fn nothing_counts_while_an_answer_is_waited_for() {
    let mut register = watched();
    in_doubt(&mut register, 20, Some(one()));
    let mut now = NOW;
    for _ in 0..20 {
        register.record_alive(
            &one(),
            LivenessAnswer { asked: now, answered: now + SECOND * 2 },
            now + SECOND * 2,
        );
        now = now + SECOND * 3;
    }
    assert!(is_closed(&mut register, 21, now), "57 s passed, of which 19 were seen");
}

#[test]
fn an_answer_from_before_the_doubt_counts_for_nothing_before_it() {
    let mut register = watched();
    let before = NOW - SECOND * 3 / 4;
    register.record_alive(&one(), LivenessAnswer { asked: before, answered: before }, before);
    in_doubt(&mut register, 20, Some(one()));
    register.record_alive(
        &one(),
        LivenessAnswer { asked: NOW + SECOND / 4, answered: NOW + SECOND / 4 },
        NOW + SECOND / 4,
    );
    let left = register.open_doubts(NOW)[0].until.since(NOW);
    assert_eq!(left, EXECUTION - SECOND / 4);
}

#[test]
fn where_the_place_is_not_known_every_endpoint_has_to_be_seen() {
    let mut register = watched();
    in_doubt(&mut register, 20, None);
    assert_eq!(register.targets_to_probe(), [one(), two()]);
    let now = answers(&mut register, &one(), NOW, 31);
    assert!(is_closed(&mut register, 21, now));
    assert_eq!(register.targets_to_probe(), [two()]);
    let now = answers(&mut register, &two(), now, 31);
    assert!(!is_closed(&mut register, 22, now));
}

#[test]
fn an_endpoint_without_an_answer_is_told_once_and_counted() {
    let mut register = watched();
    in_doubt(&mut register, 20, Some(one()));
    assert!(register.record_silent(&one()) && !register.record_silent(&one()), "told once");
    assert_eq!(register.silent_count(), 1);
    assert!(register.open_doubts(NOW)[0].silent);
    assert!(
        register.record_alive(&one(), LivenessAnswer { asked: NOW, answered: NOW }, NOW),
        "it answers again"
    );
    assert_eq!(register.silent_count(), 0);
}

#[test]
fn the_word_of_a_probe_or_an_operator_ends_such_a_doubt() {
    let mut register = watched();
    in_doubt(&mut register, 20, Some(one()));
    assert_eq!(register.dispatch_target(&[key("a")], write(20, 1).token), Some(one()));
    assert!(register.resolve(&[key("a")], write(20, 1).token, NOW));
    assert!(register.targets_to_probe().is_empty());
    assert!(!is_closed(&mut register, 21, NOW));
}

#[test]
fn after_a_restart_what_was_in_doubt_has_to_be_seen_for_what_was_left() {
    let left = |place| UnresolvedExecution {
        keys: vec![key("a")],
        token: write(20, 1).token,
        mode: Mode::Exclusive,
        remaining: SECOND * 5,
        place,
    };
    for (place, asked) in [
        (Some(two()), vec![two()]),
        (None, vec![one(), two()]),
        // It is no endpoint of the policy any more.
        (Some(DispatchTarget::for_endpoint("three:80")), vec![one(), two()]),
    ] {
        let stop = CleanShutdown { doubts: vec![left(place)], ..CleanShutdown::default() };
        let remembered = RecoveredState { clean_stop: Some(stop), ..remembered() };
        let mut register = AdmissionTable::new(&remembered, NOW, EXECUTION);
        register.watch(watch(&["one:80", "two:80"]), NOW);
        assert_eq!(register.targets_to_probe(), asked);
        let mut now = NOW + EXECUTION;
        assert!(is_closed(&mut register, 21, now));
        for place in &asked {
            now = answers(&mut register, place, now, 6);
        }
        assert!(!is_closed(&mut register, 22, now));
    }
}

#[test]
fn a_quarantine_ends_with_time_in_which_all_endpoints_were_seen() {
    let mut register = crashed(ActiveKeys::Keys(vec![key("a")]), None);
    register.watch(watch(&["one:80", "two:80"]), NOW);
    let now = answers(&mut register, &one(), NOW + EXECUTION * 2, 31);
    assert!(register.quarantined_until(&[key("a")], now).is_some(), "nobody has seen the other one run");
    assert_eq!(register.targets_to_probe(), [two()]);
    let now = answers(&mut register, &two(), now, 31);
    assert_eq!(register.quarantined_until(&[key("a")], now), None);
    register.release_resting(Duration::ZERO, 100, now);
    assert!(register.targets_to_probe().is_empty());
}

/// Guard and service slept together, so the clock has counted what nobody lived through.
#[test]
fn without_questions_the_time_that_the_guard_slept_through_does_not_count() {
    let mut register = register();
    let old = write(20, 1);
    register.announce(&old, NOW).expect("newer");
    let (AdmitDecision::Running(id), _) = register.settle(&old, NOW).expect("the newest") else {
        panic!("free")
    };
    register.end(&old, id, DispatchEnd::InDoubt { until: NOW + EXECUTION }, NOW);
    let woken = NOW + SECOND + EXECUTION * 2;
    register.record_sleep(EXECUTION * 2, woken);
    assert!(is_closed(&mut register, 21, woken));
    assert!(is_closed(&mut register, 22, woken + EXECUTION - SECOND * 2));
    assert!(!is_closed(&mut register, 23, woken + EXECUTION));
    register.release_resting(Duration::ZERO, 100, woken + EXECUTION);
    assert_eq!(register.doubts(), 0);
}
