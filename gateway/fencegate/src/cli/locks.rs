//! `fencegate locks`, `lock show`, `lock break`, `drain`: show the locks of a running gateway, remove one, and stop
//! the gateway.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use fencegate_admin::models::{LockDetailJson, LockJson, LockListJson, encode_path_segment, pluralize};
use fencegate_process::{
    command_hint::{self, shell_quote},
    display::FormattedDuration,
};
use serde_json::{Value, json};

use super::{
    admin_client::{AdminClientError, AdminTargetArgs, CommandHintTarget, with_client},
    exit::{RUNTIME, USAGE},
    log::OutputFormat,
    out::{print_error, print_result, print_text, report_error},
    table::TextTable,
};

#[derive(Debug, Args)]
pub(super) struct LockListArgs {
    /// The most keys to list.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only keys for which somebody waits.
    #[arg(long)]
    wanted: bool,
    /// Only keys after this one: the last of the list before.
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    #[command(flatten)]
    place: AdminTargetArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

#[derive(Debug, Subcommand)]
pub(super) enum LockCommand {
    /// Show one key: its holder, its line of waiters in ZooKeeper, and why it is waited for.
    Show {
        /// The key, as `fencegate locks` prints it.
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        place: AdminTargetArgs,
        /// The form of the output; `json` for programs.
        #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
        format: OutputFormat,
    },
    /// Remove the lock node of a key whose holder hangs and does not release it.
    ///
    /// A working holder notices this within moments. Until then both the old and the new holder may write. A guard,
    /// or a service that compares tokens, refuses the old one; with `fencing: none` nobody does. A holder that has
    /// died needs no break: its key is free when its session ends.
    Break {
        /// The key, as `fencegate locks` prints it.
        #[arg(value_name = "KEY")]
        key: String,
        /// Confirm. Without it nothing happens: the command gives the key of a holder that may be at work to the next
        /// one.
        #[arg(long)]
        yes: bool,
        /// Break only this node, as `lock show` names it. Default: the present holder.
        #[arg(long, value_name = "NODE")]
        holder: Option<String>,
        /// Also where nobody compares tokens, so that two may be at work at once.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: AdminTargetArgs,
        /// The form of the output; `json` for programs.
        #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
        format: OutputFormat,
    },
}

#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    /// Return when the process has ended, or fail after 120 s.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    place: AdminTargetArgs,
}

pub(super) fn list(listing: &LockListArgs) -> Result<(), ExitCode> {
    let LockListArgs { limit, wanted, after, place, format } = listing;
    let after =
        after.as_ref().map(|after| format!("&after={}", encode_path_segment(after))).unwrap_or_default();
    let path = format!("/api/v1/locks?limit={limit}&wanted={wanted}{after}");
    let found = place.resolve(CommandHintTarget::Gateway)?;
    let result = with_client(&found, CommandHintTarget::Gateway, async |gateway| {
        let response = gateway.get(&path).await?;
        Ok(match format {
            OutputFormat::Json => format!("{response:#}"),
            OutputFormat::Text => text(&gateway.parse(response)?),
        })
    });
    print_result(result)
}

/// Renders the list as text for people.
pub(super) fn text(all: &LockListJson) -> String {
    let LockListJson { locks, more, .. } = all;
    let head = summary_line(all);
    if locks.is_empty() {
        return head;
    }
    let mut table = rows(locks).to_string();
    if *more {
        let last = locks.last().map(|lock| lock.key.as_str()).unwrap_or_default();
        let next = command_hint::command_line(
            CommandHintTarget::Gateway,
            &format!("locks --after {}", shell_quote(last)),
        );
        table.push_str(&format!("\nThere are more: {next}"));
    }
    format!("{head}\n\n{table}")
}

/// The counts over all keys.
pub(super) fn summary_line(LockListJson { gateway, held, waiting, wanted, .. }: &LockListJson) -> String {
    let held = pluralize(*held, "key");
    let wanted = pluralize(*wanted, "key");
    match waiting {
        0 => format!("{gateway}: {held} held, nobody waits"),
        1 => format!("{gateway}: {held} held, 1 request waits for {wanted}"),
        waiting => format!("{gateway}: {held} held, {waiting} requests wait for {wanted}"),
    }
}

pub(super) fn rows(locks: &[LockJson]) -> TextTable {
    let mut table =
        TextTable::new(["KEY", "ROUTE", "MODE", "TOKEN", "AGE", "AT WORK", "WAITING", "LONGEST", "WHY"]);
    for lock in locks {
        let held = lock.held.first();
        let first = lock.line.first();
        let route = held.and_then(|held| held.route.clone()).or(first.map(|first| first.route.clone()));
        let mode = held.map(|held| held.mode).or(first.map(|first| first.mode));
        table.push_row([
            lock.key.clone(),
            route.unwrap_or_default(),
            mode.map(|mode| mode.as_str().to_owned()).unwrap_or_default(),
            held.and_then(|held| held.token).map(|token| token.to_string()).unwrap_or_default(),
            held.map(|held| format_millis(held.age_ms)).unwrap_or_default(),
            lock.held.iter().map(|held| held.in_flight).sum::<u32>().to_string(),
            lock.waiting.to_string(),
            first.map(|first| format_millis(first.waits_ms)).unwrap_or_default(),
            lock.why.clone().unwrap_or_default(),
        ]);
    }
    table
}

