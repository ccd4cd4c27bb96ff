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

use rules::{FenceModel, ModelBounds, ProtocolRule};
use state::{BrokenInvariant, ModelEvent, ModelState};
use steps::ModelStep;

/// Three tenures of one dispatch, to test the order of tokens.
const TENURES: ModelBounds = ModelBounds { tenures: 3, dispatches: 1, copies: 0, restarts: 1, losses: 1 };
/// Two tenures of two dispatches through a hop, to test copies and dispatches of one tenure.
const COPIES: ModelBounds = ModelBounds { tenures: 2, dispatches: 2, copies: 1, restarts: 1, losses: 1 };

/// Two tenures and a guard that is killed twice, to test the state that a guard finds on the disk.
const RESTARTS: ModelBounds = ModelBounds { tenures: 2, dispatches: 1, copies: 0, restarts: 2, losses: 1 };

/// All of these together.
const TOGETHER: ModelBounds = ModelBounds { tenures: 3, dispatches: 2, copies: 1, restarts: 1, losses: 1 };

impl Model for FenceModel {
    type State = ModelState;
    type Action = ModelStep;

    fn init_states(&self) -> Vec<ModelState> {
        vec![ModelState::new(self.bounds)]
    }

    fn actions(&self, state: &ModelState, steps: &mut Vec<ModelStep>) {
        // The steps after the first violation do not matter.
        if state.broken.is_none() {
            steps::possible(self, state, steps);
        }
    }

    fn next_state(&self, state: &ModelState, step: ModelStep) -> Option<ModelState> {
        let mut next = state.clone();
        next.event = None;
        steps::apply(self, &mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<FenceModel>> {
        let promises = [
            Property::always("no overlap", |_, state: &ModelState| {
                state.broken != Some(BrokenInvariant::Overlap)
            }),
            Property::always("no stale execution", |_, state: &ModelState| {
                state.broken != Some(BrokenInvariant::Stale)
            }),
            Property::always("at most once", |_, state: &ModelState| {
                state.broken != Some(BrokenInvariant::Twice)
            }),
            Property::always("refused is not executed", |_, state: &ModelState| {
                state.broken != Some(BrokenInvariant::Lied)
            }),
        ];
        let events = [
            Property::sometimes("refused as stale", |_, state: &ModelState| {
                state.event == Some(ModelEvent::Stale)
            }),
            Property::sometimes("handed over", |_, state: &ModelState| {
                state.event == Some(ModelEvent::HandedOver)
            }),
            Property::sometimes("in quarantine", |_, state: &ModelState| {
                state.event == Some(ModelEvent::Quarantined)
            }),
            Property::sometimes("nothing at work at a restart", |_, state: &ModelState| {
                state.event == Some(ModelEvent::AtRest)
            }),
            Property::sometimes("closed by doubt", |_, state: &ModelState| {
                state.event == Some(ModelEvent::InDoubt)
            }),
            Property::sometimes("admitted after a wait", |_, state: &ModelState| {
                state.event == Some(ModelEvent::Waited)
            }),
        ];
        let copied = Property::sometimes("refused as duplicate", |_, state: &ModelState| {
            state.event == Some(ModelEvent::Duplicate)
        });
        promises.into_iter().chain(events).chain((self.bounds.copies > 0).then_some(copied)).collect()
    }
}

fn holds(bounds: ModelBounds) {
    let checker = FenceModel { bounds, without: None }.checker().threads(2).spawn_bfs().join();
    println!("stateright {bounds:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
}

fn violates(rule: ProtocolRule, bounds: ModelBounds, property: &'static str) {
    let model = FenceModel { bounds, without: Some(rule) };
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
    violates(ProtocolRule::Guard, TENURES, "no overlap");
}

#[test]
fn without_settling_executions_overlap() {
    violates(ProtocolRule::Settle, TENURES, "no overlap");
}

#[test]
fn without_a_second_check_the_stale_execute() {
    violates(ProtocolRule::SecondCheck, TENURES, "no stale execution");
}

#[test]
fn an_exchange_that_ends_with_the_gateway_frees_a_key_that_is_in_use() {
    violates(ProtocolRule::Detach, TENURES, "no overlap");
}

#[test]
fn without_quarantine_a_restart_forgets_who_executes() {
    violates(ProtocolRule::Quarantine, TENURES, "no overlap");
}

#[test]
fn what_is_sent_before_it_is_written_is_overlapped_after_a_restart() {
    violates(ProtocolRule::WriteFirst, TENURES, "no overlap");
}

#[test]
fn what_is_written_to_be_at_rest_too_early_is_overlapped_after_a_restart() {
    violates(ProtocolRule::RestAfterEnd, TENURES, "no overlap");
    violates(ProtocolRule::RestAfterDoubt, TENURES, "no overlap");
    violates(ProtocolRule::RestAfterQuarantine, RESTARTS, "no overlap");
}

#[test]
fn recovered_marks_that_let_their_own_tenure_pass_run_a_copy_again() {
    violates(ProtocolRule::StrictRecovery, COPIES, "at most once");
}

#[test]
fn a_doubt_that_is_not_kept_frees_a_key_that_is_in_use() {
    violates(ProtocolRule::KeepDoubt, TENURES, "no overlap");
}

#[test]
fn a_tenure_that_goes_on_after_an_unknown_outcome_overlaps_itself() {
    violates(ProtocolRule::Retire, COPIES, "no overlap");
}

#[test]
fn a_refusal_through_a_hop_says_nothing_about_the_other_copy() {
    violates(ProtocolRule::DisbelieveHop, COPIES, "refused is not executed");
}
