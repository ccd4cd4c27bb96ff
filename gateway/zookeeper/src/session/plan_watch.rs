//! Compares the published plans of all gateways again and again, and publishes a new plan of this gateway in place of
//! the former one.
//!
//! Each session reads the peers' plans after its own node was created, and through its own session. So it sees every
//! older node that still exists. Of two sessions with incompatible plans the younger one therefore sees the other, and
//! gives way. The set of older nodes never grows: a new node is always younger than the session's own node.

use std::{collections::HashSet, convert::Infallible, future::pending, time::Duration};

use futures_util::future::{join, join_all};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::{
    active_session::ActiveSession,
    client::{MultiError, ZkClient, ZkError},
    local_member::{LocalMember, MemberPlanPublisher},
    member::{MemberRecord, gateway_name, is_reconnect_probe_name},
    paths::{PlanPartName, ZkPaths},
    plan_nodes,
    plan_publication::{
        PeerPlanPublication, PeerPlanPublicationOrder, PeerPlanStatus, PublishedPlanBytes, PublishedPlanState,
    },
};

/// An evaluation waits this long for more changes, because several nodes change at once when gateways start.
const GATHERS: Duration = Duration::from_millis(50);

/// The publication of a new plan is tried this often in one round, while peers come and go.
const TRIES: usize = 8;

/// The most member nodes that are read in one evaluation.
const MOST: usize = 4096;

/// Reads the peers' plans once, and passes them to the evaluator.
///
/// # Errors
/// Returns [`ZkError::NoNode`] if the node of this session is gone. Only another client can have removed it.
pub(super) async fn evaluate_peer_plans<L: ZkClient>(
    live: &ActiveSession<L>,
) -> Result<Vec<PeerPlanPublication>, ZkError> {
    let Some((publishes, announced)) = live.plan_publisher() else { return Ok(Vec::new()) };
    let own = own_czxid(live, announced).await?;
    let ours = announced.current();
    let (others, _) = compare_peer_plans(&live.client, &live.paths, &live.local_member, &ours, own).await?;
    publishes.judge.record_conflicting_plans(live.client.id(), &ours, &others);
    Ok(others)
}

/// The plan that this session has published, the peers with other plans, and the names of the peers with the same plan.
/// `None`: this process publishes nothing.
pub async fn published_plans<L: ZkClient>(
    live: &ActiveSession<L>,
) -> Result<Option<(PublishedPlanBytes, Vec<PeerPlanPublication>, Vec<String>)>, ZkError> {
    let Some((_, announced)) = live.plan_publisher() else { return Ok(None) };
    let own = own_czxid(live, announced).await?;
    let ours = announced.current();
    let (others, same) =
        compare_peer_plans(&live.client, &live.paths, &live.local_member, &ours, own).await?;
    Ok(Some((ours, others, same)))
}

/// Like [`published_plans`], but for a program that is no gateway, as if it had published `ours`. `plan`: the
/// fingerprint that all builds compare.
pub async fn compare_plan(
    link: &impl ZkClient,
    paths: &ZkPaths,
    plan: u64,
    ours: &PublishedPlanBytes,
) -> Result<(Vec<PeerPlanPublication>, Vec<String>), ZkError> {
    compare_peer_plans(link, paths, &LocalMember::new(plan), ours, 0).await
}

/// Evaluates the peers' plans whenever a gateway comes or goes, and once in each period `every`. Publishes the new plan
/// when the process has one. `sees` gets the names of the member nodes after each such change. Never returns.
pub async fn run_plan_evaluation<L: ZkClient>(
    live: &ActiveSession<L>,
    every: Duration,
    mut sees: impl FnMut(&[String]),
) -> Infallible {
    let Some((publishes, _)) = live.plan_publisher() else { return pending().await };
    let mut wanted = publishes.now.subscribe();
    wanted.mark_changed();
    loop {
        let members = live.paths.members_path();
        let plans = live.paths.plans_path();
        // The watches are set before the evaluation, so that no change in between is missed.
        let stirred = match join(live.client.watch_children(&members), live.client.watch(&plans)).await {
            (Ok((there, members)), Ok(plans)) => {
                sees(&there);
                Some((members, plans))
            }
            _ => None,
        };
        let mut stirred = std::pin::pin!(async move {
            match stirred {
                Some((members, plans)) => {
                    tokio::select! { () = members => {}, () = plans => {} }
                    sleep(GATHERS).await;
                }
                None => sleep(every).await,
            }
        });
        loop {
            evaluation_round(live, publishes).await;
            tokio::select! {
                () = &mut stirred => break,
                _ = wanted.changed() => {}
                () = sleep(every) => {}
            }
        }
    }
}

