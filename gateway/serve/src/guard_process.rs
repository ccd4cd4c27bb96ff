//! Starts a guard, waits for a signal, and writes its state so that the next start has all of it.

mod admin_setup;
mod error;
mod key_source;
mod options;
mod outcome_probes;
mod role;
mod store_setup;

use std::sync::Arc;

use fencegate_config::{key_secret, process_context::ProcessContext};
use fencegate_guard::Guard;
use fencegate_http::{listen::certificates::ListenerCertificates, network::sockets::OsNetwork};
use fencegate_metrics::ProcessMetricFamilies;
use fencegate_policies::plan::{self, UpstreamId};
use fencegate_process::{clock::MachineClock, key_redaction};
use fencegate_ticket::TicketVerifier;
use tracing::{info, warn};

pub use self::{
    error::GuardProcessError,
    options::{GuardOptions, StoreInit},
};
use self::{key_source::GuardTicketKeySource, role::GuardRole};
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
use crate::guard_process::store_setup::GuardWithStore;

/// Runs until SIGTERM or SIGINT, then drains and writes the state that only memory has. Ends by itself when the store
/// fails: a decision that cannot be stored must not be acted on.
pub fn run(plan: &plan::GuardPlan, options: &GuardOptions) -> Result<(), GuardProcessError> {
    if plan.store == plan::StoreLocation::Stateless {
        return match options.init {
            Some(_) => Err(GuardProcessError::Stateless),
            None => Ok(filter_process::run(plan, options.workers)?),
        };
    }
    let secret = key_secret::load(&plan.serving.log).map_err(ProcessError::from)?;
    key_redaction::set_key_redaction(plan.serving.log.keys, secret);
    let base = ProcessContext::new(Arc::new(MachineClock), ProcessMetricFamilies::for_guard());
    let mut main = MainThread::start(&base.threads)?;
    let reception = BoundAdminListener::bind(&plan.serving.admin, false, &base.metrics)?;
    let tickets =
        plan.tickets.as_ref().map(|from| GuardTicketKeySource::open(from, &main.runtime)).transpose()?;
    let Some(GuardWithStore { guard, store }) =
        GuardWithStore::open(plan, options.init.as_ref(), &base, &mut main)?
    else {
        info!("stopped");
        return Ok(());
    };

    let tried_with = tickets.as_ref().map(GuardTicketKeySource::verifier);
    let shared = assemble(plan, &base, guard.clone(), tried_with, options.workers)?;
    let unbelieved = shared.role.unbelieved.clone();
    let tellers = shared.tellers.clone();
    let certificates = shared.certificates.clone();
    let fleet = shared.edition.fleets.get(UpstreamId(0)).clone();
    let staff = WorkerPool::start(shared)?;

    let end = admin_setup::start_admin(reception, plan, &base, guard.clone(), unbelieved)?;
    let manager = SystemdNotifier::from_env();
    main.runtime.block_on(async {
        tokio::select! {
            () = manager.notify_ready_when(|| guard.is_admitting()) => Ok(()),
            () = manager.run_watchdog(&base.threads) => Ok(()),
            () = wait_shutdown(&mut main.signals, certificates.as_deref(), &manager) => Ok(()),
            () = end.cancelled() => Ok(()),
            failed = guard.wait_for_store_failure() => Err(GuardProcessError::StoreFailed(failed)),
            // Its failures are those of the store, which are handled above.
            () = guard.run_background() => Ok(()),
            () = outcome_probes::probe_unknown_outcomes(&OsNetwork, &fleet, &guard) => Ok(()),
            () = key_source::keep_current(tickets.as_ref()) => Ok(()),
        }
    })?;

    let left = main.drain(manager, &base, staff, plan.serving.listener.timeouts.drain);
    if left > 0 {
        warn!(left, "guard.left_in_doubt");
    }
    store_setup::flush(&guard)?;
    tellers.finish();
    store_setup::join_store_thread(store);
    info!("stopped");
    Ok(())
}

/// The state that the workers of a guard share. They run on threads of their own, or in a simulation.
///
/// # Errors
/// A file cannot be used, or the machine has no thread for the checks of the endpoint.
pub fn assemble(
    plan: &plan::GuardPlan,
    base: &Arc<ProcessContext>,
    guard: Arc<Guard>,
    tickets: Option<Arc<TicketVerifier>>,
    workers: usize,
) -> Result<WorkerContext<GuardRole>, ProcessError> {
    let role = GuardRole::new(plan, guard, tickets);
    let equipment = WorkerPoolConfig { role, workers, beside: false, memory: Arc::default(), ours: None };
    worker_context::build_context(&plan.serving, base, equipment)
}

/// Returns when a signal requests the end. A guard reads its file once: watermarks and journal are kept under its
/// settings.
async fn wait_shutdown(
    signals: &mut ProcessSignals,
    certificates: Option<&ListenerCertificates>,
    manager: &SystemdNotifier,
) {
    while signals.next().await == SignalAction::Reload {
        warn!("a guard does not read its file again; ticket keys are looked at by themselves");
        // Certificates that cannot be used are logged by their reader.
        manager.notify_reload(async { certificates.map(ListenerCertificates::reload) }).await;
    }
}
