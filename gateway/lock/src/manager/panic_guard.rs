//! Catches a panic in the work for a key, so that its lock nodes can be released in order and the key stays usable.

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use tracing::error;

/// The error text for requests that waited during a panic.
pub const FAILED: &str = "the gateway failed while it worked for the key";

/// Runs `work`. `None` if it panicked, which is logged. `work` must not own anything that has to outlive a panic.
///
/// This is no `async fn`, because its future would hold `work` twice, in every task of a key.
pub(crate) fn catch_panic<T>(work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    // This is unwind-safe, because nothing can panic between two steps of a change to the lock's cells and mutexes.
    AssertUnwindSafe(work).catch_unwind().map(|done| {
        if done.is_err() {
            error!("lock.failed: a fault of the gateway itself, logged above; the lock is released in order");
        }
        done.ok()
    })
}
