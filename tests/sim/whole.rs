//! Whole gateways, a guard, an upstream and clients, in one process and in simulated time, under random schedules of accidents.
//!
//! What runs is what the binary runs: requests come in through its listeners, and leave through its pools. Simulated are the
//! [`network`] with its [`connection`]s, the clock, and ZooKeeper. A [`schedule`] is [drawn](generate) from a seed and played in a
//! [`world`]; the judge of all histories gives the [`verdict`]. Each seed is played in a process of its own (see [`sim_run`]), so
//! that nothing but its seed makes a difference. One that fails is [shrunk](shrink) to the events that it takes.

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

use std::collections::BTreeMap;

use schedule::UpstreamPath;
use sim_run::{RunResults, SafetyRule, SimRun, first_failing, run_all};

use crate::run;

#[test]
fn no_schedule_of_accidents_breaks_a_promise_of_whole_gateways() {
    let (first, cases) = (run::seed_from(1, "whole"), run::cases(CASES));
    let RunResults { failed, seen } =
        run_all((0..u64::from(cases)).map(|number| SimRun::new(first.wrapping_add(number))), 20);
    eprintln!("whole: {cases} schedules, {} failed; {seen:?}", failed.len());
    for (play, wrong) in failed.values() {
        eprintln!("FENCEGATE_SEED={}: {wrong:#?}", play.seed);
    }
    if let Some((failing, wrong)) = failed.values().next() {
        panic!("{}", shrink::describe(failing, wrong));
    }
    // The least number of each event in a hundred schedules.
    for (what, least) in [("executions", 1500), ("tenures", 800), ("lease", 50), ("outcome-unknown", 20)] {
        let often = seen.get(what).copied().unwrap_or_default();
        assert!(
            often * 100 >= least * u64::from(cases),
            "not exercised: {what}, {often} in {cases}: {seen:?}"
        );
    }
}

/// Keys got other names and then their old ones again, while a client held a lease of an old name. Requests under the names in between
/// had newer tokens than the lease. A run of 2,000 seeds found it.
#[test]
fn no_request_runs_under_a_lease_that_is_older_than_the_names_of_its_keys() {
    let play = SimRun::new(1_795_675_023).with_log().run();
    assert_eq!(play.wrong, Vec::<String>::new());
    let refused = play.chronicle.lines().filter(|line| line.contains("changed since the lease")).count();
    assert!(refused > 0, "not exercised: {}", play.chronicle);
}

/// The number of schedules that half a minute allows.
const CASES: u32 = 100;

