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

/// Most member nodes that are read; each gateway has one per session.
const MOST: usize = 4096;

/// Compares for as long as it is polled. Reads only. `told` is called after each comparison with the number of gateways
/// that lock other keys.
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
    let ours = plan_fingerprint(&settings.member.encoded_member());
    let plans = paths.iter().zip(read).filter_map(|(path, read)| {
        let node = path.strip_prefix(&folder)?.trim_start_matches('/');
        // If a node has gone meanwhile, its gateway has gone as well.
        Some((gateway_name(node).to_owned(), plan_fingerprint(&read.ok()?.0)?))
    });
    Ok(plans.filter(|(_, plan)| Some(plan) != ours.as_ref()).map(|(gateway, _)| gateway).collect())
}

/// `None` if this is no member's data.
fn plan_fingerprint(data: &[u8]) -> Option<String> {
    serde_json::from_slice::<MemberRecord>(data).ok().map(|member| member.plan)
}
