//! Runs a future in simulated time: the clock jumps to the next timer whenever no task is ready.

use std::{future::Future, time::Duration};

use tokio::{runtime::Builder, task::LocalSet, time::timeout};

/// Runs a future, and returns its output.
///
/// # Panics
/// If the future is not done within an hour of simulated time, because something waits for ever.
pub(super) fn run<T>(simulation: impl Future<Output = T>) -> T {
    const HOUR: Duration = Duration::from_secs(3600);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let ended = LocalSet::new().block_on(&runtime, async { timeout(HOUR, simulation).await });
    ended.expect("the simulation ends")
}
