//! Starts a gateway, waits for a signal, and stops everything in an order that keeps locks safe.

mod belongings;
mod granting;
mod operators;
mod options;
mod reloads;
mod role;
mod sessions;

use fencegate_lock::session::nameplate::Nameplate;
use fencegate_policies::plan::Gateway;
use fencegate_process::shown;
use tracing::info;

pub use self::options::GatewayOptions;
use self::{belongings::Belongings, reloads::Reloads, role::Gatekeeping, sessions::Sessions};
use super::{
    base::Base,
    main_thread::MainThread,
    not_serving::NotServing,
    notify::Manager,
    reception::Reception,
    staff::{self, Equipment, Staff},
};
use crate::{agreement::Agreement, in_force::InForce, metrics::Metrics};

/// Runs until SIGTERM or SIGINT, then drains: no new connection, every request in progress answered, every lock given
/// back, the session closed. A second signal ends the process at once.
pub fn run(gateway: Gateway, options: GatewayOptions) -> Result<(), NotServing> {
    shown::keys_are(gateway.serving.log.keys);
    let base = Base::of(Metrics::of_gateway(&gateway));
    let servers = sessions::servers(&gateway, &base)?;
    let (keeper, desks) = sessions::keeper(&gateway, &base);
    let mut main = MainThread::begin()?;
    let reception = Reception::of(&gateway.serving.admin, options.beside, &base.metrics)?;
    let Belongings { memory, name, kept, ours } = Belongings::taken(&gateway, &options, &base.metrics)?;

    let agreement = Agreement::of(&gateway, base.metrics.clone());
    let nameplate = Nameplate::reached_at(gateway.fingerprint, ours.as_ref().map(|ours| ours.reach.clone()))
        .shown_at(reception.page(&gateway.serving.admin)?)
        .publishing(gateway.fingerprint, Agreement::publication(&gateway), agreement.clone());
    let settings = sessions::settings(&gateway, &name, &options, &base, &nameplate, &memory);
    let mut sessions = Sessions::start(desks, servers, settings, &base.threads)?;

    let in_force = InForce::new(gateway.clone());
    let leases = granting::granted(&gateway, (&name, &keeper, ours.as_ref()), &in_force, &base)?;
    let role = Gatekeeping::of(&gateway, (&name, keeper.clone(), leases), &memory, agreement, &in_force)?;
    let (workers, beside) = (options.workers, options.beside);
    let equipment = Equipment { role, workers, beside, memory: memory.clone(), ours };
    let shared = staff::shared(&gateway.serving, &base, equipment)?;
    let staff = Staff::start(shared.clone())?;
    drop(kept);

    let commands = operators::let_in(reception, name, &base, shared.role.clone(), in_force.clone())?;
    let mut reloads = Reloads::of(options, gateway, &shared, staff.turns(), nameplate.clone(), in_force);
    let manager = Manager::found();
    main.runtime.block_on(async {
        tokio::select! {
            () = reloads.until_the_end(&mut main.signals, commands, &manager) => Ok(()),
            () = manager.told_when(|| keeper.is_ready()) => Ok(()),
            () = manager.told_of_turns(&base.threads) => Ok(()),
            _ = &mut sessions.end => Err(NotServing::SessionEnded),
        }
    })?;

    nameplate.leaves();
    let left = main.drain(manager, &base, staff);
    if left > 0 {
        // The session is not closed: its nodes stay until its timeout, so that nobody gets a key whose upstream may
        // still be at work.
        return Err(NotServing::NotDrained(left));
    }
    shared.tellers.finish();
    sessions.close(&memory);
    info!("stopped");
    Ok(())
}
