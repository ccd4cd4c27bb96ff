//! A gateway whose parts are made and do not run yet. They run on threads of their own; in a simulation, all on one and in
//! its time.

use std::path::PathBuf;

use fencegate_http::network::Network;
use fencegate_lock::{
    manager::{lock_manager::LockManager, session_worker::SessionWorker},
    peer_endpoint::PageAddress,
    session::{local_member::LocalMember, settings::SessionSettings},
};
use fencegate_policies::plan::GatewayPlan;
use tokio::sync::mpsc;

use super::{lease_setup, options::GatewayOptions, resources::ProcessResources, role::GatewayRole, sessions};
use crate::{
    current_config::CurrentConfig,
    leases::lease_worker::LeaseWorker,
    plan_compat::PlanCompat,
    serve::{
        context::ProcessContext,
        error::ProcessError,
        plan_publisher::PlanPublisher,
        reload::{ConfigUpdate, Reloader},
        worker::WorkerContext,
        worker_pool::{self, WorkerPoolConfig},
    },
};

/// What is to be run: a session for each desk, what takes the locks of leases, and the workers, which share the rest.
pub struct GatewayParts<N> {
    pub desks: Vec<(SessionWorker, SessionSettings)>,
    /// Where the policy has leases.
    pub taker: Option<LeaseWorker<N>>,
    pub shared: WorkerContext<GatewayRole>,
    pub keeper: LockManager,
    pub nameplate: LocalMember,
    pub(super) in_force: CurrentConfig,
}

impl<N: Network> GatewayParts<N> {
    /// `page`: where people can look at it.
    ///
    /// # Errors
    /// A file cannot be used, or the machine has no thread for what looks after the endpoints.
    pub fn assemble(
        gateway: &GatewayPlan,
        options: &GatewayOptions,
        (base, belongings): (&ProcessContext, &ProcessResources),
        page: Option<PageAddress>,
        network: N,
    ) -> Result<Self, ProcessError> {
        let ProcessResources { memory, name, ours, .. } = belongings;
        let (keeper, desks) = sessions::keeper(gateway, base);
        let agreement = PlanCompat::new(gateway, base.metrics.clone());
        let reach = ours.as_ref().map(|ours| ours.reach.clone());
        let nameplate = LocalMember::with_endpoint(gateway.fingerprint, reach);
        let nameplate = nameplate.with_page(page).with_publication(
            gateway.fingerprint,
            PlanCompat::publication(gateway),
            agreement.clone(),
        );
        let desks = {
            let settings = sessions::settings(gateway, name, options, base, &nameplate, memory);
            desks.into_iter().enumerate().map(|(number, desk)| (desk, settings(number))).collect()
        };
        let in_force = CurrentConfig::new(gateway.clone());
        let agreeing = (&in_force, &agreement);
        let granted = lease_setup::set_up_leases(gateway, (belongings, &keeper), agreeing, base, network)?;
        let (leases, taker) = granted.unzip();
        let role = GatewayRole::new(gateway, (name, keeper.clone(), leases), memory, agreement, &in_force)?;
        let (workers, beside) = (options.workers, options.beside);
        let equipment =
            WorkerPoolConfig { role, workers, beside, memory: memory.clone(), ours: ours.clone() };
        let shared = worker_pool::build_context(&gateway.serving, base, equipment)?;
        in_force.replace(gateway.clone(), shared.edition.clone());
        Ok(Self { desks, taker, shared, keeper, nameplate, in_force })
    }

    /// What puts another plan of `file` in force. `turns`: one for each worker.
    pub fn reloader(
        &self,
        file: PathBuf,
        gateway: GatewayPlan,
        turns: Vec<mpsc::UnboundedSender<ConfigUpdate>>,
    ) -> Reloader {
        let Self { shared, nameplate, in_force, .. } = self;
        let ours = shared.ours.iter().filter_map(|ours| ours.certificates.clone());
        Reloader {
            started: gateway.clone(),
            edition: shared.edition.clone(),
            workers: turns,
            metrics: shared.metrics.clone(),
            clock: shared.clock.clone(),
            threads: shared.threads.clone(),
            guards: shared.guards.clone(),
            certificates: shared.certificates.iter().cloned().chain(ours).collect(),
            keeper: self.keeper.clone(),
            agreement: shared.role.agreement.clone(),
            publisher: PlanPublisher::new(nameplate.clone(), shared.role.agreement.clone(), &gateway),
            nameplate: nameplate.clone(),
            in_force: in_force.clone(),
            leases: shared.role.leases.clone(),
            gateway,
            file,
        }
    }
}
