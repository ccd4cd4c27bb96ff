//! The tables of answers and actions in CLIENTS.md agree with the list of refusals in the code.

use std::fs;

use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use fencegate_tests::prometheus::deploy;

/// The rows of the first table below a title, as cells.
fn table(title: &str) -> Vec<Vec<String>> {
    let document = fs::read_to_string(deploy().join("docs/CLIENTS.md")).expect("shipped");
    let section = document.split(&format!("## {title}\n")).nth(1).expect("a section of this title");
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The words in backticks that CLIENTS.md lists as not for clients.
fn words_not_for_clients() -> Vec<String> {
    let document = fs::read_to_string(deploy().join("docs/CLIENTS.md")).expect("shipped");
    let paragraph = document.split("Not for clients:").nth(1).and_then(|rest| rest.split("\n\n").next());
    paragraph.expect("a paragraph").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The reasons that the runbook explains.
fn runbook_reasons() -> Vec<String> {
    let runbook = fs::read_to_string(deploy().join("RUNBOOK.md")).expect("shipped");
    let within = |title: &str| {
        let section = runbook.split(&format!("## {title}\n")).nth(1).expect("a section of this title");
        let lines = section.lines().take_while(|line| !line.starts_with('#'));
        let heads = lines.filter(|line| line.starts_with("- `")).filter_map(|line| line.split(": ").next());
        let words = heads.flat_map(|head| head.split('`').skip(1).step_by(2));
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let words = [within("Contention"), within("The guard refuses")].concat();
    assert!(words.len() > 15, "not all were found: {words:?}");
    words
}

fn numbers(cell: &str) -> Vec<u16> {
    let words = cell.split(|c: char| !c.is_ascii_digit());
    words.filter(|word| word.len() == 3).filter_map(|word| word.parse().ok()).collect()
}

fn status(reason: RefusalReason) -> u16 {
    Refusal::new(reason, "").status().as_u16()
}

/// Words in the table that stand for every status that the service may have returned.
const OF_THE_SERVICE: [&str; 2] = ["400 to 599", "any,"];

/// True if a row of the table has the status of this reason. A replay has the status that the service returned.
fn has_status(reason: RefusalReason, cell: &str) -> bool {
    match reason.outcome() {
        DispatchOutcome::Replayed => OF_THE_SERVICE.iter().any(|words| cell.starts_with(words)),
        _ => numbers(cell).contains(&status(reason)),
    }
}

/// The action of a client, derived from the machine-readable parts of the answer.
fn client_action(reason: RefusalReason) -> &'static str {
    let comes_back = Refusal::new(reason, "").into_reply().headers().contains_key("retry-after");
    match (reason.outcome(), reason) {
        (DispatchOutcome::Done, _) => "finished",
        (DispatchOutcome::Replayed, _) => "as for `done`",
        (DispatchOutcome::Unknown, RefusalReason::OutcomeRecordedUnknown) => "stop",
        (DispatchOutcome::Unknown, _) if comes_back => "repeat",
        (DispatchOutcome::Unknown, _) => "find out",
        (
            DispatchOutcome::NotDispatched,
            RefusalReason::SlowRequest
            | RefusalReason::EarlyData
            | RefusalReason::UpstreamConnect
            | RefusalReason::UpstreamRefused,
        ) => "repeat",
        (DispatchOutcome::NotDispatched, _) if comes_back => "repeat",
        (DispatchOutcome::NotDispatched, _) => "do not repeat",
    }
}

/// The reasons of gateways that a client can receive.
fn client_reasons() -> Vec<RefusalReason> {
    let others = words_not_for_clients();
    let met = RefusalReason::ALL.iter().copied().filter(|reason| {
        // Reasons that only gateways or guards meet are left out by their word, which two reasons may share.
        !others.iter().any(|word| word == reason.word())
    });
    met.collect()
}

/// `CLIENTS.md` lists every refusal that a client can receive, with its status and outcome.
#[test]
fn client_refusals_are_listed_with_outcome() {
    let rows = table("Answers of the gateway itself");
    assert!(rows.len() > 10, "{rows:?}");
    for reason in client_reasons() {
        let word = format!("`{}`", reason.word());
        let status = status(reason);
        let listed = rows.iter().any(|row| {
            has_status(reason, &row[0]) && row[1].contains(&word) && row[2] == reason.outcome().as_str()
        });
        assert!(listed, "{status} {word} {} is missing: {rows:#?}", reason.outcome().as_str());
    }
}

/// Every refusal that a client can receive matches one row of the table of actions in `CLIENTS.md`.
#[test]
fn client_refusals_have_one_action() {
    let rows = table("What a client does with each answer");
    for reason in client_reasons() {
        let word = format!("`{}`", reason.word());
        let status = status(reason);
        let outcome = format!("`{}`", reason.outcome().as_str());
        // A row that names a reason is about that reason. The other rows are about all reasons with their status.
        let named = |row: &&Vec<String>| row[0] == outcome && row[1].contains(&word);
        let of_status = |row: &&Vec<String>| {
            row[0] == outcome && !row[1].contains("409 `") && numbers(&row[1]).contains(&status)
        };
        let mut found: Vec<_> = rows.iter().filter(named).filter(|row| has_status(reason, &row[1])).collect();
        if found.is_empty() {
            found = rows.iter().filter(of_status).collect();
        }
        let [row] = found[..] else { panic!("{status} {word} {outcome}: {found:#?}") };
        let action = row[3].trim_start_matches('*').split('*').next().unwrap_or_default();
        assert_eq!(action, client_action(reason), "{status} {word} {outcome}");
    }
}

/// A reason in the document that no refusal has is a mistake. Words with `_` or `.` are field names, and words with a
/// space are commands.
#[test]
fn documented_reasons_exist() {
    let known: Vec<&str> = RefusalReason::ALL.iter().map(|reason| reason.word()).collect();
    let rows = table("Answers of the gateway itself");
    let listed = rows.iter().flat_map(|row| row[1].split('`').skip(1).step_by(2).map(str::to_owned));
    let listed = listed.chain(words_not_for_clients()).chain(runbook_reasons());
    for word in listed.filter(|word| !word.contains(['_', '.', ' ']) && word != "direct") {
        assert!(known.contains(&&*word), "{word} is no reason");
    }
}
