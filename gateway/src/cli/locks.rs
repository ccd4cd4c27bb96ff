//! `fencegate locks`, `lock show`, `lock break`, `drain`: what a running gateway holds, and what it is to do about it.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    RUNTIME, USAGE,
    admin::{Of, Place, Trouble, ask},
    log::Format,
    table::Table,
    told,
};
use crate::admin::told::{Lock, Locks, One, encoded};

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
    place: Place,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// One key: who holds it, who stands in line for it in ZooKeeper, and why it is waited for.
    Show {
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        place: Place,
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove the lock node of whoever holds a key. Its holder learns of it by a watch; until then both may write.
    Break {
        #[arg(value_name = "KEY")]
        key: String,
        /// This is meant.
        #[arg(long)]
        yes: bool,
        /// The node that is meant, as `lock show` names it; whoever holds now unless given.
        #[arg(long, value_name = "NODE")]
        holder: Option<String>,
        /// Also where nobody compares tokens, so that two may be at work at once.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: Place,
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
    place: Place,
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
    asked.map(|said| println!("{said}")).map_err(|trouble| told(&trouble))
}

/// For people.
pub(super) fn text(locks: &Locks) -> String {
    let Locks { gateway, held, waiting, wanted, locks, more } = locks;
    let head = format!("{gateway}: {held} keys held, {waiting} requests wait for {wanted} keys");
    if locks.is_empty() {
        return head;
    }
    let mut table = rows(locks).to_string();
    if *more {
        let last = locks.last().map(|lock| lock.key.as_str()).unwrap_or_default();
        table.push_str(&format!("\nThere are more: `--after '{last}'`."));
    }
    format!("{head}\n\n{table}")
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

pub(super) fn run(verb: &Verb) -> Result<(), ExitCode> {
    match verb {
        Verb::Show { key, place, format } => show(key, place, *format),
        Verb::Break { key, yes: false, .. } => {
            eprintln!(
                "error: FG0603: `lock break` gives the key of a holder that may be at work to the next one; look at it \
                 first with `fencegate lock show {key}`, then say --yes"
            );
            Err(ExitCode::from(USAGE))
        }
        Verb::Break { key, holder, force, place, format, .. } => {
            let body = json!({ "confirm": key, "holder": holder, "force": force });
            let path = format!("/api/v1/locks/{}/break", encoded(key));
            let found = place.found(Of::Gateway)?;
            let asked = ask(&found, Of::Gateway, async |gateway| gateway.post(&path, &body).await);
            let done = asked.map_err(|trouble| refused(&trouble))?;
            match format {
                Format::Json => println!("{done:#}"),
                Format::Text => println!("{}", broken(key, &done)),
            }
            Ok(())
        }
    }
}

/// What has to be forced is no trouble of the process.
fn refused(trouble: &Trouble) -> ExitCode {
    told(trouble);
    ExitCode::from(RUNTIME)
}

fn show(key: &str, place: &Place, format: Format) -> Result<(), ExitCode> {
    let path = format!("/api/v1/locks/{}", encoded(key));
    let found = place.found(Of::Gateway)?;
    let asked = ask(&found, Of::Gateway, async |gateway| {
        let told = gateway.get(&path).await?;
        Ok(match format {
            Format::Json => format!("{told:#}"),
            Format::Text => one(&gateway.read(told)?),
        })
    });
    asked.map(|said| println!("{said}")).map_err(|trouble| told(&trouble))
}

fn one(one: &One) -> String {
    let mut text = format!("{}\n{}\n", one.key, one.says);
    if let Some(why) = &one.line_error {
        text.push_str(&format!("What stands in ZooKeeper is not known: {why}.\n"));
    }
    if let Some(line) = one.line.as_ref().filter(|line| !line.is_empty()) {
        let mut table = Table::of(["NODE", "GATEWAY", "MODE", "NUMBER", "STATE"]);
        for node in line {
            table.row([
                node.node.clone(),
                node.gateway.clone().unwrap_or_else(|| "not registered".into()),
                node.mode.word().to_owned(),
                node.number.map(|number| number.to_string()).unwrap_or_default(),
                if node.holds { "holds".into() } else { "waits".into() },
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
        "{key}: broken. Until its holder notices, only its older token tells its bytes from those of the next.\n{}",
        nodes.join("\n")
    )
}

/// How long `--wait` waits.
const ENDS: Duration = Duration::from_secs(120);

pub(super) fn drain(draining: &Draining) -> Result<(), ExitCode> {
    let found = draining.place.found(Of::Gateway)?;
    let asked = ask(&found, Of::Gateway, async |gateway| {
        gateway.post("/api/v1/drain", &json!({})).await?;
        println!("draining: what runs goes on, nothing new is taken, and then the process ends");
        if draining.wait {
            let gone = async {
                while gateway.get("/live").await.is_ok() {
                    tokio::time::sleep(LOOK).await
                }
            };
            return Ok(tokio::time::timeout(ENDS, gone).await.is_ok());
        }
        Ok(true)
    });
    match asked.map_err(|trouble| told(&trouble))? {
        true => Ok(()),
        false => {
            eprintln!("error: FG0604: it is still running after {ENDS:?}; its log says what is at work");
            Err(ExitCode::from(RUNTIME))
        }
    }
}

/// Between two looks at a process that ends.
const LOOK: Duration = Duration::from_millis(200);
