//! One key behind a guard, as a state machine: gateways, a lock service, a network, the guard, the upstream.
//!
//! It is written independently of `spin/fence.pml`, so that a mistake in one of the two shows. The lock service ends
//! sessions at any time. The network delays and copies messages, the guard is killed, and the upstream's connection
//! breaks. A time limit (`max_execution`) is modelled as an assumption: the executions that it bounds are over.
//! Reading order: [`rules`], [`state`], then [`steps`].

mod rules;
mod state;
mod steps;

use fencegate_tests::effort::effort;
use stateright::{Checker, HasDiscoveries, Model, Property};

use rules::{FenceModel, ModelBounds, ModelProtocolRule};
use state::{BrokenInvariant, ModelEvent, ModelState};
use steps::ModelStep;

/// Three tenures of one dispatch, to test the order of tokens.
const TENURES: ModelBounds = ModelBounds { tenures: 3, dispatches: 1, copies: 0, restarts: 1, losses: 1 };
/// Two grants of two dispatches through a hop, to test copies and dispatches of one grant.
const COPIES: ModelBounds = ModelBounds { tenures: 2, dispatches: 2, copies: 1, restarts: 1, losses: 1 };

/// Two tenures and a guard that is killed twice, to test the state that a guard finds on the disk.
const RESTARTS: ModelBounds = ModelBounds { tenures: 2, dispatches: 1, copies: 0, restarts: 2, losses: 1 };

/// The bounds of the other models together, with a second dispatch of each grant in a thorough run.
fn together() -> ModelBounds {
    let dispatches = u8::try_from(effort(1, 2)).expect("one or two");
    ModelBounds { tenures: 3, dispatches, copies: 1, restarts: 1, losses: 1 }
}

impl Model for FenceModel {
    type State = ModelState;
    type Action = ModelStep;

    fn init_states(&self) -> Vec<ModelState> {
        vec![ModelState::new(self.bounds)]
    }

    fn actions(&self, state: &ModelState, steps: &mut Vec<ModelStep>) {
        // The steps after the first violation do not matter.
        if state.broken.is_none() {
            steps::collect_possible_steps(self, state, steps);
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

fn assert_model_holds(bounds: ModelBounds) {
    let checker = FenceModel { bounds, without: None }.checker().threads(2).spawn_bfs().join();
    println!("stateright {bounds:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
}

fn assert_rule_needed(rule: ModelProtocolRule, bounds: ModelBounds, property: &'static str) {
    let model = FenceModel { bounds, without: Some(rule) };
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("stateright without {rule:?}: {} states", checker.unique_state_count());
    let schedule = checker.discovery(property).unwrap_or_else(|| panic!("without {rule:?}: no violation"));
    println!("{:?}", schedule.into_actions());
}

/// Over three grants no two executions overlap, and no request executes late or twice.
#[test]
fn safe_over_three_grants() {
    assert_model_holds(TENURES);
}

/// Over two restarts of the guard no two executions overlap, and no request executes late or twice.
#[test]
fn safe_over_two_restarts() {
    assert_model_holds(RESTARTS);
}

/// Behind a hop that copies requests no two executions overlap, and no request executes late or twice.
#[test]
fn safe_behind_copying_hop() {
    assert_model_holds(COPIES);
}

/// When all kinds of accidents happen together, no two executions overlap, and no request executes late or twice.
#[test]
fn safe_with_all_accidents_together() {
    assert_model_holds(together());
}

#[test]
fn executions_overlap_without_guard() {
    assert_rule_needed(ModelProtocolRule::Guard, TENURES, "no overlap");
}

#[test]
fn executions_overlap_without_settling() {
    assert_rule_needed(ModelProtocolRule::Settle, TENURES, "no overlap");
}

/// Without the second check before sending, a stale request executes.
#[test]
fn stale_executes_without_second_check() {
    assert_rule_needed(ModelProtocolRule::SecondCheck, TENURES, "no stale execution");
}

/// If the guard drops an exchange whose gateway has gone, its key becomes free while the execution still runs.
#[test]
fn executions_overlap_without_detach() {
    assert_rule_needed(ModelProtocolRule::Detach, TENURES, "no overlap");
}

/// Without quarantine a restart forgets which executions may run, and they overlap with the next ones.
#[test]
fn executions_overlap_without_quarantine() {
    assert_rule_needed(ModelProtocolRule::Quarantine, TENURES, "no overlap");
}

/// A dispatch that is sent before it is recorded on the disk overlaps with the next one after a restart.
#[test]
fn unrecorded_send_overlaps_after_restart() {
    assert_rule_needed(ModelProtocolRule::WriteFirst, TENURES, "no overlap");
}

/// If a key is recorded to be at rest while a dispatch is in flight, in doubt or in quarantine, executions overlap
/// after a restart.
#[test]
fn early_rest_record_overlaps_after_restart() {
    assert_rule_needed(ModelProtocolRule::RestAfterEnd, TENURES, "no overlap");
    assert_rule_needed(ModelProtocolRule::RestAfterDoubt, TENURES, "no overlap");
    assert_rule_needed(ModelProtocolRule::RestAfterQuarantine, RESTARTS, "no overlap");
}

/// If a watermark read from the disk admits its own tenure, a copied request runs again.
#[test]
fn lax_recovery_reruns_copy() {
    assert_rule_needed(ModelProtocolRule::StrictRecovery, COPIES, "at most once");
}

/// If a dispatch whose end was not seen does not close its key, executions overlap.
#[test]
fn executions_overlap_without_kept_doubt() {
    assert_rule_needed(ModelProtocolRule::KeepDoubt, TENURES, "no overlap");
}

/// If a gateway sends another dispatch under a grant that has an unknown outcome, two executions of this grant
/// overlap.
#[test]
fn grant_kept_after_unknown_outcome_overlaps() {
    assert_rule_needed(ModelProtocolRule::Retire, COPIES, "no overlap");
}

/// Behind a hop that copies, the refusal of one copy proves nothing about the other copy: a gateway that believes it
/// reports an executed request as refused.
#[test]
fn believed_hop_refusal_is_untrue() {
    assert_rule_needed(ModelProtocolRule::DisbelieveHop, COPIES, "refused is not executed");
}
