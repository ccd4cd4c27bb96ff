//! Waits for the next demand for a reload or for the end.

use tokio::sync::mpsc;

use crate::{
    admin::command::Command,
    serve::{
        notify::Manager,
        reload::{Reloader, Watcher},
        signals::{Demand, Signals},
    },
};

/// Reloads the file on demand.
pub(super) struct Reloads {
    /// Demands it when the file changes; `None` where nobody looks at the file.
    watcher: Option<Watcher>,
    reloader: Reloader,
}

impl Reloads {
    pub(super) fn of(reloader: Reloader, watch: bool) -> Self {
        let file = reloader.file.clone();
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
