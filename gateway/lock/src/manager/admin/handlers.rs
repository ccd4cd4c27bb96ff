//! Answers operator queries, on the thread of the session but without blocking it.

use std::{future::Future, rc::Rc};

use fencegate_idempotency::unresolved::{self, UnresolvedOperation};
use fencegate_policies::{key::ResourceKey, plan::LockLocation};
use fencegate_recipe::{
    delayed_handover,
    layout::{LockQueueLayout, LockQueueNode, QueueRank},
};
use fencegate_zookeeper::{
    peer_endpoint::HolderRoute,
    session::{
        active_session::{ActiveSession, CurrentSession},
        client::{MultiError, ZkClient, ZkError},
        era::token_epoch,
        member::{MemberRecord, find_gateway, gateway_name},
        paths::ZkPaths,
        plan_watch,
    },
};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{exclusive_node, permit_queue};
use crate::manager::admin_query::{
    AdminQueryError, AdminReplySender, BreakLockOutcome, ContenderProgram, GatewayLocation, LockQueueEntry,
    MAX_ENTRIES, PublishedPlans, QUERY_TIMEOUT, RegisteredGateway, ResolveOperationOutcome,
    ResolveOperationRequest, SessionAdminCommand,
};

/// Sends the answer. This fails if the operator has gone, which needs no action.
fn reply<T>(answer: AdminReplySender<T>, result: Result<T, AdminQueryError>) {
    answer.send(result).ok();
}

/// Answers with the result of `reading`, or drops `reading` when the caller does not wait any more.
async fn reply_while_open<T>(
    mut answer: AdminReplySender<T>,
    reading: impl Future<Output = Result<T, AdminQueryError>>,
) {
    tokio::select! {
        result = reading => reply(answer, result),
        () = answer.closed() => {}
    }
}

/// Lets queries that read very many nodes run one at a time for each session, so that the queries of pages that refresh
/// do not pile up.
#[derive(Debug, Clone)]
pub(crate) struct AdminQueryLimiter(Rc<Semaphore>);

impl Default for AdminQueryLimiter {
    fn default() -> Self {
        Self(Rc::new(Semaphore::new(1)))
    }
}

/// Answers one query, unless the caller has gone before. A query that changes something checks directly before the
/// change whether its caller still waits, because its reads may take long.
pub(crate) async fn answer_query<L: ZkClient>(
    current: Rc<CurrentSession<L>>,
    turns: AdminQueryLimiter,
    question: SessionAdminCommand,
) {
    let Some(live) = current.session() else { return reply_no_session(question) };
    match question {
        SessionAdminCommand::QueueEntries { key, site, answer } => {
            // Clients may send this query, too, so only one at a time is answered.
            let in_turn = async {
                let _turn = turns.0.acquire().await.expect("nobody closes it");
                queue_entries(&live, &key, &site).await
            };
            reply_while_open(answer, in_turn).await;
        }
        SessionAdminCommand::Record { key, answer } => {
            let parent = live.paths.native_lock_parent_path(&key);
            reply_while_open(answer, async {
                Ok(delayed_handover::read_grant_record(&live, &parent).await?)
            })
            .await;
        }
        SessionAdminCommand::Members { answer } => reply_while_open(answer, registered_gateways(&live)).await,
        SessionAdminCommand::Published { answer } => reply_while_open(answer, published_plans(&live)).await,
        SessionAdminCommand::MemberNames { answer } => {
            reply_while_open(answer, children(&live, &live.paths.members_path())).await
        }
        SessionAdminCommand::LocateMember { member, answer } => {
            reply_while_open(answer, locate_member(&live, &member)).await
        }
        SessionAdminCommand::Operations { answer } => {
            let in_turn = async {
                let _turn = turns.0.acquire().await.expect("nobody closes it");
                unresolved_operations(&live).await
            };
            reply_while_open(answer, in_turn).await;
        }
        SessionAdminCommand::Break { key, site, holder, answer } => {
            let result = remove_holder(&live, &key, &site, &holder, || !answer.is_closed()).await;
            reply(answer, result);
        }
        SessionAdminCommand::Resolve { resolution, answer } => {
            let result = resolve_operation(&live, &resolution, || !answer.is_closed()).await;
            reply(answer, result);
        }
    }
}