async fn evaluation_round<L: ZkClient>(live: &ActiveSession<L>, publishes: &MemberPlanPublisher) {
    let wanted = publishes.now.borrow().clone();
    match publish_if_changed(live, &wanted).await {
        Ok(()) => {}
        Err(ZkError::NoNode) => {
            warn!("another client removed the node by which this session has published its plan");
            live.ended.cancel();
        }
        // The last evaluation stays in force: it can only become less strict, because no older node can be created. The
        // next round tries again.
        Err(fault) => debug!(%fault, "the plans of the other gateways were not seen"),
    }
}

/// Evaluates the peers' plans, and publishes `wanted` if another plan was published before.
async fn publish_if_changed<L: ZkClient>(
    live: &ActiveSession<L>,
    wanted: &PublishedPlanBytes,
) -> Result<(), ZkError> {
    let Some((publishes, announced)) = live.plan_publisher() else { return Ok(()) };
    for _ in 0..TRIES {
        let version = live.client.stat(&live.paths.plans_path()).await?.ok_or(ZkError::NoNode)?.version;
        let others = evaluate_peer_plans(live).await?;
        let ours = announced.current();
        if ours == *wanted {
            return Ok(());
        }
        plan_nodes::write_plan_parts(&live.client, &live.paths, wanted).await?;
        if let Err(why) = publishes.judge.begin_plan_switch(live.client.id(), &ours, wanted, &others) {
            announced.log_publication_delay(why);
            return Ok(());
        }
        announced.next.replace(Some(wanted.clone()));
        let [before, next] =
            [&ours, wanted].map(|plan| plan_nodes::announcement_paths(&live.paths, plan, &live.member));
        match plan_nodes::replace_plan(&live.client, &live.paths, version, &before, &next).await {
            Ok(()) => {
                announced.complete_plan_switch();
                info!(
                    session = format_args!("{:#x}", live.client.id()),
                    plan = &wanted.fingerprint()[..16],
                    "plan.published"
                );
            }
            // A peer came meanwhile, or the server has removed the node of the plan: try again.
            Err(MultiError { fault: ZkError::BadVersion | ZkError::NoNode, .. }) => {
                announced.next.take();
            }
            // The answer may be lost; the next evaluation sees which plan is published.
            Err(MultiError { fault, .. }) => return Err(fault),
        }
    }
    Ok(())
}

/// The czxid of the node by which this session has announced its plan, the old or the new one.
async fn own_czxid<L: ZkClient>(
    live: &ActiveSession<L>,
    announced: &PublishedPlanState,
) -> Result<i64, ZkError> {
    let seen = async |plan: &PublishedPlanBytes| {
        let path = plan_nodes::announcement_paths(&live.paths, plan, &live.member).swap_remove(0);
        let seen = live.client.stat(&path).await?;
        let ours = seen.filter(|seen| seen.owner == live.client.id());
        Ok::<_, ZkError>(ours.map(|seen| seen.czxid))
    };
    if let Some(czxid) = seen(&announced.current()).await? {
        return Ok(czxid);
    }
    let next = announced.next.borrow().clone();
    let Some(next) = next else { return Err(ZkError::NoNode) };
    let czxid = seen(&next).await?.ok_or(ZkError::NoNode)?;
    announced.complete_plan_switch();
    Ok(czxid)
}

