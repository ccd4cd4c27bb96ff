//! Plays a case.

mod crash;
mod hostile;
mod race;
mod sequence;
mod slow;

use super::{
    case::{Case, Play},
    case_result::{Event, Wrong},
    scene::Scene,
};

/// Plays the case, and returns its result and its events.
pub async fn play(scene: &Scene<'_>, case: &Case) -> (Result<(), Wrong>, Vec<Event>) {
    let mut events = Vec::new();
    let log = &mut events;
    let outcome = match case.play {
        Play::Steps(steps) => sequence::play(scene, steps, log).await,
        Play::OneOperation(steps) => sequence::about_one_operation(scene, steps, log).await,
        Play::Hostile { token, number } => hostile::play(scene, token, number, log).await,
        Play::AtOnce(spread) => race::at_once(scene, spread, log).await,
        Play::Overtaken(spread) => race::overtaken(scene, spread, log).await,
        Play::Slow => slow::overtaken(scene, log).await,
        Play::Writers => race::writers(scene, log).await,
        Play::Held => slow::held(scene, log).await,
        Play::Crossed => race::crossed(scene, log).await,
        Play::Cut => crash::cut(scene, log).await,
    };
    (outcome, events)
}
