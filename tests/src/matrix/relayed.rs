//! A service behind a relay, and behind a filter, in cases about requests that arrive late.

use std::net::SocketAddr;

use super::apparatus::Hops;
use crate::{
    guard::{Guard, Launch},
    holding_relay::HoldingRelay,
};

/// One door of the service, with what stands before it.
pub struct RelayedService {
    pub relay: HoldingRelay,
    pub filter: Option<Guard>,
}

impl RelayedService {
    /// None: nothing stands before the door.
    pub(super) async fn before(door: SocketAddr, hops: Hops) -> Option<Self> {
        let filter = match hops {
            Hops::Nothing => return None,
            Hops::Relay => None,
            Hops::Filter => Some(Launch::filter(door).start().await),
            Hops::ObservingFilter => Some(Launch::filter(door).with("/enforce", "observe").start().await),
        };
        let relay = HoldingRelay::before(filter.as_ref().map_or(door, |filter| filter.public)).await;
        Some(Self { relay, filter })
    }

    /// Where guards and gateways reach the service.
    pub fn address(&self) -> SocketAddr {
        self.relay.address
    }
}
