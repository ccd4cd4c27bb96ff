//! Shows the holder of an exclusive node that is shared with other programs, and removes the node for an operator.

use crate::manager::admin_query::{AdminQueryError, BreakLockOutcome, ContenderProgram, LockQueueEntry};
use fencegate_policies::plan::LockMode;
use fencegate_recipe::node_data;
use fencegate_zookeeper::session::{
    active_session::ActiveSession,
    client::{MultiOp, NodeStat, ZkClient, ZkError},
    era::token_epoch,
    member::find_gateway,
};

/// Inserts the owner of the node in front of the gateways' own queue.
pub(super) async fn prepend_node_owner<L: ZkClient>(
    live: &ActiveSession<L>,
    path: &str,
    members: &[String],
    mut line: Vec<LockQueueEntry>,
) -> Result<Vec<LockQueueEntry>, AdminQueryError> {
    for one in &mut line {
        // Tokens are made of the czxid of the exclusive node, so a queued lock node has none.
        (one.number, one.holds) = (None, false);
    }
    let (says, seen) = match live.client.data(path).await {
        Ok(read) => read,
        // The node was released, and the next contender is about to create it.
        Err(ZkError::NoNode) => return Ok(line),
        Err(fault) => return Err(fault.into()),
    };
    let session = format_session(seen);
    let number = token_epoch(live.base, seen.czxid).ok();
    let ours = node_data::parse_attempt(&says).is_some();
    match line.first_mut() {
        Some(first) if first.session == session && node_data::is_made_by_attempt(&says, &first.node) => {
            (first.number, first.holds) = (number, true);
        }
        first => {
            let node = node_incarnation_id(seen);
            if let Some(first) = first {
                first.behind = Some(node.clone());
            }
            let gateway = find_gateway(members, &session);
            let program = if ours || gateway.is_some() {
                ContenderProgram::Fencegate
            } else {
                ContenderProgram::Unknown
            };
            let mode = LockMode::Exclusive;
            let behind = None;
            let permit = None;
            let holds = true;
            let made_ms = Some(seen.created);
            let first = LockQueueEntry {
                node,
                mode,
                program,
                gateway,
                session,
                number,
                holds,
                permit,
                behind,
                made_ms,
            };
            line.insert(0, first);
        }
    }
    Ok(line)
}

fn format_session(seen: NodeStat) -> String {
    format!("{:016x}", seen.owner)
}

/// A name for the node as it is between its creation and its removal. The path does not distinguish holders: it is
/// the same for each, and it contains the key.
fn node_incarnation_id(seen: NodeStat) -> String {
    format!("node@{:x}", seen.czxid)
}

/// Removes the first lock node of a gateway in the queue and the exclusive node that it has created: both or
/// neither.
pub(super) async fn remove_own_exclusive_node<L: ZkClient>(
    live: &ActiveSession<L>,
    place: &str,
    path: &str,
) -> Result<BreakLockOutcome, AdminQueryError> {
    let first = live.client.stat(place);
    let node = live.client.data(path);
    let (Some(first), Ok((says, seen))) = (first.await?, node.await) else {
        return Ok(BreakLockOutcome::NotHolding);
    };
    let name = place.rsplit('/').next().unwrap_or_default();
    if first.owner != seen.owner || !node_data::is_made_by_attempt(&says, name) {
        return Ok(BreakLockOutcome::NotHolding);
    }
    let steps = [
        MultiOp::Delete { path: place, version: None },
        MultiOp::Delete { path, version: Some(seen.version) },
    ];
    BreakLockOutcome::from_removal(live.client.commit(&steps).await.map(drop).map_err(|failed| failed.fault))
}

/// Removes another program's node, if it is still the one that [`prepend_node_owner`] gave this name.
pub(super) async fn remove_foreign_exclusive_node<L: ZkClient>(
    live: &ActiveSession<L>,
    named: &str,
    path: &str,
) -> Result<BreakLockOutcome, AdminQueryError> {
    let seen = match live.client.stat(path).await? {
        Some(seen) if node_incarnation_id(seen) == named => seen,
        _ => return Ok(BreakLockOutcome::NotHolding),
    };
    let steps = [MultiOp::Delete { path, version: Some(seen.version) }];
    BreakLockOutcome::from_removal(live.client.commit(&steps).await.map(drop).map_err(|failed| failed.fault))
}
