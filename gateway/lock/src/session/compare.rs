//! Compares what the gateways of an installation lock, by what their member nodes say.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use futures_util::future::join_all;
use tokio::time::sleep;
use tracing::debug;

use super::{
    link::{ZkClient, ZkError},
    live::ActiveSession,
    member::{MemberRecord, gateway_of},
    settings::SessionSettings,
};

/// How often a session asks whether it is time to look.
const TICK: Duration = Duration::from_secs(1);

/// Most member nodes that are read; each gateway has one per session.
const MOST: usize = 4096;

/// Looks for as long as it is polled. Reads only. `told` hears after each look how many gateways lock other keys.
pub(crate) async fn watch<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
    every: Duration,
    told: impl Fn(usize),
) -> Infallible {
    let others = settings.member.others();
    loop {
        sleep(TICK.min(every)).await;
        if !others.is_due(settings.clock.now(), every) {
            continue;
        }
        match unlike(live, settings).await {
            Ok(unlike) => {
                let unlike = others.saw(unlike);
                settings.metrics.unlike(unlike);
                told(unlike);
            }
            // The next look is another try.
            Err(fault) => debug!(%fault, "the other gateways were not seen"),
        }
    }
}

async fn unlike<L: ZkClient>(
    live: &ActiveSession<L>,
    settings: &SessionSettings,
) -> Result<BTreeSet<String>, ZkError> {
    let folder = live.paths.members();
    let nodes = live.link.children(&folder).await?;
    let paths = nodes.iter().take(MOST).map(|node| format!("{folder}/{node}")).collect();
    let paths = settings.member.others().are_not_ours(paths);
    let read = join_all(paths.iter().map(|path| live.link.data(path))).await;
    let ours = plan_of(&settings.member.data());
    let plans = paths.iter().zip(read).filter_map(|(path, read)| {
        let node = path.strip_prefix(&folder)?.trim_start_matches('/');
        // If a node has gone meanwhile, its gateway has gone as well.
        Some((gateway_of(node).to_owned(), plan_of(&read.ok()?.0)?))
    });
    Ok(plans.filter(|(_, plan)| Some(plan) != ours.as_ref()).map(|(gateway, _)| gateway).collect())
}

/// `None` for what is no member's data.
fn plan_of(data: &[u8]) -> Option<String> {
    serde_json::from_slice::<MemberRecord>(data).ok().map(|member| member.plan)
}
