//! Opens the admin listener of a guard.

use std::{io, sync::Arc};

use fencegate_guard::Guard;
use fencegate_policies::plan;
use fencegate_process::{randomness::SystemRandomness, shown::KeyRedaction};
use futures_util::future::join;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, CsrfToken},
    serve::{base::ProcessContext, reception::BoundAdminListener},
    threads::ThreadRole,
    unbelieved::RejectedCallers,
};

/// Opens the admin listener. Returns a token that is cancelled when an operator asks for the end.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn let_in(
    reception: BoundAdminListener,
    plan: &plan::GuardPlan,
    base: &ProcessContext,
    (guard, unbelieved): (Arc<Guard>, Arc<RejectedCallers>),
) -> io::Result<CancellationToken> {
    let end = CancellationToken::new();
    let asked = guard.clone();
    let store = base.threads.answered(ThreadRole::Store, move || {
        let guard = asked.clone();
        async move { guard.store_turned().await }
    });
    let seen = admin::GuardState {
        guard,
        unbelieved,
        metrics: base.metrics.clone(),
        threads: base.threads.clone(),
        drain: base.drain.clone(),
        end: end.clone(),
        csrf: CsrfToken::new(&SystemRandomness),
        names: KeyRedaction(plan.serving.log.keys),
        backups: Arc::new(Semaphore::new(1)),
    };
    let watched = base.threads.clone().watched();
    reception.open(admin::of_guard(seen), async { _ = join(store, watched).await })?;
    Ok(end)
}
