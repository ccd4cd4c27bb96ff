//! Scans the recorded operations: deletes records after their retention, and counts unknown outcomes.
//!
//! The age of an operation is computed with two clocks at both ends. Its end is the later of two times: the one that
//! ZooKeeper's leader gave the node, and the one that the gateway wrote into it. The present time is the earlier of
//! two: the one that the leader gave the last heartbeat of this session, and the one of this machine's clock. So an
//! operation is forgotten too early only if both clocks were slow at its end, or both are fast now.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use fencegate_policies::operation::OperationId;
use fencegate_process::{clock::unix_seconds, randomness::Guid};
use fencegate_zookeeper::session::{
    active_session::ActiveSession,
    client::{MultiOp, ZkClient, ZkError},
};
use tracing::debug;

use super::{
    index::{FinishedOperationEntry, OperationIndex, OperationShard},
    quota::OperationQuotaOwner,
    record::{OperationRecord, OperationState, can_mark_outlived, is_deletable},
    unresolved::is_lock_held,
};

/// The time between two rounds of one session.
const PERIOD: Duration = Duration::from_secs(2);
/// The number of shards that are listed in one round.
const SHARDS_PER_ROUND: usize = 8;
/// The number of operations that are read in one round. The round ends after the shard that reaches this number.
const RECORDS_PER_ROUND: usize = 128;

/// Sweeps for as long as it is polled. Every session of every gateway sweeps; the sessions of one process take turns.
pub async fn run_expiry_sweeps<L: ZkClient>(live: &ActiveSession<L>, index: &OperationIndex) -> Infallible {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(fault) = sweep_round(live, index).await {
            debug!(%fault, "operations not swept");
        }
    }
}

async fn sweep_round<L: ZkClient>(live: &ActiveSession<L>, index: &OperationIndex) -> Result<(), ZkError> {
    let mut shards = match live.client.children(&live.paths.operations_path()).await {
        Ok(shards) => shards,
        Err(ZkError::NoNode) => Vec::new(),
        Err(fault) => return Err(fault),
    };
    shards.sort_unstable();
    let now = if shards.is_empty() { 0 } else { conservative_now_ms(live).await? };
    let mut read = 0;
    for _ in 0..SHARDS_PER_ROUND.min(shards.len()) {
        if read < RECORDS_PER_ROUND
            && let Some(shard) = index.next_shard(&shards)
        {
            read += scan_shard(live, index, shard, now).await?;
        }
    }
    index.retain_shards(&shards, live.clock.now());
    if let Some(unknown) = index.unknown_count() {
        live.metrics.set_unknown_operations(unknown);
    }
    Ok(())
}

/// The present time in milliseconds since 1970, by the earlier of two clocks.
async fn conservative_now_ms<L: ZkClient>(live: &ActiveSession<L>) -> Result<u64, ZkError> {
    let member = format!("{}/{}", live.paths.members_path(), live.member);
    let beaten = live.client.stat(&member).await?.map_or(0, |seen| seen.modified);
    Ok(beaten.min(unix_seconds().saturating_mul(1000)))
}

/// The result of reading an operation's node.
enum OperationRecordLookup {
    /// The node is gone, expired, or not readable for this session.
    Absent,
    Found(OperationRecordStatus, Option<Arc<OperationQuotaOwner>>),
}

enum OperationRecordStatus {
    /// The operation is finished. Its record is kept until this time, in milliseconds since 1970.
    Finished(u64),
    Running(Option<Guid>),
    Unknown(Option<Guid>),
}

