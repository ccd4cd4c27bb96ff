//! The resources that a gateway claims at its start: its state directory, its name, its address for other gateways.

use std::{net::SocketAddr, sync::Arc};

use fencegate_metrics::AllMetricFamilies;
use fencegate_peers::LocalPeerIdentity;
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::{host_name::host_name, randomness::SystemRandomness};
use fencegate_zookeeper::state::HighestEpochTracker;
use socket2::Socket;

use super::options::GatewayOptions;
use crate::{addresses::bind_peer, error::ProcessError};

/// The resources that the process takes at its start, and releases only with its end.
pub struct StartupResources {
    /// The newest token so far, from the state directory if the policy has one.
    pub token_history: Arc<HighestEpochTracker>,
    /// The name of the gateway.
    pub name: Arc<str>,
    /// Reserves the address for other gateways until the workers listen at it.
    pub peer_socket: Option<Socket>,
    /// The address and credentials of this process for other gateways; `None` if they cannot reach it.
    pub local_peer: Option<LocalPeerIdentity>,
}

impl StartupResources {
    /// # Errors
    /// Returns an error if the state directory or an address belongs to another process, or if a file cannot be
    /// read.
    pub(super) fn acquire(
        gateway: &GatewayPlan,
        options: &GatewayOptions,
        metrics: &AllMetricFamilies,
    ) -> Result<Self, ProcessError> {
        let token_history = open_token_history(gateway, metrics)?;
        let name: Arc<str> = gateway.serving.name.clone().unwrap_or_else(host_name).into();
        let peer_socket = gateway.peer.as_ref().map(|peer| bind_peer(peer, options.beside)).transpose()?;
        let (peer_socket, bound) = peer_socket.unzip();
        let local_peer = open_local_peer(gateway, &name, bound, metrics)?;
        Ok(Self { token_history, name, peer_socket, local_peer })
    }
}

fn open_token_history(
    gateway: &GatewayPlan,
    metrics: &AllMetricFamilies,
) -> Result<Arc<HighestEpochTracker>, ProcessError> {
    let Some(folder) = &gateway.state_dir else { return Ok(Arc::default()) };
    let counted = metrics.session(0);
    Ok(HighestEpochTracker::open(folder, &SystemRandomness, move || counted.record_state_write_failure())?)
}

fn open_local_peer(
    gateway: &GatewayPlan,
    name: &Arc<str>,
    bound: Option<SocketAddr>,
    metrics: &AllMetricFamilies,
) -> Result<Option<LocalPeerIdentity>, ProcessError> {
    let (Some(peer), Some(bound)) = (&gateway.peer, bound) else { return Ok(None) };
    Ok(Some(LocalPeerIdentity::new(peer, name.clone(), bound, metrics.clients(), &SystemRandomness)?))
}
