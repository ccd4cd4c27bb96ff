//! Correct runs, and runs with one change. Each change is reported as a violation of exactly the invariants that it
//! breaks.

use std::time::{Duration, Instant};

use fencegate_policies::token::FencingToken;

use super::{Invariant, find_violations};
use crate::{
    client::FencingOutcome,
    history::Execution,
    matrix::{
        level::TestedFencingLevel,
        run_log::{AccidentTime, ClientAttempt, KeyExecution, ResponseContent, RunLog},
    },
    origin::{AccessMode, AccountEffect},
};

fn token(epoch: u64) -> FencingToken {
    FencingToken::new(epoch, 0, 1).expect("small")
}

fn id(number: u64) -> String {
    format!("c0-{number}@gw-{}", number % 2)
}

/// The n-th execution. It arrives at the listener `10 * n` seconds after the start, is executed from second 1 to
/// second 6 after that, and ends at the listener in second 7.
fn execution(start: Instant, number: u64) -> KeyExecution {
    let at = |seconds| start + Duration::from_secs(10 * number + seconds);
    let door = Execution {
        key: "account/0".into(),
        access: AccessMode::Exclusive,
        token: token(number),
        gateway: format!("gw-{}", number % 2),
        attempt: Some(id(number)),
        sent: None,
        began: at(0),
        ended: Some(at(7)),
    };
    KeyExecution { door, effect: AccountEffect { began: at(1), ended: Some(at(6)) } }
}

fn attempt(start: Instant, number: u64) -> ClientAttempt {
    let at = |seconds| start + Duration::from_secs(10 * number) + Duration::from_secs(seconds);
    ClientAttempt {
        id: id(number),
        operation: Some(format!("op-{number}")),
        path: "/pay/0".into(),
        writes: true,
        gateway: usize::try_from(number % 2).expect("0 or 1"),
        invoked: at(0),
        completed: at(8),
        told: Some(ResponseContent { status: 200, outcome: Some(FencingOutcome::Done), body: id(number) }),
    }
}

/// Five executions in succession, and one request that was refused.
fn sound_log() -> RunLog {
    let start = Instant::now();
    let refused = ClientAttempt {
        id: "refused@gw-1".into(),
        operation: None,
        told: Some(ResponseContent {
            status: 423,
            outcome: Some(FencingOutcome::NotDispatched),
            body: String::new(),
        }),
        ..attempt(start, 3)
    };
    RunLog {
        deeds: (1..=5).map(|number| execution(start, number)).collect(),
        asked: (1..=5).map(|number| attempt(start, number)).chain([refused]).collect(),
        marks: [("account/0".to_owned(), token(5))].into(),
        balances: [("account/0".to_owned(), 5)].into(),
        struck: Some(AccidentTime {
            from: start + Duration::from_secs(25),
            bound: Duration::from_secs(20),
            paths: vec!["/pay/0".into()],
        }),
        ..RunLog::default()
    }
}

/// The response to the n-th request, counted from 1.
fn response_of(run: &mut RunLog, number: usize) -> &mut ResponseContent {
    run.asked[number - 1].told.as_mut().expect("told")
}

/// Adds a second execution, and its addition to the balance.
fn duplicate_execution(run: &mut RunLog, deed: KeyExecution) {
    *run.balances.get_mut("account/0").expect("there") += 1;
    run.deeds.push(deed);
}

/// The execution, moved behind all others and into a tenure of its own.
fn moved_to_end(mut deed: KeyExecution, attempt: &str) -> KeyExecution {
    let by = Duration::from_secs(100);
    deed.door.began += by;
    deed.door.ended = deed.door.ended.map(|end| end + by);
    deed.effect =
        AccountEffect { began: deed.effect.began + by, ended: deed.effect.ended.map(|end| end + by) };
    deed.door.token = token(100);
    deed.door.attempt = Some(attempt.to_owned());
    deed
}

/// A correct run breaks no invariant at any level.
#[test]
fn sound_run_breaks_no_invariant() {
    for level in [
        TestedFencingLevel::None,
        TestedFencingLevel::Delay,
        TestedFencingLevel::Upstream,
        TestedFencingLevel::Guard,
    ] {
        assert_eq!(find_violations(&sound_log(), level), [], "{level:?}");
    }
    assert_eq!(sound_log().recovery(), Some(Duration::from_secs(13)));
    assert_eq!(sound_log().history_by(crate::matrix::run_log::ExecutionInterval::Effect).hand_overs(), 4);
}

