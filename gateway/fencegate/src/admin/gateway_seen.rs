//! The state of a gateway that its admin listener shows.

use std::sync::Arc;

use fencegate_lock::{session::live::View, tenures::keeper::Keeper};
use fencegate_process::shown::Names;
use tokio_util::sync::CancellationToken;

use super::{command::Commands, csrf::Csrf, trends::Trends};
use crate::{
    in_force::InForce,
    leases::Leases,
    metrics::{Metrics, hot::Hot},
    stays::Stays,
    threads::Threads,
};

/// What the admin listener of a gateway shows and controls.
#[derive(Clone)]
pub struct GatewaySeen {
    /// The name of the gateway.
    pub name: Arc<str>,
    pub keeper: Keeper,
    pub metrics: Arc<Metrics>,
    pub threads: Threads,
    pub in_force: InForce,
    pub hot: Hot,
    /// The requests of each key.
    pub stays: Arc<Stays>,
    pub trends: Trends,
    /// The public keys of our tickets, for guards to fetch.
    pub jwks: Option<Arc<str>>,
    pub drain: CancellationToken,
    pub commands: Commands,
    /// `None` if the process was started without leases.
    pub leases: Option<Arc<Leases>>,
    pub csrf: Csrf,
}

impl GatewaySeen {
    /// Why no lock can be granted now; `None` if one can.
    pub(super) fn not_ready(&self) -> Option<String> {
        if self.drain.is_cancelled() {
            return Some("draining".into());
        }
        if let Some(hung) = self.threads.not_turning() {
            return Some(hung);
        }
        (!self.keeper.is_ready()).then(|| match self.keeper.view() {
            View::Away(why) => format!("no ZooKeeper session: {why}"),
            View::Unmade(why) => format!("FG0506: {why}"),
            // The message begins with its code.
            View::RolledBack(why) => why.to_string(),
            View::Live { connected: false, .. } => "the connection to ZooKeeper is lost".into(),
            View::Live { connected: true, .. } => "the ZooKeeper session is not proven yet".into(),
        })
    }

    pub(super) fn names(&self) -> Names {
        Names(self.in_force.plan().serving.log.keys)
    }
}
