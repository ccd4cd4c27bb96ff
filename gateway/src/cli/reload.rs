//! `fencegate reload`: has a running gateway read its policy again, or tell what it would change.

use std::{io, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use fencegate_policies::difference::Difference;
use hyper::StatusCode;
use serde_json::{Value, json};

use super::{CONFIGURATION, log::Format, policy, told};
use crate::{
    admin::metrics::Reloaded,
    client::{Client, Unanswered},
    serve::reload::Report,
};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The file that the gateway was started with: its admin address is taken from there, unless `--admin` says it.
    #[arg(short = 'c', long = "config", value_name = "POLICY", required_unless_present = "admin")]
    policy: Option<PathBuf>,
    /// The admin address of the gateway.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("start a runtime")]
    Runtime(#[from] io::Error),
    #[error("ask the gateway at {admin}")]
    Unanswered { admin: SocketAddr, source: Unanswered },
    #[error("the gateway at {admin} answers {status}: {said}")]
    Refused { admin: SocketAddr, status: StatusCode, said: Value },
}

/// Requests that are in the way of a change are not waited for, but the file is read and checked.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: &Arguments) -> Result<(), ExitCode> {
    let admin = match (arguments.admin, &arguments.policy) {
        (Some(admin), _) => admin,
        (None, Some(file)) => policy::read(file)?.serving.admin.address,
        (None, None) => unreachable!("clap asks for one of the two"),
    };
    let report = ask(admin, arguments.dry_run).map_err(|trouble| told(&trouble))?;
    match arguments.format {
        Format::Text => print!("{}", text(&report)),
        Format::Json => println!("{:#}", json!(report)),
    }
    if report.result == Reloaded::Refused { Err(ExitCode::from(CONFIGURATION)) } else { Ok(()) }
}

fn ask(admin: SocketAddr, dry: bool) -> Result<Report, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = format!("/api/v1/reload?dry_run={dry}");
    let asked = runtime.block_on(async { Client::of(admin).post(&path, &json!({}), PATIENCE).await });
    let answer = asked.map_err(|source| Trouble::Unanswered { admin, source })?;
    let (status, said) = (answer.status, answer.body);
    serde_json::from_value(said.clone()).map_err(|_| Trouble::Refused { admin, status, said })
}

fn text(report: &Report) -> String {
    let mut text: String = report.said.iter().map(|said| format!("{said}\n")).collect();
    let Difference { added, removed, changed, rekeyed, upstreams, settings, restart } = &report.difference;
    for (what, names) in [
        ("routes added", added),
        ("routes removed", removed),
        ("routes changed", changed),
        ("other locks than before", rekeyed),
        ("upstreams changed", upstreams),
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
