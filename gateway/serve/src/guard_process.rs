//! Starts a guard, waits for a signal, and writes its state so that the next start has the whole state.

mod error;
mod key_source;
mod outcome_probes;
mod role;
mod store_setup;

use std::{io, sync::Arc};

use fencegate_admin::{CsrfToken, GuardAdminState, guard_routes};
use fencegate_config::{key_secret, process_context::ProcessContext};
use fencegate_guard::Guard;
use fencegate_http::{listen::certificates::ListenerCertificates, network::sockets::OsNetwork};
use fencegate_metrics::{AllMetricFamilies, request_tracker::RejectedCallers};
use fencegate_policies::plan::{self, UpstreamId};
use fencegate_process::{
    clock::MachineClock,
    key_redaction::{self, KeyRedaction},
    liveness::ThreadRole,
    randomness::SystemRandomness,
};
use fencegate_ticket::TicketVerifier;
use futures_util::future::join;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::{error::GuardProcessError, store_setup::NewStoreParams};
use self::{key_source::GuardTicketKeySource, role::GuardWorkerRole, store_setup::GuardWithStore};
use super::{
    admin_listener::BoundAdminListener,
    error::ProcessError,
    filter_process,
    main_thread::MainThread,
    sd_notify::SystemdNotifier,
    signals::{ProcessSignals, SignalAction},
    worker_context::{self, WorkerContext, WorkerPoolConfig},
    worker_pool::WorkerPool,
};

/// The options of `fencegate guard`.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// Create the store, which must not exist yet.
    pub init: Option<NewStoreParams>,
    pub workers: usize,
}

/// Runs until SIGTERM or SIGINT, then drains and writes the state that is only in memory. It also ends when the store
/// fails: a decision that cannot be stored must not be acted on.
pub fn run(plan: &plan::GuardPlan, options: &GuardOptions) -> Result<(), GuardProcessError> {
    if plan.store == plan::GuardStoreLocation::Stateless {
        return match options.init {
            Some(_) => Err(GuardProcessError::Stateless),
            None => Ok(filter_process::run(plan, options.workers)?),
        };
    }
    let secret = key_secret::load(&plan.serving.log).map_err(ProcessError::from)?;
    key_redaction::set_key_redaction(plan.serving.log.keys, secret);
    let process = ProcessContext::new(Arc::new(MachineClock), AllMetricFamilies::for_guard());
    let mut main = MainThread::init_main_thread(&process.threads)?;
    let admin_listener = BoundAdminListener::bind(&plan.serving.admin, false, &process.metrics)?;
    let tickets =
        plan.tickets.as_ref().map(|from| GuardTicketKeySource::open(from, &main.runtime)).transpose()?;
    let Some(GuardWithStore { guard, store }) =
        GuardWithStore::open(plan, options.init.as_ref(), &process, &mut main)?
    else {
        info!("the guard has stopped");
        return Ok(());
    };

    let verifier = tickets.as_ref().map(GuardTicketKeySource::verifier);
    let shared = build_worker_context(plan, &process, guard.clone(), verifier, options.workers)?;
    let rejected_callers = shared.role.rejected_callers.clone();
    let telemetry = shared.telemetry.clone();
    let certificates = shared.certificates.clone();
    let endpoints = shared.config.fleets.get(UpstreamId(0)).clone();
    let pool = WorkerPool::start(shared)?;

    let end = start_admin(admin_listener, plan, &process, guard.clone(), rejected_callers)?;
    let manager = SystemdNotifier::from_env();
    main.runtime.block_on(async {
        tokio::select! {
            () = manager.notify_ready_when(|| guard.is_admitting()) => Ok(()),
            () = manager.run_watchdog(&process.threads) => Ok(()),
            () = wait_shutdown(&mut main.signals, certificates.as_deref(), &manager) => Ok(()),
            () = end.cancelled() => Ok(()),
            failed = guard.wait_for_store_failure() => Err(GuardProcessError::StoreFailed(failed)),
            // Its failures are failures of the store, which the branch above reports.
            () = guard.run_background() => Ok(()),
            () = outcome_probes::probe_in_doubt_endpoints(&OsNetwork, &endpoints, &guard) => Ok(()),
            () = key_source::run_ticket_key_refresh(tickets.as_ref()) => Ok(()),
        }
    })?;

    let left = main.drain(manager, &process, pool, plan.serving.listener.timeouts.drain);
    if left > 0 {
        warn!(left, "guard.left_in_doubt");
    }
    store_setup::flush(&guard)?;
    telemetry.flush_telemetry();
    store_setup::join_store_thread(store);
    info!("the guard has stopped");
    Ok(())
}

/// Assembles the state that the workers of a guard share, in a process or in a simulation.
///
/// # Errors
/// Returns an error if a file cannot be used, or if the machine has no thread for the checks of the endpoint.
pub fn build_worker_context(
    plan: &plan::GuardPlan,
    process: &Arc<ProcessContext>,
    guard: Arc<Guard>,
    tickets: Option<Arc<TicketVerifier>>,
    workers: usize,
) -> Result<WorkerContext<GuardWorkerRole>, ProcessError> {
    let role = GuardWorkerRole::new(plan, guard, tickets);
    let pool =
        WorkerPoolConfig { role, workers, beside: false, token_history: Arc::default(), local_peer: None };
    worker_context::build_context(&plan.serving, process, pool)
}

/// Returns when a signal requests the end. A guard reads its file only once, because watermarks and journal depend on
/// its settings.
async fn wait_shutdown(
    signals: &mut ProcessSignals,
    certificates: Option<&ListenerCertificates>,
    manager: &SystemdNotifier,
) {
    while signals.next().await == SignalAction::Reload {
        warn!(
            "reload ignored: a guard reads its file only when it starts; it checks the files of ticket keys on \
             its own"
        );
        // An error is already logged by [`ListenerCertificates::reload`].
        manager.notify_reload(async { certificates.map(ListenerCertificates::reload) }).await;
    }
}

/// Opens the admin listener. Returns a token that is cancelled when an operator requests the end.
///
/// # Errors
/// Returns an error if the machine cannot start a thread.
fn start_admin(
    listener: BoundAdminListener,
    plan: &plan::GuardPlan,
    process: &Arc<ProcessContext>,
    guard: Arc<Guard>,
    rejected_callers: Arc<RejectedCallers>,
) -> io::Result<CancellationToken> {
    let end = CancellationToken::new();
    let asked = guard.clone();
    let store = process.threads.register_with(ThreadRole::Store, move || {
        let guard = asked.clone();
        async move { guard.ping_store_thread().await }
    });
    let state = GuardAdminState {
        guard,
        rejected_callers,
        process: process.clone(),
        end: end.clone(),
        csrf: CsrfToken::new(&SystemRandomness),
        names: KeyRedaction(plan.serving.log.keys),
        backups: Arc::new(Semaphore::new(1)),
    };
    let watching = process.threads.clone().watch();
    listener.open(guard_routes(state), async { _ = join(store, watching).await })?;
    Ok(end)
}
