//! A service behind a relay and a filter, for cases about requests that arrive late.

use std::net::SocketAddr;

use fencegate_testkit::fault_proxy::FaultProxy;

use super::setup::HopSetup;
use crate::guard::{Guard, GuardLaunch};

/// One listener of the service, with the proxies before it.
pub struct ServiceRelay {
    pub relay: FaultProxy,
    pub filter: Option<Guard>,
}

impl ServiceRelay {
    /// Starts the proxies of `hops` before a listener; `None` if there are none.
    pub(super) async fn start_before(door: SocketAddr, hops: HopSetup) -> Option<Self> {
        let filter = match hops {
            HopSetup::Nothing => return None,
            HopSetup::Relay => None,
            HopSetup::Filter => Some(GuardLaunch::filter(door).start().await),
            HopSetup::ObservingFilter => {
                Some(GuardLaunch::filter(door).with("/enforce", "observe").start().await)
            }
        };
        let relay = FaultProxy::start(filter.as_ref().map_or(door, |filter| filter.public));
        Some(Self { relay, filter })
    }

    /// The address at which guards and gateways reach the service.
    pub fn address(&self) -> SocketAddr {
        self.relay.address
    }
}
