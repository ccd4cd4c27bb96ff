//! Reports a text that is not YAML, with the place of the mistake. The parser often stops at a later place than
//! the mistake.

use serde_saphyr::{Error, Location};

use super::events::place;
use crate::diagnostics::{Diagnostic, DiagnosticCode, SourceSpan};

pub(super) fn to_diagnostic(error: &Error, text: &str) -> Diagnostic {
    let diagnostic = match error {
        Error::AliasError { error, .. } => to_diagnostic(error, text),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => {
            Diagnostic::new(DiagnosticCode::TooMuch, "the file is deeper or more repetitive than any policy")
                .with_remedy("write out what the aliases stand for, or make several policies of it")
        }
        Error::MultipleDocuments { .. } => Diagnostic::new(
            DiagnosticCode::Syntax,
            "a policy is one YAML document, and here begins a second one",
        )
        .with_remedy("move what follows into a file of its own, or leave the `---` out"),
        other => {
            let message = other.to_string();
            // The place is cut off the message, because the diagnostic shows it by itself.
            let message = match message.split(" at line ").next().unwrap_or_default() {
                // This message of the parser is replaced, because it is hard to understand.
                other if other.contains("recursive references") => "an alias stands within itself",
                other => other,
            };
            let diagnostic =
                Diagnostic::new(DiagnosticCode::Syntax, format!("the file is not YAML: {message}"));
            match common_mistake(message) {
                Some(remedy) => diagnostic.with_remedy(remedy),
                None => diagnostic,
            }
        }
    };
    let at = error.location().filter(|location| *location != Location::UNKNOWN);
    let Some(at) = at.map(|location| place(&location, 1)) else { return diagnostic };
    match find_culprit(text, at) {
        Some((culprit, remedy)) => diagnostic.at(culprit).with_remedy(remedy),
        None => diagnostic.at(at),
    }
}

/// The place and the remedy of the actual mistake, if it is not where the parser stopped.
fn find_culprit(text: &str, at: SourceSpan) -> Option<(SourceSpan, &'static str)> {
    let indented_by_tab = |line: &str| {
        let indentation = line.len() - line.trim_start().len();
        line[..indentation].find('\t').filter(|_| indentation < line.len())
    };
    let mut near = text.lines().enumerate().skip(at.line.saturating_sub(1)).take(2);
    if let Some((line, tab)) = near.find_map(|(line, text)| Some((line + 1, indented_by_tab(text)?))) {
        return Some((SourceSpan { line, column: tab + 1, width: 1 }, TABS));
    }
    // A quote that is not closed seems to end at the next quote, so the parser stops only after that one.
    let before = text.lines().enumerate().take(at.line);
    let open = before.filter(|(_, line)| has_open_quote(line)).last();
    open.map(|(line, text)| {
        let column = text.find('"').map_or(1, |quote| text[..quote].chars().count() + 1);
        (
            SourceSpan { line: line + 1, column, width: 1 },
            "close the quote that is opened here, in the same line",
        )
    })
}

const TABS: &str = "indent with spaces: YAML takes no tabs there";

/// Whether a line has an odd number of double quotes outside of comments and single quotes.
fn has_open_quote(line: &str) -> bool {
    let mut double = false;
    let mut single = false;
    let mut before = ' ';
    for char in line.chars() {
        match char {
            '"' if !single && before != '\\' => double = !double,
            '\'' if !double && (single || !before.is_alphanumeric()) => single = !single,
            '#' if !double && !single && before.is_whitespace() => break,
            _ => {}
        }
        before = char;
    }
    double
}

/// The remedy for the most frequent cause of a message of the parser.
fn common_mistake(message: &str) -> Option<&'static str> {
    const SLIPS: [(&str, &str); 9] = [
        ("within itself", "write its fields out where the alias stands"),
        ("tabs disallowed", TABS),
        (
            "unknown anchor",
            "write the value out, or put `&` and the name before the one that is meant, further up",
        ),
        (
            "unsupported tag",
            "leave the tag out: values come from the environment as `${NAME}`, and secrets from files",
        ),
        ("unclosed bracket", "close it: every `{` needs a `}`, and every `[` a `]`"),
        (
            "parsing a flow",
            "within `{}` and `[]`, put quotes around a value with one of `{}[],`: `path: \"/v1/{id}\"`",
        ),
        (
            "parsing a block",
            "begin it in the same column as its neighbours, and close every quote and bracket above",
        ),
        ("mapping values are not allowed", "put quotes around a value that has `: ` in it"),
        (
            "cannot start any token",
            "put quotes around a value that begins with one of `@`, `%` and the backquote",
        ),
    ];
    SLIPS.iter().find(|(part, _)| message.contains(part)).map(|(_, remedy)| *remedy)
}
