//! Records an operation in ZooKeeper before it is sent, and its outcome before the key is released.

use fencegate_http::network::Network;
use fencegate_idempotency::{
    OperationOutcome, OperationPermit, OperationToRecord, error::AdmitOperationError, quota::QuotaOwner,
};
use fencegate_policies::plan::{Enforcement, FenceRule, IdempotencyStore};
use fencegate_process::failpoint;
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::StatusCode;
use tracing::info;

use super::{deps::FenceDeps, request_grant::RequestGrant};
use crate::steps::{
    client_liveness::ClientDisconnectWatch,
    key::{KeyedRequest, RequestLockSpec, name},
};

impl<N: Network> FenceDeps<N> {
    /// `None` for a request that is no operation, or whose operation is stored elsewhere.
    pub(super) async fn admit_operation(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
        hold: &RequestGrant,
        client: &mut ClientDisconnectWatch,
    ) -> Result<Option<OperationPermit>, Refusal> {
        let once = fence.once.as_ref().filter(|once| once.store == IdempotencyStore::ZooKeeper);
        let (Some(operation), Some(once)) = (&fenced.operation, once) else { return Ok(None) };
        let no_token = || Refusal::new(RefusalReason::KeyLimit, "the tenure has no further token");
        let name = request.http.headers().get("idempotency-key");
        let wanted = OperationToRecord {
            operation: (**operation).clone(),
            keys: fenced.keys.to_vec(),
            nodes: hold.tenure.node_paths(),
            token: hold.tenure.first_token().ok_or_else(no_token)?,
            method: request.http.method().as_str().to_owned(),
            target: request.http.uri().to_string(),
            name: name.and_then(|name| name.to_str().ok()).map(str::to_owned),
            owner: QuotaOwner {
                route: request.plan.routes.get(fenced.route).name.to_string(),
                client: fenced.operation_name.as_ref().and_then(name::principal_hash),
            },
            memory: once.memory,
        };
        failpoint::pass("before_admission");
        // Boxed, so that other requests do not carry this future along.
        let admitting = Box::pin(self.keeper.admit_operation(wanted));
        let admitted = tokio::select! {
            admitted = admitting => admitted,
            () = hold.tenure.permission().wait_expired(&self.clock) => {
                // A lock that was removed is noticed here, or by the transaction that does not find its node.
                Err(match hold.tenure.validity().is_node_removed() {
                    true => AdmitOperationError::Lost,
                    false => AdmitOperationError::Service("the session could not be proven any more".into()),
                })
            }
            // The client has disconnected, so this answer has no reader.
            () = client.wait_disconnected() => return Err(Refusal::new(RefusalReason::Locked, "the client went away")),
        };
        match admitted.map_err(Refusal::from) {
            Ok(admitted) => Ok(Some(admitted)),
            // A repeated operation is reported, and happens again.
            Err(refusal) if fence.enforce == Enforcement::Observe => {
                info!(reason = refusal.reason.word(), detail = %refusal.detail, "observed");
                request.context.update_lock(|lock| lock.observed = Some(refusal.reason));
                Ok(None)
            }
            Err(refusal) => Err(refusal),
        }
    }
}

/// The upstream has answered in full. `refused`: the upstream reports that the token was stale and that nothing was
/// done.
pub(super) async fn record_response(admitted: OperationPermit, status: StatusCode, refused: bool) {
    let came = if refused {
        Some(OperationOutcome::NotExecuted)
    } else {
        admitted.outcome_for_status(status.as_u16())
    };
    // Without this call the outcome stays unknown.
    if let Some(came) = came {
        admitted.complete(came).await;
    }
}
