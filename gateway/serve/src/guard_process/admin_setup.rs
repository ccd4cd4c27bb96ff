//! Opens the admin listener of a guard.

use std::{io, sync::Arc};

use fencegate_admin as admin;
use fencegate_admin::CsrfToken;
use fencegate_config::process_context::ProcessContext;
use fencegate_guard::Guard;
use fencegate_metrics::request_tracker::RejectedCallers;
use fencegate_policies::plan;
use fencegate_process::{key_redaction::KeyRedaction, liveness::ThreadRole, randomness::SystemRandomness};
use futures_util::future::join;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::admin_listener::BoundAdminListener;

/// Opens the admin listener. Returns a token that is cancelled when an operator requests the end.
///
/// # Errors
/// The machine has no thread for it.
pub(super) fn start_admin(
    reception: BoundAdminListener,
    plan: &plan::GuardPlan,
    base: &Arc<ProcessContext>,
    guard: Arc<Guard>,
    unbelieved: Arc<RejectedCallers>,
) -> io::Result<CancellationToken> {
    let end = CancellationToken::new();
    let asked = guard.clone();
    let store = base.threads.register_with(ThreadRole::Store, move || {
        let guard = asked.clone();
        async move { guard.wait_for_store_thread().await }
    });
    let seen = admin::GuardAdminState {
        guard,
        rejected_callers: unbelieved,
        process: base.clone(),
        end: end.clone(),
        csrf: CsrfToken::new(&SystemRandomness),
        names: KeyRedaction(plan.serving.log.keys),
        backups: Arc::new(Semaphore::new(1)),
    };
    let watched = base.threads.clone().watch();
    reception.open(admin::guard_routes(seen), async { _ = join(store, watched).await })?;
    Ok(end)
}
