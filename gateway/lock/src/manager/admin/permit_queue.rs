//! Shows the holder of each permit of a key, and removes a holder for an operator.

use fencegate_policies::permits::PermitIndex;
use fencegate_recipe::{
    layout::{LockQueueLayout, PermitQueuePosition, permit_node_name},
    node_data,
};
use fencegate_zookeeper::session::{
    active_session::ActiveSession,
    client::{NodeStat, ZkClient, ZkError},
    era::token_epoch,
};
use futures_util::future::join_all;

use super::exclusive_node;
use crate::manager::admin_query::{AdminQueryError, BreakLockOutcome, LockQueueEntry};

/// Adds the permits that contenders hold to the queue. `children`: all nodes below `parent`.
pub(super) async fn add_held_permits<L: ZkClient>(
    live: &ActiveSession<L>,
    parent: &str,
    children: &[String],
    mut line: Vec<LockQueueEntry>,
) -> Result<Vec<LockQueueEntry>, AdminQueryError> {
    let stand = |one: &LockQueueEntry| {
        LockQueueLayout::Native.parse_contender(&one.node).and_then(|found| found.permits)
    };
    let looks = line.iter().map(|one| async {
        match stand(one) {
            Some(_) => held_permit(live, parent, &one.node).await.map(Some),
            None => Ok(None),
        }
    });
    let found = join_all(looks).await;
    for (one, found) in line.iter_mut().zip(found) {
        let (Some(permits), Some(held)) = (stand(one), found?) else { continue };
        // Tokens are made of the czxid of the permit's node, so a contender without a permit has
        // none.
        one.number = held.and_then(|(_, seen)| token_epoch(live.base, seen.czxid).ok());
        one.permit = held.map(|(permit, _)| permit);
        one.holds = held.is_some();
        one.behind = match PermitQueuePosition::compute(permits, children, &one.node) {
            PermitQueuePosition::Behind(before) if held.is_none() => Some(before.to_owned()),
            _ => None,
        };
    }
    Ok(line)
}

/// The permit that this contender holds, with the permit's node.
async fn held_permit<L: ZkClient>(
    live: &ActiveSession<L>,
    parent: &str,
    name: &str,
) -> Result<Option<(PermitIndex, NodeStat)>, AdminQueryError> {
    let Some((says, place)) = read_node(live, &format!("{parent}/{name}")).await? else { return Ok(None) };
    let permit = std::str::from_utf8(&says).ok().and_then(PermitIndex::parse);
    let Some(permit) = permit else { return Ok(None) };
    let node = read_node(live, &format!("{parent}/{}", permit_node_name(permit))).await?;
    let ours = |(says, seen): &(Vec<u8>, NodeStat)| {
        node_data::is_made_by_attempt(says, name) && seen.owner == place.owner
    };
    Ok(node.filter(ours).map(|(_, seen)| (permit, seen)))
}

/// Reads a node; `None` if it has gone.
async fn read_node<L: ZkClient>(
    live: &ActiveSession<L>,
    path: &str,
) -> Result<Option<(Vec<u8>, NodeStat)>, AdminQueryError> {
    match live.client.data(path).await {
        Ok(read) => Ok(Some(read)),
        Err(ZkError::NoNode) => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

/// Removes a holder's lock node in the queue and its permit: both or neither.
pub(super) async fn remove_permit_holder<L: ZkClient>(
    live: &ActiveSession<L>,
    parent: &str,
    name: &str,
) -> Result<BreakLockOutcome, AdminQueryError> {
    match held_permit(live, parent, name).await? {
        Some((permit, _)) => {
            let node = format!("{parent}/{}", permit_node_name(permit));
            exclusive_node::remove_own_exclusive_node(live, &format!("{parent}/{name}"), &node).await
        }
        None => Ok(BreakLockOutcome::NotHolding),
    }
}
