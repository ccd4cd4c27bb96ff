//! Compares the plans of an installation's gateways, by the fingerprints in their member nodes.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use futures_util::future::join_all;
use tokio::time::sleep;
use tracing::debug;

use super::{
    active_session::ActiveSession,
    client::{ZkClient, ZkError},
    member::{MemberRecord, gateway_name},
    settings::SessionSettings,
};

/// How often a session checks whether a comparison is due.
const TICK: Duration = Duration::from_secs(1);

/// The most member nodes that are read; each gateway has one per session.
const MOST: usize = 4096;

/// Compares the plans once in each period `every`, for as long as it is polled. Reads only. `told` is called after each
/// comparison with the number of gateways that lock other keys.
pub async fn run_fingerprint_comparison<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
    every: Duration,
    told: impl Fn(usize),
) -> Infallible {
    let others = settings.member.peer_check();
    loop {
        sleep(TICK.min(every)).await;
        if !others.claim_check(settings.clock.now(), every) {
            continue;
        }
        match mismatched_peers(live, settings).await {
            Ok(unlike) => {
                let unlike = others.update_mismatched(unlike);
                settings.metrics.set_config_mismatch(unlike);
                told(unlike);
            }
            // The next comparison is the retry.
            Err(fault) => debug!(%fault, "the other gateways were not seen"),
        }
    }
}

async fn mismatched_peers<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
) -> Result<BTreeSet<String>, ZkError> {
    let folder = live.paths.members_path();
    let nodes = live.client.children(&folder).await?;
    let paths = nodes.iter().take(MOST).map(|node| format!("{folder}/{node}")).collect();
    let paths = settings.member.peer_check().without_own_members(paths);
    let read = join_all(paths.iter().map(|path| live.client.data(path))).await;
    let peers = paths.iter().zip(read).filter_map(|(path, read)| {
        let node = path.strip_prefix(&folder)?.trim_start_matches('/');
        // If a member node has gone meanwhile, so has its gateway.
        Some((gateway_name(node).to_owned(), read.ok()?.0))
    });
    Ok(find_mismatched(&settings.member.encoded_member(), peers))
}

/// The peers with another plan than `ours`, by their names. Programs that name their keys themselves have no plan: they
/// differ from no gateway, and no gateway differs from them.
fn find_mismatched(ours: &[u8], peers: impl Iterator<Item = (String, Vec<u8>)>) -> BTreeSet<String> {
    let Some(ours) = plan_fingerprint(ours) else { return BTreeSet::new() };
    peers
        .filter(|(_, data)| plan_fingerprint(data).is_some_and(|plan| plan != ours))
        .map(|(name, _)| name)
        .collect()
}

/// The fingerprint of the plan in a member's data; `None` if this is no member's data, or that of a program without a
/// plan.
fn plan_fingerprint(data: &[u8]) -> Option<String> {
    let member = serde_json::from_slice::<MemberRecord>(data).ok()?;
    (!member.is_lock_client()).then_some(member.plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{local_member::LocalMember, member::NO_PLAN};

    fn peer(name: &str, plan: u64) -> (String, Vec<u8>) {
        (name.to_owned(), LocalMember::new(plan).encoded_member().to_vec())
    }

    /// Commands and programs that name their keys themselves have no plan: no gateway reports them as peers with
    /// another plan, and they report no gateway.
    #[test]
    fn program_without_plan_never_mismatches() {
        let ours = LocalMember::new(7).encoded_member();
        let peers = || [peer("gw-2", 7), peer("gw-3", 8), peer("lock.vm.77", NO_PLAN)].into_iter();
        assert_eq!(find_mismatched(&ours, peers()), BTreeSet::from(["gw-3".to_owned()]));
        let program = LocalMember::new(NO_PLAN).encoded_member();
        assert_eq!(find_mismatched(&program, peers()), BTreeSet::new());
    }
}
