//! Starts a gateway, waits for a signal, and stops everything in an order that keeps locks safe.

mod assembled;
mod belongings;
mod granting;
mod operators;
mod options;
mod reloads;
mod role;
mod sessions;

use std::sync::Arc;

use fencegate_http::network::sockets::Sockets;
use fencegate_policies::plan::GatewayPlan;
use fencegate_process::{clock::MachineClock, shown};
use tracing::info;

pub use self::{assembled::GatewayParts, belongings::ProcessResources, options::GatewayOptions};
use self::{reloads::ReloadLoop, sessions::SessionThread};
use super::{
    base::ProcessContext, main_thread::MainThread, not_serving::ProcessError, notify::ServiceNotifier,
    reception::BoundAdminListener, staff::WorkerPool,
};
use crate::{key_secret, leases::taker::LeaseWorker, metrics::Metrics};

/// Runs until SIGTERM or SIGINT, then drains: no new connection, every request in progress answered, every lock given
/// back, the session closed. A second signal ends the process at once.
pub fn run(gateway: GatewayPlan, options: GatewayOptions) -> Result<(), ProcessError> {
    shown::keys_are(gateway.serving.log.keys, key_secret::open(&gateway.serving.log)?);
    let base = ProcessContext::of(Arc::new(MachineClock), Metrics::of_gateway(&gateway));
    let servers = sessions::servers(&gateway, &base)?;
    let mut main = MainThread::begin(&base.threads)?;
    let reception = BoundAdminListener::of(&gateway.serving.admin, options.beside, &base.metrics)?;
    let belongings = ProcessResources::taken(&gateway, &options, &base.metrics)?;
    let page = reception.page(&gateway.serving.admin)?;
    let mut made = GatewayParts::of(&gateway, &options, (&base, &belongings), page, Sockets)?;
    let ProcessResources { memory, name, kept, .. } = belongings;

    let mut sessions = SessionThread::start(std::mem::take(&mut made.desks), servers, &base.threads)?;
    made.taker.take().map(LeaseWorker::start).transpose()?;
    let (shared, keeper, nameplate) = (made.shared.clone(), made.keeper.clone(), made.nameplate.clone());
    let staff = WorkerPool::start(shared.clone())?;
    drop(kept);

    let commands = operators::let_in(reception, name, &base, shared.role.clone(), made.in_force.clone())?;
    let (watch, file) = (options.watch, options.file);
    let mut reloads = ReloadLoop::of(made.reloader(file, gateway, staff.turns()), watch);
    let in_force = made.in_force.clone();
    // It would keep open what spans are sent by, and the end of the process waits for the last of them.
    drop(made);
    let manager = ServiceNotifier::found();
    main.runtime.block_on(async {
        tokio::select! {
            () = reloads.until_the_end(&mut main.signals, commands, &manager) => Ok(()),
            () = manager.told_when(|| keeper.is_ready()) => Ok(()),
            () = manager.told_of_turns(&base.threads) => Ok(()),
            _ = &mut sessions.end => Err(ProcessError::SessionEnded),
        }
    })?;

    nameplate.leaves();
    let patience = in_force.plan().serving.listener.timeouts.drain;
    let left = main.drain(manager, &base, staff, patience);
    if left > 0 {
        // The session is not closed: its nodes stay until its timeout, so that nobody gets a key whose upstream may
        // still be at work.
        return Err(ProcessError::DrainTimeout(left));
    }
    shared.tellers.finish();
    sessions.close(&memory);
    info!("stopped");
    Ok(())
}
