//! Records an operation in ZooKeeper before it is sent.

use fencegate_http::network::Network;
use fencegate_idempotency::{
    OperationPermit, OperationToRecord, error::AdmitOperationError, quota::OperationQuotaOwner,
};
use fencegate_policies::plan::{Enforcement, FenceRule, IdempotencyStore};
use fencegate_process::failpoint;
use fencegate_refusal::{Refusal, RefusalReason};
use tracing::info;

use super::{context::WorkerFenceContext, held_lock::HeldLock, request::LockingRequest};
use crate::steps::key::name;

/// Records the operation of the request; `None` for a request that is no operation, or whose operation is
/// stored elsewhere.
///
/// # Errors
/// Returns an error if the operation was done or begun before, if it could not be recorded under the lock, or
/// if the client has left.
pub(super) async fn record_operation<N: Network>(
    fence: &WorkerFenceContext<N>,
    request: &mut LockingRequest,
    rule: &FenceRule,
    held: &HeldLock,
) -> Result<Option<OperationPermit>, Refusal> {
    let LockingRequest { keyed, lock, client, .. } = request;
    let once = rule.once.as_ref().filter(|once| once.store == IdempotencyStore::ZooKeeper);
    let (Some(operation), Some(once)) = (&lock.operation, once) else { return Ok(None) };
    let no_token = || Refusal::new(RefusalReason::KeyLimit, "the tenure has no further token");
    let name = keyed.http.headers().get("idempotency-key");
    let wanted = OperationToRecord {
        operation: (**operation).clone(),
        keys: lock.keys.to_vec(),
        nodes: held.tenure.node_paths(),
        token: held.tenure.predispatch_token().ok_or_else(no_token)?,
        method: keyed.http.method().as_str().to_owned(),
        target: keyed.http.uri().to_string(),
        name: name.and_then(|name| name.to_str().ok()).map(str::to_owned),
        owner: OperationQuotaOwner {
            route: keyed.plan.routes.get(lock.route).name.to_string(),
            client: lock.operation_name.as_ref().and_then(name::principal_hash),
        },
        memory: once.memory,
    };
    failpoint::pass("before_admission");
    // The future is boxed, so that the futures of other requests do not contain it.
    let admitting = Box::pin(fence.gateway.locks.admit_operation(wanted));
    let admitted = tokio::select! {
        admitted = admitting => admitted,
        () = held.tenure.permission().wait_expired(&fence.plan.process.clock) => {
            // If the lock node was removed, either this check finds out, or the transaction that does not
            // find the node.
            Err(match held.tenure.validity().is_lock_node_removed() {
                true => AdmitOperationError::Lost,
                false => AdmitOperationError::Service("the session could not be proven any more".into()),
            })
        }
        // The client has disconnected, so nobody reads this refusal.
        () = client.wait_disconnected() => return Err(Refusal::new(RefusalReason::Locked, "the client went away")),
    };
    match admitted.map_err(Refusal::from) {
        Ok(admitted) => Ok(Some(admitted)),
        // On a route that only observes, a repeated operation is reported, and the request is sent all the
        // same.
        Err(refusal) if rule.enforce == Enforcement::Observe => {
            info!(reason = refusal.reason.word(), detail = %refusal.detail, "observed");
            keyed.context.update_lock(|facts| facts.observed = Some(refusal.reason));
            Ok(None)
        }
        Err(refusal) => Err(refusal),
    }
}
