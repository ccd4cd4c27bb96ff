//! `fencegate run`: serves a policy until it is stopped.

use std::process::ExitCode;

use clap::Args;
use fencegate_process::command_hint::CommandHintTarget;
use fencegate_serve::{gateway_process, worker_pool::default_workers};

use super::{
    config::{self, ConfigArgs},
    out::log_error,
    policy,
};

#[derive(Debug, Args)]
pub(super) struct RunGatewayArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Make the nodes of the installation in ZooKeeper if there are none.
    #[arg(long)]
    init: bool,
    /// The number of worker threads. Default: one per core.
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Read the policy again when the file changes, as SIGHUP does.
    #[arg(long)]
    watch: bool,
    /// Listen beside a gateway of the same user that is about to stop: a restart without a gap.
    #[arg(long)]
    beside: bool,
}

pub(super) fn run(arguments: RunGatewayArgs) -> Result<(), ExitCode> {
    let RunGatewayArgs { config, init, workers, watch, beside } = arguments;
    let file = config::absolute_file(config.config.as_deref(), CommandHintTarget::Gateway)?;
    let plan = policy::read_gateway(&file)?;
    let workers = workers.unwrap_or_else(default_workers);
    let options = gateway_process::GatewayOptions { file, watch, init, beside, workers };
    gateway_process::run(plan, options).map_err(|error| log_error(&error))
}
