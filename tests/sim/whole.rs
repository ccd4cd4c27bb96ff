//! Whole gateways, a guard, an upstream and clients, in one process and in simulated time, under random schedules of accidents.
//!
//! The gateways run the code of the binary: requests come in through its listeners, and leave through its pools.
//! Simulated are the [`network`] with its [`connection`]s, the clock, and ZooKeeper. A [`schedule`] is
//! [generated](generate) from a seed and played in a [`world`]; the judge of all histories gives the [`verdict`].
//! Each seed is played in a process of its own (see [`sim_run`]), so that only the seed determines the run. A
//! schedule that fails is [shrunk](shrink) to the events that the failure needs.

mod addresses;
mod clients;
mod connection;
mod delays;
mod exchange;
mod gateway_process;
mod generate;
mod guard_process;
mod network;
mod process;
mod schedule;
mod shrink;
mod sim_run;
mod simulated_clock;
mod upstream;
mod verdict;
mod world;

use std::{collections::BTreeMap, sync::LazyLock};

use schedule::UpstreamPath;
use sim_run::{RunResults, SafetyRule, SimRun, first_failing, run_all};

use crate::run;

/// No schedule of accidents breaks a promise of whole gateways.
#[test]
fn no_schedule_breaks_gateway_promise() {
    let first = run::seed_from(1, "whole");
    let cases = run::cases(CASES);
    let RunResults { failed, seen } =
        run_all((0..u64::from(cases)).map(|number| SimRun::new(first.wrapping_add(number))), 20);
    eprintln!("whole: {cases} schedules, {} failed; {seen:?}", failed.len());
    for (play, wrong) in failed.values() {
        eprintln!("FENCEGATE_SEED={}: {wrong:#?}", play.seed);
    }
    if let Some((failing, wrong)) = failed.values().next() {
        panic!("{}", shrink::describe(failing, wrong));
    }
    // The minimum number of each event in a hundred schedules.
    for (what, least) in [("executions", 1500), ("tenures", 800), ("lease", 50), ("outcome-unknown", 20)] {
        let often = seen.get(what).copied().unwrap_or_default();
        assert!(
            often * 100 >= least * u64::from(cases),
            "not exercised: {what}, {often} in {cases}: {seen:?}"
        );
    }
}

/// A lease of an old key name is refused after the keys were renamed and renamed back while a client held it:
/// requests under the names in between had newer tokens. A run of 2,000 seeds found this schedule.
#[test]
fn lease_predating_key_names_is_refused() {
    let play = SimRun::new(1_795_675_023).with_log().run();
    assert_eq!(play.wrong, Vec::<String>::new());
    let refused = play.chronicle.lines().filter(|line| line.contains("changed since the lease")).count();
    assert!(refused > 0, "not exercised: {}", play.chronicle);
}

/// The number of schedules that are played in a quarter of a minute.
const CASES: u32 = 60;

