//! A relay before the service delivers requests of its guard or gateway late, or the service is paused.

use std::time::Instant;

use fencegate_testkit::child::Signal;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::matrix::{
    environment::RunEnvironment,
    level::{LONG, MAX_EXECUTION},
};

/// Relays hold requests that they have acknowledged, and deliver them when other holders have had the keys.
pub fn delivers_late(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        wait_relays_hold(lab).await;
        deliver_held(lab).await
    })
}

/// As [`delivers_late`], and the guard that sent the requests is killed meanwhile.
pub fn delivers_for_a_guard_that_is_gone(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        wait_relays_hold(lab).await;
        let launch = lab.kill_guard(0).await;
        lab.start_guard(0, &launch).await;
        deliver_held(lab).await
    })
}

/// Freezes the filters before the service until no client waits any more for the requests in their sockets.
pub fn instances_stand_still(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        signal_filters(lab, Signal::STOP);
        // Send requests whose executions take long: if one of them begins too late, it overlaps with a newer execution, and the
        // judge sees it.
        for path in lab.apparatus.errand.paths() {
            for gateway in 0..lab.stations.len() {
                lab.clients.send(gateway, &path, LONG);
            }
        }
        sleep(2 * MAX_EXECUTION + lab.apparatus.session).await;
        signal_filters(lab, Signal::CONT);
        Ok(Instant::now())
    })
}

/// Makes each relay hold some requests, and pass on the later ones.
async fn wait_relays_hold(lab: &RunEnvironment) {
    for service in &lab.relayed {
        service.relay.hold();
    }
    for service in &lab.relayed {
        service.relay.wait_held(2).await;
        service.relay.pass_through();
    }
}

/// Waits until each key is served, and then makes the relays deliver what they hold.
async fn deliver_held(lab: &RunEnvironment) -> AccidentResult {
    lab.wait_paths_served(Instant::now(), 4 * MAX_EXECUTION).await;
    for service in &lab.relayed {
        service.relay.deliver().await;
    }
    Ok(Instant::now())
}

fn signal_filters(lab: &RunEnvironment, signal: Signal) {
    lab.relayed.iter().filter_map(|service| service.filter.as_ref()).for_each(|filter| filter.signal(signal));
}
