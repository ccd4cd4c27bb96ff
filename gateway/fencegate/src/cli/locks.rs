//! `fencegate locks`, `lock show`, `lock break`, `drain`: what a running gateway holds, and what it is to do about it.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use fencegate_process::again::{self, quoted};
use serde_json::{Value, json};

use super::{
    admin::{AdminAddress, Of, Trouble, ask},
    columns::Table,
    exit::{RUNTIME, USAGE},
    log::Format,
    out::{complain, failed, said, say},
};
use crate::admin::documents::{Lock, Locks, One, encoded, plural};

#[derive(Debug, Args)]
pub(super) struct Listing {
    /// Keys at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only keys that somebody waits for.
    #[arg(long)]
    wanted: bool,
    /// Only keys behind this one: the last that was shown before.
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    #[command(flatten)]
    place: AdminAddress,
    /// How it is printed; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Subcommand)]
pub(super) enum LockVerb {
    /// One key: who holds it, who stands in line for it in ZooKeeper, and why it is waited for.
    Show {
        /// The key, as `fencegate locks` prints it.
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        place: AdminAddress,
        /// How it is printed; `json` for programs.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Take a key from its holder, by removing its lock node: for a holder that hangs and does not give it back.
    ///
    /// A holder that works is told within moments. Until then both may write: a guard, or a service that compares
    /// tokens, refuses the old one; with `fencing: none` nobody does. A holder that is gone needs no break: its key is
    /// free when its session ends.
    Break {
        /// The key, as `fencegate locks` prints it.
        #[arg(value_name = "KEY")]
        key: String,
        /// Do it. Without it nothing is done: it gives the key of a holder that may be at work to the next one.
        #[arg(long)]
        yes: bool,
        /// The node that is meant, as `lock show` names it; whoever holds now unless given.
        #[arg(long, value_name = "NODE")]
        holder: Option<String>,
        /// Also where nobody compares tokens, so that two may be at work at once.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: AdminAddress,
        /// How it is printed; `json` for programs.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

#[derive(Debug, Args)]
pub(super) struct Draining {
    /// Return when the process has ended, or fail after 120 s.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    place: AdminAddress,
}

pub(super) fn list(listing: &Listing) -> Result<(), ExitCode> {
    let Listing { limit, wanted, after, place, format } = listing;
    let after = after.as_ref().map(|after| format!("&after={}", encoded(after))).unwrap_or_default();
    let path = format!("/api/v1/locks?limit={limit}&wanted={wanted}{after}");
    let found = place.found(Of::Gateway)?;
    let asked = ask(&found, Of::Gateway, async |gateway| {
        let told = gateway.get(&path).await?;
        Ok(match format {
            Format::Json => format!("{told:#}"),
            Format::Text => text(&gateway.read(told)?),
        })
    });
    said(asked)
}

/// For people.
pub(super) fn text(all: &Locks) -> String {
    let Locks { locks, more, .. } = all;
    let head = head(all);
    if locks.is_empty() {
        return head;
    }
    let mut table = rows(locks).to_string();
    if *more {
        let last = locks.last().map(|lock| lock.key.as_str()).unwrap_or_default();
        let next = again::command(Of::Gateway, &format!("locks --after {}", quoted(last)));
        table.push_str(&format!("\nThere are more: {next}"));
    }
    format!("{head}\n\n{table}")
}

/// How much there is of all.
pub(super) fn head(Locks { gateway, held, waiting, wanted, .. }: &Locks) -> String {
    let (held, wanted) = (plural(*held, "key"), plural(*wanted, "key"));
    match waiting {
        0 => format!("{gateway}: {held} held, nobody waits"),
        1 => format!("{gateway}: {held} held, 1 request waits for {wanted}"),
        waiting => format!("{gateway}: {held} held, {waiting} requests wait for {wanted}"),
    }
}

pub(super) fn rows(locks: &[Lock]) -> Table {
    let mut table =
        Table::of(["KEY", "ROUTE", "MODE", "TOKEN", "AGE", "AT WORK", "WAITING", "LONGEST", "WHY"]);
    for lock in locks {
        let held = lock.held.first();
        let first = lock.line.first();
        let route = held.and_then(|held| held.route.clone()).or(first.map(|first| first.route.clone()));
        let mode = held.map(|held| held.mode).or(first.map(|first| first.mode));
        table.row([
            lock.key.clone(),
            route.unwrap_or_default(),
            mode.map(|mode| mode.word().to_owned()).unwrap_or_default(),
            held.and_then(|held| held.token).map(|token| token.to_string()).unwrap_or_default(),
            held.map(|held| brief(held.age_ms)).unwrap_or_default(),
            lock.held.iter().map(|held| held.in_flight).sum::<u32>().to_string(),
            lock.waiting.to_string(),
            first.map(|first| brief(first.waits_ms)).unwrap_or_default(),
            lock.why.clone().unwrap_or_default(),
        ]);
    }
    table
}

pub(super) fn brief(millis: u64) -> String {
    let duration = Duration::from_millis(millis);
    if millis < 10_000 {
        format!("{duration:.1?}")
    } else {
        format!("{}", humantime::format_duration(Duration::from_secs(millis / 1000)))
    }
}

pub(super) fn run(verb: &LockVerb) -> Result<(), ExitCode> {
    match verb {
        LockVerb::Show { key, place, format } => show(key, place, *format),
        LockVerb::Break { key, yes: false, place, .. } => {
            // So that the commands below name it as this one did.
            place.found(Of::Gateway)?;
            let [show, break_it] = ["show", "break --yes"]
                .map(|verb| again::command(Of::Gateway, &format!("lock {verb} {}", quoted(key))));
            complain(format_args!(
                "error: FG0603: `lock break` gives the key of a holder that may be at work to the next one. Look at it \
                 first:\n  {show}\nand if it is to be broken:\n  {break_it}"
            ));
            Err(ExitCode::from(USAGE))
        }
        LockVerb::Break { key, holder, force, place, format, .. } => {
            let body = json!({ "confirm": key, "holder": holder, "force": force });
            let path = format!("/api/v1/locks/{}/break", encoded(key));
            let found = place.found(Of::Gateway)?;
            let asked = ask(&found, Of::Gateway, async |gateway| gateway.post(&path, &body).await);
            let done = asked.map_err(|trouble| failed(&forced(trouble)))?;
            say(match format {
                Format::Json => format!("{done:#}"),
                Format::Text => broken(key, &done),
            })
        }
    }
}

/// What programs say to have their way has another name here.
fn forced(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Refused { reason, said } if reason == "force" => {
            Trouble::Refused { said: said.replace("say `force`", "add `--force`"), reason }
        }
        other => other,
    }
}

fn show(key: &str, place: &AdminAddress, format: Format) -> Result<(), ExitCode> {
    let path = format!("/api/v1/locks/{}", encoded(key));
    let found = place.found(Of::Gateway)?;
    let asked = ask(&found, Of::Gateway, async |gateway| {
        let told = gateway.get(&path).await?;
        Ok(match format {
            Format::Json => format!("{told:#}"),
            Format::Text => one(&gateway.read(told)?),
        })
    });
    said(asked)
}

fn one(one: &One) -> String {
    let mut text = format!("{}\n{}\n", one.key, one.says);
    if let Some(why) = &one.line_error {
        text.push_str(&format!("What stands in ZooKeeper is not known: {why}.\n"));
    }
    if let Some(record) = one.record.as_ref().filter(|record| record.is_held()) {
        let owes = record.owes().unwrap_or_default();
        text.push_str(&format!(
            "Its record says `held`: who comes after tenure {} waits for {owes:?}, unless that one leaves in order.\n",
            record.epoch
        ));
    }
    if let Some(line) = one.line.as_ref().filter(|line| !line.is_empty()) {
        let mut table = Table::of(["NODE", "WHOSE", "MODE", "NUMBER", "STATE"]);
        for node in line {
            table.row([
                node.node.clone(),
                node.whose().to_owned(),
                node.mode.word().to_owned(),
                node.number.map(|number| number.to_string()).unwrap_or_default(),
                match node.permit {
                    Some(permit) => format!("holds permit {permit}"),
                    None if node.holds => "holds".into(),
                    None => "waits".into(),
                },
            ]);
        }
        text.push_str(&format!("\n{table}"));
    }
    text.trim_end().to_owned()
}

fn broken(key: &str, done: &Value) -> String {
    let nodes = done["broken"].as_array().into_iter().flatten().map(|one| {
        let gateway = one["gateway"].as_str().unwrap_or("a session that is not registered");
        format!("  {} of {gateway}", one["node"].as_str().unwrap_or_default())
    });
    let nodes: Vec<_> = nodes.collect();
    format!(
        "{key}: broken. Its old holder may still write until it notices; a guard, or a service that compares tokens, \
         refuses those writes.\n{}",
        nodes.join("\n")
    )
}

/// How long `--wait` waits.
const ENDS: Duration = Duration::from_secs(120);

pub(super) fn drain(draining: &Draining) -> Result<(), ExitCode> {
    let found = draining.place.found(Of::Gateway)?;
    let asked = ask(&found, Of::Gateway, async |gateway| {
        gateway.post("/api/v1/drain", &json!({})).await?;
        // Whoever does not read it still waits for the end.
        let told = say("draining: what runs goes on, nothing new is taken, and then the process ends");
        if draining.wait {
            let gone = async {
                while gateway.get("/live").await.is_ok() {
                    tokio::time::sleep(LOOK).await
                }
            };
            return Ok((told, tokio::time::timeout(ENDS, gone).await.is_ok()));
        }
        Ok((told, true))
    });
    match asked.map_err(|trouble| failed(&trouble))? {
        (told, true) => told,
        (_, false) => {
            complain(format_args!(
                "error: FG0604: it still runs after {ENDS:?}; its log says what is at work"
            ));
            Err(ExitCode::from(RUNTIME))
        }
    }
}

/// Between two looks at a process that ends.
const LOOK: Duration = Duration::from_millis(200);
