//! Plays a case.

mod crash;
mod malformed;
mod race;
mod sequence;
mod slow;

use super::{
    case::{Case, Scenario},
    case_result::{CaseError, StepRecord},
    context::TestContext,
};

/// Plays the case, and returns its result and its events.
pub async fn run_case(scene: &TestContext<'_>, case: &Case) -> (Result<(), CaseError>, Vec<StepRecord>) {
    let mut events = Vec::new();
    let log = &mut events;
    let outcome = match case.play {
        Scenario::Steps(steps) => sequence::run_steps(scene, steps, log).await,
        Scenario::OneOperation(steps) => sequence::about_one_operation(scene, steps, log).await,
        Scenario::Malformed { token, number } => malformed::run(scene, token, number, log).await,
        Scenario::Concurrent(spread) => race::run_concurrent(scene, spread, log).await,
        Scenario::Overtaken(spread) => race::run_overtaken(scene, spread, log).await,
        Scenario::Slow => slow::run_overtaken(scene, log).await,
        Scenario::Writers => race::run_writers(scene, log).await,
        Scenario::Held => slow::run_held(scene, log).await,
        Scenario::Crossed => race::run_crossed(scene, log).await,
        Scenario::CrashMidWrite => crash::run_crash_mid_write(scene, log).await,
    };
    (outcome, events)
}
