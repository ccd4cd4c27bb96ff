//! Probes endpoints for liveness, while a request that was sent to one of them is in doubt.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fencegate_guard::Guard;
use fencegate_guard_store::{admission::LivenessProbeAnswer, dispatch_target::DispatchTarget};
use fencegate_http::network::Network;
use fencegate_http_client::upstream::{endpoint_set::EndpointSet, health};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::sleep;
use tracing::{error, info};

/// The interval in which new requests in doubt are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Probes without end. Each address is probed by itself, so that one that does not answer delays no other one.
/// If the policy has no health checks, no probe is ever sent.
///
/// # Cancellation
/// If the future is dropped, the probes end, and the time until the next probe does not count as one in which
/// the endpoint answered.
pub(super) async fn probe_in_doubt_endpoints<N: Network>(
    network: &N,
    endpoints: &Arc<EndpointSet>,
    guard: &Guard,
) {
    let mut probes = FuturesUnordered::new();
    let mut probed = BTreeSet::new();
    loop {
        for target in guard.targets_to_probe() {
            if probed.insert(target.clone()) {
                probes.push(probe_once(network, endpoints, guard, target));
            }
        }
        tokio::select! {
            Some(target) = probes.next() => drop(probed.remove(&target)),
            () = sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Sends one probe, and returns when the address may be probed again.
async fn probe_once<N: Network>(
    network: &N,
    endpoints: &Arc<EndpointSet>,
    guard: &Guard,
    target: DispatchTarget,
) -> DispatchTarget {
    let upstream = &endpoints.upstream.name;
    let began = guard.now();
    if health::probe_process(network, endpoints, &target.endpoint, target.address.as_deref()).await {
        if guard.record_alive(&target, LivenessProbeAnswer { asked: began, answered: guard.now() }) {
            info!(%upstream, endpoint = %target, "guard.endpoint_answers_again");
        }
    } else if guard.record_silent(&target) {
        error!(
            %upstream,
            endpoint = %target,
            "guard.endpoint_silent: the endpoint does not answer, so the keys of its executions in doubt stay closed"
        );
    }
    sleep(guard.config.watch.as_ref().map_or(POLL_INTERVAL, |watch| watch.interval)).await;
    target
}
