//! What CLIENTS.md tells clients to do with an answer is what the list of refusals means.

use std::fs;

use fencegate::refusal::{Outcome, Reason, Refusal};
use fencegate_tests::prometheus::deploy;

/// The rows of the first table behind a title, as cells.
fn table(title: &str) -> Vec<Vec<String>> {
    let document = fs::read_to_string(deploy().join("docs/CLIENTS.md")).expect("shipped");
    let section = document.split(&format!("## {title}\n")).nth(1).expect("a section of this title");
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The words in backticks that CLIENTS.md calls not for clients.
fn of_others() -> Vec<String> {
    let document = fs::read_to_string(deploy().join("docs/CLIENTS.md")).expect("shipped");
    let paragraph = document.split("Not for clients:").nth(1).and_then(|rest| rest.split("\n\n").next());
    paragraph.expect("a paragraph").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The words for which the runbook says where to look.
fn looked_up() -> Vec<String> {
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

fn status(reason: Reason) -> u16 {
    Refusal::new(reason, "").status().as_u16()
}

/// Words in the table that stand for every status with which the service may have answered.
const OF_THE_SERVICE: [&str; 2] = ["400 to 599", "any,"];

/// True if a row of the table has the status of this reason. A replay has the status that the service gave.
fn has_status(reason: Reason, cell: &str) -> bool {
    match reason.outcome() {
        Outcome::Replayed => OF_THE_SERVICE.iter().any(|words| cell.starts_with(words)),
        _ => numbers(cell).contains(&status(reason)),
    }
}

/// What a client has to do, by what the answer says to machines.
fn verb(reason: Reason) -> &'static str {
    let comes_back = Refusal::new(reason, "").into_reply().headers().contains_key("retry-after");
    match (reason.outcome(), reason) {
        (Outcome::Done, _) => "finished",
        (Outcome::Replayed, _) => "as for `done`",
        (Outcome::Unknown, Reason::OutcomeRecordedUnknown) => "stop",
        (Outcome::Unknown, _) if comes_back => "repeat",
        (Outcome::Unknown, _) => "find out",
        (Outcome::NotDispatched, Reason::SlowRequest | Reason::EarlyData | Reason::UpstreamConnect) => {
            "repeat"
        }
        (Outcome::NotDispatched, _) if comes_back => "repeat",
        (Outcome::NotDispatched, _) => "do not repeat",
    }
}

/// Reasons that a gateway makes and a client can meet.
fn met() -> Vec<Reason> {
    let others = of_others();
    let met = Reason::ALL.iter().copied().filter(|reason| {
        // Words of gateways or guards alone are left out. A recorded and a fresh refusal may share a word.
        !others.iter().any(|word| word == reason.word())
    });
    met.collect()
}

#[test]
fn every_refusal_that_a_client_can_meet_is_listed_with_its_status_and_outcome() {
    let rows = table("Answers of the gateway itself");
    assert!(rows.len() > 10, "{rows:?}");
    for reason in met() {
        let (word, status) = (format!("`{}`", reason.word()), status(reason));
        let listed = rows.iter().any(|row| {
            has_status(reason, &row[0]) && row[1].contains(&word) && row[2] == reason.outcome().as_str()
        });
        assert!(listed, "{status} {word} {} is missing: {rows:#?}", reason.outcome().as_str());
    }
}

#[test]
fn every_refusal_that_a_client_can_meet_leads_to_one_thing_to_do() {
    let rows = table("What a client does with each answer");
    for reason in met() {
        let (word, status) = (format!("`{}`", reason.word()), status(reason));
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
        let told = row[3].trim_start_matches('*').split('*').next().unwrap_or_default();
        assert_eq!(told, verb(reason), "{status} {word} {outcome}");
    }
}

/// A word that no refusal has is a mistake in the document. Words with `_` or `.` are field names, and words with a
/// space are commands.
#[test]
fn no_reason_is_listed_that_does_not_exist() {
    let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.word()).collect();
    let rows = table("Answers of the gateway itself");
    let listed = rows.iter().flat_map(|row| row[1].split('`').skip(1).step_by(2).map(str::to_owned));
    let listed = listed.chain(of_others()).chain(looked_up());
    for word in listed.filter(|word| !word.contains(['_', '.', ' ']) && word != "direct") {
        assert!(known.contains(&&*word), "{word} is no reason");
    }
}
