//! The holders and waiters of a key, and the expected wait of a new request.

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use fencegate_lock::manager::admin_query::AdminQueryError;
use fencegate_protocol::lease_documents::{KeyDocument, KeyQueueEntry, millis};
use fencegate_refusal::{Refusal, RefusalReason};

use super::{
    client::invalid_key,
    context::{LeaseApiState, LeaseCaller, json_response},
};
use crate::lease::{Lease, LeaseStageSnapshot};

pub(super) async fn show(
    State(interface): State<LeaseApiState>,
    Extension(caller): Extension<LeaseCaller>,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    caller.require_principal()?;
    let plan = interface.leases.config().plan();
    let key = plan.serving.parse_key(&key).map_err(|bad| invalid_key(&bad))?;
    caller.require_viewer(&key)?;
    let leases = &interface.leases;
    let line =
        leases.context.locks.queue_entries(&key, leases.effective_site(&key)).await.map_err(query_refusal)?;
    let ours = leases.holder(&key);
    let behind = line.len();
    let standing = line.into_iter().map(|entry| {
        let ours =
            ours.as_ref().filter(|lease| entry.number.is_some() && token_number(lease) == entry.number);
        KeyQueueEntry {
            gateway: entry.gateway,
            mode: entry.mode,
            holds: entry.holds,
            number: entry.number,
            reference: ours.map(|lease| lease.id.reference().to_string()),
            note: ours.and_then(|lease| lease.note.as_deref().map(str::to_owned)),
            age_ms: ours.and_then(|lease| held_for_ms(lease)),
        }
    });
    let mut line: Vec<_> = standing.collect();
    line.sort_by_key(|standing| !standing.holds);
    let expected_wait_ms = leases.expected_wait(behind).map(millis);
    Ok(json_response(&KeyDocument { key: key.as_str().to_owned(), line, expected_wait_ms }))
}

pub(super) fn token_number(lease: &Lease) -> Option<u64> {
    match lease.snapshot().stage {
        LeaseStageSnapshot::Held { lock, .. } => Some(lock.token().number()),
        LeaseStageSnapshot::Waiting { .. } | LeaseStageSnapshot::Over { .. } => None,
    }
}

fn held_for_ms(lease: &Lease) -> Option<u64> {
    match lease.snapshot().stage {
        LeaseStageSnapshot::Held { since, .. } => Some(millis(since)),
        LeaseStageSnapshot::Waiting { .. } | LeaseStageSnapshot::Over { .. } => None,
    }
}

pub(super) fn query_refusal(untold: AdminQueryError) -> Refusal {
    Refusal::new(RefusalReason::LockService, untold.to_string())
}
