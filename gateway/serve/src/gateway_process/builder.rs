//! Assembles the parts of a gateway without running them. A process runs them on threads of their own; a simulation
//! runs all of them on one thread and with its own clock.

use std::{path::PathBuf, sync::Arc};

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_http::network::Network;
use fencegate_leases::{LeaseSettings, LeaseTable, context::LeaseContext, lease_worker::LeaseWorker};
use fencegate_lock::manager::session_worker::SessionWorker;
use fencegate_peers::{LocalPeerIdentity, plan_compat::PlanCompatRegistry};
use fencegate_policies::plan::GatewayPlan;
use fencegate_proxy::steps::fence::GatewayContext;
use fencegate_zookeeper::{
    peer_endpoint::AdminPageAddress,
    session::{local_member::LocalMember, settings::SessionSettings},
};
use tokio::sync::mpsc;

use super::{options::GatewayOptions, resources::StartupResources, role::GatewayRole, sessions};
use crate::{
    error::ProcessError,
    plan_publisher::PlanPublisher,
    reload::{ConfigUpdate, Reloader},
    worker_context::{self, WorkerContext, WorkerPoolConfig},
};

/// The parts of a gateway: the workers of its sessions, the worker that takes the locks of leases, and the state
/// that the workers for requests share.
pub struct GatewayParts<N> {
    pub session_workers: Vec<(SessionWorker, SessionSettings)>,
    /// `None` if the policy has no leases.
    pub lease_worker: Option<LeaseWorker<N>>,
    pub shared: WorkerContext<GatewayRole>,
    pub member: LocalMember,
}

impl<N: Network> GatewayParts<N> {
    /// `page` is the URL of the admin page.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used, or if the machine has no thread for the checks of the endpoints.
    pub fn assemble(
        gateway: &GatewayPlan,
        options: &GatewayOptions,
        process: &Arc<ProcessContext>,
        resources: &StartupResources,
        page: Option<AdminPageAddress>,
        network: N,
    ) -> Result<Self, ProcessError> {
        let StartupResources { token_history, name, local_peer, .. } = resources;
        let (lock_manager, session_workers) = sessions::build_lock_manager(gateway, process);
        let compat = PlanCompatRegistry::new(gateway, process.metrics.clone());
        let endpoint = local_peer.as_ref().map(|local_peer| local_peer.reach.clone());
        let member = LocalMember::with_endpoint(gateway.fingerprint, endpoint);
        let member = member.with_page(page).with_publication(
            gateway.fingerprint,
            PlanCompatRegistry::publication(gateway),
            compat.clone(),
        );
        let session_workers = {
            let settings =
                sessions::session_settings(gateway, name, options, process, &member, token_history);
            session_workers
                .into_iter()
                .enumerate()
                .map(|(number, session_worker)| (session_worker, settings(number)))
                .collect()
        };
        let config = CurrentConfig::new(gateway.clone());
        let lease_context = LeaseContext {
            process: process.clone(),
            gateway: name.clone(),
            locks: lock_manager.clone(),
            config: config.clone(),
            compat: compat.clone(),
        };
        let leases = set_up_leases(gateway, lease_context, network, local_peer)?;
        let (leases, lease_worker) = leases.unzip();
        let tickets = gateway.tickets.as_ref();
        let context = GatewayContext {
            process: process.clone(),
            locks: lock_manager,
            config: config.clone(),
            compat,
            tickets: tickets.map(|key| TicketIssuer::new(key, gateway, name, token_history)).transpose()?,
            leases,
            traces: Default::default(),
            hot_keys: Default::default(),
            requests: Default::default(),
        };
        let role = GatewayRole { gateway: Arc::new(context) };
        let workers = options.workers;
        let beside = options.beside;
        let token_history = token_history.clone();
        let local_peer = local_peer.clone();
        let pool = WorkerPoolConfig { role, workers, beside, token_history, local_peer };
        let shared = worker_context::build_context(&gateway.serving, process, pool)?;
        config.replace(gateway.clone(), shared.config.clone());
        Ok(Self { session_workers, lease_worker, shared, member })
    }

    /// Makes the reloader that puts another plan of `file` in force. `updates` has one channel for each worker.
    pub fn reloader(
        &self,
        file: PathBuf,
        gateway: GatewayPlan,
        updates: Vec<mpsc::UnboundedSender<ConfigUpdate>>,
    ) -> Reloader {
        let Self { shared, member, .. } = self;
        let context = shared.role.gateway.clone();
        let for_peers = shared.local_peer.iter().filter_map(|local_peer| local_peer.certificates.clone());
        Reloader {
            started: gateway.clone(),
            config: shared.config.clone(),
            workers: updates,
            guards: shared.guards.clone(),
            certificates: shared.certificates.iter().cloned().chain(for_peers).collect(),
            publisher: PlanPublisher::new(member.clone(), context.compat.clone(), &gateway),
            member: member.clone(),
            context,
            gateway,
            file,
        }
    }
}

/// The leases, and the worker that takes their locks.
type LeaseSetup<N> = (Arc<LeaseTable>, LeaseWorker<N>);

/// Sets up the leases; `None` if the policy has none.
///
/// # Errors
/// Returns an error if a file with a token cannot be used.
fn set_up_leases<N: Network>(
    gateway: &GatewayPlan,
    context: LeaseContext,
    network: N,
    local_peer: &Option<LocalPeerIdentity>,
) -> Result<Option<LeaseSetup<N>>, ProcessError> {
    let Some(plan) = &gateway.leases else { return Ok(None) };
    let settings = LeaseSettings::from_plan(Some(plan)).map_err(ProcessError::LeaseToken)?;
    Ok(Some(LeaseWorker::new(context, settings, network, local_peer.clone())))
}
