//! Reads files of cases.

use super::{
    AwaitedEvent, ClientAction, ExpectedClient, ExpectedRequest, ExpectedStatus, ExpectedUpstream,
    MessageCheck, WireCase, WireExchange,
    escape::{decode_line, unescape},
};
use crate::origin::ScriptedResponse;

/// Parses the cases of a file.
///
/// # Errors
/// Returns an error with file, line and reason at the first line that is not understood.
pub fn parse_cases(file: &str, text: &str) -> Result<Vec<WireCase>, String> {
    let mut cases: Vec<WireCase> = Vec::new();
    for (number, written) in text.lines().enumerate() {
        let line = written.trim_start();
        let place = |reason: String| format!("{file}:{}: {reason}: {written:?}", number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            let exchanges = vec![WireExchange::default()];
            let file = file.to_owned();
            let name = name.to_owned();
            cases.push(WireCase { file, line: number + 1, name, exchanges, ..WireCase::default() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| place("no case yet".to_owned()))?;
        parse_directive(case, line).map_err(place)?;
    }
    for case in &cases {
        check_can_fail(case).map_err(|reason| format!("{file}:{}: {reason}", case.line))?;
    }
    Ok(cases)
}

fn parse_directive(case: &mut WireCase, text: &str) -> Result<(), String> {
    let exchange = case.exchanges.last_mut().ok_or("no exchange")?;
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, rest) {
        ("on", "fenced") => case.fenced = true,
        ("on", "unfenced") => case.fenced = false,
        (">", said) => add_client_bytes(exchange, decode_line(said)?),
        ("<", said) => exchange.service.bytes.get_or_insert_default().extend(decode_line(said)?),
        ("until", event) => exchange.says.push(ClientAction::Until(parse_event(event)?)),
        ("hang", "up") => exchange.says.push(ClientAction::HangUp),
        ("service", what) => parse_service(&mut exchange.service, what)?,
        ("upstream", what) => parse_upstream(&mut exchange.upstream, what)?,
        ("client", "closes") => case.closes = true,
        ("client", what) => parse_client(&mut exchange.client, what)?,
        ("then", "") => case.exchanges.push(WireExchange::default()),
        ("then", "at once") => case.exchanges.push(WireExchange { at_once: true, ..WireExchange::default() }),
        _ => return Err("not understood".to_owned()),
    }
    Ok(())
}

fn add_client_bytes(exchange: &mut WireExchange, bytes: Vec<u8>) {
    match exchange.says.last_mut() {
        Some(ClientAction::Bytes(said)) => said.extend(bytes),
        _ => exchange.says.push(ClientAction::Bytes(bytes)),
    }
}

fn parse_event(text: &str) -> Result<AwaitedEvent, String> {
    match text {
        "read" => Ok(AwaitedEvent::Read),
        "interim" => Ok(AwaitedEvent::Interim),
        "upstream" => Ok(AwaitedEvent::Upstream),
        _ => Err("no such event".to_owned()),
    }
}

fn parse_service(answer: &mut ScriptedResponse, text: &str) -> Result<(), String> {
    match text {
        "closes" => answer.closes = true,
        "answers early" => answer.early = true,
        _ => return Err("no such thing of a service".to_owned()),
    }
    Ok(())
}

fn parse_upstream(upstream: &mut ExpectedUpstream, text: &str) -> Result<(), String> {
    match (text, upstream) {
        ("nothing", upstream) => *upstream = ExpectedUpstream::Nothing,
        ("unfinished", ExpectedUpstream::Sees(seen)) => seen.unfinished = true,
        (text, ExpectedUpstream::Sees(seen)) => seen.checks.push(parse_check(text)?),
        (text, upstream) => {
            let line = String::from_utf8_lossy(&unescape(text)?).into_owned();
            *upstream = ExpectedUpstream::Sees(ExpectedRequest { line, ..ExpectedRequest::default() });
        }
    }
    Ok(())
}

fn parse_client(client: &mut ExpectedClient, text: &str) -> Result<(), String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word.parse::<u16>(), rest) {
        (Ok(status @ 100..=199), "") => client.interim.push(status),
        (Ok(status), "") => client.gets = ExpectedStatus::Status(status),
        (Ok(status), reason) => client.gets = ExpectedStatus::Refusal(status, reason.to_owned()),
        (Err(_), _) if text == "nothing" => client.gets = ExpectedStatus::Nothing,
        (Err(_), _) if text == "broken" => client.broken = true,
        (Err(_), _) => client.checks.push(parse_check(text)?),
    }
    Ok(())
}

fn parse_check(text: &str) -> Result<MessageCheck, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let pair = || rest.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    match word {
        "+" => Ok(pair().map_or_else(
            || MessageCheck::Has(rest.to_owned()),
            |(name, value)| MessageCheck::Is(name, value),
        )),
        "-" => Ok(MessageCheck::Lacks(rest.to_owned())),
        "body" => Ok(MessageCheck::Body(unescape(rest)?)),
        "trailer" => {
            let (name, value) = pair().ok_or("a trailer has a value")?;
            Ok(MessageCheck::Trailer(name, value))
        }
        _ => Err("not understood".to_owned()),
    }
}

/// Refuses a case that makes no sense: an exchange without bytes that expects a response, or a response of the
/// service to a request that must not arrive.
fn check_can_fail(case: &WireCase) -> Result<(), String> {
    for exchange in &case.exchanges {
        let silent = exchange.says.is_empty();
        let ends = exchange.client.gets == ExpectedStatus::Nothing;
        if silent && !ends {
            return Err(format!("`{}`: nothing is said, and yet there is an answer", case.name));
        }
        if exchange.service != ScriptedResponse::default()
            && matches!(exchange.upstream, ExpectedUpstream::Nothing)
        {
            return Err(format!("`{}`: the service answers what it does not see", case.name));
        }
    }
    Ok(())
}
