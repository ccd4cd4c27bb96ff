//! `fencegate members`: the gateways of the installation, as they are registered in ZooKeeper.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args;
use fencegate_admin::models::{MemberListJson, pluralize};
use fencegate_lock::manager::admin_query::RegisteredGateway;

use super::{
    admin_client::{AdminTargetArgs, CommandHintTarget, with_client},
    locks::format_millis,
    log::OutputFormat,
    out::{format_unix_seconds_and_age, print_result},
    table::TextTable,
};

#[derive(Debug, Args)]
pub(super) struct MembersArgs {
    #[command(flatten)]
    place: AdminTargetArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

pub(super) fn run(arguments: &MembersArgs) -> Result<(), ExitCode> {
    let found = arguments.place.resolve(CommandHintTarget::Gateway)?;
    print_result(with_client(&found, CommandHintTarget::Gateway, async |gateway| {
        let response = gateway.get("/api/v1/members").await?;
        Ok(match arguments.format {
            OutputFormat::Json => format!("{response:#}"),
            OutputFormat::Text => text(&gateway.parse::<MemberListJson>(response)?.members),
        })
    }))
}

/// Renders one row for each gateway, although a gateway is registered once for each of its sessions.
fn text(registered: &[RegisteredGateway]) -> String {
    let mut gateways: BTreeMap<&str, Vec<&RegisteredGateway>> = BTreeMap::new();
    for one in registered {
        gateways.entry(&one.gateway).or_default().push(one);
    }
    let mut table = TextTable::new(["GATEWAY", "ADDRESS", "VERSION", "READY", "SINCE"]);
    for (gateway, sessions) in &gateways {
        table.push_row([
            (*gateway).to_owned(),
            join_distinct_values(sessions, |one| one.peer.as_deref()),
            join_distinct_values(sessions, |one| one.version.as_deref()),
            ready_text(sessions),
            sessions.iter().map(|one| one.since).min().map(format_unix_seconds_and_age).unwrap_or_default(),
        ]);
    }
    let programs =
        gateways.values().filter(|sessions| sessions.iter().all(|one| one.is_lock_client())).count();
    let mut head = pluralize(gateways.len() - programs, "gateway");
    if programs > 0 {
        head.push_str(&format!(
            ", and {} without a plan, such as `fencegate lock`",
            pluralize(programs, "program")
        ));
    }
    format!("{head}\n\n{table}")
}

/// The different values of all sessions. During a restart, two processes of one name may report different
/// values.
fn join_distinct_values<'r>(
    sessions: &[&'r RegisteredGateway],
    of: impl Fn(&'r RegisteredGateway) -> Option<&'r str>,
) -> String {
    let mut all: Vec<&str> = sessions.iter().filter_map(|one| of(one)).collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { "not told".to_owned() } else { all.join(", ") }
}

fn ready_text(sessions: &[&RegisteredGateway]) -> String {
    let count = |is: fn(&RegisteredGateway) -> bool| sessions.iter().filter(|one| is(one)).count();
    let ready = count(|one| one.ready);
    let leaving = count(|one| one.leaving);
    let unready = sessions.iter().filter(|one| !one.ready && !one.leaving);
    let silent = unready.map(|one| one.silent_ms).max().filter(|silent| *silent >= 1000);
    let mut says = match (ready, leaving) {
        (all, _) if all == sessions.len() => return "yes".to_owned(),
        (0, 0) => "no".to_owned(),
        (0, _) => "no: drains".to_owned(),
        (some, _) => format!("{some} of {} sessions", sessions.len()),
    };
    if let Some(silent) = silent {
        says.push_str(&format!(": silent for {}", format_millis(silent)));
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command under a lock is registered like a gateway, and is not counted as one.
    #[test]
    fn commands_are_not_counted_as_gateways() {
        let gateway = RegisteredGateway { plan: Some("00000000000000a7".into()), ..session(true, false, 0) };
        let command = RegisteredGateway {
            gateway: "lock.vm.77".into(),
            plan: Some("0000000000000000".into()),
            ..session(true, false, 0)
        };
        let said = text(&[gateway, command]);
        assert!(
            said.starts_with("1 gateway, and 1 program without a plan, such as `fencegate lock`\n"),
            "{said}"
        );
        assert!(said.contains("lock.vm.77"), "{said}");
    }

    fn session(ready: bool, leaving: bool, silent_ms: u64) -> RegisteredGateway {
        RegisteredGateway {
            gateway: "gw-1".into(),
            session: "0".repeat(16),
            version: Some("1".into()),
            plan: None,
            peer: None,
            page: None,
            ready,
            leaving,
            silent_ms,
            since: 1,
        }
    }

    #[test]
    fn ready_text_gives_reason() {
        let well = session(true, false, 90);
        let drains = session(false, true, 0);
        let silent = session(false, false, 9000);
        for (sessions, expected) in [
            (vec![&well, &well], "yes"),
            (vec![&drains, &drains], "no: drains"),
            (vec![&well, &drains], "1 of 2 sessions"),
            (vec![&silent], "no: silent for 9s"),
            (vec![&well, &silent], "1 of 2 sessions: silent for 9s"),
        ] {
            assert_eq!(ready_text(&sessions), expected);
        }
    }
}
