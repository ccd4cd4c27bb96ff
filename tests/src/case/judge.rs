//! Compares the messages of a run with the file of their case, and with the rules for every case.

use std::fmt::Write as _;

use super::{
    ClientAction, ExpectedClient, ExpectedRequest, ExpectedStatus, ExpectedUpstream, MessageCheck, WireCase,
    WireExchange,
    escape::escape,
    run::{CaseResult, ReceivedResponse},
};
use crate::{origin::RequestRecord, wire::HttpWireMessage};

/// All differences between the run and its case, as sentences. Empty if they agree.
pub fn complaints(case: &WireCase, played: &CaseResult) -> Vec<String> {
    let mut wrong = Vec::new();
    if played.stuck {
        wrong.push("the proxy neither answered nor ended the connection".to_owned());
    }
    check_requests(case, played, &mut wrong);
    for (number, exchange) in case.exchanges.iter().enumerate() {
        let answer = played.answers.get(number).and_then(Option::as_ref);
        let mut said = Vec::new();
        check_client(case, exchange, answer, &mut said);
        wrong.extend(said.into_iter().map(|why| format!("answer {}: {why}", number + 1)));
    }
    if !played.extra.is_empty() {
        wrong.push(format!("behind the last answer came {}", escape(&played.extra)));
    }
    wrong
}

/// The report of a failure: the case, its complaints and all bytes.
pub fn report(case: &WireCase, played: &CaseResult, complaints: &[String]) -> String {
    let mut text = format!("\n{}:{}: {}\n", case.file, case.line, case.name);
    for complaint in complaints {
        writeln!(text, "  - {complaint}").expect("a string takes all");
    }
    for say in case.exchanges.iter().flat_map(|exchange| &exchange.says) {
        match say {
            ClientAction::Bytes(bytes) => writeln!(text, "    > {}", escape(bytes)),
            other => writeln!(text, "    > {other:?}"),
        }
        .expect("a string takes all");
    }
    for request in &played.requests {
        writeln!(text, "    upstream: {request:?}").expect("a string takes all");
    }
    for answer in &played.answers {
        let shown = format!("{answer:?}").chars().take(1500).collect::<String>();
        writeln!(text, "    client: {shown}").expect("a string takes all");
    }
    text
}

fn check_requests(case: &WireCase, played: &CaseResult, wrong: &mut Vec<String>) {
    let expected: Vec<&ExpectedRequest> = case
        .exchanges
        .iter()
        .filter_map(|exchange| match &exchange.upstream {
            ExpectedUpstream::Nothing => None,
            ExpectedUpstream::Sees(seen) => Some(seen),
        })
        .collect();
    if expected.len() != played.requests.len() {
        wrong.push(format!("{} requests at the upstream, not {}", played.requests.len(), expected.len()));
    }
    for (seen, request) in expected.into_iter().zip(&played.requests) {
        check_arrival(case, seen, request, wrong);
    }
}

fn check_arrival(case: &WireCase, seen: &ExpectedRequest, request: &RequestRecord, wrong: &mut Vec<String>) {
    let message = &request.request;
    if message.start != seen.line {
        wrong.push(format!("the upstream saw `{}`, not `{}`", message.start, seen.line));
    }
    if request.whole.is_some() == seen.unfinished {
        wrong.push(format!("the upstream saw the body in full: {}", request.whole.is_some()));
    }
    run_checks("upstream", &seen.checks, message, wrong);
    check_any_request(case, message, wrong);
}

/// Checks the rules for every request that reaches an upstream.
fn check_any_request(case: &WireCase, message: &HttpWireMessage, wrong: &mut Vec<String>) {
    let mut ours: Vec<String> = message.fields.iter().map(|(name, _)| fold_name(name)).collect();
    ours.retain(|name| name.starts_with("fencing-"));
    ours.sort();
    let stamp = ["fencing-key", "fencing-mode", "fencing-not-after", "fencing-number", "fencing-token"];
    if ours != if case.fenced { &stamp[..] } else { &[] } {
        wrong.push(format!("the upstream saw {ours:?} of ours"));
    }
    for name in ["connection", "keep-alive", "proxy-connection", "te", "upgrade", "expect", "http2-settings"]
    {
        if has_field(message, name) {
            wrong.push(format!("the upstream saw `{name}`, which is of one hop"));
        }
    }
    if !message.trailers.is_empty() {
        wrong.push(format!("the upstream saw trailers {:?}", message.trailers));
    }
}