type RunLogEdit = fn(&mut RunLog);

fn broken_invariants(run: &RunLog, level: TestedFencingLevel) -> Vec<Invariant> {
    let mut laws: Vec<Invariant> = find_violations(run, level).into_iter().map(|breach| breach.law).collect();
    laws.sort_unstable();
    laws.dedup();
    laws
}

fn assert_caught(cases: &[(&str, RunLogEdit, &[Invariant])]) {
    for (name, doctor, expected) in cases {
        let mut run = sound_log();
        doctor(&mut run);
        assert_eq!(
            broken_invariants(&run, TestedFencingLevel::Guard),
            *expected,
            "{name}: {:#?}",
            find_violations(&run, TestedFencingLevel::Guard)
        );
    }
}

/// Executions that overlap, or whose tokens do not grow in their order, are reported.
#[test]
fn overlap_and_wrong_order_are_caught() {
    assert_caught(&[
        (
            "one begins before the one before it has ended",
            |run| run.deeds[1].effect.began = run.deeds[0].effect.began,
            &[Invariant::Overlap],
        ),
        (
            "its head is there before the answer of the one before it is through",
            |run| run.deeds[1].door.began = run.deeds[0].effect.ended.expect("ended"),
            &[Invariant::Overlap],
        ),
        (
            "one whose answer nobody saw leave is still at work",
            |run| run.deeds[1].door.ended = None,
            &[Invariant::Overlap],
        ),
        (
            "a long one reaches over two",
            |run| run.deeds[0].effect.ended = run.deeds[2].effect.ended,
            // The execution was also reported as done before it had ended.
            &[Invariant::Overlap, Invariant::Truth],
        ),
        ("a token of the past", |run| run.deeds[3].door.token = token(0), &[Invariant::Order]),
        ("a token twice", |run| run.deeds[3].door.token = token(3), &[Invariant::Order, Invariant::Tenure]),
        (
            "who asks later has the older token, and is executed first",
            |run| {
                let one = run.deeds[3].clone();
                let other = run.deeds[4].clone();
                run.deeds[3].door =
                    Execution { attempt: other.door.attempt, gateway: other.door.gateway, ..one.door };
                run.deeds[4].door = Execution {
                    attempt: one.door.attempt,
                    gateway: one.door.gateway,
                    ..run.deeds[4].door.clone()
                };
            },
            &[Invariant::Order, Invariant::Truth],
        ),
        (
            "a reader beside a writer",
            |run| {
                run.deeds[1].door.access = AccessMode::Shared;
                run.deeds[1].effect.began = run.deeds[0].effect.began;
                run.balances.insert("account/0".into(), 4);
            },
            &[Invariant::Overlap],
        ),
    ]);
}

/// Responses whose outcome, content or time contradicts the executions are reported.
#[test]
fn untrue_answers_are_caught() {
    assert_caught(&[
        (
            "done, and never executed",
            |run| {
                run.deeds.remove(0);
                run.balances.insert("account/0".into(), 4);
            },
            &[Invariant::Truth],
        ),
        (
            "done, before it was",
            |run| run.asked[0].completed = run.deeds[0].effect.began,
            &[Invariant::Truth],
        ),
        ("the answer of somebody else", |run| response_of(run, 1).body = id(2), &[Invariant::Truth]),
        (
            "not dispatched, and executed",
            |run| {
                *response_of(run, 1) = ResponseContent {
                    status: 503,
                    outcome: Some(FencingOutcome::NotDispatched),
                    body: String::new(),
                };
            },
            &[Invariant::Outcome],
        ),
        ("no word of its outcome", |run| response_of(run, 6).outcome = None, &[Invariant::Outcome]),
        (
            "replayed, and nothing was ever done",
            |run| {
                run.asked[0].operation = Some("op-other".into());
                response_of(run, 1).outcome = Some(FencingOutcome::Replayed);
                run.deeds.remove(0);
                run.balances.insert("account/0".into(), 4);
            },
            &[Invariant::Truth],
        ),
    ]);
}

/// An attempt or operation that is executed twice is reported, even if one of its attempts got no response.
#[test]
fn double_execution_is_caught() {
    assert_caught(&[
        (
            "an attempt",
            |run| {
                let again = moved_to_end(run.deeds[0].clone(), &id(1));
                duplicate_execution(run, again);
                run.marks.insert("account/0".into(), token(100));
            },
            &[Invariant::Twice],
        ),
        (
            "an operation, by two attempts",
            |run| run.asked[1].operation = Some("op-1".into()),
            &[Invariant::Twice],
        ),
        (
            "an operation, by one that was never answered",
            |run| {
                run.asked[1].operation = Some("op-1".into());
                run.asked[1].told = None;
            },
            &[Invariant::Twice],
        ),
    ]);
}

