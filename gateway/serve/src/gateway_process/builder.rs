//! A gateway whose parts are assembled and do not run yet. They run on threads of their own; in a simulation, all on
//! one thread and in its time.

use std::{path::PathBuf, sync::Arc};

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_http::network::Network;
use fencegate_leases::lease_worker::LeaseWorker;
use fencegate_lock::manager::session_worker::SessionWorker;
use fencegate_peers::plan_compat::PlanCompat;
use fencegate_policies::plan::GatewayPlan;
use fencegate_proxy::steps::fence::GatewayContext;
use fencegate_zookeeper::{
    peer_endpoint::AdminPageAddress,
    session::{local_member::LocalMember, settings::SessionSettings},
};
use tokio::sync::mpsc;

use super::{lease_setup, options::GatewayOptions, resources::ProcessResources, role::GatewayRole, sessions};
use crate::{
    error::ProcessError,
    plan_publisher::PlanPublisher,
    reload::{ConfigUpdate, Reloader},
    worker_context::{self, WorkerContext, WorkerPoolConfig},
};

/// The parts to be run: a session for each session worker, the worker that takes the locks of leases, and the
/// workers, which share the rest.
pub struct GatewayParts<N> {
    pub desks: Vec<(SessionWorker, SessionSettings)>,
    /// Where the policy has leases.
    pub taker: Option<LeaseWorker<N>>,
    pub shared: WorkerContext<GatewayRole>,
    pub nameplate: LocalMember,
}

impl<N: Network> GatewayParts<N> {
    /// `page`: the URL of the admin page.
    ///
    /// # Errors
    /// A file cannot be used, or the machine has no thread for the checks of the endpoints.
    pub fn assemble(
        gateway: &GatewayPlan,
        options: &GatewayOptions,
        base: &Arc<ProcessContext>,
        resources: &ProcessResources,
        page: Option<AdminPageAddress>,
        network: N,
    ) -> Result<Self, ProcessError> {
        let ProcessResources { memory, name, ours, .. } = resources;
        let (lock_manager, session_workers) = sessions::build_lock_manager(gateway, base);
        let compat = PlanCompat::new(gateway, base.metrics.clone());
        let reach = ours.as_ref().map(|ours| ours.reach.clone());
        let nameplate = LocalMember::with_endpoint(gateway.fingerprint, reach);
        let nameplate = nameplate.with_page(page).with_publication(
            gateway.fingerprint,
            PlanCompat::publication(gateway),
            compat.clone(),
        );
        let session_workers = {
            let settings = sessions::session_settings(gateway, name, options, base, &nameplate, memory);
            session_workers
                .into_iter()
                .enumerate()
                .map(|(number, session_worker)| (session_worker, settings(number)))
                .collect()
        };
        let in_force = CurrentConfig::new(gateway.clone());
        let granted =
            lease_setup::set_up_leases(gateway, resources, &lock_manager, &in_force, &compat, base, network)?;
        let (leases, lease_worker) = granted.unzip();
        let tickets = gateway.tickets.as_ref();
        let context = GatewayContext {
            process: base.clone(),
            locks: lock_manager,
            config: in_force.clone(),
            compat,
            tickets: tickets.map(|key| TicketIssuer::new(key, gateway, name, memory)).transpose()?,
            leases,
            elections: Default::default(),
            traces: Default::default(),
            hot_keys: Default::default(),
            requests: Default::default(),
        };
        let role = GatewayRole { gateway: Arc::new(context) };
        let workers = options.workers;
        let beside = options.beside;
        let equipment =
            WorkerPoolConfig { role, workers, beside, memory: memory.clone(), ours: ours.clone() };
        let shared = worker_context::build_context(&gateway.serving, base, equipment)?;
        in_force.replace(gateway.clone(), shared.edition.clone());
        Ok(Self { desks: session_workers, taker: lease_worker, shared, nameplate })
    }

    /// The reloader that puts another plan of `file` in force. `turns`: one channel for each worker.
    pub fn reloader(
        &self,
        file: PathBuf,
        gateway: GatewayPlan,
        turns: Vec<mpsc::UnboundedSender<ConfigUpdate>>,
    ) -> Reloader {
        let Self { shared, nameplate, .. } = self;
        let context = shared.role.gateway.clone();
        let ours = shared.ours.iter().filter_map(|ours| ours.certificates.clone());
        Reloader {
            started: gateway.clone(),
            edition: shared.edition.clone(),
            workers: turns,
            guards: shared.guards.clone(),
            certificates: shared.certificates.iter().cloned().chain(ours).collect(),
            publisher: PlanPublisher::new(nameplate.clone(), context.compat.clone(), &gateway),
            nameplate: nameplate.clone(),
            context,
            gateway,
            file,
        }
    }
}