fn reply_no_session(question: SessionAdminCommand) {
    match question {
        SessionAdminCommand::QueueEntries { answer, .. } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::Record { answer, .. } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::Break { answer, .. } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::Members { answer } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::Published { answer } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::MemberNames { answer } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::LocateMember { answer, .. } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::Operations { answer } => reply(answer, Err(AdminQueryError::NoSession)),
        SessionAdminCommand::Resolve { answer, .. } => reply(answer, Err(AdminQueryError::NoSession)),
    }
}

async fn published_plans<L: ZkClient>(live: &ActiveSession<L>) -> Result<PublishedPlans, AdminQueryError> {
    let found = plan_watch::published_plans(live).await?;
    let (ours, others, same) = found.ok_or(AdminQueryError::Fault("nothing is published here".to_owned()))?;
    Ok(PublishedPlans { ours, same, others })
}

async fn children<L: ZkClient>(live: &ActiveSession<L>, path: &str) -> Result<Vec<String>, AdminQueryError> {
    match live.client.children(path).await {
        Ok(children) => Ok(children),
        Err(ZkError::NoNode) => Ok(Vec::new()),
        Err(fault) => Err(fault.into()),
    }
}

async fn queue_entries<L: ZkClient>(
    live: &ActiveSession<L>,
    key: &ResourceKey,
    site: &LockLocation,
) -> Result<Vec<LockQueueEntry>, AdminQueryError> {
    let LockQueueLocation { order, parent, shared } = LockQueueLocation::new(&live.paths, key, site);
    let all = children(live, &parent).await?;
    let mut nodes: Vec<String> =
        all.iter().filter(|name| order.parse_contender(name).is_some()).cloned().collect();
    nodes.sort_by_key(|name| order.parse_contender(name).map(|one| one.sequence));
    nodes.truncate(MAX_ENTRIES);
    let members = children(live, &live.paths.members_path()).await?;
    let paths: Vec<String> = nodes.iter().map(|name| format!("{parent}/{name}")).collect();
    let seen = join_all(paths.iter().map(|path| live.client.stat(path))).await;
    let mut line = Vec::new();
    for (name, seen) in nodes.iter().zip(seen) {
        let (Some(seen), Some(contender)) = (seen?, order.parse_contender(name)) else { continue };
        let rank = order.queue_rank(&nodes, name);
        let session = format!("{:016x}", seen.owner);
        let gateway = find_gateway(&members, &session);
        line.push(LockQueueEntry {
            node: name.clone(),
            mode: contender.mode,
            program: contender_program(order, &contender, gateway.is_some()),
            gateway,
            number: token_epoch(live.base, seen.czxid).ok(),
            holds: rank == QueueRank::First,
            permit: None,
            behind: match rank {
                QueueRank::Behind(other) => Some(other.to_owned()),
                QueueRank::First | QueueRank::Gone => None,
            },
            session,
            made_ms: Some(seen.created),
        });
    }
    match shared {
        Some(path) => exclusive_node::prepend_node_owner(live, path, &members, line).await,
        None => permit_queue::add_held_permits(live, &parent, &all, line).await,
    }
}

/// The kind of program that owns a node. In the queue of another program's layout the gateways' nodes are named as the
/// other programs name theirs, so a gateway's node is recognized by its registered session.
fn contender_program(
    order: LockQueueLayout,
    contender: &LockQueueNode<'_>,
    registered: bool,
) -> ContenderProgram {
    match order {
        _ if registered => ContenderProgram::Fencegate,
        _ if contender.guid.is_none() => ContenderProgram::Unknown,
        LockQueueLayout::Native | LockQueueLayout::Permits(_) => ContenderProgram::Fencegate,
        LockQueueLayout::CuratorMutex | LockQueueLayout::CuratorReadWrite => ContenderProgram::Curator,
        LockQueueLayout::Kazoo => ContenderProgram::Kazoo,
    }
}