/// All peers with another plan than `ours`: peers that have published one, and peers that publish nothing and lock
/// other keys. The second list has the names of the peers that have published the same plan.
pub(super) async fn compare_peer_plans(
    link: &impl ZkClient,
    paths: &ZkPaths,
    plate: &LocalMember,
    ours: &PublishedPlanBytes,
    since: i64,
) -> Result<(Vec<PeerPlanPublication>, Vec<String>), ZkError> {
    // Members are listed before plans: a member that is listed has published its plan before, so the plan is in the
    // second list.
    let members = link.children(&paths.members_path()).await?;
    let published = plan_nodes::list_published(link, paths).await?;
    let mut others = Vec::new();
    let mut same = Vec::new();
    for (plan, by) in &published {
        let by = without_own_members(paths, plate, by);
        if plan.fingerprint == ours.fingerprint() {
            same.extend(by.iter().map(|member| gateway_name(member).to_owned()));
            continue;
        }
        if by.is_empty() {
            continue;
        }
        let says = match plate.cached_plan(&plan.fingerprint) {
            Some(known) => PeerPlanStatus::Published(known),
            None => read_peer_plan(link, paths, plate, plan).await?,
        };
        let namings = by.iter().map(|member| format!("{}/{plan}/{member}", paths.plans_path()));
        let namings: Vec<String> = namings.collect();
        let seen = join_all(namings.iter().map(|path| link.stat(path))).await;
        for (member, seen) in by.iter().zip(seen) {
            // If the node has gone meanwhile, its gateway has gone.
            let Some(seen) = seen? else { continue };
            let age = if seen.czxid < since {
                PeerPlanPublicationOrder::Older
            } else {
                PeerPlanPublicationOrder::Younger
            };
            others.push(PeerPlanPublication {
                gateway: gateway_name(member).to_owned(),
                age,
                says: says.clone(),
            });
        }
    }
    let published: HashSet<&String> = published.values().flatten().collect();
    let quiet =
        members.iter().filter(|member| !published.contains(member) && !is_reconnect_probe_name(member));
    let quiet: Vec<String> = quiet.cloned().collect();
    others.extend(find_mismatched_legacy_peers(link, paths, plate, &quiet).await?);
    same.sort_unstable();
    same.dedup();
    Ok((others, same))
}

async fn read_peer_plan(
    link: &impl ZkClient,
    paths: &ZkPaths,
    plate: &LocalMember,
    plan: &PlanPartName,
) -> Result<PeerPlanStatus, ZkError> {
    match plan_nodes::assemble_plan(link, paths, plan).await {
        Ok(read) => {
            plate.cache_plan(&read);
            Ok(PeerPlanStatus::Published(read))
        }
        Err(Ok(why)) => Ok(PeerPlanStatus::Unreadable(why)),
        Err(Err(fault)) => Err(fault),
    }
}

/// The gateways of builds that publish nothing, if their fingerprint means that they lock other keys. A program that
/// names its keys itself has no fingerprint.
async fn find_mismatched_legacy_peers(
    link: &impl ZkClient,
    paths: &ZkPaths,
    plate: &LocalMember,
    quiet: &[String],
) -> Result<Vec<PeerPlanPublication>, ZkError> {
    let quiet = plate.members_to_read(without_own_members(paths, plate, quiet));
    let nodes: Vec<String> =
        quiet.iter().take(MOST).map(|member| format!("{}/{member}", paths.members_path())).collect();
    let read = join_all(nodes.iter().map(|path| link.data(path))).await;
    let mut blind = Vec::new();
    for (member, read) in quiet.iter().zip(read) {
        let data = match read {
            Err(ZkError::NoNode) => continue,
            read => read?.0,
        };
        let record = serde_json::from_slice::<MemberRecord>(&data).ok();
        if let Some(record) = &record {
            plate.record_if_planless(member, record);
        }
        if record.is_some_and(|record| record.publishes || plate.is_compatible_with(&record.plan)) {
            continue;
        }
        blind.push(PeerPlanPublication {
            gateway: gateway_name(member).to_owned(),
            age: PeerPlanPublicationOrder::Legacy,
            says: PeerPlanStatus::Incompatible,
        });
    }
    Ok(blind)
}

fn without_own_members(paths: &ZkPaths, plate: &LocalMember, members: &[String]) -> Vec<String> {
    let folder = paths.members_path();
    let nodes = members.iter().map(|member| format!("{folder}/{member}")).collect();
    let others = plate.peer_check().without_own_members(nodes);
    let name = |path: String| path.strip_prefix(&folder).unwrap_or(&path).trim_start_matches('/').to_owned();
    others.into_iter().map(name).collect()
}
