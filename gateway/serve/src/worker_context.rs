//! The state that all workers of a process share.

use std::sync::Arc;

use fencegate_config::{
    access_tokens::AccessTokenAuthenticator, active_config::ActiveConfig, process_context::ProcessContext,
};
use fencegate_guard_client::guard_identity::UpstreamGuardRegistry;
use fencegate_http::{
    client_quota::ClientQuotas, listen::certificates::ListenerCertificates, network::sockets::OsNetwork,
};
use fencegate_http_client::upstream::{endpoint_set::UpstreamSet, health};
use fencegate_peers::LocalPeerIdentity;
use fencegate_policies::plan::CommonServingPlan;
use fencegate_process::{
    liveness::ThreadRole,
    randomness::{Guid, SystemRandomness},
};
use fencegate_proxy::{telemetry::TelemetrySinks, via::ViaName};
use fencegate_zookeeper::state::HighestEpochTracker;
use futures_util::future::join;

use crate::error::ProcessError;

/// The state that all workers share, and the role of the process.
#[derive(Clone)]
pub struct WorkerContext<R> {
    pub process: Arc<ProcessContext>,
    /// The configuration that is in force at the start.
    pub config: Arc<ActiveConfig>,
    /// The receivers of reports about requests: access log and spans.
    pub telemetry: TelemetrySinks,
    /// The name of this process in `Via`.
    pub via: ViaName,
    /// The identities of the guards among the upstreams, as they were observed.
    pub guards: Arc<UpstreamGuardRegistry>,
    /// The counts of each client, for its quotas.
    pub shares: ClientQuotas,
    /// True if another process that is about to stop may have the same addresses.
    pub beside: bool,
    /// The number of workers.
    pub workers: usize,
    /// The certificates of the public listener; `None` if it speaks plain text.
    pub certificates: Option<Arc<ListenerCertificates>>,
    /// The address and credentials of this process for other gateways; `None` if they cannot reach it.
    pub local_peer: Option<LocalPeerIdentity>,
    pub role: R,
}

/// The settings of the workers beside the plan and the process context.
pub(super) struct WorkerPoolConfig<R> {
    pub(super) role: R,
    /// The number of workers.
    pub(super) workers: usize,
    /// True if another process that is about to stop may have the same addresses.
    pub(super) beside: bool,
    /// The newest token so far, and the installation to which the tokens belong.
    pub(super) token_history: Arc<HighestEpochTracker>,
    /// The address and credentials of this process for other gateways; `None` if they cannot reach it.
    pub(super) local_peer: Option<LocalPeerIdentity>,
}

/// Builds the state that all workers share, and starts the checks of the upstreams' endpoints.
///
/// # Errors
/// Returns an error if a file for TLS cannot be used, or if the machine cannot start a thread.
pub(super) fn build_context<R>(
    plan: &CommonServingPlan,
    process: &Arc<ProcessContext>,
    pool: WorkerPoolConfig<R>,
) -> Result<WorkerContext<R>, ProcessError> {
    let ProcessContext { clock, metrics, threads, .. } = &**process;
    let WorkerPoolConfig { role, workers, beside, token_history, local_peer } = pool;
    let plan = Arc::new(plan.clone());
    let fleets = UpstreamSet::new(&plan, metrics.endpoints()).map_err(ProcessError::UpstreamTls)?;
    let guards = Arc::new(UpstreamGuardRegistry::new(token_history));
    let tokens = AccessTokenAuthenticator::open(&plan.jwt, clock, metrics.issuer_keys(), None)?;
    let liveness = threads.register_until(ThreadRole::Endpoints, fleets.retirement_token().clone());
    let liveness = run_with_jwks_refresh(liveness, tokens.clone());
    health::start_endpoint_tasks(OsNetwork, &fleets, clock.clone(), guards.clone(), liveness)?;
    let certificates =
        ListenerCertificates::open(&plan.listener, metrics.clients()).map_err(ProcessError::ListenerTls)?;
    let telemetry = TelemetrySinks::start(metrics)?;
    Ok(WorkerContext {
        process: process.clone(),
        config: ActiveConfig::initial(plan, fleets, tokens),
        telemetry,
        via: ViaName::new(Guid::new(&SystemRandomness)),
        guards,
        shares: ClientQuotas::default(),
        beside,
        workers: workers.max(1),
        certificates,
        local_peer,
        role,
    })
}

/// Runs `turning`, and keeps the keys of token issuers current on the same thread, that of the endpoint
/// checks of the plan.
pub(super) async fn run_with_jwks_refresh(
    turning: impl Future<Output = ()>,
    tokens: Option<Arc<AccessTokenAuthenticator>>,
) {
    let refreshing = async {
        if let Some(tokens) = &tokens {
            tokens.run_refresh_loops().await;
        }
    };
    join(turning, refreshing).await;
}
