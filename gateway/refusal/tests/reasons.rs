//! The list of reasons in the document for clients, and the page to which the answers link, agree with the table
//! from which the gateway answers.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::PathBuf};

use fencegate_refusal::{DispatchOutcome, PROBLEMS, Refusal, RefusalAudience, RefusalReason};
use hyper::header::RETRY_AFTER;

const BEGIN: &str = "<!-- written by a test: REWRITE=1 cargo test -p fencegate-refusal --test reasons -->\n";
const END: &str = "<!-- the end of what it writes -->\n";

/// The table of the reasons that a client can get, with a row for each.
fn reason_table() -> String {
    let mut text = "| status | reason | outcome | what it says |\n|---|---|---|---|\n".to_owned();
    let mut met = reasons_for(RefusalAudience::Clients);
    met.sort_by_key(|reason| status(*reason));
    for reason in met {
        let word = reason.word();
        let outcome = reason.outcome().as_str();
        writeln!(
            text,
            "| {} | [`{word}`](PROBLEMS.md#{word}) | {outcome} | {} |",
            shown_status(reason),
            reason_text(reason)
        )
        .expect("memory");
    }
    text
}

fn reasons_for(hearers: RefusalAudience) -> Vec<RefusalReason> {
    RefusalReason::ALL.iter().copied().filter(|reason| reason.hearers() == hearers).collect()
}

fn status(reason: RefusalReason) -> u16 {
    Refusal::new(reason, "").status().as_u16()
}

/// The status as documents show it; for a replayed answer that is the range of statuses.
fn shown_status(reason: RefusalReason) -> String {
    let again = Refusal::new(reason, "").into_reply().headers().contains_key(RETRY_AFTER);
    match reason.outcome() {
        // A replayed answer has the status of the recorded answer.
        DispatchOutcome::Replayed => "400 to 599".to_owned(),
        _ if again => format!("{} + Retry-After", status(reason)),
        _ => status(reason).to_string(),
    }
}

fn reason_text(reason: RefusalReason) -> String {
    let note = reason.note();
    if note.is_empty() { reason.title().to_owned() } else { format!("{}. {note}", reason.title()) }
}

fn other_reasons_text() -> String {
    let listed = |hearers| {
        let all =
            reasons_for(hearers).into_iter().map(|reason| format!("{} `{}`", status(reason), reason.word()));
        all.collect::<Vec<_>>().join(", ")
    };
    let gateways = listed(RefusalAudience::Gateways);
    let askers = listed(RefusalAudience::AskersOfGuards);
    wrap_lines(&format!(
        "Not for clients: {gateways} are told to gateways. A guard tells whoever asks it: {askers}. A gateway answers its client \
         with a reason of the table instead."
    ))
}

/// Breaks the text into lines as long as the other lines of the document.
fn wrap_lines(text: &str) -> String {
    const WIDTH: usize = 120;
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// The reasons in `CLIENTS.md` are those of the table in the code.
#[test]
fn documented_reasons_match_table() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docs/CLIENTS.md");
    let document = fs::read_to_string(&file).expect("shipped");
    let (before, rest) = document.split_once(BEGIN).expect("the place where it begins");
    let (written, after) = rest.split_once(END).expect("the place where it ends");
    let wanted = format!("\n{}\n{}\n", reason_table(), other_reasons_text());
    if env::var_os("REWRITE").is_some() {
        let whole = [before, BEGIN, &wanted, END, after].concat();
        fs::write(&file, whole).expect("the repository can be written");
        return;
    }
    assert_eq!(written, wanted, "REWRITE=1 writes it anew");
}

const PAGE: &str = "\
# Problems

Each answer that a gateway or a guard gives by itself is `application/problem+json` (RFC 9457). Its `type` is the address of a
section of this page: `{PROBLEMS}#` and the reason. Nobody has to fetch it: the answer says `reason` and `outcome`
itself, and programs should go by these. The host is an example. Put this page where your people can read it; the alerts
name the runbook by the same address. Words: [GLOSSARY.md](GLOSSARY.md).

