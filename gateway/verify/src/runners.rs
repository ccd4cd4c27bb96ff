//! Runs a case.

mod crash;
mod malformed;
mod race;
mod sequence;
mod slow;

use super::{
    case::{Scenario, TestCase},
    case_result::{CaseError, CaseStepRecord},
    context::TestContext,
};

/// Runs the case, and returns its result and its events.
pub(crate) async fn run_case(
    context: &TestContext<'_>,
    case: &TestCase,
) -> (Result<(), CaseError>, Vec<CaseStepRecord>) {
    let mut events = Vec::new();
    let log = &mut events;
    let outcome = match case.play {
        Scenario::Steps(steps) => sequence::run_steps(context, steps, log).await,
        Scenario::OneOperation(steps) => sequence::run_steps_of_one_operation(context, steps, log).await,
        Scenario::Malformed { token, number } => {
            malformed::run_malformed_texts(context, token, number, log).await
        }
        Scenario::Concurrent(spread) => race::run_concurrent(context, spread, log).await,
        Scenario::Overtaken(spread) => race::run_overtaken(context, spread, log).await,
        Scenario::Slow => slow::run_overtaken(context, log).await,
        Scenario::Writers => race::run_writers(context, log).await,
        Scenario::Held => slow::run_held_body(context, log).await,
        Scenario::Crossed => race::run_crossed_key_pairs(context, log).await,
        Scenario::CrashMidWrite => crash::run_crash_mid_write(context, log).await,
    };
    (outcome, events)
}
