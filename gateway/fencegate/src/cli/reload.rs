//! `fencegate reload`: has a running gateway read its policy again, or tell what it would change.

use std::process::ExitCode;

use clap::Args;
use fencegate_policies::difference::Difference;
use serde_json::json;

use super::{
    admin::{AdminAddress, Of, ask},
    exit::CONFIGURATION,
    log::Format,
    out::{failed, say},
};
use crate::{admin::command::ReloadReport, metrics::Reloaded};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: AdminAddress,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
    /// How it is printed; `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), ExitCode> {
    let found = arguments.place.found(Of::Gateway)?;
    let path = format!("/api/v1/reload?dry_run={}", arguments.dry_run);
    let asked = ask(&found, Of::Gateway, async |gateway| {
        // A file that is not sound is refused with a report, too.
        let answer = gateway.post_for(&path, &json!({})).await?;
        gateway.read::<ReloadReport>(answer.body)
    });
    let report = asked.map_err(|trouble| failed(&trouble))?;
    say(match arguments.format {
        Format::Text => text(&report),
        Format::Json => format!("{:#}", json!(report)),
    })?;
    if report.result == Reloaded::Refused { Err(ExitCode::from(CONFIGURATION)) } else { Ok(()) }
}

fn text(report: &ReloadReport) -> String {
    let mut text: String = report.said.iter().map(|said| format!("{said}\n")).collect();
    let Difference { added, removed, changed, rekeyed, upstreams, forgets, settings, restart } =
        &report.difference;
    for (what, names) in [
        ("routes added", added),
        ("routes removed", removed),
        ("routes changed", changed),
        ("other locks than before", rekeyed),
        ("upstreams changed", upstreams),
        ("repeats of operations not recognised any more", forgets),
        ("also changed", settings),
        ("no effect before a restart", restart),
    ] {
        if !names.is_empty() {
            text.push_str(&format!("{what}: {}\n", names.join(", ")));
        }
    }
    text.push_str(match report.result {
        Reloaded::Applied => "the file is in force\n",
        Reloaded::Unchanged => "nothing changes\n",
        Reloaded::Dry => "nothing was changed\n",
        Reloaded::Refused => "refused: the old plan stays in force\n",
    });
    text
}
