//! A whole gateway as a process of the simulation: the code that the binary runs on several threads, on one thread
//! and in simulated time.

use std::{fs, path::PathBuf, rc::Rc, sync::Arc};

use fencegate_config::process_context::ProcessContext;
use fencegate_http::network::listen_addr::ListenAddr;
use fencegate_metrics::AllMetricFamilies;
use fencegate_peers::LocalPeerIdentity;
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use fencegate_serve::{
    gateway_process::{GatewayOptions, GatewayParts, StartupResources},
    worker::{self, DrainOutcome},
};
use fencegate_tests::memory;
use fencegate_zookeeper::state::HighestEpochTracker;
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_local,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    addresses::{GATEWAYS, KeyNaming, OTHER_PORT, PORT, SecretFiles, gateway, policy},
    network::SimHost,
};

/// The inputs of a gateway process.
pub(super) struct GatewayStartOptions {
    pub(super) number: usize,
    pub(super) naming: KeyNaming,
    pub(super) host: SimHost,
    pub(super) zookeeper: memory::SimConnector,
    pub(super) clock: SharedClock,
    /// The folder of the gateway's policy file.
    pub(super) folder: PathBuf,
    pub(super) secrets: Rc<SecretFiles>,
    /// The gateway stores here the installation that it has found.
    pub(super) token_history: Arc<HighestEpochTracker>,
    pub(super) orders: mpsc::UnboundedReceiver<OperatorCommand>,
}

/// A command of an operator to a gateway.
#[derive(Debug, Clone, Copy)]
pub(super) enum OperatorCommand {
    Reload(KeyNaming),
    /// Stops the gateway, as SIGTERM does.
    End,
}

/// Runs a gateway until it is asked to end.
pub(super) async fn run(start: GatewayStartOptions) {
    let GatewayStartOptions {
        number,
        naming,
        host,
        zookeeper,
        clock,
        folder,
        secrets,
        token_history,
        mut orders,
    } = start;
    let plan = gateway(&policy(number, naming, &secrets));
    let process = ProcessContext::new(clock, AllMetricFamilies::for_gateway(&plan));
    let name: Arc<str> = format!("gw-{number}").into();
    let bound = (GATEWAYS[number], OTHER_PORT).into();
    let peer = plan.peer.as_ref().expect("it listens to others");
    let local_peer =
        LocalPeerIdentity::new(peer, name.clone(), bound, process.metrics.clients(), &SystemRandomness);
    let local_peer = Some(local_peer.expect("plain text"));
    let resources = StartupResources { token_history, name, peer_socket: None, local_peer };
    let file = folder.join(format!("gw-{number}.json"));
    let options = GatewayOptions { file: file.clone(), watch: false, init: true, beside: false, workers: 1 };
    let parts = GatewayParts::assemble(&plan, &options, &process, &resources, None, host.clone());
    let mut parts = parts.expect("it needs no file");

    let close = CancellationToken::new();
    let session_workers: Vec<_> = std::mem::take(&mut parts.session_workers)
        .into_iter()
        .map(|(session_worker, settings)| {
            spawn_local(session_worker.run(zookeeper.clone(), Rc::new(settings), close.clone()))
        })
        .collect();
    if let Some(lease_worker) = parts.lease_worker.take() {
        spawn_local(lease_worker.run());
    }
    let (sender, updates) = mpsc::unbounded_channel();
    let (listening, bound) = oneshot::channel();
    let address = ListenAddr::Tcp((GATEWAYS[number], PORT).into());
    let worker = spawn_local(worker::run(host, address, parts.shared.clone(), updates, listening));
    bound.await.expect("it runs").unwrap_or_else(|error| panic!("{error:?}"));

    let mut reloader = parts.reloader(file.clone(), plan, vec![sender]);
    while let Some(OperatorCommand::Reload(naming)) = orders.recv().await {
        fs::write(&file, policy(number, naming, &secrets).to_string()).expect("a folder of ours");
        let report = reloader.reload(false).await;
        info!(result = report.result.as_str(), said = report.said.join("; "), "reloaded");
    }
    parts.member.set_draining();
    process.drain.cancel();
    if worker.await.expect("no panic") != DrainOutcome::Clean {
        // Do not close the session: requests of the gateway may still be in flight, and closing would release their
        // locks.
        return;
    }
    close.cancel();
    for session_worker in session_workers {
        session_worker.await.expect("no panic");
    }
}
