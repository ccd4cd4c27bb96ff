//! Decides whether one more operation can be recorded, by counting those in each of the 256 shards.

use std::{cell::RefCell, collections::HashMap};

use fencegate_policies::operation::OperationId;
use fencegate_zookeeper::session::{active_session::ActiveSession, client::ZkClient};

use super::error::AdmitOperationError;

/// The most operations that are recorded in one of the 256 shards.
const MAX_PER_SHARD: i32 = 100_000 / 256;

/// How many operations each of the 256 shards has, as last seen.
#[derive(Debug, Default)]
pub struct OperationShardCounts(RefCell<HashMap<u8, i32>>);

impl OperationShardCounts {
    pub(super) fn record_count(&self, id: &OperationId, children: i32) {
        self.0.borrow_mut().insert(id.as_bytes()[0], children);
    }

    /// Whether there is capacity for one more. A cached count may be old: if it leaves capacity it is used, otherwise
    /// the count is read from ZooKeeper.
    pub(super) async fn has_capacity<L: ZkClient>(
        &self,
        live: &ActiveSession<L>,
        id: &OperationId,
    ) -> Result<bool, AdmitOperationError> {
        let last = self.0.borrow().get(&id.as_bytes()[0]).copied().unwrap_or_default();
        if last < MAX_PER_SHARD {
            return Ok(true);
        }
        match live.client.stat(&live.paths.operation_shard_path(id)).await {
            Ok(seen) => {
                let children = seen.map_or(0, |seen| seen.children);
                self.record_count(id, children);
                Ok(children < MAX_PER_SHARD)
            }
            Err(fault) => Err(AdmitOperationError::Service(fault.to_string())),
        }
    }
}
