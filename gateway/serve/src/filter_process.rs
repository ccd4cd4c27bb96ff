//! Starts a filter and waits for a signal. A filter has no store: it remembers nothing from one request to the
//! next.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_admin as admin;
use fencegate_config::{key_secret, process_context::ProcessContext};
use fencegate_http::{listen::certificates::ListenerCertificates, network::Network};
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::plan::{self, Enforcement};
use fencegate_process::{clock::MachineClock, key_redaction};
use fencegate_proxy::{
    frontend::{LocalProcessRole, RawRequest},
    handler::Handler,
    pipeline,
    steps::{extract_claim::FencingBypassPolicy, filter::DeadlineFilterContext, forward::UpstreamForwarder},
};
use tracing::{info, warn};

use super::{
    admin_listener::BoundAdminListener,
    error::ProcessError,
    main_thread::MainThread,
    sd_notify::SystemdNotifier,
    signals::{ProcessSignals, SignalAction},
    worker::{WorkerPipelineParts, WorkerRole},
    worker_context::{self, WorkerContext, WorkerPoolConfig},
    worker_pool::WorkerPool,
};

/// The part of a worker's state that only a filter has.
#[derive(Clone)]
pub(crate) struct DeadlineFilterRole {
    clock_error: Duration,
    enforce: Enforcement,
    bypass: Arc<FencingBypassPolicy>,
}

impl<N: Network> WorkerRole<N> for DeadlineFilterRole {
    const ROLE: LocalProcessRole = LocalProcessRole::Filter;

    fn clock_error(&self) -> Option<Duration> {
        Some(self.clock_error)
    }

    fn pipeline(
        shared: &WorkerContext<Self>,
        worker: WorkerPipelineParts<N>,
    ) -> impl Handler<RawRequest> + use<N> {
        let WorkerPipelineParts { parts, pool, .. } = worker;
        let DeadlineFilterRole { clock_error, enforce, bypass } = shared.role.clone();
        let context = parts.plan.clone();
        let plan = Rc::new(context.config.plan.clone());
        let forward = UpstreamForwarder::new(pool, context.clone());
        let filter = DeadlineFilterContext { context, clock_error, enforce, bypass, plan };
        pipeline::filter_pipeline(parts, filter, forward)
    }
}

/// Runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// Returns an error if a file or an address cannot be used, or if the machine cannot start a thread.
pub fn run(plan: &plan::GuardPlan, workers: usize) -> Result<(), ProcessError> {
    key_redaction::set_key_redaction(plan.serving.log.keys, key_secret::load(&plan.serving.log)?);
    let process = ProcessContext::new(Arc::new(MachineClock), AllMetricFamilies::for_filter());
    let mut main = MainThread::init_main_thread(&process.threads)?;
    let admin_listener = BoundAdminListener::bind(&plan.serving.admin, false, &process.metrics)?;
    let bypass = Arc::new(FencingBypassPolicy { unfenced: plan.unfenced.clone(), missing: plan.missing });
    let role = DeadlineFilterRole { clock_error: plan.clock_error, enforce: plan.enforce, bypass };
    let pool =
        WorkerPoolConfig { role, workers, beside: false, token_history: Arc::default(), local_peer: None };
    let shared = worker_context::build_context(&plan.serving, &process, pool)?;
    let telemetry = shared.telemetry.clone();
    let certificates = shared.certificates.clone();
    let workers = WorkerPool::start(shared)?;
    let routes = admin::filter_admin_routes(process.metrics.clone(), process.threads.clone());
    admin_listener.open(routes, process.threads.clone().watch())?;
    info!(same_kernel = process.clock.boot_id().is_some(), "filter.opened");
    let manager = SystemdNotifier::from_env();
    main.runtime.block_on(async {
        tokio::select! {
            () = manager.notify_ready_when(|| true) => {}
            () = manager.run_watchdog(&process.threads) => {}
            () = wait_shutdown(&mut main.signals, certificates.as_deref(), &manager) => {}
        }
    });
    main.drain(manager, &process, workers, plan.serving.listener.timeouts.drain);
    telemetry.flush_telemetry();
    info!("the filter has stopped");
    Ok(())
}

/// Returns when a signal requests the end. A filter reads its file only once, as a guard does.
async fn wait_shutdown(
    signals: &mut ProcessSignals,
    certificates: Option<&ListenerCertificates>,
    manager: &SystemdNotifier,
) {
    while signals.next().await == SignalAction::Reload {
        warn!("reload ignored: a filter reads its file only when it starts");
        // An error is already logged by [`ListenerCertificates::reload`].
        manager.notify_reload(async { certificates.map(ListenerCertificates::reload) }).await;
    }
}
