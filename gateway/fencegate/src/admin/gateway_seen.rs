//! What the admin listener of a gateway looks at.

use std::{sync::Arc, time::Duration};

use fencegate_lock::{session::live::View, tenures::keeper::Keeper};
use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::shown::Names;
use tokio_util::sync::CancellationToken;

use super::{command::Commands, csrf::Csrf, trends::Trends};
use crate::{
    in_force::InForce,
    leases::Leases,
    metrics::{Metrics, hot::Hot},
    stays::Stays,
};

/// What the admin listener of a gateway shows, and whom it commands.
#[derive(Clone)]
pub struct GatewaySeen {
    /// The gateway's.
    pub name: Arc<str>,
    pub keeper: Keeper,
    pub metrics: Arc<Metrics>,
    pub in_force: InForce,
    pub hot: Hot,
    /// Which requests each key has.
    pub stays: Arc<Stays>,
    pub leased: Leased,
    pub trends: Trends,
    /// The public keys of our tickets, for guards to fetch.
    pub jwks: Option<Arc<str>>,
    pub drain: CancellationToken,
    pub commands: Commands,
    /// `None` where the process was started without any.
    pub leases: Option<Arc<Leases>>,
    pub csrf: Csrf,
}

/// The leases of this gateway that hold a key or wait for it.
pub type Leased = Arc<dyn Fn(&ResourceKey) -> Vec<LeaseSeen> + Send + Sync>;

/// A lock that a client holds itself, or waits for.
#[derive(Debug, Clone)]
pub struct LeaseSeen {
    pub reference: String,
    pub principal: String,
    /// What its client says of itself.
    pub note: Option<String>,
    /// While it holds.
    pub token: Option<Token>,
    pub age: Duration,
    /// Until it is over, unless it is renewed.
    pub expires: Duration,
    /// Lock nodes before it, while it waits.
    pub ahead: Option<usize>,
    /// Why somebody asks for it back.
    pub revocation: Option<String>,
}

impl GatewaySeen {
    /// Why no lock could be granted now.
    pub(super) fn not_ready(&self) -> Option<String> {
        if self.drain.is_cancelled() {
            return Some("draining".into());
        }
        (!self.keeper.is_ready()).then(|| match self.keeper.view() {
            View::Away(why) => format!("no ZooKeeper session: {why}"),
            View::Unmade(why) => format!("FG0506: {why}"),
            // It begins with its code.
            View::RolledBack(why) => why.to_string(),
            View::Live { connected: false, .. } => "the connection to ZooKeeper is lost".into(),
            View::Live { connected: true, .. } => "the ZooKeeper session is not proven yet".into(),
        })
    }

    pub(super) fn names(&self) -> Names {
        Names(self.in_force.plan().serving.log.keys)
    }
}