/// Lost additions, wrong watermarks, remaining lock nodes, tenures of two gateways and late recovery are reported.
#[test]
fn losses_leftovers_and_delays_are_caught() {
    assert_caught(&[
        (
            "a tenure of two gateways",
            |run| {
                let mut again = moved_to_end(run.deeds[4].clone(), "other@gw-0");
                again.door.token = FencingToken::new(5, 0, 2).expect("small");
                again.door.gateway = "gw-0".into();
                duplicate_execution(run, again);
                run.marks.insert("account/0".into(), FencingToken::new(5, 0, 2).expect("small"));
            },
            &[Invariant::Tenure],
        ),
        (
            "a key that is served too late",
            |run| run.struck.as_mut().expect("struck").bound = Duration::from_secs(2),
            &[Invariant::Recovery],
        ),
        (
            "a key that is never served again",
            |run| {
                run.struck.as_mut().expect("struck").paths.push("/pay/1".into());
            },
            &[Invariant::Recovery],
        ),
        (
            "only who asked before is served",
            |run| {
                let from = run.struck.as_ref().expect("struck").from;
                run.asked
                    .iter_mut()
                    .for_each(|asked| asked.invoked = asked.invoked.min(from - Duration::from_secs(1)));
            },
            &[Invariant::Recovery],
        ),
        (
            "a mark that is older than what was let in",
            |run| {
                run.marks.insert("account/0".into(), token(4));
            },
            &[Invariant::Mark],
        ),
        ("no mark at all", |run| run.marks.clear(), &[Invariant::Mark]),
        (
            "a lock node that stays",
            |run| run.leftovers.push("/locks/a7/account%2F0/n-1".into()),
            &[Invariant::Rest],
        ),
        (
            "an addition that was lost",
            |run| {
                run.balances.insert("account/0".into(), 4);
            },
            &[Invariant::Sum],
        ),
        (
            "an addition that nobody asked for",
            |run| {
                run.balances.insert("account/0".into(), 6);
            },
            &[Invariant::Sum],
        ),
    ]);
}

/// With a comparing service, requests may overlap at its listener, but their effects may not.
#[test]
fn upstream_level_separates_effects_only() {
    let mut run = sound_log();
    run.deeds[1].door.began = run.deeds[0].door.began;
    assert_eq!(broken_invariants(&run, TestedFencingLevel::Upstream), []);
    run.deeds[1].effect.began = run.deeds[0].effect.began;
    assert_eq!(broken_invariants(&run, TestedFencingLevel::Upstream), [Invariant::Overlap]);
}

/// A 412 of the service, and a repeat that gets the outcome of the first attempt, do not count as executions.
#[test]
fn replayed_answer_is_no_execution() {
    let mut run = sound_log();
    let done =
        |status| Some(ResponseContent { status, outcome: Some(FencingOutcome::Done), body: String::new() });
    let nothing = |number: u64, operation: Option<String>, status| ClientAttempt {
        id: format!("n-{number}@gw-1"),
        operation,
        told: done(status),
        ..run.asked[0].clone()
    };
    let more = [nothing(1, None, 412), nothing(2, Some("op-1".into()), 409)];
    run.asked.extend(more);
    assert_eq!(find_violations(&run, TestedFencingLevel::Guard), []);
}

/// A request for two keys counts as one execution of each, with one response. Each key is judged separately.
#[test]
fn key_set_is_judged_per_key() {
    let mut run = sound_log();
    let other = |deed: &KeyExecution| {
        let mut deed = deed.clone();
        deed.door.key = "account/1".into();
        deed
    };
    let others: Vec<KeyExecution> = run.deeds.iter().map(other).collect();
    run.deeds.extend(others);
    run.balances.insert("account/1".into(), 5);
    run.marks.insert("account/1".into(), token(5));
    assert_eq!(find_violations(&run, TestedFencingLevel::Guard), []);
    run.deeds[6].effect.began = run.deeds[5].effect.began;
    assert_eq!(broken_invariants(&run, TestedFencingLevel::Guard), [Invariant::Overlap]);
}
