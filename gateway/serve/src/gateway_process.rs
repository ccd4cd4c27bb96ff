//! Starts a gateway, waits for a signal, and stops everything in an order that keeps locks safe.

mod admin_setup;
mod builder;
mod lease_setup;
mod options;
mod reload_loop;
mod resources;
mod role;
mod sessions;

use std::sync::Arc;

use fencegate_config::{key_secret, process_context::ProcessContext};
use fencegate_http::network::sockets::OsNetwork;
use fencegate_leases::lease_worker::LeaseWorker;
use fencegate_metrics::ProcessMetricFamilies;
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::{clock::MachineClock, key_redaction};
use tracing::info;

pub use self::{builder::GatewayParts, options::GatewayOptions, resources::ProcessResources};
use self::{reload_loop::ReloadLoop, sessions::SessionThread};
use super::{
    admin_listener::BoundAdminListener, error::ProcessError, main_thread::MainThread,
    sd_notify::SystemdNotifier, worker_pool::WorkerPool,
};

/// Runs until SIGTERM or SIGINT, then drains: no new connection, every request in progress answered, every lock
/// released, the session closed. A second signal ends the process at once.
pub fn run(gateway: GatewayPlan, options: GatewayOptions) -> Result<(), ProcessError> {
    key_redaction::set_key_redaction(gateway.serving.log.keys, key_secret::load(&gateway.serving.log)?);
    let base = ProcessContext::new(Arc::new(MachineClock), ProcessMetricFamilies::for_gateway(&gateway));
    let servers = sessions::servers(&gateway, &base)?;
    let mut main = MainThread::start(&base.threads)?;
    let reception = BoundAdminListener::bind(&gateway.serving.admin, options.beside, &base.metrics)?;
    let resources = ProcessResources::acquire(&gateway, &options, &base.metrics)?;
    let page = reception.page.clone();
    let mut made = GatewayParts::assemble(&gateway, &options, &base, &resources, page, OsNetwork)?;
    let ProcessResources { memory, name, kept, .. } = resources;

    let mut sessions = SessionThread::start(std::mem::take(&mut made.desks), servers, &base.threads)?;
    made.taker.take().map(LeaseWorker::start).transpose()?;
    let shared = made.shared.clone();
    let locks = shared.role.gateway.locks.clone();
    let in_force = shared.role.gateway.config.clone();
    let nameplate = made.nameplate.clone();
    let staff = WorkerPool::start(shared.clone())?;
    drop(kept);

    let commands = admin_setup::start_admin(reception, name, &shared.role.gateway)?;
    let watch = options.watch;
    let file = options.file;
    let mut reloads = ReloadLoop::new(made.reloader(file, gateway, staff.update_senders()), watch);
    // It would keep the channel of the spans open, and the end of the process waits for the last of them.
    drop(made);
    let manager = SystemdNotifier::from_env();
    main.runtime.block_on(async {
        tokio::select! {
            () = reloads.run(&mut main.signals, commands, &manager) => Ok(()),
            () = manager.notify_ready_when(|| locks.is_ready()) => Ok(()),
            () = manager.run_watchdog(&base.threads) => Ok(()),
            _ = &mut sessions.end => Err(ProcessError::SessionEnded),
        }
    })?;

    nameplate.set_draining();
    let patience = in_force.plan().serving.listener.timeouts.drain;
    let left = main.drain(manager, &base, staff, patience);
    if left > 0 {
        // The session is not closed: its nodes stay until its timeout, so that no other holder gets a key whose
        // upstream may still be at work.
        return Err(ProcessError::DrainTimeout(left));
    }
    shared.tellers.finish();
    sessions.close(&memory);
    info!("stopped");
    Ok(())
}
