//! Waits for whoever demands that the file is read again, or the end.

use tokio::sync::mpsc;

use crate::{
    admin::command::Command,
    serve::{
        reload::{Reloader, Watcher},
        signals::{Demand, Signals},
    },
};

/// Reads the file again whenever somebody demands it.
pub(super) struct Reloads {
    /// Demands it when the file changes; `None` where nobody looks at the file.
    pub(super) watcher: Option<Watcher>,
    pub(super) reloader: Reloader,
}

impl Reloads {
    /// Reads the file again when a signal, an operator or the file itself demands it; returns when a signal or an
    /// operator demands the end.
    ///
    /// `commands` end with it: an operator who commands a process that stops is told so, and does not wait.
    pub(super) async fn until_the_end(
        &mut self,
        signals: &mut Signals,
        mut commands: mpsc::UnboundedReceiver<Command>,
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
                    Command::Drain => return,
                },
                () = changed(&mut self.watcher) => (false, None),
            };
            let report = self.reloader.reload(dry).await;
            if let Some(told) = told {
                // Fails when the operator has gone, and then nobody waits for the report.
                told.send(report).ok();
            }
        }
    }
}
