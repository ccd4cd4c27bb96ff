//! A hop between the service and its guard, or its gateway, delivers late.

use std::time::Instant;

use fencegate_testkit::child::Signal;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::matrix::{
    environment::RunEnvironment,
    level::{LONG, MAX_EXECUTION},
};

/// A relay holds requests that it has acknowledged, and delivers them when other holders have had their keys.
pub fn delivers_late(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        wait_relays_hold(lab).await;
        deliver_held(lab).await
    })
}

/// The same, and the guard that has sent them is killed meanwhile.
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

/// The instances of the service stand still, each with its filter, until no client waits for the requests in their
/// sockets.
pub fn instances_stand_still(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        signal_filters(lab, Signal::STOP);
        // Work that would take its time, begun late, meets whatever is begun beside it.
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

/// Each relay holds requests, and passes on what comes afterwards.
async fn wait_relays_hold(lab: &RunEnvironment) {
    for service in &lab.relayed {
        service.relay.hold();
    }
    for service in &lab.relayed {
        service.relay.wait_held(2).await;
        service.relay.pass_through();
    }
}

/// Each key is served, and then the relays deliver what they hold.
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
