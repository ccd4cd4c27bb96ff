//! Waits for the next demand for a reload or for the end.

use fencegate_lock::session::nameplate::Nameplate;
use fencegate_policies::plan::Gateway;
use tokio::sync::mpsc;

use super::{options::GatewayOptions, role::Gatekeeping};
use crate::{
    admin::command::Command,
    in_force::InForce,
    serve::{
        notify::Manager,
        publishing::Publisher,
        reload::{Reloader, Turn, Watcher},
        signals::{Demand, Signals},
        worker::Shared,
    },
};

/// Reloads the file on demand.
pub(super) struct Reloads {
    /// Demands it when the file changes; `None` where nobody looks at the file.
    watcher: Option<Watcher>,
    reloader: Reloader,
}

impl Reloads {
    /// `turns`: one for each worker.
    pub(super) fn of(
        GatewayOptions { file, watch, .. }: GatewayOptions,
        gateway: Gateway,
        shared: &Shared<Gatekeeping>,
        turns: Vec<mpsc::UnboundedSender<Turn>>,
        nameplate: Nameplate,
        in_force: InForce,
    ) -> Self {
        let ours = shared.ours.iter().filter_map(|ours| ours.certificates.clone());
        let publisher = Publisher::of(nameplate.clone(), shared.role.agreement.clone(), &gateway);
        let reloader = Reloader {
            started: gateway.clone(),
            gateway,
            edition: shared.edition.clone(),
            workers: turns,
            metrics: shared.metrics.clone(),
            guards: shared.guards.clone(),
            certificates: shared.certificates.iter().cloned().chain(ours).collect(),
            keeper: shared.role.keeper.clone(),
            agreement: shared.role.agreement.clone(),
            publisher,
            nameplate,
            in_force,
            leases: shared.role.leases.clone(),
            file: file.clone(),
        };
        Self { watcher: watch.then(|| Watcher::of(file)), reloader }
    }

    /// Reads the file again when a signal, an operator or the file itself demands it; returns when a signal or an
    /// operator demands the end.
    ///
    /// `commands` end with it: an operator who commands a process that stops is told so, and does not wait.
    pub(super) async fn until_the_end(
        &mut self,
        signals: &mut Signals,
        mut commands: mpsc::UnboundedReceiver<Command>,
        manager: &Manager,
    ) {
        let changed = async |watcher: &mut Option<Watcher>| match watcher {
            Some(watcher) => watcher.changed().await,
            None => std::future::pending().await,
        };
        loop {
            let (dry, told) = tokio::select! {
                demand = signals.next() => match demand {
                    Demand::End => return,
                    Demand::Reload => (false, None),
                },
                Some(command) = commands.recv() => match command {
                    Command::Reload { dry, told } => (dry, Some(told)),
                    Command::Compare { told } => {
                        told.send(self.reloader.compare().await).ok();
                        continue;
                    }
                    Command::Drain => return,
                },
                () = changed(&mut self.watcher) => (false, None),
            };
            let reload = self.reloader.reload(dry);
            let report = if dry { reload.await } else { manager.told_of(reload).await };
            if let Some(told) = told {
                // Fails when the operator has gone, and then nobody waits for the report.
                told.send(report).ok();
            }
        }
    }
}