pub(super) fn format_millis(millis: u64) -> String {
    let duration = Duration::from_millis(millis);
    if millis < 10_000 {
        FormattedDuration(duration).to_string()
    } else {
        format!("{}", humantime::format_duration(Duration::from_secs(millis / 1000)))
    }
}

pub(super) fn run(verb: &LockCommand) -> Result<(), ExitCode> {
    match verb {
        LockCommand::Show { key, place, format } => show(key, place, *format),
        LockCommand::Break { key, yes: false, place, .. } => {
            // Resolving the target makes the commands printed below name the gateway as this command line does.
            place.resolve(CommandHintTarget::Gateway)?;
            let [show, break_it] = ["show", "break --yes"].map(|verb| {
                command_hint::command_line(
                    CommandHintTarget::Gateway,
                    &format!("lock {verb} {}", shell_quote(key)),
                )
            });
            print_error(format_args!(
                "error: FG0603: `lock break` gives the key of a holder that may be at work to the next one. Look at it \
                 first:\n  {show}\nand if it is to be broken:\n  {break_it}"
            ));
            Err(ExitCode::from(USAGE))
        }
        LockCommand::Break { key, holder, force, place, format, .. } => {
            let body = json!({ "confirm": key, "holder": holder, "force": force });
            let path = format!("/api/v1/locks/{}/break", encode_path_segment(key));
            let found = place.resolve(CommandHintTarget::Gateway)?;
            let answered = with_client(&found, CommandHintTarget::Gateway, async |gateway| {
                gateway.post(&path, &body).await
            });
            let done = answered.map_err(|error| report_error(&with_flag_name(error)))?;
            print_text(match format {
                OutputFormat::Json => format!("{done:#}"),
                OutputFormat::Text => broken_text(key, &done),
            })
        }
    }
}

/// The error of the gateway names the field `force`. The command line has the flag `--force` instead.
fn with_flag_name(error: AdminClientError) -> AdminClientError {
    match error {
        AdminClientError::Refused { reason, said } if reason == "force" => {
            AdminClientError::Refused { said: said.replace("say `force`", "add `--force`"), reason }
        }
        other => other,
    }
}

fn show(key: &str, place: &AdminTargetArgs, format: OutputFormat) -> Result<(), ExitCode> {
    let path = format!("/api/v1/locks/{}", encode_path_segment(key));
    let found = place.resolve(CommandHintTarget::Gateway)?;
    let result = with_client(&found, CommandHintTarget::Gateway, async |gateway| {
        let response = gateway.get(&path).await?;
        Ok(match format {
            OutputFormat::Json => format!("{response:#}"),
            OutputFormat::Text => describe(&gateway.parse(response)?),
        })
    });
    print_result(result)
}

fn describe(one: &LockDetailJson) -> String {
    let mut text = format!("{}\n{}\n", one.key, one.says);
    if let Some(why) = &one.line_error {
        text.push_str(&format!("What stands in ZooKeeper is not known: {why}.\n"));
    }
    if let Some(record) = one.record.as_ref().filter(|record| record.has_handover_delay()) {
        let owes = record.required_delay().unwrap_or_default();
        text.push_str(&format!(
            "Its record says `held`: who comes after tenure {} waits for {owes:?}, unless that one leaves in order.\n",
            record.epoch
        ));
    }
    if let Some(line) = one.line.as_ref().filter(|line| !line.is_empty()) {
        let mut table = TextTable::new(["NODE", "WHOSE", "MODE", "NUMBER", "STATE"]);
        for node in line {
            table.push_row([
                node.node.clone(),
                node.owner_name().to_owned(),
                node.mode.as_str().to_owned(),
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

fn broken_text(key: &str, done: &Value) -> String {
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

/// The time after which `--wait` gives up.
const ENDS: Duration = Duration::from_secs(120);

pub(super) fn drain(draining: &DrainArgs) -> Result<(), ExitCode> {
    let found = draining.place.resolve(CommandHintTarget::Gateway)?;
    let result = with_client(&found, CommandHintTarget::Gateway, async |gateway| {
        gateway.post("/api/v1/drain", &json!({})).await?;
        // The result of printing is returned later: without a reader of stdout, the command still waits for the
        // process to end.
        let printed =
            print_text("draining: what runs goes on, nothing new is taken, and then the process ends");
        if draining.wait {
            let gone = async {
                while gateway.get("/live").await.is_ok() {
                    tokio::time::sleep(LOOK).await
                }
            };
            return Ok((printed, tokio::time::timeout(ENDS, gone).await.is_ok()));
        }
        Ok((printed, true))
    });
    match result.map_err(|error| report_error(&error))? {
        (printed, true) => printed,
        (_, false) => {
            print_error(format_args!(
                "error: FG0604: it still runs after {ENDS:?}; its log says what is at work"
            ));
            Err(ExitCode::from(RUNTIME))
        }
    }
}

/// The pause between two checks of a process that is ending.
const LOOK: Duration = Duration::from_millis(200);
