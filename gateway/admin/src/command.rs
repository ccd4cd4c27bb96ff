//! Commands of operators to a gateway's process: read the file again, or end.

use fencegate_metrics::ReloadResult;
use fencegate_peers::plan_compat::FleetPlanComparison;
use fencegate_policies::diff::PlanDiff;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// The result of reading the file again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReloadReport {
    pub result: ReloadResult,
    /// What the file changes, or would.
    pub difference: PlanDiff,
    /// The errors and warnings about the file, each with its place and remedy.
    pub said: Vec<String>,
    /// The comparison with other gateways, if it was asked for and is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetPlanComparison>,
}

/// A command of an operator to the process.
#[derive(Debug)]
pub enum AdminCommand {
    /// Read the file again.
    Reload {
        /// Only report what would change.
        dry: bool,
        told: oneshot::Sender<ReloadReport>,
    },
    /// Only report how the file agrees with the plans of other gateways.
    Compare { told: oneshot::Sender<Result<FleetPlanComparison, String>> },
    /// End the process when all running work has ended.
    Drain,
}

/// Sends commands to the process, from any thread.
#[derive(Debug, Clone)]
pub struct AdminCommandSender(mpsc::UnboundedSender<AdminCommand>);

pub fn channel() -> (AdminCommandSender, mpsc::UnboundedReceiver<AdminCommand>) {
    let (commands, given) = mpsc::unbounded_channel();
    (AdminCommandSender(commands), given)
}

impl AdminCommandSender {
    /// Reads the file again, or only reports what would change. `None` if the process is stopping and reads no
    /// more files.
    pub async fn reload(&self, dry: bool) -> Option<ReloadReport> {
        let (told, report) = oneshot::channel();
        self.0.send(AdminCommand::Reload { dry, told }).ok()?;
        report.await.ok()
    }

    /// Compares the file with the plans of other gateways. `None` if the process is stopping; `Err` with the
    /// reason if the comparison is not possible.
    pub async fn compare(&self) -> Option<Result<FleetPlanComparison, String>> {
        let (told, report) = oneshot::channel();
        self.0.send(AdminCommand::Compare { told }).ok()?;
        report.await.ok()
    }

    /// Ends the process as SIGTERM does.
    pub fn request_process_drain(&self) {
        // This fails if no receiver is left, because the process is draining already.
        self.0.send(AdminCommand::Drain).ok();
    }
}