/// Removes the named node and no other. The operator's list may be old, and then the node is gone already.
async fn remove_holder<L: ZkClient>(
    live: &ActiveSession<L>,
    key: &ResourceKey,
    site: &LockLocation,
    holder: &str,
    still_meant: impl Fn() -> bool,
) -> Result<BreakLockOutcome, AdminQueryError> {
    let LockQueueLocation { order, parent, shared } = LockQueueLocation::new(&live.paths, key, site);
    live.client.sync(&parent).await?;
    let nodes = children(live, &parent).await?;
    let permits = order.parse_contender(holder).is_some_and(|one| one.permits.is_some());
    let first = order.queue_rank(&nodes, holder) == QueueRank::First;
    if !first && !permits && shared.is_none() {
        return Ok(BreakLockOutcome::NotHolding);
    }
    // When the caller is gone, the operator has already received a timeout and would not expect a change after it.
    if !still_meant() {
        return Err(AdminQueryError::Timeout(QUERY_TIMEOUT));
    }
    let place = format!("{parent}/{holder}");
    match shared {
        None if permits => permit_queue::remove_permit_holder(live, &parent, holder).await,
        None => BreakLockOutcome::from_removal(live.client.delete(&place).await),
        Some(path) if first => exclusive_node::remove_own_exclusive_node(live, &place, path).await,
        Some(path) => exclusive_node::remove_foreign_exclusive_node(live, holder, path).await,
    }
}

/// The queue for a lock: of all contenders, or of the gateways only if the lock is an exclusive node.
struct LockQueueLocation<'s> {
    order: LockQueueLayout,
    parent: String,
    /// The path of the exclusive node, which the first contender of the queue has to create.
    shared: Option<&'s str>,
}

impl<'s> LockQueueLocation<'s> {
    fn new(paths: &ZkPaths, key: &ResourceKey, site: &'s LockLocation) -> Self {
        match (LockQueueLayout::for_site(site), site) {
            (Some(order), _) => Self { order, parent: paths.lock_parent_path(key, site), shared: None },
            // An exclusive node has no queue: only gateways' nodes are in this one.
            (None, LockLocation::Foreign { path, .. }) => Self {
                order: LockQueueLayout::Native,
                parent: paths.native_lock_parent_path(key),
                shared: Some(path),
            },
            (None, LockLocation::Native | LockLocation::Semaphore { .. }) => Self {
                order: LockQueueLayout::Native,
                parent: paths.native_lock_parent_path(key),
                shared: None,
            },
        }
    }
}

async fn registered_gateways<L: ZkClient>(
    live: &ActiveSession<L>,
) -> Result<Vec<RegisteredGateway>, AdminQueryError> {
    let parent = live.paths.members_path();
    let mut names = children(live, &parent).await?;
    names.sort_unstable();
    names.truncate(MAX_ENTRIES);
    let paths: Vec<String> = names.iter().map(|name| format!("{parent}/{name}")).collect();
    let read = join_all(paths.iter().map(|path| live.client.data(path))).await;
    let newest = read.iter().flatten().map(|(_, seen)| seen.modified).max().unwrap_or_default();
    let proves = u64::try_from(live.heartbeat_schedule().validity_duration().as_millis()).unwrap_or(u64::MAX);
    let registered = names.iter().zip(read).filter_map(|(name, read)| {
        let (data, seen) = match read {
            // The session has ended since the list was read, or this was the reconnect probe of a heartbeat.
            Err(ZkError::NoNode) => return None,
            Err(_) => (Vec::new(), None),
            Ok((data, seen)) => (data, Some(seen)),
        };
        let (gateway, session) = name.rsplit_once('-')?;
        let member: Option<MemberRecord> = serde_json::from_slice(&data).ok();
        let silent_ms = seen.map_or(0, |seen| newest.saturating_sub(seen.modified));
        let leaving = member.as_ref().is_some_and(|member| member.leaving);
        Some(RegisteredGateway {
            gateway: gateway.to_owned(),
            session: session.to_owned(),
            ready: member.is_some() && !leaving && silent_ms < proves,
            leaving,
            silent_ms,
            since: seen.map_or(0, |seen| seen.created / 1000),
            version: member.as_ref().map(|member| member.version.clone()),
            plan: member.as_ref().map(|member| member.plan.clone()),
            page: member.as_ref().and_then(|member| member.page.clone()),
            // Only the address is reported, never the peer secret beside it.
            peer: member.and_then(|member| member.peer).map(|reach| reach.address),
        })
    });
    Ok(registered.filter(|one| one.session.len() == SESSION_DIGITS).collect())
}

