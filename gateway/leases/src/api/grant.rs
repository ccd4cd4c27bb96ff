//! Waits for the lock of a lease, and answers the request with the grant: the first request, and each repeat of it under
//! the same name.
//!
//! A repeat takes part in the lease of the first request, and has the same outcome. It waits for the outcome no
//! longer than it would wait for a lease of its own. A repeat whose wait ends first is answered 409
//! `in-progress`, the status for a repeat that overtakes its first request
//! (draft-ietf-httpapi-idempotency-key-header-07, 2.6 and 2.7).

use std::{sync::Arc, time::Duration};

use fencegate_lock::manager::leased_lock::LeasedLock;
use fencegate_process::failpoint;
use fencegate_protocol::lease_documents::LeaseDocument;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::timeout;

use super::context::LeaseApiState;
use crate::{
    lease::{Lease, LeaseEndReason, LeaseSnapshot, LeaseSpec, LeaseStageSnapshot},
    lease_json::{LeaseDocumentAudience, lease_document, snapshot_document},
    lease_table::admission::{UndeliveredLeaseGuard, used_lease_refusal},
};

/// The time for ZooKeeper's own response, beside the wait of the lease.
const ZOOKEEPER_MARGIN: Duration = Duration::from_secs(2);

/// A lease that holds its lock, and the promise to its client. The answer to the client has to contain the id of
/// the lease.
pub struct HeldLease {
    pub lease: Arc<Lease>,
    pub lock: Arc<LeasedLock>,
    promise: LeaseSnapshot,
}

impl LeaseApiState {
    /// Begins a lease, and waits until it holds its lock.
    ///
    /// # Errors
    /// Returns an error if the lock was not granted within `wait`. The lease is over then, unless another
    /// request of the same name waits for it.
    ///
    /// # Cancellation
    /// Dropping the future ends the lease, unless another request of the same name waits for it.
    pub async fn acquire_held(&self, wanted: LeaseSpec, wait: Duration) -> Result<HeldLease, Refusal> {
        let delivery = self.leases.begin(wanted, wait)?;
        self.wait_held(delivery, wait).await
    }

    /// Waits until the lease of this request holds its lock.
    pub(super) async fn wait_held(
        &self,
        delivery: UndeliveredLeaseGuard,
        wait: Duration,
    ) -> Result<HeldLease, Refusal> {
        let lease = delivery.lease().clone();
        let decided = tokio::select! {
            // The lease is polled first, because a lease that is held can still be given back while the gateway
            // stops.
            biased;
            decided = timeout(wait + ZOOKEEPER_MARGIN, lease.wait_decided()) => decided.is_ok(),
            () = self.leases.drain().cancelled() => {
                return Err(Refusal::new(RefusalReason::Draining, "a lease still waits when the gateway stops"));
            }
        };
        if decided {
            failpoint::pass("after_lease_granted");
        }
        // The sweep may not have noticed yet that the time of the lease is over.
        self.leases.end_if_lapsed(&lease);
        // One snapshot decides what the answer is, and makes the promise that is in it.
        let promise = lease.snapshot_promised_if_held();
        match &promise.stage {
            LeaseStageSnapshot::Held { lock, .. } => Ok(HeldLease { lock: lock.clone(), lease, promise }),
            LeaseStageSnapshot::Over { why, .. } => Err(ended_refusal(&lease, why)),
            LeaseStageSnapshot::Waiting { .. } => Err(undecided_refusal(delivery)),
        }
    }

    /// The document of a lease for its client.
    pub(super) fn document(&self, lease: &Lease) -> LeaseDocument {
        lease_document(lease, &self.leases, self.client_audience())
    }

    /// The document of a lease that was granted just now.
    pub(super) fn grant_document(&self, held: HeldLease) -> LeaseDocument {
        snapshot_document(&held.lease, held.promise, &self.leases, self.client_audience())
    }

    fn client_audience(&self) -> LeaseDocumentAudience<'_> {
        LeaseDocumentAudience::Client(self.tickets.as_deref())
    }
}

/// The refusal of a request whose wait is over, while its lease waits.
fn undecided_refusal(delivery: UndeliveredLeaseGuard) -> Refusal {
    if delivery.give_up() {
        let message = "the lease of this name waits for its lock yet, for another request or in the queue";
        Refusal::new(RefusalReason::LeaseInProgress, message)
    } else {
        Refusal::new(RefusalReason::LockService, "ZooKeeper did not answer in time")
    }
}

/// The refusal for a lease that has ended before this request was answered.
fn ended_refusal(lease: &Lease, why: &LeaseEndReason) -> Refusal {
    if !lease.ended_unused() {
        // Another request of the same name was answered with this lease, so its client may have used it.
        return used_lease_refusal();
    }
    match why {
        LeaseEndReason::GaveUp => {
            Refusal::new(RefusalReason::Locked, "another holder has the key, and the wait for it is over")
        }
        LeaseEndReason::Refused(refusal) => (**refusal).clone(),
        LeaseEndReason::Lost => {
            Refusal::new(RefusalReason::LockService, "the session ended while the lease waited")
        }
        // No client can have used this lease, so a repeat gets another one.
        why => Refusal::new(
            RefusalReason::LockService,
            format!("the lease ended before its client was told of it: {}", why.as_str()),
        )
        .with_advice("The lease ended before it could be told. Ask for another one."),
    }
}

#[cfg(test)]
mod tests;
