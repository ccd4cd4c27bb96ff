//! Reads files of cases.

use super::{
    ClientAction, Event, Exchange, ExpectedClient, ExpectedRequest, ExpectedStatus, ExpectedUpstream,
    MessageCheck, ScriptedResponse, WireCase,
    escape::{line, unescape},
};

/// # Errors
/// With file, line and reason, at the first thing that is not understood.
pub fn cases(file: &str, text: &str) -> Result<Vec<WireCase>, String> {
    let mut cases: Vec<WireCase> = Vec::new();
    for (number, written) in text.lines().enumerate() {
        let line = written.trim_start();
        let place = |reason: String| format!("{file}:{}: {reason}: {written:?}", number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            let exchanges = vec![Exchange::default()];
            let file = file.to_owned();
            let name = name.to_owned();
            cases.push(WireCase { file, line: number + 1, name, exchanges, ..WireCase::default() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| place("no case yet".to_owned()))?;
        understand(case, line).map_err(place)?;
    }
    for case in &cases {
        sound(case).map_err(|reason| format!("{file}:{}: {reason}", case.line))?;
    }
    Ok(cases)
}

fn understand(case: &mut WireCase, text: &str) -> Result<(), String> {
    let exchange = case.exchanges.last_mut().ok_or("no exchange")?;
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, rest) {
        ("on", "fenced") => case.fenced = true,
        ("on", "unfenced") => case.fenced = false,
        (">", said) => say(exchange, line(said)?),
        ("<", said) => exchange.service.bytes.get_or_insert_default().extend(line(said)?),
        ("until", event) => exchange.says.push(ClientAction::Until(self::event(event)?)),
        ("hang", "up") => exchange.says.push(ClientAction::HangUp),
        ("service", what) => service(&mut exchange.service, what)?,
        ("upstream", what) => upstream(&mut exchange.upstream, what)?,
        ("client", "closes") => case.closes = true,
        ("client", what) => client(&mut exchange.client, what)?,
        ("then", "") => case.exchanges.push(Exchange::default()),
        ("then", "at once") => case.exchanges.push(Exchange { at_once: true, ..Exchange::default() }),
        _ => return Err("not understood".to_owned()),
    }
    Ok(())
}

fn say(exchange: &mut Exchange, bytes: Vec<u8>) {
    match exchange.says.last_mut() {
        Some(ClientAction::Bytes(said)) => said.extend(bytes),
        _ => exchange.says.push(ClientAction::Bytes(bytes)),
    }
}

fn event(text: &str) -> Result<Event, String> {
    match text {
        "read" => Ok(Event::Read),
        "interim" => Ok(Event::Interim),
        "upstream" => Ok(Event::Upstream),
        _ => Err("no such event".to_owned()),
    }
}

fn service(answer: &mut ScriptedResponse, text: &str) -> Result<(), String> {
    match text {
        "closes" => answer.closes = true,
        "answers early" => answer.early = true,
        _ => return Err("no such thing of a service".to_owned()),
    }
    Ok(())
}

fn upstream(upstream: &mut ExpectedUpstream, text: &str) -> Result<(), String> {
    match (text, upstream) {
        ("nothing", upstream) => *upstream = ExpectedUpstream::Nothing,
        ("unfinished", ExpectedUpstream::Sees(seen)) => seen.unfinished = true,
        (text, ExpectedUpstream::Sees(seen)) => seen.checks.push(check(text)?),
        (text, upstream) => {
            let line = String::from_utf8_lossy(&unescape(text)?).into_owned();
            *upstream = ExpectedUpstream::Sees(ExpectedRequest { line, ..ExpectedRequest::default() });
        }
    }
    Ok(())
}

fn client(client: &mut ExpectedClient, text: &str) -> Result<(), String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word.parse::<u16>(), rest) {
        (Ok(status @ 100..=199), "") => client.interim.push(status),
        (Ok(status), "") => client.gets = ExpectedStatus::Status(status),
        (Ok(status), reason) => client.gets = ExpectedStatus::Refusal(status, reason.to_owned()),
        (Err(_), _) if text == "nothing" => client.gets = ExpectedStatus::Nothing,
        (Err(_), _) if text == "broken" => client.broken = true,
        (Err(_), _) => client.checks.push(check(text)?),
    }
    Ok(())
}

fn check(text: &str) -> Result<MessageCheck, String> {
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

/// Refuses a case that could not fail: one side would send nothing, and nothing would be checked there.
fn sound(case: &WireCase) -> Result<(), String> {
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
