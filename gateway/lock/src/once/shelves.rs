//! Tells whether one more operation can be remembered, by counting those in each of the 256 parent nodes.

use std::{cell::RefCell, collections::HashMap};

use fencegate_policies::operation::OperationId;

use super::denied::Denied;
use crate::session::{link::Link, live::Live};

/// Operations that are remembered at most, in one of 256 nodes.
const MOST: i32 = 100_000 / 256;

/// How many operations stand in each of the 256 nodes, as far as was seen.
#[derive(Debug, Default)]
pub struct Shelves(RefCell<HashMap<u8, i32>>);

impl Shelves {
    pub(super) fn saw(&self, id: &OperationId, children: i32) {
        self.0.borrow_mut().insert(id.bytes()[0], children);
    }

    /// Whether there is room for one more. A remembered count may be old: if it leaves room it is trusted, if not
    /// ZooKeeper is asked.
    pub(super) async fn have_room<L: Link>(&self, live: &Live<L>, id: &OperationId) -> Result<bool, Denied> {
        let last = self.0.borrow().get(&id.bytes()[0]).copied().unwrap_or_default();
        if last < MOST {
            return Ok(true);
        }
        match live.link.seen(&live.paths.operation_shard(id)).await {
            Ok(seen) => {
                let children = seen.map_or(0, |seen| seen.children);
                self.saw(id, children);
                Ok(children < MOST)
            }
            Err(fault) => Err(Denied::Service(fault.to_string())),
        }
    }
}
