//! The report for programs.

use serde_json::{Value, json};

use super::{CaseReport, VerifyReport};
use crate::{
    case_result::{CaseResult, PassStrength},
    service::TestedService,
};

pub fn render_json(service: &TestedService, report: &VerifyReport) -> String {
    let document = json!({
        "service": service.instances.iter().map(|one| one.url.as_str()).collect::<Vec<_>>(),
        "request": service.write.to_string(),
        "compares": service.fields.compared_token_header().as_str(),
        "effects": service.sight.to_string(),
        "seconds": report.took.as_secs_f64(),
        "summary": report.counts(),
        "cases": report.entries.iter().map(entry).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&document).expect("plain fields serialise")
}

fn entry(entry: &CaseReport) -> Value {
    let case = entry.case;
    let strength = match entry.verdict {
        CaseResult::Passed(strength) => Some(strength),
        _ => None::<PassStrength>,
    };
    json!({
        "group": case.group.as_str(),
        "name": case.name,
        "title": case.title,
        "verdict": entry.verdict.as_str(),
        "proof": strength,
        "why": entry.verdict.reason(),
        "means": case.money,
        "mend": case.mend,
        "seconds": entry.took.as_secs_f64(),
        "events": entry.events,
    })
}
