//! Plays a case.

mod crash;
mod hostile;
mod race;
mod sequence;
mod slow;

use super::{
    case::{Case, Scenario},
    case_result::{CaseError, StepRecord},
    scene::TestContext,
};

/// Plays the case, and returns its result and its events.
pub async fn play(scene: &TestContext<'_>, case: &Case) -> (Result<(), CaseError>, Vec<StepRecord>) {
    let mut events = Vec::new();
    let log = &mut events;
    let outcome = match case.play {
        Scenario::Steps(steps) => sequence::play(scene, steps, log).await,
        Scenario::OneOperation(steps) => sequence::about_one_operation(scene, steps, log).await,
        Scenario::Malformed { token, number } => hostile::play(scene, token, number, log).await,
        Scenario::Concurrent(spread) => race::at_once(scene, spread, log).await,
        Scenario::Overtaken(spread) => race::overtaken(scene, spread, log).await,
        Scenario::Slow => slow::overtaken(scene, log).await,
        Scenario::Writers => race::writers(scene, log).await,
        Scenario::Held => slow::held(scene, log).await,
        Scenario::Crossed => race::crossed(scene, log).await,
        Scenario::CrashMidWrite => crash::cut(scene, log).await,
    };
    (outcome, events)
}
