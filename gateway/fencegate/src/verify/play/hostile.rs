//! Sends malformed tokens, each for a key of its own, and checks that none is accepted or leaves a mark.

use super::sequence;
use crate::verify::{
    action::{B, Expect, stamped, write},
    case_result::{Event, Wrong},
    scene::Scene,
    stamp::{Form, Stamp, epoch},
};

/// Tries all texts and reports all failures.
pub(super) async fn play(
    scene: &Scene<'_>,
    token: &[&'static str],
    number: &[&'static str],
    log: &mut Vec<Event>,
) -> Result<(), Wrong> {
    let texts = match scene.service.fields.form {
        Form::Token => token,
        Form::Number => number,
    };
    let (mut failed, mut undecided) = (Vec::new(), Vec::new());
    for text in texts {
        let bad = stamped(Stamp::Text(text)).is(Expect::Refused);
        let good = |number| write(epoch(number)).is(Expect::Accepted);
        let story = [write(epoch(2)), bad, good(4), bad.on(B), good(5).on(B)];
        match sequence::play(scene, &story, log).await {
            Ok(()) => {}
            Err(Wrong::Failed(why)) => failed.push(why),
            Err(Wrong::Undecided(why)) => undecided.push(why),
        }
    }
    match (failed.is_empty(), undecided.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Wrong::failed(failed.join("; ")),
        (true, false) => Wrong::undecided(undecided.join("; ")),
    }
}
