//! `fencegate lease list`, `show`, `revoke`, `break`: show the leases that clients hold at a running gateway, and
//! take one back.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use fencegate_admin::{
    leases::{AdminLease, AdminLeaseList},
    models::{encode_path_segment, pluralize},
};
use fencegate_process::command_hint::{self, shell_quote};
use fencegate_protocol::lease_documents::{HELD, WAITING};
use serde_json::json;

use super::{
    admin_client::{AdminClient, AdminClientError, AdminTargetArgs, CommandHintTarget, with_client},
    exit::USAGE,
    locks::format_millis,
    log::OutputFormat,
    out::{print_error, print_result},
    table::TextTable,
};

#[derive(Debug, Subcommand)]
pub(super) enum LeaseAdminCommand {
    /// The leases of a gateway that are not over, the oldest first. Each gateway lists its own.
    List {
        /// The most leases to list.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only leases of this key.
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Only leases after this one: the last of the list before.
        #[arg(long, value_name = "REF")]
        after: Option<String>,
        #[command(flatten)]
        at: GatewayQueryArgs,
    },
    /// One lease of a gateway, also for a minute after its end.
    Show {
        /// The reference of the lease, as `list` and the log print it.
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        at: GatewayQueryArgs,
    },
    /// Ask the client of a lease to give it back: it sees the reason when it renews or watches. The lease does not
    /// end by itself.
    Revoke {
        /// The reference of the lease, as `list` and the log print it.
        #[arg(value_name = "REF")]
        reference: String,
        /// The reason for the client: a line of 1 to 256 bytes.
        #[arg(long, value_name = "TEXT")]
        why: String,
        #[command(flatten)]
        at: GatewayQueryArgs,
    },
    /// End a lease without its client, if the client does not give it back.
    ///
    /// The gateway sends nothing more under the lease. Its keys become free when every request under it has ended,
    /// and when the time is over that its client was promised. Nothing stops work outside of the gateway that goes on
    /// for longer.
    Break {
        /// The reference of the lease, as `list` and the log print it.
        #[arg(value_name = "REF")]
        reference: String,
        /// Confirm. Without it nothing happens: the command takes a key from a client that may be at work.
        #[arg(long)]
        yes: bool,
        /// The reason for the log and the client: a line of 1 to 256 bytes.
        #[arg(long, value_name = "TEXT")]
        why: String,
        #[command(flatten)]
        at: GatewayQueryArgs,
    },
}

