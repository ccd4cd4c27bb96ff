//! One gateway of a run: its configuration, its proxies to other processes, and its process while it runs.

use std::net::SocketAddr;

use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy};

use crate::{
    gateway::{Gateway, GatewayLaunch},
    policy::TestPolicy,
    stepped_clock::SteppedClock,
    zookeeper_proxy::ZooKeeperProxy,
};

pub struct GatewayNode {
    pub name: String,
    pub address: SocketAddr,
    pub policy: TestPolicy,
    /// The addresses of the service or of its guards.
    pub endpoints: Vec<SocketAddr>,
    /// A proxy to each server of ZooKeeper; empty if the case cannot cut them.
    pub links: Vec<ZooKeeperProxy>,
    /// The proxy to the service or its guard, if the case can cut it.
    pub way: Option<FaultProxy>,
    pub clock: Option<SteppedClock>,
    /// The command that enters the gateway's network namespace, if it has one.
    pub within: Option<Vec<String>>,
    pub running: Option<Gateway>,
}

/// The token that the admin listeners of gateways require if they listen beyond loopback.
pub(super) const ADMIN_TOKEN: &str = "a-token-of-operators-0123456789";

impl GatewayNode {
    /// The launch of this gateway.
    pub fn launch(&self) -> GatewayLaunch {
        let launch = GatewayLaunch::new(&self.policy);
        match (&self.clock, &self.within) {
            (Some(clock), _) => launch.with_clock(clock),
            (None, Some(command)) => launch.with_command(command.clone(), ADMIN_TOKEN),
            (None, None) => launch,
        }
    }

    /// Starts the gateway, and waits until it is ready.
    ///
    /// # Panics
    /// If the gateway does not become ready.
    pub async fn start(&mut self, launch: GatewayLaunch) {
        let gateway = launch.start().await;
        gateway.wait_ready().await;
        self.running = Some(gateway);
    }

    /// The running gateway.
    ///
    /// # Panics
    /// If the gateway does not run.
    pub fn gateway(&self) -> &Gateway {
        self.running.as_ref().expect("a gateway that runs")
    }

    pub fn signal(&self, signal: Signal) {
        self.gateway().signal(signal);
    }

    /// Kills the gateway.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.gateway().exit().await;
        self.running = None;
    }

    /// Stops the gateway in order.
    ///
    /// # Panics
    /// If the gateway does not end, or not with success.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.gateway().exit().await;
        assert!(status.success(), "{status}:\n{}", self.gateway().log());
        self.running = None;
    }

    /// Lets nothing pass between the gateway and ZooKeeper, without a notice to either side.
    pub fn cut(&self) {
        self.links.iter().for_each(ZooKeeperProxy::lose_all);
    }

    /// Lets the gateway reach ZooKeeper again, over new connections.
    pub fn mend(&self) {
        for link in &self.links {
            link.cut();
            link.mend();
        }
    }
}
