//! Probes endpoints for liveness, while a request that was sent to them is in doubt.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fencegate_guard::Guard;
use fencegate_guard_store::{admission::LivenessProbeAnswer, dispatch_target::DispatchTarget};
use fencegate_http::network::Network;
use fencegate_http_client::upstream::{endpoint_set::EndpointSet, health};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::sleep;
use tracing::{error, info};

/// How soon a new request in doubt is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Probes without end. Each address has probes of its own, so that one that does not answer delays no other one.
/// Without health checks in the policy no probe is ever sent.
///
/// # Cancellation
/// Dropping the future ends the probes; the time until the next one does not count.
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
