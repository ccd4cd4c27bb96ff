//! Doubts that end only with time in which an endpoint was seen running.

use super::*;
use crate::dispatch_target::DispatchTarget;

const SECOND: Duration = Duration::from_secs(1);

fn probed_table() -> AdmissionTable {
    let mut table = admission_table();
    table.start_probing(probe_config(&["one:80", "two:80"]), NOW);
    table
}

fn probe_config(endpoints: &[&str]) -> LivenessProbeConfig {
    LivenessProbeConfig { endpoints: endpoints.iter().map(ToString::to_string).collect(), interval: SECOND }
}

fn first_target() -> DispatchTarget {
    DispatchTarget::whole_endpoint_target("one:80")
}

fn second_target() -> DispatchTarget {
    DispatchTarget::whole_endpoint_target("two:80")
}

/// Probes a target once a second from `from` on, each time answered at once. Returns the moment after the last
/// answer.
fn answer_probes(
    table: &mut AdmissionTable,
    target: &DispatchTarget,
    from: BootInstant,
    times: u32,
) -> BootInstant {
    let mut now = from;
    for _ in 0..times {
        table.record_alive(target, LivenessProbeAnswer { asked: now, answered: now }, now);
        now = now + SECOND;
    }
    now - SECOND
}

/// A write of `a` is in doubt, and was sent to this target.
fn put_in_doubt(table: &mut AdmissionTable, epoch: u64, target: Option<DispatchTarget>) {
    let old = write_claim(epoch, 1);
    table.check_and_raise_watermarks(&old, NOW).expect("newer");
    let (AdmitDecision::Running(id), _) = table.check_and_register(&old, NOW).expect("the newest") else {
        panic!("free")
    };
    table.end_dispatch(&old, id, DispatchEnd::InDoubt { until: NOW + EXECUTION }, NOW);
    table.record_target(id, target, EXECUTION, NOW);
}

/// Whether the next write of `a` has to wait.
fn is_closed(table: &mut AdmissionTable, epoch: u64, now: BootInstant) -> bool {
    let next = write_claim(epoch, 1);
    table.check_and_raise_watermarks(&next, now).expect("newer");
    match table.check_and_register(&next, now).expect("the newest").0 {
        AdmitDecision::Wait { doubt, .. } => {
            assert!(doubt.expect("only a doubt is in the way") > now, "whoever waits would look without end");
            true
        }
        AdmitDecision::Running(id) => {
            table.end_dispatch(&next, id, DispatchEnd::Known, now);
            false
        }
    }
}

/// A doubt about a watched endpoint does not end by the clock alone, however much time passes.
#[test]
fn clock_alone_ends_no_doubt() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, Some(first_target()));
    let later = NOW + EXECUTION * 100;
    assert!(
        table
            .delist_idle_keys(Duration::ZERO, 100, later)
            .iter()
            .all(|change| !matches!(change, StoreMutation::AtRest { .. }))
    );
    assert!(is_closed(&mut table, 21, later), "nobody has seen it run");
    assert_eq!(table.targets_to_probe(), [first_target()]);
}

/// Time between two answers of an endpoint counts for the doubts about dispatches to it, and for no other endpoint.
#[test]
fn time_between_answers_ends_doubt() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, Some(first_target()));
    let now = answer_probes(&mut table, &second_target(), NOW, 60);
    assert!(is_closed(&mut table, 21, now), "the other endpoint says nothing about this one");
    let now = answer_probes(&mut table, &first_target(), now, 30);
    assert!(is_closed(&mut table, 22, now), "29 s lie between 30 answers");
    let now = answer_probes(&mut table, &first_target(), now + SECOND, 1);
    assert!(!is_closed(&mut table, 23, now));
    assert!(table.targets_to_probe().is_empty());
    assert_eq!(table.doubt_count(), 0);
}

/// Time in which an endpoint gave no answer does not count towards the end of a doubt.
#[test]
fn pause_of_endpoint_does_not_count() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, Some(first_target()));
    let now = answer_probes(&mut table, &first_target(), NOW, 30);
    // The process stands still for a minute, then one probe is answered.
    let now = answer_probes(&mut table, &first_target(), now + SECOND * 60, 1);
    assert!(is_closed(&mut table, 21, now), "a minute in which nobody saw it run");
    let now = answer_probes(&mut table, &first_target(), now + SECOND, 1);
    assert!(!is_closed(&mut table, 22, now), "it ran again");
}

/// A process that stands still answers late. When it ran between probe and answer is not known, so that time does not
/// count.
#[test]
fn time_until_answer_does_not_count() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, Some(first_target()));
    let mut now = NOW;
    for _ in 0..20 {
        table.record_alive(
            &first_target(),
            LivenessProbeAnswer { asked: now, answered: now + SECOND * 2 },
            now + SECOND * 2,
        );
        now = now + SECOND * 3;
    }
    assert!(is_closed(&mut table, 21, now), "57 s passed, of which 19 were seen");
}