fn check_client(
    case: &WireCase,
    exchange: &WireExchange,
    answer: Option<&ReceivedResponse>,
    wrong: &mut Vec<String>,
) {
    let ExpectedClient { interim, gets, checks, broken } = &exchange.client;
    let Some(answer) = answer else {
        if *gets != ExpectedStatus::Nothing {
            wrong.push(format!("none, instead of {gets:?}"));
        }
        return;
    };
    let ReceivedResponse { message, .. } = answer;
    if answer.interim != *interim {
        wrong.push(format!("interim answers {:?}, not {interim:?}", answer.interim));
    }
    if answer.broken != *broken {
        wrong.push(format!("broken off: {}", answer.broken));
    }
    let status: u16 = message.word(1).parse().unwrap_or_default();
    match gets {
        ExpectedStatus::Nothing => wrong.push(format!("`{}` where there should be none", message.start)),
        ExpectedStatus::Status(expected) if status != *expected => {
            wrong.push(format!("`{}`, not {expected}", message.start));
        }
        ExpectedStatus::Refusal(expected, _) if exchange.is_head_request() => {
            let told = field_values(message, "fencing-outcome");
            if (status, &told[..]) != (*expected, &["not-dispatched"]) || !message.body.is_empty() {
                wrong.push(format!("{status} {told:?}, not {expected} not-dispatched and without a body"));
            }
        }
        ExpectedStatus::Refusal(expected, reason) => {
            let dispatched = matches!(exchange.upstream, ExpectedUpstream::Sees(_));
            check_refusal(*expected, reason, dispatched, status, message, wrong);
        }
        ExpectedStatus::Status(_) => check_response(case, message, wrong),
    }
    run_checks("client", checks, message, wrong);
}

/// Checks the rules for every response of an upstream.
fn check_response(case: &WireCase, message: &HttpWireMessage, wrong: &mut Vec<String>) {
    let outcome = field_values(message, "fencing-outcome");
    let done = outcome.len() == 1 && outcome[0].split(';').next() == Some("done");
    if case.fenced != done || case.fenced == outcome.is_empty() {
        wrong.push(format!("Fencing-Outcome {outcome:?}"));
    }
}

/// Checks that a refusal states its reason and the outcome of the request, both in its body and in its fields.
fn check_refusal(
    expected: u16,
    reason: &str,
    dispatched: bool,
    status: u16,
    message: &HttpWireMessage,
    wrong: &mut Vec<String>,
) {
    let problem: serde_json::Value = serde_json::from_slice(&message.body).unwrap_or_default();
    let said = problem["reason"].as_str().unwrap_or("without a reason");
    if (status, said) != (expected, reason) {
        wrong.push(format!("{status} {said}, not {expected} {reason}"));
        return;
    }
    let outcome = if dispatched { "unknown" } else { "not-dispatched" };
    let told = field_values(message, "fencing-outcome");
    let agrees = told.len() == 1 && told[0].split(';').next() == Some(outcome);
    if !agrees || problem["outcome"] != outcome || problem["status"] != status {
        wrong.push(format!("the outcome is {outcome}; the field says {told:?}, the body {problem}"));
    }
    if field_values(message, "content-type") != ["application/problem+json"] {
        wrong.push(format!("a refusal of type {:?}", field_values(message, "content-type")));
    }
}

fn run_checks(who: &str, checks: &[MessageCheck], message: &HttpWireMessage, wrong: &mut Vec<String>) {
    for check in checks {
        let holds = match check {
            MessageCheck::Is(name, value) => field_values(message, name) == [value],
            MessageCheck::Has(name) => has_field(message, name),
            MessageCheck::Lacks(name) => {
                let all = message.fields.iter().chain(&message.trailers);
                all.map(|(given, _)| fold_name(given)).all(|given| given != fold_name(name))
            }
            MessageCheck::Body(body) => message.body == *body,
            MessageCheck::Trailer(name, value) => {
                let same = |(given, _): &&(String, String)| given.eq_ignore_ascii_case(name);
                let found: Vec<_> = message.trailers.iter().filter(same).collect();
                found.len() == 1 && found[0].1 == *value
            }
        };
        if !holds {
            wrong.push(format!("{who}: {check:?}"));
        }
    }
}

fn has_field(message: &HttpWireMessage, name: &str) -> bool {
    message.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
}

fn field_values<'a>(message: &'a HttpWireMessage, name: &str) -> Vec<&'a str> {
    let same = |(given, _): &&(String, String)| given.eq_ignore_ascii_case(name);
    message.fields.iter().filter(same).map(|(_, value)| value.as_str()).collect()
}

/// The name of a field as servers see it that turn names into CGI variables.
fn fold_name(name: &str) -> String {
    name.to_ascii_lowercase().replace(|character: char| !character.is_ascii_alphanumeric(), "-")
}
