//! The signals that a process hears from its start to its end, and what each of them demands.

use std::io;

use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing::warn;

/// What a signal demands of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    End,
    Reload,
}

/// SIGTERM and SIGINT, and SIGHUP. Until the process hears these, each of them kills it.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// To be called before anything listens: what has begun is to be ended in order.
    pub(super) fn heard_on(runtime: &Runtime) -> io::Result<Self> {
        let _context = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at the next signal that demands the end.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }

    /// Returns at the next signal of any kind.
    pub(super) async fn next(&mut self) -> Demand {
        tokio::select! {
            _ = self.terminate.recv() => Demand::End,
            _ = self.interrupt.recv() => Demand::End,
            _ = self.hangup.recv() => Demand::Reload,
        }
    }

    /// For the time of the drain: the next signal that demands the end does not wait for it.
    pub(super) async fn give_up_at_the_second(mut self) {
        self.end().await;
        warn!("second signal: stopping at once; locks go by the session timeout");
        std::process::exit(1);
    }
}
