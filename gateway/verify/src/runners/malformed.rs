//! Sends malformed tokens, each for a key of its own, and checks that none is accepted or leaves a watermark.

use super::sequence;
use crate::{
    case_result::{CaseError, CaseStepRecord},
    context::TestContext,
    step::{B, ExpectedResult, with_headers, write},
    token_headers::{ComparedHeaderKind, SyntheticTokenHeaders, epoch},
};

/// Tries all texts and reports all failures.
pub(super) async fn run_malformed_texts(
    context: &TestContext<'_>,
    token: &[&'static str],
    number: &[&'static str],
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let texts = match context.service.fields.form {
        ComparedHeaderKind::Token => token,
        ComparedHeaderKind::Number => number,
    };
    let mut failed = Vec::new();
    let mut undecided = Vec::new();
    for text in texts {
        let bad = with_headers(SyntheticTokenHeaders::Text(text)).expect(ExpectedResult::Refused);
        let good = |number| write(epoch(number)).expect(ExpectedResult::Accepted);
        let story = [write(epoch(2)), bad, good(4), bad.on_key(B), good(5).on_key(B)];
        match sequence::run_steps(context, &story, log).await {
            Ok(()) => {}
            Err(CaseError::Failed(reason)) => failed.push(reason),
            Err(CaseError::Undecided(reason)) => undecided.push(reason),
        }
    }
    match (failed.is_empty(), undecided.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => CaseError::failed(failed.join("; ")),
        (true, false) => CaseError::undecided(undecided.join("; ")),
    }
}
