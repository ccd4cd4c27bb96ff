//! Waits for the next request for a reload or for the end.

use fencegate_admin::command::AdminCommand;
use tokio::sync::mpsc;

use crate::{
    reload::{FileWatcher, Reloader},
    sd_notify::SystemdNotifier,
    signals::{ProcessSignals, SignalAction},
};

/// Reloads the file on request.
pub(super) struct ReloadLoop {
    /// Requests a reload when the file changes; `None` where the file is not watched.
    watcher: Option<FileWatcher>,
    reloader: Reloader,
}

impl ReloadLoop {
    pub(super) fn new(reloader: Reloader, watch: bool) -> Self {
        let file = reloader.file.clone();
        Self { watcher: watch.then(|| FileWatcher::new(file)), reloader }
    }

    /// Reads the file again when a signal, an operator or a change of the file requests it; returns when a signal or
    /// an operator requests the end.
    ///
    /// `commands` end with it: the command of an operator to a process that stops fails at once, and does not wait.
    pub(super) async fn run(
        &mut self,
        signals: &mut ProcessSignals,
        mut commands: mpsc::UnboundedReceiver<AdminCommand>,
        manager: &SystemdNotifier,
    ) {
        let changed = async |watcher: &mut Option<FileWatcher>| match watcher {
            Some(watcher) => watcher.wait_changed().await,
            None => std::future::pending().await,
        };
        loop {
            let (dry, reply) = tokio::select! {
                demand = signals.next() => match demand {
                    SignalAction::Shutdown => return,
                    SignalAction::Reload => (false, None),
                },
                Some(command) = commands.recv() => match command {
                    AdminCommand::Reload { dry, told: reply } => (dry, Some(reply)),
                    AdminCommand::Compare { told: reply } => {
                        reply.send(self.reloader.compare().await).ok();
                        continue;
                    }
                    AdminCommand::Drain => return,
                },
                () = changed(&mut self.watcher) => (false, None),
            };
            let reload = self.reloader.reload(dry);
            let report = if dry { reload.await } else { manager.notify_reload(reload).await };
            if let Some(reply) = reply {
                // Fails when the operator has disconnected; then the report has no receiver.
                reply.send(report).ok();
            }
        }
    }
}
