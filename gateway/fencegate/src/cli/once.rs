//! `fencegate once`: lists operations with an unknown outcome, directly from ZooKeeper, and lets an operator resolve
//! them.

use clap::{Args, Subcommand};
use fencegate_admin::extract::ResolvedOutcome;
use fencegate_idempotency::unresolved::{self, UnresolvedOperation};
use fencegate_policies::{key::join_keys, plan};
use fencegate_process::command_hint::{self, CommandHintTarget};
use fencegate_zookeeper::session::era::{self, ReadInstallationMetaError};
use serde_json::{Value, json};

use super::{
    config::ConfigArgs,
    ensemble::{self, ConnectZooKeeperError},
    log::OutputFormat,
    out::format_unix_seconds_and_age,
};

#[derive(Debug, Subcommand)]
pub(super) enum OnceCommand {
    /// List the operations whose outcome is unknown.
    List {
        #[command(flatten)]
        place: UnresolvedOperationArgs,
    },
    /// Record the outcome of an operation. If it was done, a repeat is told so; if it was not done, a repeat may run.
    Resolve {
        /// The reference of the operation, as `list` prints it.
        #[arg(value_name = "REF")]
        reference: String,
        /// The outcome. Only the upstream's own records tell it.
        #[arg(long = "as", value_enum, value_name = "OUTCOME")]
        outcome: ResolvedOutcome,
        /// Resolve it even while its lock is still held, so that it may be running, or while the request may still be
        /// begun.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: UnresolvedOperationArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct UnresolvedOperationArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The form of the output; `json` for programs.
    #[arg(short = 'o', long, visible_alias = "output", value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

/// The reason for which the verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnresolvedOperationsCommandError {
    #[error(transparent)]
    Away(#[from] ConnectZooKeeperError),
    #[error(transparent)]
    Era(#[from] ReadInstallationMetaError),
    #[error(transparent)]
    Open(#[from] unresolved::ResolveOperationError),
}

impl OnceCommand {
    fn args(&self) -> &UnresolvedOperationArgs {
        let (Self::List { place } | Self::Resolve { place, .. }) = self;
        place
    }

    pub(super) fn config(&self) -> &ConfigArgs {
        &self.args().config
    }
}

/// Runs the verb and returns the text to print.
pub(super) fn run(
    verb: &OnceCommand,
    plan: &plan::GatewayPlan,
) -> Result<String, UnresolvedOperationsCommandError> {
    let format = verb.args().format;
    ensemble::with_session(&plan.zookeeper, async |link, paths| {
        let base = era::read_meta(link, paths).await?.meta.base;
        match verb {
            OnceCommand::List { .. } => {
                let all = unresolved::list_unresolved(link, paths, base).await?;
                Ok(match format {
                    OutputFormat::Text => list_text(&all),
                    OutputFormat::Json => pretty(&json!({
                        "operations": all.iter().map(to_json).collect::<Vec<_>>(),
                    })),
                })
            }
            OnceCommand::Resolve { reference, outcome, force, .. } => {
                let open = unresolved::find_unresolved(link, paths, base, reference).await?;
                let done = *outcome == ResolvedOutcome::Done;
                if !force {
                    open.check_resolvable(done, plan.max_dispatch_start_delay())?;
                }
                open.resolve(link, done).await?;
                Ok(match format {
                    OutputFormat::Text => resolved_text(&open, *outcome),
                    OutputFormat::Json => pretty(&json!({ "resolved": reference, "as": outcome })),
                })
            }
        }
    })
}

fn to_json(open: &UnresolvedOperation) -> Value {
    let record = &open.record;
    json!({
        "reference": open.reference,
        "keys": record.keys,
        "token": record.token,
        "method": record.method,
        "target": record.target,
        "idempotency_key": record.name,
        "admitted": record.admitted,
        "may_run": open.may_run,
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

fn list_text(all: &[UnresolvedOperation]) -> String {
    if all.is_empty() {
        return "Nothing is unknown: every operation that was sent has a known outcome.".into();
    }
    all.iter().map(describe).collect::<Vec<_>>().join("\n\n")
}

fn describe(open: &UnresolvedOperation) -> String {
    let record = &open.record;
    let reference = &open.reference;
    let mut lines = vec![reference.clone()];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<9}{text}"));
    line("request", format!("{} {}", record.method, record.target));
    if let Some(name) = &record.name {
        line("key", format!("Idempotency-Key: {name}"));
    }
    line("since", format_unix_seconds_and_age(record.admitted));
    line("token", record.token.to_string());
    line("resource", join_keys(&record.keys));
    if open.may_run {
        line("to do", "wait: its lock is still held, it may be running now".into());
    } else {
        line("to do", "find out from the upstream's own records whether it was done; then one of".into());
        let resolve = |outcome: &str| {
            command_hint::command_line(
                CommandHintTarget::Gateway,
                &format!("once resolve {reference} --as {outcome}"),
            )
        };
        line("", format!("{}   # repeats are told so", resolve("done")));
        line("", format!("{}   # a repeat runs it", resolve("not-done")));
    }
    lines.join("\n")
}

fn resolved_text(open: &UnresolvedOperation, outcome: ResolvedOutcome) -> String {
    let UnresolvedOperation { reference, record, .. } = open;
    let what = match outcome {
        ResolvedOutcome::Done => "taken as done: repeats are told that it was, and do not run",
        ResolvedOutcome::NotDone => "taken as not done: a repeat runs it",
    };
    format!("{reference}: {what}.\n  {} {} on {}", record.method, record.target, join_keys(&record.keys))
}