/// An answer from before a doubt began counts only from the beginning of the doubt.
#[test]
fn time_before_doubt_does_not_count() {
    let mut table = probed_table();
    let before = NOW - SECOND * 3 / 4;
    table.record_alive(&first_target(), LivenessProbeAnswer { asked: before, answered: before }, before);
    put_in_doubt(&mut table, 20, Some(first_target()));
    table.record_alive(
        &first_target(),
        LivenessProbeAnswer { asked: NOW + SECOND / 4, answered: NOW + SECOND / 4 },
        NOW + SECOND / 4,
    );
    let left = table.open_doubts(NOW)[0].until.since(NOW);
    assert_eq!(left, EXECUTION - SECOND / 4);
}

/// A doubt about a dispatch whose endpoint is unknown ends only after every endpoint was seen running for long
/// enough.
#[test]
fn unknown_target_needs_every_endpoint() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, None);
    assert_eq!(table.targets_to_probe(), [first_target(), second_target()]);
    let now = answer_probes(&mut table, &first_target(), NOW, 31);
    assert!(is_closed(&mut table, 21, now));
    assert_eq!(table.targets_to_probe(), [second_target()]);
    let now = answer_probes(&mut table, &second_target(), now, 31);
    assert!(!is_closed(&mut table, 22, now));
}

/// A silent endpoint is reported once, and counts as silent until it answers again.
#[test]
fn silent_endpoint_is_reported_once() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, Some(first_target()));
    assert!(table.record_silent(&first_target()) && !table.record_silent(&first_target()), "told once");
    assert_eq!(table.silent_doubt_count(), 1);
    assert!(table.open_doubts(NOW)[0].silent);
    assert!(
        table.record_alive(&first_target(), LivenessProbeAnswer { asked: NOW, answered: NOW }, NOW),
        "it answers again"
    );
    assert_eq!(table.silent_doubt_count(), 0);
}

/// A probe or an operator can resolve a doubt about a watched endpoint.
#[test]
fn resolve_ends_watched_doubt() {
    let mut table = probed_table();
    put_in_doubt(&mut table, 20, Some(first_target()));
    assert_eq!(table.dispatch_target(&[key("a")], write_claim(20, 1).token), Some(first_target()));
    assert!(table.resolve_doubt(&[key("a")], write_claim(20, 1).token, NOW));
    assert!(table.targets_to_probe().is_empty());
    assert!(!is_closed(&mut table, 21, NOW));
}

/// After a restart, a doubt ends once its endpoints were seen running for the rest of its time.
#[test]
fn restarted_doubt_needs_remaining_time() {
    let left = |target| InDoubtExecutionRecord {
        keys: vec![key("a")],
        token: write_claim(20, 1).token,
        mode: LockMode::Exclusive,
        remaining: SECOND * 5,
        place: target,
    };
    for (target, asked) in [
        (Some(second_target()), vec![second_target()]),
        (None, vec![first_target(), second_target()]),
        // The policy no longer has this endpoint, so all of its endpoints are probed.
        (Some(DispatchTarget::whole_endpoint_target("three:80")), vec![first_target(), second_target()]),
    ] {
        let stop = CleanShutdownState { doubts: vec![left(target)], ..CleanShutdownState::default() };
        let recovered = RecoveredState { clean_stop: Some(stop), ..recovered_state() };
        let mut table = AdmissionTable::new(&recovered, NOW, EXECUTION);
        table.start_probing(probe_config(&["one:80", "two:80"]), NOW);
        assert_eq!(table.targets_to_probe(), asked);
        let mut now = NOW + EXECUTION;
        assert!(is_closed(&mut table, 21, now));
        for target in &asked {
            now = answer_probes(&mut table, target, now, 6);
        }
        assert!(!is_closed(&mut table, 22, now));
    }
}

/// A quarantine ends only after every endpoint was seen running for its whole length.
#[test]
fn quarantine_ends_when_all_endpoints_seen() {
    let mut table = table_after_kill(RecoveredActiveKeys::Keys(vec![key("a")]), None);
    table.start_probing(probe_config(&["one:80", "two:80"]), NOW);
    let now = answer_probes(&mut table, &first_target(), NOW + EXECUTION * 2, 31);
    assert!(table.quarantined_until(&[key("a")], now).is_some(), "nobody has seen the other one run");
    assert_eq!(table.targets_to_probe(), [second_target()]);
    let now = answer_probes(&mut table, &second_target(), now, 31);
    assert_eq!(table.quarantined_until(&[key("a")], now), None);
    table.delist_idle_keys(Duration::ZERO, 100, now);
    assert!(table.targets_to_probe().is_empty());
}

/// Without probes, time in which the guard slept does not count: the service may have slept as well.
#[test]
fn slept_time_does_not_end_doubt() {
    let mut table = admission_table();
    let old = write_claim(20, 1);
    table.check_and_raise_watermarks(&old, NOW).expect("newer");
    let (AdmitDecision::Running(id), _) = table.check_and_register(&old, NOW).expect("the newest") else {
        panic!("free")
    };
    table.end_dispatch(&old, id, DispatchEnd::InDoubt { until: NOW + EXECUTION }, NOW);
    let woken = NOW + SECOND + EXECUTION * 2;
    table.record_process_pause(EXECUTION * 2, woken);
    assert!(is_closed(&mut table, 21, woken));
    assert!(is_closed(&mut table, 22, woken + EXECUTION - SECOND * 2));
    assert!(!is_closed(&mut table, 23, woken + EXECUTION));
    table.delist_idle_keys(Duration::ZERO, 100, woken + EXECUTION);
    assert_eq!(table.doubt_count(), 0);
}
