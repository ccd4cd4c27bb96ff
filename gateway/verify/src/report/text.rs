//! The report for users.

use super::{CaseReport, VerifyReport};
use crate::{
    case_result::{CaseResult, PassStrength},
    service::TestedService,
    token_headers::ComparedHeaderKind,
};

/// Describes the service under test.
pub fn render_head(service: &TestedService) -> String {
    let urls: Vec<&str> = service.instances.iter().map(|one| one.url.as_str()).collect();
    let how = match service.fields.form {
        ComparedHeaderKind::Token => "must be greater than the last one",
        ComparedHeaderKind::Number => "must not be smaller than the last one",
    };
    format!(
        "{} of {}\n`{}` {how}; {}\n",
        service.write,
        urls.join(" and "),
        service.fields.compared_token_header(),
        service.sight
    )
}

/// One case: one line if it passed, all details otherwise.
pub fn render_entry(entry: &CaseReport) -> String {
    let CaseReport { case, verdict, events, .. } = entry;
    let word = match verdict {
        CaseResult::Failed(_) => "FAILED",
        other => other.as_str(),
    };
    let mut text = format!("{word:9}  {:20}  {}", case.name, case.title);
    let mut line = |name: &str, what: &str| text.push_str(&format!("\n             {name:10} {what}"));
    match verdict {
        CaseResult::Passed(PassStrength::Effects) => {}
        CaseResult::Passed(PassStrength::Answers) => text.push_str(" (by its answers alone)"),
        CaseResult::Skipped(reason) => line("because", reason),
        CaseResult::Failed(reason) | CaseResult::Undecided(reason) => {
            for event in last_shown_events(events) {
                let effect = event.effect.as_ref().map(|effect| format!(", {effect}")).unwrap_or_default();
                line("sent", &event.sent);
                line("came", &format!("{}{effect}", event.came));
            }
            line("so", reason);
            if let CaseResult::Failed(_) = verdict {
                line("means", case.money);
                line("mend", case.mend);
            }
        }
    }
    text
}

/// The end of the report.
pub fn render_tail(report: &VerifyReport) -> String {
    let counts = report.counts();
    let mut text = String::new();
    if report.entries.iter().any(|entry| entry.verdict == CaseResult::Passed(PassStrength::Answers)) {
        text.push_str(
            "\nThe service was believed: whether what it refused was not done after all, and whether of two at once \
             the right one came last, shows with `--observe` or `--effects-file`.",
        );
    }
    if let Some(hint) = &report.hint {
        text.push_str(&format!("\nLook first: {hint}\n"));
    }
    text.push_str(&format!("\n{counts}, in {:.1} s\n", report.took.as_secs_f64()));
    text
}

/// The events at the end. A race has hundreds of requests, and its failure is at the end, so the others are left
/// out.
fn last_shown_events<T>(events: &[T]) -> &[T] {
    const SHOWN: usize = 8;
    &events[events.len().saturating_sub(SHOWN)..]
}
