//! Starts everything, waits for the signal, and stops everything in the order that keeps locks safe.

mod base;
mod claims;
mod operators;
mod options;
mod reloads;
mod sessions;
mod staff;

use std::thread;

use fencegate_lock::session::nameplate::Nameplate;
use fencegate_policies::plan::Gateway;
use fencegate_process::shown;
use tracing::info;

pub use self::options::Options;
use self::{base::Base, claims::Claims, reloads::Reloads, sessions::Sessions, staff::Gatekeeping};
use super::{
    notify::Manager,
    process::{self, Trouble, left_behind},
    reload::{Reloader, Watcher},
};
use crate::admin::effective::InForce;

/// Runs until SIGTERM or SIGINT, then drains: no new connection, every request in progress answered, every lock given
/// back, the session closed. A second signal ends the process at once.
pub fn run(gateway: Gateway, options: Options) -> Result<(), Trouble> {
    shown::keys_are(gateway.serving.log.keys);
    let (base, desks) = Base::of(&gateway);
    let Claims { waiting, mut signals, reception, memory, name, kept, ours } =
        Claims::made(&gateway, &options, &base.metrics)?;

    let nameplate = Nameplate::reached_at(gateway.fingerprint, ours.as_ref().map(|ours| ours.reach.clone()));
    let settings = sessions::settings(&gateway, &name, &options, &base, &nameplate, &memory);
    let mut sessions = Sessions::start(desks, settings)?;

    let role = Gatekeeping::of(&gateway, &base, &memory)?;
    let in_force = InForce::new(gateway.clone());
    let shared = staff::shared(&gateway, &options, &base, memory.clone(), ours.clone(), role.clone())?;
    let (tellers, edition) = (shared.tellers.clone(), shared.edition.clone());
    let (guards, certificates) = (shared.guards.clone(), shared.certificates.clone());
    let workers = process::start_workers(shared)?;
    drop(kept);

    let asked = operators::let_in(reception, name, &base, role, in_force.clone())?;
    let mut reloads = Reloads {
        watcher: options.watch.then(|| Watcher::of(options.file.clone())),
        reloader: Reloader {
            file: options.file,
            started: gateway.clone(),
            gateway,
            edition,
            workers: workers.turns,
            metrics: base.metrics,
            guards,
            certificates: certificates.into_iter().chain(ours.and_then(|ours| ours.certificates)).collect(),
            keeper: base.keeper.clone(),
            nameplate,
            in_force,
        },
    };
    let (manager, starting) = (Manager::found(), base.keeper);
    waiting.block_on(async {
        tokio::select! {
            () = reloads.until_the_end(&mut signals, asked) => Ok(()),
            () = manager.told_when(|| starting.is_ready()) => Ok(()),
            _ = &mut sessions.end => Err(Trouble::SessionEnded),
        }
    })?;

    info!("draining");
    manager.stopping();
    base.drain.cancel();
    thread::spawn(move || waiting.block_on(signals.give_up_at_the_second()));
    let left: usize = workers.threads.into_iter().map(|worker| left_behind(worker.join())).sum();
    if left > 0 {
        // The session is not closed: its nodes stay until its timeout, so that nobody gets a key whose upstream may
        // still be at work.
        return Err(Trouble::NotDrained(left));
    }
    tellers.finish();
    sessions.close(&memory);
    info!("stopped");
    Ok(())
}