/// This test also runs as the child process that plays a seed.
#[test]
fn a_seed_has_one_history() {
    if sim_run::is_child_process() {
        return;
    }
    for seed in 0..4 {
        let play = SimRun::new(seed).with_log();
        let (one, other) = (play.run(), play.run());
        assert!(one.chronicle.lines().count() > 100, "not exercised: {}", one.chronicle);
        let differs = one.chronicle.lines().zip(other.chronicle.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((one.wrong, one.chronicle.len()), (other.wrong, other.chronicle.len()), "seed {seed}");
    }
}

#[test]
fn a_schedule_that_fails_is_shrunk_to_what_it_takes() {
    let plays = (50..500).map(|seed| SimRun::new(seed).without(SafetyRule::Inheritance));
    let (failing, wrong) = first_failing(plays).expect("caught");
    let events = failing.events();
    let shrunk = shrink::shrink(&failing, &wrong);
    eprintln!("{}", shrink::describe(&failing, &wrong));
    assert!(
        shrunk.events() <= 6 && shrunk.events() < events,
        "{} of {events} events are left",
        shrunk.events()
    );
    assert!(!shrunk.run().wrong.is_empty(), "it still fails");
}

/// The number of schedules in which something on the way to the service stands still: a tenth of what a run is asked for,
/// because these take long.
fn standstill_cases() -> u64 {
    u64::from(run::cases(200)).div_ceil(10)
}

fn standstills(way: UpstreamPath, first: u64, plays: u64) -> impl Iterator<Item = SimRun> {
    (0..plays).map(move |number| SimRun::new(first.wrapping_add(number)).with_standstills(way))
}

/// What was seen in the schedules of this run.
///
/// # Panics
/// If a promise was broken.
fn no_standstill_breaks_a_promise(way: UpstreamPath, cases: u64) -> BTreeMap<String, u64> {
    let first = run::seed_from(0, "standstills");
    let RunResults { failed, seen } = run_all(standstills(way, first, cases), 1);
    eprintln!("standstills, {way:?}: {cases} schedules; {seen:?}");
    if let Some((failing, wrong)) = failed.values().next() {
        panic!("{}", shrink::describe(failing, wrong));
    }
    seen
}

#[test]
fn with_a_filter_no_relay_queue_or_instance_that_stands_still_breaks_a_promise() {
    let cases = standstill_cases();
    let seen = no_standstill_breaks_a_promise(UpstreamPath::Filtered, cases);
    let refused = seen.get("refused by the filter").copied().unwrap_or_default();
    assert!(refused > cases / 3, "not exercised: {seen:?}");
}

#[test]
fn without_a_filter_what_stands_still_longer_than_the_wait_is_outside_of_the_promise_and_told_truly() {
    let cases = standstill_cases();
    let seen = no_standstill_breaks_a_promise(UpstreamPath::Relayed, cases);
    let outside = seen.get("outside").copied().unwrap_or_default();
    assert!(outside > cases / 10, "not exercised: {seen:?}");
}

fn assert_caught_behind_filter(rule: SafetyRule, first: u64) {
    let plays = standstills(UpstreamPath::Filtered, first, CAUGHT_WITHIN);
    let (failing, wrong) = first_failing(plays.map(|play| play.without(rule))).expect("caught");
    eprintln!("behind a filter, without {rule:?}: caught at seed {}: {wrong:?}", failing.seed);
    let with = SimRun::new(failing.seed).with_standstills(UpstreamPath::Filtered);
    assert_eq!(with.run().wrong, Vec::<String>::new(), "the rule makes the difference");
}

#[test]
fn a_filter_that_lets_late_requests_pass_is_caught() {
    assert_caught_behind_filter(SafetyRule::Filter, 0);
}

/// What the guard writes into `Fencing-Not-After` is what the filter goes by.
#[test]
fn a_guard_that_says_too_late_a_moment_is_caught() {
    assert_caught_behind_filter(SafetyRule::NotAfter, 95);
}

/// The most seeds until a build without one of the rules is caught.
const CAUGHT_WITHIN: u64 = 500;

/// `first`: the seed to begin with, shortly before the one that caught it when this was written. A change of the schedules moves it.
fn assert_caught_without(rule: SafetyRule, first: u64) {
    let plays = (first..first + CAUGHT_WITHIN).map(|seed| SimRun::new(seed).without(rule));
    let (failing, wrong) =
        first_failing(plays).unwrap_or_else(|| panic!("{CAUGHT_WITHIN} seeds without {rule:?}"));
    eprintln!("without {rule:?}: caught at seed {}: {wrong:?}", failing.seed);
    assert_eq!(SimRun::new(failing.seed).run().wrong, Vec::<String>::new(), "the rule makes the difference");
}

#[test]
fn a_guard_without_its_second_check_is_caught() {
    assert_caught_without(SafetyRule::SecondCheck, 60);
}

#[test]
fn an_exchange_that_ends_with_its_client_is_caught() {
    assert_caught_without(SafetyRule::Detach, 35);
}

#[test]
fn a_probe_whose_no_counts_too_early_is_caught() {
    assert_caught_without(SafetyRule::LateNo, 25);
}

#[test]
fn an_edition_that_inherits_nothing_is_caught() {
    assert_caught_without(SafetyRule::Inheritance, 50);
}

#[test]
fn a_probe_about_another_principal_is_caught() {
    assert_caught_without(SafetyRule::Principal, 0);
}

#[test]
fn an_answer_of_a_proxy_that_ends_an_execution_is_caught() {
    assert_caught_without(SafetyRule::Unfinished, 0);
}
