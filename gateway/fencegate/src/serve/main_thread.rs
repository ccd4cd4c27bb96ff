//! The main thread of a process, gateway or guard: it waits for signals while others work, and leads the drain.

use std::{io, thread};

use tokio::runtime::Runtime;
use tracing::info;

use super::{base::Base, notify::Manager, signals::Signals, staff::Staff};

/// The runtime on which the main thread waits, and the signals that it waits for.
pub(super) struct MainThread {
    pub(super) runtime: Runtime,
    pub(super) signals: Signals,
}

impl MainThread {
    /// Registers for signals: from here on none of them kills the process.
    pub(super) fn begin() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = Signals::heard_on(&runtime)?;
        Ok(Self { runtime, signals })
    }

    /// Stops new work and waits until the workers have finished or have given up. A second signal ends the process at
    /// once. Returns how many requests were left at work.
    pub(super) fn drain(self, manager: Manager, base: &Base, staff: Staff) -> usize {
        info!("draining");
        manager.stopping();
        base.drain.cancel();
        base.threads.may_end();
        let (Self { runtime, signals }, threads) = (self, base.threads.clone());
        let ends = async move {
            tokio::select! {
                () = signals.give_up_at_the_second() => (),
                () = manager.told_of_turns(&threads) => (),
            }
        };
        thread::spawn(move || runtime.block_on(ends));
        staff.ended()
    }
}
