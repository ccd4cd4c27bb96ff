//! Sends malformed tokens, each for a key of its own, and checks that none is accepted or leaves a mark.

use super::sequence;
use crate::verify::{
    case_result::{CaseError, StepRecord},
    context::TestContext,
    step::{B, Expectation, with_headers, write},
    token_headers::{ComparedField, TokenHeaders, epoch},
};

/// Tries all texts and reports all failures.
pub(super) async fn run(
    scene: &TestContext<'_>,
    token: &[&'static str],
    number: &[&'static str],
    log: &mut Vec<StepRecord>,
) -> Result<(), CaseError> {
    let texts = match scene.service.fields.form {
        ComparedField::Token => token,
        ComparedField::Number => number,
    };
    let (mut failed, mut undecided) = (Vec::new(), Vec::new());
    for text in texts {
        let bad = with_headers(TokenHeaders::Text(text)).expect(Expectation::Refused);
        let good = |number| write(epoch(number)).expect(Expectation::Accepted);
        let story = [write(epoch(2)), bad, good(4), bad.on_key(B), good(5).on_key(B)];
        match sequence::run_steps(scene, &story, log).await {
            Ok(()) => {}
            Err(CaseError::Failed(why)) => failed.push(why),
            Err(CaseError::Undecided(why)) => undecided.push(why),
        }
    }
    match (failed.is_empty(), undecided.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => CaseError::failed(failed.join("; ")),
        (true, false) => CaseError::undecided(undecided.join("; ")),
    }
}
