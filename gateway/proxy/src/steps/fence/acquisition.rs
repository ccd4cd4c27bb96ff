//! Takes a lock: at this gateway, at the gateway that holds it, in the dispatch of the request's caller, or under a
//! lease.

use fencegate_http::network::Network;
use fencegate_refusal::Refusal;

use super::{
    callback, forwarding, lease_turn,
    lock_wait::{AcquisitionOutcome, RequestLockWaitContext},
    request::CallerLockRelation,
};

/// # Errors
/// Returns an error if the lock is not granted in time, the gateway stops, or the client has left.
///
/// # Cancellation
/// Nothing is held while the future waits. It must not be dropped while another gateway has the request: the outcome
/// would not be known.
pub(super) async fn acquire<N: Network>(
    mut wait: RequestLockWaitContext<'_, N>,
) -> Result<AcquisitionOutcome, Refusal> {
    let relation = wait.relation;
    acquire_for(&mut wait, relation).await.map_err(|refusal| relation.as_deadlock_refusal(refusal))
}

async fn acquire_for<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    relation: &CallerLockRelation,
) -> Result<AcquisitionOutcome, Refusal> {
    wait.wait_former_keys().await?;
    loop {
        wait.wait_plan_compatible().await?;
        let acquired = match relation {
            // The futures are boxed, so that the futures of other requests do not contain them.
            CallerLockRelation::SameKeys(from) => Box::pin(callback::join_caller(wait, from)).await,
            CallerLockRelation::UnderLease(id) => Box::pin(lease_turn::take_turn(wait, id)).await,
            CallerLockRelation::NoCaller | CallerLockRelation::OtherKeys(_) => {
                forwarding::wait_or_forward(wait).await
            }
        };
        let acquired = acquired.map_err(|refusal| wait.add_deadlock_hint(refusal))?;
        let AcquisitionOutcome::Held(held) = acquired else { return Ok(acquired) };
        // The session that holds the lock may be another one than the session that was checked. It has to be compatible
        // with other gateways as well, so the check is repeated.
        if matches!(relation, CallerLockRelation::NoCaller | CallerLockRelation::OtherKeys(_))
            && !wait.is_session_compatible(&held)
        {
            continue;
        }
        return Ok(AcquisitionOutcome::Held(held.record_request_as_holder(
            wait.fence,
            wait.request,
            wait.rule,
        )));
    }
}
