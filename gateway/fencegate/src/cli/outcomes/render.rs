//! The texts about a request whose outcome is unknown: its age, the keys that it closes, and what the
//! operator can do.

use std::time::Duration;

use fencegate_admin::{
    extract::ResolvedOutcome,
    outcomes::{GuardUnresolvedEntry, UnresolvedEntryKind},
};
use fencegate_policies::token::FencingToken;
use fencegate_process::{
    command_hint::{self, CommandHintTarget},
    key_redaction::HIDDEN,
};
use serde::Deserialize;

use crate::cli::out::format_unix_seconds_and_age;

/// The watermarks of a guard for a key.
#[derive(Debug, Deserialize)]
pub(super) struct GuardKeyStatus {
    key: String,
    write: Option<FencingToken>,
    read: Option<FencingToken>,
    in_flight: Vec<FencingToken>,
    in_doubt: Vec<FencingToken>,
}

impl GuardKeyStatus {
    /// Whether an entry is about this key. All hidden keys have the same text, so for them only the token
    /// decides.
    pub(super) fn is_key_of_entry(&self, open: &GuardUnresolvedEntry) -> bool {
        let named = self.key != HIDDEN && open.keys.contains(&self.key);
        named || self.in_doubt.contains(&open.token)
    }
}

pub(super) fn list_text(open: &[GuardUnresolvedEntry]) -> String {
    if open.is_empty() {
        return "Nothing is unknown: every request that was sent has a known outcome.".into();
    }
    let shown: Vec<_> = open.iter().map(describe).collect();
    let how_many = match open.len() {
        1 => "Of 1 request".to_owned(),
        n => format!("Of {n} requests"),
    };
    format!("{how_many} nobody knows what came of it.\n\n{}", shown.join("\n\n"))
}

pub(super) fn describe(open: &GuardUnresolvedEntry) -> String {
    let mut lines = vec![open.reference.clone()];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<9}{text}"));
    line("request", request_text(open));
    if let Some(name) = &open.idempotency_key {
        line("key", format!("Idempotency-Key: {name}"));
    }
    if let Some(admitted) = open.admitted {
        line("since", format_unix_seconds_and_age(admitted));
    }
    line("token", open.token.to_string());
    line("resource", resource_text(open));
    match open.kind {
        UnresolvedEntryKind::Operation => {
            line("to do", "find out from the upstream's own records whether it was done; then one of".into());
            line("", format!("{}   # repeats are told so", resolve_command(open, "done")));
            line("", format!("{}   # a repeat runs it", resolve_command(open, "not-done")));
            if open.closes_key_for_ms.is_some() {
                line("", "a \"no\" of its records is not final yet: the request may still be begun".into());
            }
        }
        UnresolvedEntryKind::Execution => {
            line("to do", "nothing, the resource opens by itself; or, once it is surely over,".into());
            line("", resolve_command(open, "done"));
        }
    }
    lines.join("\n")
}

/// The command with which an operator resolves the entry.
fn resolve_command(open: &GuardUnresolvedEntry, outcome: &str) -> String {
    command_hint::command_line(
        CommandHintTarget::Guard,
        &format!("guard resolve {} --as {outcome}", open.reference),
    )
}

fn request_text(open: &GuardUnresolvedEntry) -> String {
    match (&open.method, &open.target) {
        (Some(method), Some(target)) => format!("{method} {target}"),
        (Some(method), None) => format!("{method} (target not shown)"),
        _ => "not recorded: it is no `once` operation".into(),
    }
}

fn resource_text(open: &GuardUnresolvedEntry) -> String {
    let keys = open.keys.join(", ");
    match open.closes_key_for_ms {
        Some(ms) => {
            let left = humantime::format_duration(round_to_tenths(ms));
            match &open.endpoint {
                Some(endpoint) if open.endpoint_silent => {
                    format!("{keys}, closed: {endpoint} does not answer; for another {left} after it does")
                }
                _ => format!("{keys}, closed for another {left}"),
            }
        }
        None => format!("{keys}, open to other requests"),
    }
}

/// The duration, rounded up to tenths of a second.
fn round_to_tenths(ms: u64) -> Duration {
    Duration::from_millis(ms.div_ceil(100) * 100)
}

pub(super) fn key_text<'a>(
    key: &GuardKeyStatus,
    open: impl Iterator<Item = &'a GuardUnresolvedEntry>,
) -> String {
    let token =
        |token: &Option<FencingToken>| token.map_or_else(|| "none yet".to_owned(), |token| token.to_string());
    let tokens = |tokens: &[FencingToken]| match tokens {
        [] => "nothing".to_owned(),
        tokens => tokens.iter().map(FencingToken::to_string).collect::<Vec<_>>().join(", "),
    };
    let GuardKeyStatus { key, write, read, in_flight, in_doubt } = key;
    let mut text = format!(
        "{key}\n  \
         newest write  {}\n  \
         newest read   {}\n  \
         in flight     {}\n  \
         in doubt      {}",
        token(write),
        token(read),
        tokens(in_flight),
        tokens(in_doubt),
    );
    for open in open {
        text.push_str("\n\n");
        text.push_str(&describe(open));
    }
    text
}

pub(super) fn resolved_text(
    reference: &str,
    outcome: ResolvedOutcome,
    about: Option<&GuardUnresolvedEntry>,
) -> String {
    let what = match about {
        Some(open) if open.kind == UnresolvedEntryKind::Execution => {
            "the execution counts as over, its resource is open"
        }
        _ => match outcome {
            ResolvedOutcome::Done => "taken as done: repeats are told that it was, and do not run",
            ResolvedOutcome::NotDone => "taken as not done: a repeat runs it",
        },
    };
    let request = about.map(|open| format!("\n  {} on {}", request_text(open), open.keys.join(", ")));
    format!("{reference}: {what}.{}", request.unwrap_or_default())
}
