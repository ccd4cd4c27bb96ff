//! Waits for whoever asks for the file to be read again, or for the end.

use tokio::sync::mpsc;

use crate::serve::{
    process::{Signals, Wanted},
    reload::{Asked, Reloader, Watcher},
};

/// Who may ask, but for signals and operators, and who does it.
pub(super) struct Reloads {
    /// `None` where nobody looks at the file.
    pub(super) watcher: Option<Watcher>,
    pub(super) reloader: Reloader,
}

impl Reloads {
    /// Reads the file again when a signal, the admin listener or the file itself asks for it; returns when a signal or
    /// the admin listener asks for the end.
    ///
    /// `asked` ends with it: who asks a process that stops is told so, and does not wait.
    pub(super) async fn until_the_end(
        &mut self,
        signals: &mut Signals,
        mut asked: mpsc::UnboundedReceiver<Asked>,
    ) {
        let changed = async |watcher: &mut Option<Watcher>| match watcher {
            Some(watcher) => watcher.changed().await,
            None => std::future::pending().await,
        };
        loop {
            let (dry, told) = tokio::select! {
                wanted = signals.next_of_all() => match wanted {
                    Wanted::End => return,
                    Wanted::Reload => (false, None),
                },
                Some(asked) = asked.recv() => match asked {
                    Asked::Reload { dry, told } => (dry, Some(told)),
                    Asked::Drain => return,
                },
                () = changed(&mut self.watcher) => (false, None),
            };
            let report = self.reloader.reload(dry).await;
            if let Some(told) = told {
                // Who asked has gone.
                told.send(report).ok();
            }
        }
    }
}
