//! Starts a gateway, waits for a signal, and stops its parts in an order that keeps locks safe.

mod builder;
mod options;
mod reload_loop;
mod resources;
mod role;
mod sessions;

use std::{io, sync::Arc};

use fencegate_admin::{
    CsrfToken, GatewayAdminState,
    command::{self, AdminCommand},
    gateway_routes,
    history::LatencyHistory,
};
use fencegate_config::{key_secret, process_context::ProcessContext};
use fencegate_http::network::sockets::OsNetwork;
use fencegate_leases::lease_worker::LeaseWorker;
use fencegate_metrics::AllMetricFamilies;
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::{clock::MachineClock, key_redaction, randomness::SystemRandomness};
use fencegate_proxy::steps::fence::GatewayContext;
use futures_util::future::join;
use tokio::sync::mpsc;
use tracing::info;

pub use self::{builder::GatewayParts, options::GatewayOptions, resources::StartupResources};
use self::{reload_loop::ReloadLoop, sessions::SessionThread};
use super::{
    admin_listener::BoundAdminListener, error::ProcessError, main_thread::MainThread,
    sd_notify::SystemdNotifier, worker_pool::WorkerPool,
};

/// Runs until SIGTERM or SIGINT, then drains: no new connection is accepted, every request in progress is
/// answered, every lock is released, and the session is closed. A second signal ends the process at once.
pub fn run(gateway: GatewayPlan, options: GatewayOptions) -> Result<(), ProcessError> {
    key_redaction::set_key_redaction(gateway.serving.log.keys, key_secret::load(&gateway.serving.log)?);
    let process = ProcessContext::new(Arc::new(MachineClock), AllMetricFamilies::for_gateway(&gateway));
    let servers = sessions::servers(&gateway, &process)?;
    let mut main = MainThread::init_main_thread(&process.threads)?;
    let admin_listener = BoundAdminListener::bind(&gateway.serving.admin, options.beside, &process.metrics)?;
    let resources = StartupResources::acquire(&gateway, &options, &process.metrics)?;
    let page = admin_listener.page.clone();
    let mut parts = GatewayParts::assemble(&gateway, &options, &process, &resources, page, OsNetwork)?;
    let StartupResources { token_history, name, peer_socket, .. } = resources;

    let mut sessions =
        SessionThread::start(std::mem::take(&mut parts.session_workers), servers, &process.threads)?;
    parts.lease_worker.take().map(LeaseWorker::start).transpose()?;
    let shared = parts.shared.clone();
    let locks = shared.role.gateway.locks.clone();
    let config = shared.role.gateway.config.clone();
    let member = parts.member.clone();
    let workers = WorkerPool::start(shared.clone())?;
    drop(peer_socket);

    let commands = start_admin(admin_listener, name, &shared.role.gateway)?;
    let watch = options.watch;
    let file = options.file;
    let mut reloads = ReloadLoop::new(parts.reloader(file, gateway, workers.update_senders()), watch);
    // `parts` has a sender of spans, and the end of the process waits until all senders are dropped.
    drop(parts);
    let manager = SystemdNotifier::from_env();
    main.runtime.block_on(async {
        tokio::select! {
            () = reloads.run(&mut main.signals, commands, &manager) => Ok(()),
            () = manager.notify_ready_when(|| locks.is_ready()) => Ok(()),
            () = manager.run_watchdog(&process.threads) => Ok(()),
            _ = &mut sessions.end => Err(ProcessError::SessionEnded),
        }
    })?;

    member.set_draining();
    let drain_timeout = config.plan().serving.listener.timeouts.drain;
    let left = main.drain(manager, &process, workers, drain_timeout);
    if left > 0 {
        // Requests may still be running, so the session is not closed: its nodes stay until its timeout, so
        // that no other holder gets a key while the upstream may be at work.
        return Err(ProcessError::DrainTimeout(left));
    }
    shared.telemetry.flush_telemetry();
    sessions.close_sessions(&token_history);
    info!("the gateway has stopped");
    Ok(())
}

/// Opens the admin listener, and returns the channel of the commands of operators.
///
/// # Errors
/// Returns an error if the machine cannot start a thread.
fn start_admin(
    listener: BoundAdminListener,
    name: Arc<str>,
    gateway: &GatewayContext,
) -> io::Result<mpsc::UnboundedReceiver<AdminCommand>> {
    let (sender, commands) = command::channel();
    let GatewayContext { process, locks, config, tickets, leases, hot_keys, requests, .. } = gateway;
    let history = LatencyHistory::default();
    let state = GatewayAdminState {
        name,
        process: process.clone(),
        locks: locks.clone(),
        config: config.clone(),
        hot_keys: hot_keys.clone(),
        requests: requests.clone(),
        history: history.clone(),
        jwks: tickets.as_ref().and_then(|tickets| tickets.jwks()),
        commands: sender,
        leases: leases.clone(),
        csrf: CsrfToken::new(&SystemRandomness),
    };
    let sampling = history.sample_forever(process.metrics.clone());
    let watching = process.threads.clone().watch();
    listener.open(gateway_routes(state), async { _ = join(sampling, watching).await })?;
    Ok(commands)
}
