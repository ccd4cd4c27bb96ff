//! Packets that are dropped silently. The connections stay, and the kernels of both sides send lost packets again.

use std::{net::SocketAddr, time::Instant};

use fencegate_testkit::child::Signal;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::{
    ensemble::SERVERS,
    matrix::{
        environment::RunEnvironment,
        level::{LONG, MAX_EXECUTION},
    },
    namespaces::NetworkNamespaces,
};

/// Nothing passes between the first gateway and any other process, for two sessions.
pub fn nothing_passes(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |_, namespaces| {
        namespaces.drop_outgoing(FIRST);
        namespaces.drop_incoming(FIRST);
    })
}

/// The first gateway gets everything, and nothing arrives from it.
pub fn nothing_leaves(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |_, namespaces| namespaces.drop_outgoing(FIRST))
}

/// Everything from the first gateway arrives, and it gets nothing.
pub fn nothing_arrives(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |_, namespaces| namespaces.drop_incoming(FIRST))
}

/// Only what the first gateway sends to ZooKeeper is lost. Its clients and the service notice nothing.
pub fn nothing_reaches_zookeeper(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |lab, namespaces| namespaces.drop_outgoing_to(FIRST, &zookeepers(lab)))
}

/// The cable of the first gateway is pulled, and put back.
pub fn unplugged(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(FIRST, LONG).await;
        let from = lab.mark_accident(FIRST);
        namespaces(lab).unplug(FIRST);
        lab.wait_sessions_end().await;
        namespaces(lab).plug_in(FIRST);
        Ok(from)
    })
}

/// The one that every accident happens to.
const FIRST: usize = 0;

fn lost(
    lab: &mut RunEnvironment,
    loses: fn(&RunEnvironment, &NetworkNamespaces),
) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(FIRST, LONG).await;
        let from = lab.mark_accident(FIRST);
        loses(lab, namespaces(lab));
        lab.wait_sessions_end().await;
        namespaces(lab).restore();
        Ok(from)
    })
}

/// Requests that the first gateway has written stay on their way to the service, or to its guard, and the gateway stands
/// still. When other holders have had the keys its kernel sends them once more, and they arrive.
pub fn requests_are_late(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        let from = lab.mark_accident(FIRST);
        let first = &lab.stations[FIRST];
        let services: Vec<u16> = first.endpoints.iter().map(SocketAddr::port).collect();
        namespaces(lab).drop_outgoing_to(FIRST, &services);
        // Requests for each account arrive all the time.
        sleep(lab.apparatus.session / 4).await;
        // Awake, it would break the connections, and the kernel would forget what it has not sent.
        first.signal(Signal::STOP);
        lab.wait_sessions_end().await;
        namespaces(lab).restore();
        // The kernel doubles the pause after which it sends again.
        sleep(2 * lab.apparatus.session).await;
        first.signal(Signal::CONT);
        Ok(from)
    })
}

/// Requests of the first gateway are lost on their way to the service, or to its guard, and the gateway is killed. Its
/// kernel would send them once more, long after other holders have had the keys.
pub fn killed_with_requests_on_the_way(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(FIRST, LONG).await;
        let from = lab.mark_accident(FIRST);
        let services: Vec<u16> = lab.stations[FIRST].endpoints.iter().map(SocketAddr::port).collect();
        namespaces(lab).drop_outgoing_to(FIRST, &services);
        // Requests for each account arrive all the time.
        sleep(lab.apparatus.session / 4).await;
        let lost = Instant::now();
        lab.stations[FIRST].kill().await;
        lab.wait_paths_served(lost + lab.apparatus.session, 4 * MAX_EXECUTION).await;
        namespaces(lab).restore();
        // The kernel doubles the pause after which it sends again, so the next time is before twice the time so far.
        sleep(lost.elapsed()).await;
        let launch = lab.stations[FIRST].launch();
        lab.stations[FIRST].start(launch).await;
        Ok(from)
    })
}

fn zookeepers(lab: &RunEnvironment) -> Vec<u16> {
    (0..SERVERS).map(|server| lab.ensemble.address(server).port()).collect()
}

fn namespaces(lab: &RunEnvironment) -> &NetworkNamespaces {
    lab.namespaces.as_ref().expect("a case with namespaces")
}