const SESSION_DIGITS: usize = 16;

async fn locate_member<L: ZkClient>(
    live: &ActiveSession<L>,
    member: &str,
) -> Result<GatewayLocation, AdminQueryError> {
    if member == live.member {
        return Ok(GatewayLocation::Here);
    }
    // Another client wrote this text, and it becomes a part of a path, so it must have no slash.
    if member.contains('/') {
        return Ok(GatewayLocation::Gone);
    }
    let data = match live.client.data(&format!("{}/{member}", live.paths.members_path())).await {
        Ok((data, _)) => data,
        Err(ZkError::NoNode) => return Ok(GatewayLocation::Gone),
        Err(fault) => return Err(fault.into()),
    };
    let record = serde_json::from_slice::<MemberRecord>(&data).ok();
    let Some(reach) = record.and_then(|member| member.peer) else { return Ok(GatewayLocation::Unreachable) };
    // A peer secret belongs to a process, so it is the same for all its sessions.
    if live.peer_endpoint.as_ref().is_some_and(|ours| ours.pass == reach.pass) {
        return Ok(GatewayLocation::Here);
    }
    let gateway = gateway_name(member).into();
    let address = reach.address.into();
    Ok(GatewayLocation::Elsewhere(HolderRoute {
        gateway,
        member: member.into(),
        address,
        secret: reach.pass,
    }))
}

async fn unresolved_operations<L: ZkClient>(
    live: &ActiveSession<L>,
) -> Result<Vec<UnresolvedOperation>, AdminQueryError> {
    let found = unresolved::list_unresolved(&live.client, &live.paths, live.base).await;
    let mut found = found.map_err(|trouble| AdminQueryError::Fault(trouble.to_string()))?;
    found.truncate(MAX_ENTRIES);
    Ok(found)
}

async fn resolve_operation<L: ZkClient>(
    live: &ActiveSession<L>,
    resolution: &ResolveOperationRequest,
    still_meant: impl Fn() -> bool,
) -> Result<ResolveOperationOutcome, AdminQueryError> {
    let ResolveOperationRequest { reference, done, force, within } = resolution;
    let found = match unresolved::find_unresolved(&live.client, &live.paths, live.base, reference).await {
        Ok(found) => found,
        Err(
            trouble @ (unresolved::ResolveOperationError::NotFound(_)
            | unresolved::ResolveOperationError::Several(_)),
        ) => {
            return Ok(ResolveOperationOutcome::NotFound(trouble.to_string()));
        }
        Err(trouble) => return Err(AdminQueryError::Fault(trouble.to_string())),
    };
    if !force && let Err(trouble) = found.check_resolvable(*done, *within) {
        return Ok(ResolveOperationOutcome::MayRun(trouble.to_string()));
    }
    if !still_meant() {
        return Err(AdminQueryError::Timeout(QUERY_TIMEOUT));
    }
    match found.resolve(&live.client, *done).await {
        Ok(()) => Ok(ResolveOperationOutcome::Written),
        Err(unresolved::ResolveOperationError::Write { source: MultiError { fault, .. }, .. }) => {
            Err(match fault {
                ZkError::Ambiguous(_) | ZkError::SessionEnded => AdminQueryError::Unknown,
                refused => AdminQueryError::Fault(refused.to_string()),
            })
        }
        Err(trouble) => Err(AdminQueryError::Fault(trouble.to_string())),
    }
}
