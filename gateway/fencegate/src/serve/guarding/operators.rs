//! Opens the admin listener of a guard.

use std::{io, sync::Arc};

use fencegate_guard::Guard;
use fencegate_policies::plan;
use fencegate_process::{randomness::SystemRandomness, shown::Names};
use futures_util::future::join;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, Csrf},
    serve::{base::Base, reception::Reception},
    threads::Work,
    unbelieved::Unbelieved,
};

/// Opens the admin listener. Returns a token that is cancelled when an operator asks for the end.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn let_in(
    reception: Reception,
    plan: &plan::Guard,
    base: &Base,
    (guard, unbelieved): (Arc<Guard>, Arc<Unbelieved>),
) -> io::Result<CancellationToken> {
    let end = CancellationToken::new();
    let asked = guard.clone();
    let store = base.threads.answered(Work::Store, move || {
        let guard = asked.clone();
        async move { guard.store_turned().await }
    });
    let seen = admin::GuardSeen {
        guard,
        unbelieved,
        metrics: base.metrics.clone(),
        threads: base.threads.clone(),
        drain: base.drain.clone(),
        end: end.clone(),
        csrf: Csrf::new(&SystemRandomness),
        names: Names(plan.serving.log.keys),
        backups: Arc::new(Semaphore::new(1)),
    };
    let watched = base.threads.clone().watched();
    reception.open(admin::of_guard(seen), async { _ = join(store, watched).await })?;
    Ok(end)
}
