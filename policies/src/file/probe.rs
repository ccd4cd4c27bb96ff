//! Reads how the upstream is probed for the outcome of an operation.

use std::time::Duration;

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{NotAfterEnforcement, OutcomeProbeSettings},
};

/// Reads `probe`. `expiry`: whether the upstream refuses late requests. If it does, a request cannot start after a
/// timely probe has been answered.
pub(super) fn probe(block: &mut MappingReader, expiry: NotAfterEnforcement) -> Option<OutcomeProbeSettings> {
    block.require("path", "path: \"/operations/{operation}\"");
    let path = block.value("path", path);
    let mut statuses = |name| {
        // If a status is invalid, the other fields are still read, so that each mistake is reported.
        let present = block.is_present(name);
        let read = block.values(name, parse_probe_status);
        (read.is_some() || !present).then(|| read.unwrap_or_default())
    };
    let done = statuses("done");
    let not_done = statuses("not_done");
    let closes = block.keyword("closes", &[("true", true), ("false", false)]).unwrap_or(false);
    let timeout = block.value("timeout", scalar::time_limit).unwrap_or(Duration::from_secs(3));
    let done = done?;
    let not_done = not_done?;
    check_probe_statuses(block, &done, &not_done);
    if !closes && expiry == NotAfterEnforcement::Ignored && !not_done.is_empty() {
        report_uncertain_not_done(block);
    }
    Some(OutcomeProbeSettings { path: path?, done, not_done, closes, timeout })
}

/// Reads a status of a probe's response. A server error cannot decide, because it does not show the state of the
/// operation.
fn parse_probe_status(text: &str) -> Result<u16, Diagnostic> {
    scalar::status(text, 200..=499, "a status from 200 to 499 can say what became of an operation")
}

fn check_probe_statuses(block: &mut MappingReader, done: &[u16], not_done: &[u16]) {
    if done.is_empty() && not_done.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::BadProbe, "no answer to the probe would decide anything");
        block.report(
            "done",
            fault.with_remedy("write `done: [200]`, and `not_done: [404]` if that is certain"),
        );
    }
    if let Some(both) = done.iter().find(|status| not_done.contains(status)) {
        let message = format!("status {both} means both that the operation was done and that it was not");
        let fault = Diagnostic::new(DiagnosticCode::BadProbe, message);
        block.report("not_done", fault.with_remedy("leave it out of one of the two lists"));
    }
}

/// Reports a probe whose "not done" decides nothing: a request that is still in a queue, a relay or a suspended
/// process may arrive after the answer.
fn report_uncertain_not_done(block: &mut MappingReader) {
    let message = "a service that only says that nothing was done may still be sent the request: `not_done` decides nothing";
    let fault = Diagnostic::new(DiagnosticCode::UncertainNo, message);
    let remedy = "let the service close the name as it says so and write `closes: true`, or have late requests refused and write `upstream.not_after: enforced`, or leave `not_done` out";
    block.report("not_done", fault.with_remedy(remedy));
}

/// Reads a path with a query that contains `{operation}` at least once.
fn path(text: &str) -> Result<String, Diagnostic> {
    const VARIABLE: &str = "{operation}";
    let bad = |reason: &str| {
        let fault = Diagnostic::new(
            DiagnosticCode::BadProbe,
            format!("`{text}` is not the path of a probe: {reason}"),
        );
        Err(fault.with_remedy("write a path such as `/operations/{operation}` or `/find?id={operation}`"))
    };
    let literal = text.replace(VARIABLE, "x");
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    match () {
        () if !text.starts_with('/') || text.starts_with("//") => bad("it does not begin with one `/`"),
        () if !literal.bytes().all(fits) => bad("it has characters that no path or query has"),
        () if !text.contains(VARIABLE) => bad("it does not say which operation is meant"),
        () => Ok(text.to_owned()),
    }
}
