//! Packets that are dropped silently. The connections stay open, and the kernels of both sides retransmit lost
//! packets.

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

/// Drops all packets between the first gateway and any other process, for two session timeouts.
pub fn nothing_passes(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |_, namespaces| {
        namespaces.drop_outgoing(FIRST);
        namespaces.drop_incoming(FIRST);
    })
}

/// Drops all packets from the first gateway. Those to it arrive.
pub fn nothing_leaves(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |_, namespaces| namespaces.drop_outgoing(FIRST))
}

/// Drops all packets to the first gateway. Those from it arrive.
pub fn nothing_arrives(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |_, namespaces| namespaces.drop_incoming(FIRST))
}

/// Drops only packets from the first gateway to ZooKeeper. Its clients and the service notice nothing.
pub fn nothing_reaches_zookeeper(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    lost(lab, |lab, namespaces| namespaces.drop_outgoing_to(FIRST, &zookeepers(lab)))
}

/// Sets the network interface of the first gateway down, and up again.
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

/// The index of the gateway that has the fault.
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

/// Drops requests of the first gateway to the service or its guard, and freezes the gateway. When other holders have
/// had the keys, its kernel retransmits the requests, and they arrive.
pub fn requests_are_late(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        let from = lab.mark_accident(FIRST);
        let first = &lab.stations[FIRST];
        let services: Vec<u16> = first.endpoints.iter().map(SocketAddr::port).collect();
        namespaces(lab).drop_outgoing_to(FIRST, &services);
        // Clients request each account all the time, so requests are lost in this time.
        sleep(lab.apparatus.session / 4).await;
        // Freeze the gateway: otherwise it would close the connections, and the kernel would not retransmit the
        // requests.
        first.signal(Signal::STOP);
        lab.wait_sessions_end().await;
        namespaces(lab).restore();
        // The kernel doubles the interval of its retransmissions, so the next one may take that long.
        sleep(2 * lab.apparatus.session).await;
        first.signal(Signal::CONT);
        Ok(from)
    })
}

/// Drops requests of the first gateway to the service or its guard, and kills the gateway. Its kernel must not
/// retransmit them when other holders have had the keys.
pub fn killed_with_requests_on_the_way(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(FIRST, LONG).await;
        let from = lab.mark_accident(FIRST);
        let services: Vec<u16> = lab.stations[FIRST].endpoints.iter().map(SocketAddr::port).collect();
        namespaces(lab).drop_outgoing_to(FIRST, &services);
        // Clients request each account all the time, so requests are lost in this time.
        sleep(lab.apparatus.session / 4).await;
        let lost = Instant::now();
        lab.stations[FIRST].kill().await;
        lab.wait_paths_served(lost + lab.apparatus.session, 4 * MAX_EXECUTION).await;
        namespaces(lab).restore();
        // The kernel doubles the interval of its retransmissions, so the next one comes before the elapsed time has
        // passed again.
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
