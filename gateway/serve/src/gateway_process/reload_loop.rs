//! Waits for requests to reload the policy or to end the process.

use fencegate_admin::command::AdminCommand;
use tokio::sync::mpsc;

use crate::{
    reload::{FileWatcher, Reloader},
    sd_notify::SystemdNotifier,
    signals::{ProcessSignals, SignalAction},
};

/// Reloads the policy file whenever that is requested.
pub(super) struct ReloadLoop {
    /// Reports changes of the file; `None` if the file is not watched.
    watcher: Option<FileWatcher>,
    reloader: Reloader,
}

impl ReloadLoop {
    pub(super) fn new(reloader: Reloader, watch: bool) -> Self {
        let file = reloader.file.clone();
        Self { watcher: watch.then(|| FileWatcher::new(file)), reloader }
    }

    /// Reloads the file when a signal, an operator or a change of the file requests it. Returns when a signal or an
    /// operator requests the end.
    ///
    /// `commands` is closed when this returns, so that a command to a process that stops fails at once and does not
    /// wait.
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
                // The send fails if the operator has disconnected; then nobody reads the report.
                reply.send(report).ok();
            }
        }
    }
}