/// A seed determines every event of its run. The test also is the child process that plays a seed.
#[test]
fn seed_has_one_history() {
    if sim_run::is_child_process() {
        return;
    }
    for seed in 0..4 {
        let play = SimRun::new(seed).with_log();
        let one = play.run();
        let other = play.run();
        assert!(one.chronicle.lines().count() > 100, "not exercised: {}", one.chronicle);
        let differs = one.chronicle.lines().zip(other.chronicle.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((one.wrong, one.chronicle.len()), (other.wrong, other.chronicle.len()), "seed {seed}");
    }
}

/// A failing schedule is shrunk to at most six events, and still fails.
#[test]
fn failing_schedule_is_shrunk() {
    let (failing, wrong) = &*WITHOUT_INHERITANCE;
    let events = failing.events();
    let shrunk = shrink::shrink(failing, wrong);
    eprintln!("{}", shrink::describe_shrunk(failing, wrong, &shrunk));
    assert!(
        shrunk.events() <= 6 && shrunk.events() < events,
        "{} of {events} events are left",
        shrunk.events()
    );
    assert!(!shrunk.run().wrong.is_empty(), "it still fails");
}

/// The number of schedules with a standstill between guard and service: a tenth of the requested cases, because
/// these take long.
fn standstill_cases() -> u64 {
    u64::from(run::cases(120)).div_ceil(10)
}

fn standstills(way: UpstreamPath, first: u64, plays: u64) -> impl Iterator<Item = SimRun> {
    (0..plays).map(move |number| SimRun::new(first.wrapping_add(number)).with_standstills(way))
}

/// Plays schedules with standstills, and returns the number of events of each kind.
///
/// # Panics
/// If a promise is broken.
fn assert_standstills_safe(way: UpstreamPath, cases: u64) -> BTreeMap<String, u64> {
    let first = run::seed_from(0, "standstills");
    let RunResults { failed, seen } = run_all(standstills(way, first, cases), 1);
    eprintln!("standstills, {way:?}: {cases} schedules; {seen:?}");
    if let Some((failing, wrong)) = failed.values().next() {
        panic!("{}", shrink::describe(failing, wrong));
    }
    seen
}

/// With a filter, no promise is broken when a relay, a queue or an instance is paused.
#[test]
fn with_filter_no_standstill_breaks_promise() {
    let cases = standstill_cases();
    let seen = assert_standstills_safe(UpstreamPath::Filtered, cases);
    let refused = seen.get("refused by the filter").copied().unwrap_or_default();
    assert!(refused > cases / 3, "not exercised: {seen:?}");
}

/// Without a filter, a pause longer than the guard waits may let executions overlap, which is outside of the
/// promise. Responses stay true.
#[test]
fn without_filter_standstill_is_outside_promise() {
    let cases = standstill_cases();
    let seen = assert_standstills_safe(UpstreamPath::Relayed, cases);
    let outside = seen.get("outside").copied().unwrap_or_default();
    assert!(outside > cases / 10, "not exercised: {seen:?}");
}

fn assert_caught_behind_filter(rule: SafetyRule, first: u64) {
    let (failing, _) = find_caught(standstills(UpstreamPath::Filtered, first, CAUGHT_WITHIN), rule, first);
    let with = SimRun::new(failing.seed).with_standstills(UpstreamPath::Filtered);
    assert_eq!(with.run().wrong, Vec::<String>::new(), "the rule makes the difference");
}

/// Simulation catches a filter that lets late requests pass.
#[test]
fn filter_passing_late_requests_is_caught() {
    assert_caught_behind_filter(SafetyRule::Filter, 0);
}

/// Simulation catches a guard that states too late a time in `Fencing-Not-After`.
#[test]
fn late_not_after_is_caught() {
    assert_caught_behind_filter(SafetyRule::NotAfter, 98);
}

/// The maximum number of seeds until a build without one of the rules is caught.
const CAUGHT_WITHIN: u64 = 500;

/// The maximum number of seeds that a run of all tests plays before the one that is caught.
const IN_VAIN: u64 = 20;

/// Finds the first run that fails without the rule, and its violations. `first`: the seed to begin with, which is
/// the one that failed when this was written. A change of the generator moves it.
///
/// # Panics
/// If no run fails, or only one so far from `first` that the search would cost each run of all tests a minute.
fn find_caught(plays: impl Iterator<Item = SimRun>, rule: SafetyRule, first: u64) -> (SimRun, Vec<String>) {
    let (failing, wrong) = first_failing(plays.map(|play| play.without(rule)))
        .unwrap_or_else(|| panic!("{CAUGHT_WITHIN} seeds without {rule:?}"));
    eprintln!("without {rule:?}: caught at seed {}: {wrong:?}", failing.seed);
    let in_vain = failing.seed - first;
    assert!(in_vain <= IN_VAIN, "without {rule:?}: {in_vain} seeds in vain; begin at {}", failing.seed);
    (failing, wrong)
}

fn find_caught_without(rule: SafetyRule, first: u64) -> (SimRun, Vec<String>) {
    find_caught((first..first + CAUGHT_WITHIN).map(SimRun::new), rule, first)
}

fn assert_caught_without(rule: SafetyRule, first: u64) {
    let (failing, _) = find_caught_without(rule, first);
    assert_rule_decides(&failing);
}

/// Asserts that the same seed with all rules breaks no promise.
fn assert_rule_decides(failing: &SimRun) {
    assert_eq!(SimRun::new(failing.seed).run().wrong, Vec::<String>::new(), "the rule makes the difference");
}

/// The run that fails without inheritance, which two tests use.
static WITHOUT_INHERITANCE: LazyLock<(SimRun, Vec<String>)> =
    LazyLock::new(|| find_caught_without(SafetyRule::Inheritance, 56));

/// Simulation catches a guard without its second check before sending.
#[test]
fn guard_without_second_check_is_caught() {
    assert_caught_without(SafetyRule::SecondCheck, 64);
}

/// Simulation catches a guard whose exchange ends with its client.
#[test]
fn exchange_ending_with_client_is_caught() {
    assert_caught_without(SafetyRule::Detach, 38);
}

/// Simulation catches a guard for which the negative answer of an early probe counts.
#[test]
fn probe_with_early_negative_is_caught() {
    assert_caught_without(SafetyRule::LateNo, 30);
}

/// Simulation catches a plan that does not wait for requests under the keys of the plan before.
#[test]
fn config_generation_without_inheritance_is_caught() {
    assert_rule_decides(&WITHOUT_INHERITANCE.0);
}

/// Simulation catches a probe that asks about another principal.
#[test]
fn probe_for_other_principal_is_caught() {
    assert_caught_without(SafetyRule::Principal, 0);
}

/// Simulation catches a guard for which the response of a proxy ends an execution.
#[test]
fn proxy_answer_ending_execution_is_caught() {
    assert_caught_without(SafetyRule::Unfinished, 0);
}
