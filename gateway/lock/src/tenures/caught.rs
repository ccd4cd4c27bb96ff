//! A panic of ours while we work for a key must not be the end of the key: what the work had made is given up in order.

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use tracing::error;

/// What waiting requests are told.
pub const FAILED: &str = "the gateway failed while it worked for the key";

/// What `work` comes to; `None` if it panicked, which is told. Whatever has to outlive it must not be in its hands.
///
/// No `async fn`: that would have room for `work` twice, in every task of a key.
pub fn caught<T>(work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    // Cells and mutexes of the lock are never left half changed: nothing between two steps of a change can panic.
    AssertUnwindSafe(work).catch_unwind().map(|done| {
        if done.is_err() {
            error!("lock.failed: a fault of the gateway itself, told above; the lock is given up in order");
        }
        done.ok()
    })
}
