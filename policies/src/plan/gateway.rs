//! What a gateway does: the process that locks a key for each request, and stamps a token.

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
    /// Where other gateways reach this one; `None` if they do not.
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
    /// A hash over everything that decides keys and lock paths. Two gateways with one fingerprint take the same
    /// locks.
    pub fingerprint: u64,
}

impl GatewayPlan {
    /// How long after its admission a dispatch may be started by a service that accepts it at once: the longest
    /// `response_timeout` of all upstreams. A proxy in between may deliver it later.
    pub fn longest_dispatch(&self) -> Duration {
        let timeouts = self.serving.upstreams.iter().map(|upstream| upstream.response_timeout);
        timeouts.max().unwrap_or_default()
    }
}

/// How a gateway behaves beside older gateways with other plans, on routes by which one resource would have two
/// locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MixedPlanPolicy {
    /// It refuses requests on these routes until the others have ended or have the same routes.
    #[default]
    Refuse,
    /// It serves these routes, and reports that.
    Allow,
}

words! { MixedPlanPolicy { Allow = "true", Refuse = "false" } }
