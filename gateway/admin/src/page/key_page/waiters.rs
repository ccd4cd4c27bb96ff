//! The waiters for the key, in the order in which they are granted it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencegate_lock::manager::admin_query::LockQueueEntry;

use super::key_facts::KeyFacts;
use crate::{models::millis, page::layout::format_millis};

/// A request that waits here.
pub(super) struct WaiterRow {
    pub(super) place: usize,
    pub(super) request: String,
    pub(super) route: String,
    pub(super) mode: &'static str,
    pub(super) waits: String,
}

/// A node in ZooKeeper.
pub(super) struct LockNodeRow {
    pub(super) place: usize,
    pub(super) node: String,
    pub(super) gateway: String,
    pub(super) mode: &'static str,
    pub(super) stands: String,
    pub(super) state: String,
}

/// The most requests that are shown.
pub(super) const SHOWN: usize = 20;

pub(super) fn local_waiters(known: &KeyFacts) -> Vec<WaiterRow> {
    let waiting = known.active.iter().filter(|staying| staying.works.is_none()).take(SHOWN);
    let row = |(place, staying): (usize, &fencegate_metrics::request_tracker::ActiveRequest)| WaiterRow {
        place: place + 1,
        request: staying.request.as_ref().and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned(),
        route: staying.route.to_string(),
        mode: staying.mode.as_str(),
        waits: format_millis(millis(staying.came.elapsed())),
    };
    waiting.enumerate().map(row).collect()
}

pub(super) fn node_rows(line: &[LockQueueEntry]) -> Vec<LockNodeRow> {
    let row = |(place, node): (usize, &LockQueueEntry)| LockNodeRow {
        place: place + 1,
        node: node.node.clone(),
        gateway: node.owner_name().to_owned(),
        mode: node.mode.as_str(),
        stands: node_age(node).unwrap_or_default(),
        state: match (node.holds, node.permit) {
            (true, Some(permit)) => format!("holds permit {}", permit.number()),
            (true, None) => "holds".into(),
            (false, _) => "waits".into(),
        },
    };
    line.iter().enumerate().map(row).collect()
}

/// The age of a node; its holder has not held the key for longer. ZooKeeper's clock may differ from the local one.
pub(super) fn node_age(node: &LockQueueEntry) -> Option<String> {
    let made = UNIX_EPOCH + Duration::from_millis(node.made_ms?);
    let age = SystemTime::now().duration_since(made).unwrap_or_default();
    Some(format_millis(millis(age)))
}
