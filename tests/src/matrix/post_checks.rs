//! The state after a run, when no client sends requests any more: what is left, and the watermarks of the guards.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::wait::PATIENCE;
use tokio::time::sleep;

use super::gateway_node::GatewayNode;
use crate::{gateway::MetricSamples, guard::Guard, zookeeper::ZnodeTree};

const OF_GATEWAYS: [&str; 4] = [
    "fencegate_requests_in_flight",
    "fencegate_lock_waiters",
    "fencegate_locks_held",
    "fencegate_upstream_pool_waiting",
];

const OF_GUARDS: [&str; 3] =
    ["fencegate_guard_in_flight", "fencegate_guard_in_doubt", "fencegate_guard_keys_in_quarantine"];

/// The newest token that a guard remembers for each of these keys.
pub(super) async fn read_watermarks(
    guard: &Guard,
    keys: impl Iterator<Item = &String>,
) -> BTreeMap<String, FencingToken> {
    let mut marks = BTreeMap::new();
    for key in keys {
        let told = guard.admin_json(&format!("/api/v1/keys/{key}")).await;
        let token = |kind: &str| FencingToken::parse(told[kind].as_str()?).ok();
        let newest = ["write", "read"].into_iter().filter_map(token).max();
        marks.extend(newest.map(|token| (key.clone(), token)));
    }
    marks
}

/// The nodes and gauges that have not gone in time. `forever`: lock nodes and held locks may stay, because gateways
/// keep a key until another request waits for it.
pub(super) async fn find_leftovers(
    tree: &ZnodeTree,
    stations: &[GatewayNode],
    guards: &[Guard],
    forever: bool,
) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut left: Vec<String> = if forever { Vec::new() } else { tree.locks().await };
        for station in stations {
            let Some(gateway) = &station.running else { continue };
            let kept = |name: &&str| !forever || *name != "fencegate_locks_held";
            let names: Vec<&str> = OF_GATEWAYS.into_iter().filter(kept).collect();
            left.extend(above_zero(&gateway.metrics().await, &names, &station.name));
        }
        for guard in guards {
            left.extend(above_zero(&guard.metrics().await, &OF_GUARDS, "guard"));
        }
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn above_zero(metrics: &MetricSamples, names: &[&str], whose: &str) -> Vec<String> {
    let above = names.iter().filter(|name| metrics.sum(name, &[]) > 0.5);
    above.map(|name| format!("{whose}: {name} is {}", metrics.sum(name, &[]))).collect()
}