A test writes this page (`REWRITE=1 cargo test -p fencegate-refusal --test reasons`), but for what stands behind *Operators*. That is
written here by hand. [CLIENTS.md](CLIENTS.md) has the same reasons as one table, and settings for retries.
";

/// The prefix of the sentences for operators, which only `PROBLEMS.md` has.
const OPERATORS: &str = "*Operators*: ";

fn dispatched_text(outcome: DispatchOutcome) -> &'static str {
    match outcome {
        DispatchOutcome::Done => "the service has done it, before",
        DispatchOutcome::Replayed => "the service has answered it, before",
        DispatchOutcome::NotDispatched => "the service has not seen the request, and will not see it",
        DispatchOutcome::Unknown => "the service may have executed the request",
    }
}

fn audience_text(reason: RefusalReason) -> &'static str {
    match reason.hearers() {
        RefusalAudience::Clients => "",
        RefusalAudience::Gateways => " It is told to gateways, not to clients.",
        RefusalAudience::AskersOfGuards => {
            " A guard tells it; a gateway answers its own client with another reason."
        }
    }
}

/// The page: one section for each word, in alphabetical order. `operators`: the sentences for operators, by word.
fn problems_page(operators: &BTreeMap<&str, String>) -> String {
    let mut words: BTreeMap<&str, Vec<RefusalReason>> = BTreeMap::new();
    for reason in RefusalReason::ALL {
        words.entry(reason.word()).or_default().push(*reason);
    }
    let mut text = PAGE.replace("{PROBLEMS}", PROBLEMS);
    for (word, reasons) in words {
        write!(text, "\n## {word}\n\n").expect("memory");
        for reason in &reasons {
            let said = reason_text(*reason);
            let end = if said.ends_with('.') { "" } else { "." };
            let shown = shown_status(*reason);
            let outcome = reason.outcome();
            writeln!(
                text,
                "- **{shown}**, `{}`: {said}{end} Dispatched: {}. *Clients*: {}{}",
                outcome.as_str(),
                dispatched_text(outcome),
                reason.client_action(),
                audience_text(*reason)
            )
            .expect("memory");
        }
        let operators = operators.get(word).map(String::as_str).unwrap_or_default();
        writeln!(text, "\n{OPERATORS}{operators}").expect("memory");
    }
    text
}

/// The sentences for operators, by the section in which they stand.
fn operator_sentences(document: &str) -> BTreeMap<&str, String> {
    let sections = document.split("\n## ").skip(1);
    let read = sections.filter_map(|section| {
        let (word, rest) = section.split_once('\n')?;
        let (_, operators) = rest.split_once(OPERATORS)?;
        Some((word, operators.trim().to_owned()))
    });
    read.collect()
}

/// Each reason has a section of `PROBLEMS.md`, to which its answers link.
#[test]
fn each_reason_has_problem_section() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docs/PROBLEMS.md");
    let document = fs::read_to_string(&file).unwrap_or_default();
    let operators = operator_sentences(&document);
    let wanted = problems_page(&operators);
    if env::var_os("REWRITE").is_some() {
        fs::write(&file, &wanted).expect("the repository can be written");
    } else {
        assert!(document == wanted, "PROBLEMS.md is not the table: REWRITE=1 writes it anew");
    }
    let words = RefusalReason::ALL.iter().map(|reason| reason.word());
    let without: Vec<&str> =
        words.filter(|word| operators.get(word).is_none_or(|text| !text.ends_with('.'))).collect();
    assert!(without.is_empty(), "PROBLEMS.md says nothing to operators of {without:?}");
}

/// A title is read by clients, and stands in a row of a table: it is one line, without a full stop and without a
/// cell separator.
#[test]
fn reason_texts_fit_in_row() {
    for reason in RefusalReason::ALL {
        let title = reason.title();
        let note = reason.note();
        assert!(!title.is_empty() && !title.ends_with('.'), "{reason:?}: {title}");
        assert!(note.is_empty() || note.ends_with('.'), "{reason:?}: {note}");
        assert!(!reason_text(*reason).contains(['|', '\n']), "{reason:?}");
    }
}
