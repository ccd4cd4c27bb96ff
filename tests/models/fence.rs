//! One key behind a guard, as a state machine: gateways, a lock service, a network, the guard, the upstream.
//!
//! It is written independently of `spin/fence.pml`, so that a mistake in one of the two shows. The lock service ends
//! sessions at any time. The network delays and copies messages, the guard is killed, and the upstream's connection
//! breaks. A time limit (`max_execution`) is modelled as an assumption: the executions that it bounds are over.
//! Reading order: [`rules`], [`state`], then [`steps`].

mod rules;
mod state;
mod steps;

use stateright::{Checker, HasDiscoveries, Model, Property};

use rules::{Bounds, Fence, Rule};
use state::{Broken, Event, State};
use steps::Step;

/// Three tenures of one dispatch, to test the order of tokens.
const TENURES: Bounds = Bounds { tenures: 3, dispatches: 1, copies: 0, restarts: 1, losses: 1 };
/// Two tenures of two dispatches through a hop, to test copies and dispatches of one tenure.
const COPIES: Bounds = Bounds { tenures: 2, dispatches: 2, copies: 1, restarts: 1, losses: 1 };

/// Two tenures and a guard that is killed twice, to test the state that a guard finds on the disk.
const RESTARTS: Bounds = Bounds { tenures: 2, dispatches: 1, copies: 0, restarts: 2, losses: 1 };

/// All of these together.
const TOGETHER: Bounds = Bounds { tenures: 3, dispatches: 2, copies: 1, restarts: 1, losses: 1 };

impl Model for Fence {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.bounds)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // The steps after the first violation do not matter.
        if state.broken.is_none() {
            steps::possible(self, state, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        next.event = None;
        steps::take(self, &mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Fence>> {
        let promises = [
            Property::always("no overlap", |_, state: &State| state.broken != Some(Broken::Overlap)),
            Property::always("no stale execution", |_, state: &State| state.broken != Some(Broken::Stale)),
            Property::always("at most once", |_, state: &State| state.broken != Some(Broken::Twice)),
            Property::always("refused is not executed", |_, state: &State| {
                state.broken != Some(Broken::Lied)
            }),
        ];
        let events = [
            Property::sometimes("refused as stale", |_, state: &State| state.event == Some(Event::Stale)),
            Property::sometimes("handed over", |_, state: &State| state.event == Some(Event::HandedOver)),
            Property::sometimes("in quarantine", |_, state: &State| state.event == Some(Event::Quarantined)),
            Property::sometimes("nothing at work at a restart", |_, state: &State| {
                state.event == Some(Event::AtRest)
            }),
            Property::sometimes("closed by doubt", |_, state: &State| state.event == Some(Event::InDoubt)),
            Property::sometimes("admitted after a wait", |_, state: &State| {
                state.event == Some(Event::Waited)
            }),
        ];
        let copied = Property::sometimes("refused as duplicate", |_, state: &State| {
            state.event == Some(Event::Duplicate)
        });
        promises.into_iter().chain(events).chain((self.bounds.copies > 0).then_some(copied)).collect()
    }
}

fn holds(bounds: Bounds) {
    let checker = Fence { bounds, without: None }.checker().threads(2).spawn_bfs().join();
    println!("stateright {bounds:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
}

fn violates(rule: Rule, bounds: Bounds, property: &'static str) {
    let model = Fence { bounds, without: Some(rule) };
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("stateright without {rule:?}: {} states", checker.unique_state_count());
    let schedule = checker.discovery(property).unwrap_or_else(|| panic!("without {rule:?}: no violation"));
    println!("{:?}", schedule.into_actions());
}

#[test]
fn nothing_overlaps_is_stale_or_runs_twice_over_three_tenures() {
    holds(TENURES);
}

#[test]
fn nothing_overlaps_is_stale_or_runs_twice_over_two_restarts() {
    holds(RESTARTS);
}

#[test]
fn nothing_overlaps_is_stale_or_runs_twice_behind_a_hop() {
    holds(COPIES);
}

#[test]
fn nothing_overlaps_is_stale_or_runs_twice_with_all_accidents_together() {
    holds(TOGETHER);
}

#[test]
fn without_a_guard_executions_overlap() {
    violates(Rule::Guard, TENURES, "no overlap");
}

#[test]
fn without_settling_executions_overlap() {
    violates(Rule::Settle, TENURES, "no overlap");
}

#[test]
fn without_a_second_check_the_stale_execute() {
    violates(Rule::SecondCheck, TENURES, "no stale execution");
}

#[test]
fn an_exchange_that_ends_with_the_gateway_frees_a_key_that_is_in_use() {
    violates(Rule::Detach, TENURES, "no overlap");
}

#[test]
fn without_quarantine_a_restart_forgets_who_executes() {
    violates(Rule::Quarantine, TENURES, "no overlap");
}

#[test]
fn what_is_sent_before_it_is_written_is_overlapped_after_a_restart() {
    violates(Rule::WriteFirst, TENURES, "no overlap");
}

#[test]
fn what_is_written_to_be_at_rest_too_early_is_overlapped_after_a_restart() {
    violates(Rule::RestAfterEnd, TENURES, "no overlap");
    violates(Rule::RestAfterDoubt, TENURES, "no overlap");
    violates(Rule::RestAfterQuarantine, RESTARTS, "no overlap");
}

#[test]
fn recovered_marks_that_let_their_own_tenure_pass_run_a_copy_again() {
    violates(Rule::StrictRecovery, COPIES, "at most once");
}

#[test]
fn a_doubt_that_is_not_kept_frees_a_key_that_is_in_use() {
    violates(Rule::KeepDoubt, TENURES, "no overlap");
}

#[test]
fn a_tenure_that_goes_on_after_an_unknown_outcome_overlaps_itself() {
    violates(Rule::Retire, COPIES, "no overlap");
}

#[test]
fn a_refusal_through_a_hop_says_nothing_about_the_other_copy() {
    violates(Rule::DisbelieveHop, COPIES, "refused is not executed");
}
