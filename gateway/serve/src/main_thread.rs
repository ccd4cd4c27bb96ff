//! The main thread of a process: it waits for signals while the workers run, and directs the drain.

use std::{io, thread, time::Duration};

use fencegate_config::process_context::ProcessContext;
use fencegate_process::{
    liveness::{ThreadMonitor, ThreadRole, sleep_unsuspended},
    log_writer::flush_stderr,
};
use tokio::runtime::Runtime;
use tracing::{error, info};

use super::{sd_notify::SystemdNotifier, signals::ProcessSignals, worker_pool::WorkerPool};

/// The longest time from the end of the drain to the end of the process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The runtime on which the main thread waits, and the signals that it waits for.
pub(super) struct MainThread {
    pub(super) runtime: Runtime,
    pub(super) signals: ProcessSignals,
}

impl MainThread {
    /// Registers for signals: after this call none of them kills the process.
    pub(super) fn init_main_thread(threads: &ThreadMonitor) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.spawn(threads.register(ThreadRole::Main));
        let signals = ProcessSignals::register(&runtime)?;
        Ok(Self { runtime, signals })
    }

    /// Stops new work and waits until the workers have finished, for at most `timeout`. A second signal ends the
    /// process at once, and so does a thread that hangs for [`EXIT_TIMEOUT`] longer. Returns how many requests were
    /// still running.
    pub(super) fn drain(
        self,
        manager: SystemdNotifier,
        process: &ProcessContext,
        workers: WorkerPool,
        timeout: Duration,
    ) -> usize {
        info!("the process is draining: it takes no new requests");
        manager.notify_stopping();
        process.drain.cancel();
        process.threads.allow_exit();
        let Self { runtime, signals } = self;
        let threads = process.threads.clone();
        let ends = async move {
            tokio::select! {
                () = signals.exit_on_second_signal() => (),
                () = manager.run_watchdog(&threads) => (),
                () = exit_after(timeout + EXIT_TIMEOUT, &threads) => (),
            }
        };
        thread::spawn(move || runtime.block_on(ends));
        workers.join_counting_exchanges()
    }
}

/// Ends the process if it is still running after `timeout`. Connections to services are then reset, as after a kill.
async fn exit_after(timeout: Duration, threads: &ThreadMonitor) {
    sleep_unsuspended(timeout).await;
    let hung = threads.unready_thread();
    let hung = hung.as_deref().unwrap_or("a thread has not ended");
    error!(
        "FG0552: {hung}, and the drain is long over: the process stops at once; its locks are released when the \
         session times out"
    );
    flush_stderr();
    std::process::exit(1);
}
