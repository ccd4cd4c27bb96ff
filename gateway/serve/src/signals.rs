//! The signals that a process handles from start to end, and the action that each requests.

use std::io;

use fencegate_process::log_writer::flush_stderr;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing::warn;

/// The action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalAction {
    Shutdown,
    Reload,
}

/// The handlers of SIGTERM, SIGINT and SIGHUP. Before they are registered, each of these signals kills the
/// process.
pub(super) struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl ProcessSignals {
    /// Registers the handlers. Must be called before anything listens, so that every request and connection can
    /// end in order.
    pub(super) fn register(runtime: &Runtime) -> io::Result<Self> {
        let _context = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at the next signal that requests the end.
    async fn wait_shutdown_signal(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }

    /// Returns at the next signal of any kind.
    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Shutdown,
            _ = self.interrupt.recv() => SignalAction::Shutdown,
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }

    /// Waits, during the drain, for a second signal that requests the end, and then exits at once. Connections to
    /// services are then reset, as after a kill.
    pub(super) async fn exit_on_second_signal(mut self) {
        self.wait_shutdown_signal().await;
        warn!("second signal: the process stops at once; its locks are released when the session times out");
        // The warning is in the queue of the log. A reader that stalls delays the exit by at most a second.
        flush_stderr();
        std::process::exit(1);
    }
}