/// Reads the operations of one shard, and deletes expired records. Returns the number of operations that were read.
async fn scan_shard<L: ZkClient>(
    live: &ActiveSession<L>,
    index: &OperationIndex,
    name: &str,
    now: u64,
) -> Result<usize, ZkError> {
    let folder = format!("{}/{name}", live.paths.operations_path());
    let nodes = match live.client.children(&folder).await {
        Ok(nodes) => nodes,
        Err(ZkError::NoNode) => return Ok(0),
        Err(fault) => return Err(fault),
    };
    let known = index.snapshot(name);
    let mut shard = OperationShard::default();
    let mut admitted = HashSet::new();
    let mut read = 0;
    for node in &nodes {
        let id = OperationId::parse(node);
        let finished = id.and_then(|id| known.finished.get(&id)).filter(|finished| now <= finished.until);
        let look = match finished {
            Some(FinishedOperationEntry { until, owner }) => {
                OperationRecordLookup::Found(OperationRecordStatus::Finished(*until), owner.clone())
            }
            None => {
                read += 1;
                inspect_record(live, index, &format!("{folder}/{node}"), now).await?
            }
        };
        let OperationRecordLookup::Found(how, owner) = look else { continue };
        shard.former |= owner.is_none();
        shard.owners.extend(owner.clone());
        match how {
            OperationRecordStatus::Finished(until) => {
                shard.finished.extend(id.map(|id| (id, FinishedOperationEntry { until, owner })))
            }
            OperationRecordStatus::Running(attempt) => admitted.extend(attempt),
            OperationRecordStatus::Unknown(attempt) => {
                admitted.extend(attempt);
                shard.unknown += 1;
            }
        }
    }
    index.record_shard_scan(name, &known, &admitted, shard);
    Ok(read)
}

async fn inspect_record<L: ZkClient>(
    live: &ActiveSession<L>,
    index: &OperationIndex,
    path: &str,
    now: u64,
) -> Result<OperationRecordLookup, ZkError> {
    let (data, seen) = match live.client.data(path).await {
        Ok(read) => read,
        Err(ZkError::NoNode) => return Ok(OperationRecordLookup::Absent),
        Err(fault) => return Err(fault),
    };
    let Ok(record) = OperationRecord::parse(&data) else { return Ok(OperationRecordLookup::Absent) };
    let found = |how| OperationRecordLookup::Found(how, record.owner.clone().map(Arc::new));
    if record.state == OperationState::Admitted {
        let attempt = Guid::parse(&record.attempt);
        let unknown = is_outcome_unknown(live, index, path, &record).await?;
        return Ok(found(if unknown {
            OperationRecordStatus::Unknown(attempt)
        } else {
            OperationRecordStatus::Running(attempt)
        }));
    }
    if !record.is_expired(seen.modified, now) {
        return Ok(found(OperationRecordStatus::Finished(record.retention_end(seen.modified))));
    }
    delete_record(live, path, &record, seen.version).await;
    Ok(OperationRecordLookup::Absent)
}

/// Whether the operation was admitted, does not run any more, and has no recorded outcome.
async fn is_outcome_unknown<L: ZkClient>(
    live: &ActiveSession<L>,
    index: &OperationIndex,
    path: &str,
    record: &OperationRecord,
) -> Result<bool, ZkError> {
    if index.is_running(&record.attempt) {
        return Ok(false);
    }
    if !index.has_recorded_unknown_outcome(&record.attempt)
        && is_lock_held(&live.client, &live.paths, live.base, record).await?
    {
        return Ok(false);
    }
    // The outcome is written before the lock is given up. So it may have been written after the record was read, and
    // the record is read again.
    match live.client.data(path).await {
        Ok((data, _)) => Ok(OperationRecord::parse(&data).is_ok_and(|now| now == *record)),
        Err(ZkError::NoNode) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Deletes a record in two steps, see [`super::record`]: a late delete can only hit an outlived record.
async fn delete_record<L: ZkClient>(
    live: &ActiveSession<L>,
    path: &str,
    record: &OperationRecord,
    mut version: i32,
) {
    if can_mark_outlived(version) {
        let data = record.with_state(OperationState::Outlived).to_bytes();
        let steps = [MultiOp::Check { path, version }, MultiOp::Set { path, data: &data }];
        if live.client.commit(&steps).await.is_err() {
            // Another session changed the record; the next round reads the result.
            return;
        }
        version += 1;
    }
    if is_deletable(version) {
        debug!(path, "operation forgotten");
        let steps = [MultiOp::Delete { path, version: Some(version) }];
        drop(live.client.commit(&steps).await);
    }
}
