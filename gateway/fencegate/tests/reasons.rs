//! The list of reasons in the document for clients is the table that the gateway answers by.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use fencegate::refusal::{Hearers, Outcome, Reason, Refusal};
use hyper::header::RETRY_AFTER;

const BEGIN: &str = "<!-- written by a test: REWRITE=1 cargo test -p fencegate --test reasons -->\n";
const END: &str = "<!-- the end of what it writes -->\n";

/// What a client meets, a row for each.
fn table() -> String {
    let mut text = "| status | reason | outcome | what it says |\n|---|---|---|---|\n".to_owned();
    let mut met = told(Hearers::Clients);
    met.sort_by_key(|reason| status(*reason));
    for reason in met {
        let (word, outcome) = (reason.word(), reason.outcome().word());
        writeln!(text, "| {} | `{word}` | {outcome} | {} |", shown_status(reason), said(reason))
            .expect("memory");
    }
    text
}

fn told(hearers: Hearers) -> Vec<Reason> {
    Reason::ALL.iter().copied().filter(|reason| reason.hearers() == hearers).collect()
}

fn status(reason: Reason) -> u16 {
    Refusal::new(reason, "").status().as_u16()
}

/// With what a client is told of another time.
fn shown_status(reason: Reason) -> String {
    let again = Refusal::new(reason, "").into_reply().headers().contains_key(RETRY_AFTER);
    match reason.outcome() {
        // That of the answer that was given before.
        Outcome::Replayed => "400 to 599".to_owned(),
        _ if again => format!("{} + Retry-After", status(reason)),
        _ => status(reason).to_string(),
    }
}

fn said(reason: Reason) -> String {
    let note = reason.note();
    if note.is_empty() { reason.title().to_owned() } else { format!("{}. {note}", reason.title()) }
}

fn of_others() -> String {
    let listed = |hearers| {
        let all = told(hearers).into_iter().map(|reason| format!("{} `{}`", status(reason), reason.word()));
        all.collect::<Vec<_>>().join(", ")
    };
    let (gateways, askers) = (listed(Hearers::Gateways), listed(Hearers::AskersOfGuards));
    wrapped(&format!(
        "Not for clients: {gateways} are told to gateways. A guard tells whoever asks it: {askers}. A gateway answers its client \
         with a reason of the table instead."
    ))
}

/// Lines as long as those around them.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 120;
    let (mut lines, mut line) = (String::new(), String::new());
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

#[test]
fn documented_reasons_are_those_of_the_table() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docs/CLIENTS.md");
    let document = fs::read_to_string(&file).expect("shipped");
    let (before, rest) = document.split_once(BEGIN).expect("the place where it begins");
    let (written, after) = rest.split_once(END).expect("the place where it ends");
    let wanted = format!("\n{}\n{}\n", table(), of_others());
    if env::var_os("REWRITE").is_some() {
        let whole = [before, BEGIN, &wanted, END, after].concat();
        fs::write(&file, whole).expect("the repository can be written");
        return;
    }
    assert_eq!(written, wanted, "REWRITE=1 writes it anew");
}

/// A title is what a client reads, and a row of a table: one line, without an end of its own, and no cell of its own.
#[test]
fn what_is_said_of_a_reason_fits_in_a_row() {
    for reason in Reason::ALL {
        let (title, note) = (reason.title(), reason.note());
        assert!(!title.is_empty() && !title.ends_with('.'), "{reason:?}: {title}");
        assert!(note.is_empty() || note.ends_with('.'), "{reason:?}: {note}");
        assert!(!said(*reason).contains(['|', '\n']), "{reason:?}");
    }
}