/// The gateway to ask, and the form of the output.
#[derive(Debug, Args)]
pub(super) struct GatewayQueryArgs {
    #[command(flatten)]
    place: AdminTargetArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

impl GatewayQueryArgs {
    fn request<T: serde::de::DeserializeOwned>(
        &self,
        question: impl AsyncFnOnce(&mut AdminClient) -> Result<serde_json::Value, AdminClientError>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), ExitCode> {
        let found = self.place.resolve(CommandHintTarget::Gateway)?;
        print_result(with_client(&found, CommandHintTarget::Gateway, async |gateway| {
            let response = question(gateway).await?;
            Ok(match self.format {
                OutputFormat::Json => format!("{response:#}"),
                OutputFormat::Text => text(&gateway.parse(response)?),
            })
        }))
    }
}

pub(super) fn run(verb: &LeaseAdminCommand) -> Result<(), ExitCode> {
    match verb {
        LeaseAdminCommand::List { limit, key, after, at } => {
            let parameter = |name, value: &Option<String>| {
                value
                    .as_ref()
                    .map(|value| format!("&{name}={}", encode_path_segment(value)))
                    .unwrap_or_default()
            };
            let path =
                format!("/api/v1/leases?limit={limit}{}{}", parameter("key", key), parameter("after", after));
            at.request(
                async |gateway| gateway.get(&path).await,
                |list| list_text(list, *limit, key.as_deref()),
            )
        }
        LeaseAdminCommand::Show { reference, at } => {
            let path = format!("/api/v1/leases/{}", encode_path_segment(reference));
            at.request(async |gateway| gateway.get(&path).await, describe)
        }
        LeaseAdminCommand::Revoke { reference, why, at } => {
            let path = format!("/api/v1/leases/{}/revoke", encode_path_segment(reference));
            at.request(async |gateway| gateway.post(&path, &json!({ "why": why })).await, revoked_text)
        }
        LeaseAdminCommand::Break { reference, yes: false, why, at } => {
            // Resolving the target makes the commands printed below name the gateway as this command line does.
            at.place.resolve(CommandHintTarget::Gateway)?;
            let of = shell_quote(reference);
            let why = shell_quote(why);
            let show = command_hint::command_line(CommandHintTarget::Gateway, &format!("lease show {of}"));
            let break_it = command_hint::command_line(
                CommandHintTarget::Gateway,
                &format!("lease break {of} --yes --why {why}"),
            );
            print_error(format_args!(
                "error: FG0603: `lease break` takes a key from a client that may be at work. Look at the lease first:\n  \
                 {show}\nand if it is to be broken:\n  {break_it}"
            ));
            Err(ExitCode::from(USAGE))
        }
        LeaseAdminCommand::Break { reference, why, at, .. } => {
            let path = format!("/api/v1/leases/{}/break", encode_path_segment(reference));
            let body = json!({ "confirm": reference, "why": why });
            at.request(async |gateway| gateway.post(&path, &body).await, broken_text)
        }
    }
}

/// The list for people. `limit` and `key`: as on the command line, for the printed command that lists the rest.
fn list_text(list: &AdminLeaseList, limit: u32, key: Option<&str>) -> String {
    let AdminLeaseList { gateway, held, waiting, leases, more } = list;
    let held = pluralize(*held, "lease");
    let waits = if *waiting == 1 { "waits" } else { "wait" };
    let head = format!("{gateway}: {held} held, {waiting} {waits}");
    let Some(last) = leases.last() else { return head };
    let mut table = TextTable::new([
        "REFERENCE",
        "KEYS",
        "MODE",
        "STATE",
        "PRINCIPAL",
        "NOTE",
        "AGE",
        "EXPIRES IN",
        "AHEAD",
        "AT WORK",
        "ASKED BACK",
    ]);
    for lease in leases {
        table.push_row([
            lease.reference.clone(),
            lease.keys.join(", "),
            mode_text(lease),
            lease.state.clone(),
            lease.principal.clone(),
            lease.note.clone().unwrap_or_default(),
            format_millis(lease.age_ms),
            format_millis(lease.expires_in_ms),
            lease.ahead.map(|ahead| ahead.to_string()).unwrap_or_default(),
            lease.at_work.to_string(),
            lease.revocation.clone().unwrap_or_default(),
        ]);
    }
    let mut text = format!("{head}\n\n{table}");
    if *more {
        let last = &last.reference;
        let of_key = key.map(|key| format!(" --key {}", shell_quote(key)));
        let of_key = of_key.unwrap_or_default();
        let next = command_hint::command_line(
            CommandHintTarget::Gateway,
            &format!("lease list --after {last} --limit {limit}{of_key}"),
        );
        text.push_str(&format!("\nThere are more: {next}"));
    }
    text
}

fn mode_text(lease: &AdminLease) -> String {
    match lease.permit {
        Some(permit) => format!("permit {permit}"),
        None => lease.mode.as_str().to_owned(),
    }
}

fn describe(lease: &AdminLease) -> String {
    let state = match lease.state.as_str() {
        HELD => format!("held for {}", format_millis(lease.held_ms.unwrap_or_default())),
        WAITING => format!("waiting for {}", format_millis(lease.age_ms)),
        _ => format!("over: {}", lease.why.as_deref().unwrap_or_default()),
    };
    let mut table = TextTable::new(["", ""]);
    let mut line = |name: &str, text: String| table.push_row([name.to_owned(), text]);
    line("keys", lease.keys.join(", "));
    line("mode", mode_text(lease));
    line("principal", lease.principal.clone());
    if let Some(note) = &lease.note {
        line("note", note.clone());
    }
    if let Some(ahead) = lease.ahead {
        line("ahead", format!("{} in line before it", pluralize(ahead, "lock node")));
    }
    if let Some(token) = lease.token {
        line("token", token.to_string());
        line("at work", format!("{} under it", pluralize(lease.at_work, "request")));
    }
    match lease.kept_for_ms {
        None => {
            line("expires", format!("in {}, unless its client renews it", format_millis(lease.expires_in_ms)))
        }
        Some(0) => {}
        Some(rest) => {
            line("kept", format!("for {} yet, because its client was told so", format_millis(rest)))
        }
    }
    if let Some(why) = &lease.revocation {
        line("asked back", why.clone());
    }
    format!("lease {} of {}: {state}{}", lease.reference, lease.gateway, rows_text(&table))
}

/// The rows of the table without its header line, which is empty.
fn rows_text(table: &TextTable) -> String {
    let text = table.to_string();
    text.trim_end().lines().skip(1).map(|line| format!("\n  {line}")).collect()
}

fn revoked_text(lease: &AdminLease) -> String {
    format!(
        "lease {}: {} is asked to give it back. It sees so when it renews or watches; nothing ends by itself, and the lease is over \
         in {} unless it is renewed.",
        lease.reference,
        lease.principal,
        format_millis(lease.expires_in_ms)
    )
}

fn broken_text(lease: &AdminLease) -> String {
    let promised = match lease.kept_for_ms {
        None | Some(0) => "at once".to_owned(),
        Some(rest) => format!("in {}, because its client was told so", format_millis(rest)),
    };
    let work = match lease.at_work {
        0 => String::new(),
        1 => ", and not before the request under it has ended".to_owned(),
        several => format!(", and not before {several} requests under it have ended"),
    };
    format!(
        "lease {}: broken. Nothing more is sent under it. {} is given on {promised}{work}.",
        lease.reference,
        lease.keys.join(", ")
    )
}
