//! What operators command of a gateway's process: to read its file again, or to end.

use fencegate_policies::difference::Difference;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{agreement::FleetReport, metrics::Reloaded};

/// What came of reading the file again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReloadReport {
    pub result: Reloaded,
    /// What the file changes, or would.
    pub difference: Difference,
    /// What is to be said of the file: errors and warnings, each with its place and remedy.
    pub said: Vec<String>,
    /// What the file means beside the other gateways, where that was asked for and can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetReport>,
}

/// What an operator commands of the process.
#[derive(Debug)]
pub enum Command {
    /// The file is to be read again.
    Reload {
        /// Only to be told what would change.
        dry: bool,
        told: oneshot::Sender<ReloadReport>,
    },
    /// Only to be told what the file would mean beside the other gateways.
    Compare { told: oneshot::Sender<Result<FleetReport, String>> },
    /// The process is to end in order.
    Drain,
}

/// Takes commands to the process, from any thread.
#[derive(Debug, Clone)]
pub struct Commands(mpsc::UnboundedSender<Command>);

pub fn channel() -> (Commands, mpsc::UnboundedReceiver<Command>) {
    let (commands, given) = mpsc::unbounded_channel();
    (Commands(commands), given)
}

impl Commands {
    /// `None`: the process stops and reads no files any more.
    pub async fn reload(&self, dry: bool) -> Option<ReloadReport> {
        let (told, report) = oneshot::channel();
        self.0.send(Command::Reload { dry, told }).ok()?;
        report.await.ok()
    }

    /// `None`: the process stops. `Err`: why it cannot be told.
    pub async fn compare(&self) -> Option<Result<FleetReport, String>> {
        let (told, report) = oneshot::channel();
        self.0.send(Command::Compare { told }).ok()?;
        report.await.ok()
    }

    /// As SIGTERM.
    pub fn drain(&self) {
        // Fails when nobody takes commands any more: then the process is draining already.
        self.0.send(Command::Drain).ok();
    }
}
