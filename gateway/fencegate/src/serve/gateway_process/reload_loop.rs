//! Waits for the next demand for a reload or for the end.

use tokio::sync::mpsc;

use crate::{
    admin::command::AdminCommand,
    serve::{
        reload::{FileWatcher, Reloader},
        sd_notify::ServiceNotifier,
        signals::{SignalAction, Signals},
    },
};

/// Reloads the file on demand.
pub(super) struct ReloadLoop {
    /// Demands it when the file changes; `None` where nobody looks at the file.
    watcher: Option<FileWatcher>,
    reloader: Reloader,
}

impl ReloadLoop {
    pub(super) fn new(reloader: Reloader, watch: bool) -> Self {
        let file = reloader.file.clone();
        Self { watcher: watch.then(|| FileWatcher::new(file)), reloader }
    }

    /// Reads the file again when a signal, an operator or the file itself demands it; returns when a signal or an
    /// operator demands the end.
    ///
    /// `commands` end with it: an operator who commands a process that stops is told so, and does not wait.
    pub(super) async fn run(
        &mut self,
        signals: &mut Signals,
        mut commands: mpsc::UnboundedReceiver<AdminCommand>,
        manager: &ServiceNotifier,
    ) {
        let changed = async |watcher: &mut Option<FileWatcher>| match watcher {
            Some(watcher) => watcher.wait_changed().await,
            None => std::future::pending().await,
        };
        loop {
            let (dry, told) = tokio::select! {
                demand = signals.next() => match demand {
                    SignalAction::Shutdown => return,
                    SignalAction::Reload => (false, None),
                },
                Some(command) = commands.recv() => match command {
                    AdminCommand::Reload { dry, told } => (dry, Some(told)),
                    AdminCommand::Compare { told } => {
                        told.send(self.reloader.compare().await).ok();
                        continue;
                    }
                    AdminCommand::Drain => return,
                },
                () = changed(&mut self.watcher) => (false, None),
            };
            let reload = self.reloader.reload(dry);
            let report = if dry { reload.await } else { manager.notify_reload(reload).await };
            if let Some(told) = told {
                // Fails when the operator has gone, and then nobody waits for the report.
                told.send(report).ok();
            }
        }
    }
}
