//! The plan of a gateway: the process that locks a key for each request, and stamps a token.

use std::{path::PathBuf, time::Duration};

use super::{
    leases::LeaseGrantSettings, serving::CommonServingPlan, tickets::TicketSigningKey,
    zookeeper::ZooKeeperSettings,
};
use crate::{plan::peer_listener::PeerListenerSettings, words::words};

/// The checked configuration of a gateway. Made by [`crate::file::load`] only.
#[derive(Debug, Clone)]
pub struct GatewayPlan {
    pub serving: CommonServingPlan,
    pub zookeeper: ZooKeeperSettings,
    /// The listener for other gateways; `None` if they cannot reach this one.
    pub peer: Option<PeerListenerSettings>,
    /// The leases that clients may hold; `None` if there are none.
    pub leases: Option<LeaseGrantSettings>,
    /// The key that signs tickets; `None` if no tickets are sent.
    pub tickets: Option<TicketSigningKey>,
    /// The file with the public keys of other gateways, which verify their tickets beside our own key.
    pub siblings: Option<PathBuf>,
    /// The folder for data that must outlive the process, such as the highest token seen.
    pub state_dir: Option<PathBuf>,
    pub mixed: MixedPlanPolicy,
    /// A hash of everything that decides keys and lock paths. Two gateways with the same fingerprint take the
    /// same locks.
    pub fingerprint: u64,
}

impl GatewayPlan {
    /// The longest time after its admission in which a dispatch may be started by a service that accepts it at
    /// once: the longest `response_timeout` of all upstreams. A proxy in between may deliver it later.
    pub fn max_dispatch_start_delay(&self) -> Duration {
        let timeouts = self.serving.upstreams.iter().map(|upstream| upstream.response_timeout);
        timeouts.max().unwrap_or_default()
    }
}

/// The treatment of routes by which one resource would have two locks, because an older gateway has another
/// plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MixedPlanPolicy {
    /// Requests on these routes are refused until the other gateways have ended or have the same routes.
    #[default]
    Refuse,
    /// Requests on these routes are served, and this is reported.
    Allow,
}

words! { MixedPlanPolicy { Allow = "true", Refuse = "false" } }
