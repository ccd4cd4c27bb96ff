//! `fencegate reload`: makes a running gateway read its policy again, or shows what a reload would change.

use std::process::ExitCode;

use clap::Args;
use fencegate_admin::command::ReloadReport;
use fencegate_metrics::ReloadResult;
use fencegate_peers::plan_compat::FleetPlanComparison;
use fencegate_policies::diff::PlanDiff;
use serde_json::json;

use super::{
    admin_client::{AdminTargetArgs, CommandHintTarget, with_client},
    exit::{CONFIGURATION, FAILED},
    log::OutputFormat,
    out::{print_text, report_error},
};

#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    place: AdminTargetArgs,
    /// Only report what would change.
    #[arg(long)]
    dry_run: bool,
    /// Also compare the file with the locks of all registered gateways. The exit code is 3 if a route of the file
    /// would be refused beside one of them.
    #[arg(long, requires = "dry_run")]
    fleet: bool,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

pub(super) fn run(arguments: &ReloadArgs) -> Result<(), ExitCode> {
    let found = arguments.place.resolve(CommandHintTarget::Gateway)?;
    let path = format!("/api/v1/reload?dry_run={}&fleet={}", arguments.dry_run, arguments.fleet);
    let result = with_client(&found, CommandHintTarget::Gateway, async |gateway| {
        // The reload of a file with mistakes is answered with an error status and a report, which is parsed as
        // well.
        let answer = gateway.post_response(&path, &json!({})).await?;
        gateway.parse::<ReloadReport>(answer.body)
    });
    let report = result.map_err(|error| report_error(&error))?;
    print_text(match arguments.format {
        OutputFormat::Text => text(&report),
        OutputFormat::Json => format!("{:#}", json!(report)),
    })?;
    match (report.result, &report.fleet) {
        (ReloadResult::Refused, _) => Err(ExitCode::from(CONFIGURATION)),
        (_, Some(fleet)) if !fleet.safe => Err(ExitCode::from(FAILED)),
        _ => Ok(()),
    }
}

fn text(report: &ReloadReport) -> String {
    let mut text: String = report.said.iter().map(|said| format!("{said}\n")).collect();
    let PlanDiff { added, removed, changed, rekeyed, upstreams, forgets, settings, restart } =
        &report.difference;
    for (what, names) in [
        ("routes added", added),
        ("routes removed", removed),
        ("routes changed", changed),
        ("other locks than before", rekeyed),
        ("upstreams changed", upstreams),
        ("repeats of operations not recognised any more", forgets),
        ("also changed", settings),
        ("needs a restart", restart),
    ] {
        if !names.is_empty() {
            text.push_str(&format!("{what}: {}\n", names.join(", ")));
        }
    }
    if let Some(fleet) = &report.fleet {
        text.push_str(&fleet_text(fleet));
    }
    text.push_str(match report.result {
        ReloadResult::Applied => "the file is in force\n",
        ReloadResult::Unchanged => "nothing changes\n",
        ReloadResult::Dry => "nothing was changed\n",
        ReloadResult::Refused => "refused: the old plan stays in force\n",
    });
    text
}

fn fleet_text(fleet: &FleetPlanComparison) -> String {
    let mut text = match fleet.gateways.is_empty() {
        true => "no other gateway is registered\n".to_owned(),
        false => format!("compared with: {}\n", fleet.gateways.join(", ")),
    };
    for unreadable in &fleet.unreadable {
        text.push_str(&format!("cannot be compared: {unreadable}\n"));
    }
    for route in fleet.routes.iter().filter(|route| !route.agrees) {
        let name = &route.route;
        let unlike = route.unlike.join(", ");
        text.push_str(&format!("route {name}: refused beside {unlike}, which locks it otherwise\n"));
    }
    let agree = fleet.routes.iter().filter(|route| route.agrees).count();
    text.push_str(&format!(
        "{agree} of {} fenced routes and patterns of leases are locked alike by all\n",
        fleet.routes.len()
    ));
    text
}
