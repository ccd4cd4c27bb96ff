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
    /// The service or its guards.
    pub endpoints: Vec<SocketAddr>,
    /// To each server of ZooKeeper, where they can be cut.
    pub links: Vec<ZooKeeperProxy>,
    /// To the service or its guard, where that can be cut.
    pub way: Option<FaultProxy>,
    pub clock: Option<SteppedClock>,
    /// The command that enters its network namespace, where it has one.
    pub within: Option<Vec<String>>,
    pub running: Option<Gateway>,
}

/// The token that the admin listeners of gateways demand if they listen to more than loopback.
pub(super) const ADMIN_TOKEN: &str = "a-token-of-operators-0123456789";

impl GatewayNode {
    /// As it is started.
    pub fn launch(&self) -> GatewayLaunch {
        let launch = GatewayLaunch::new(&self.policy);
        match (&self.clock, &self.within) {
            (Some(clock), _) => launch.with_clock(clock),
            (None, Some(command)) => launch.with_command(command.clone(), ADMIN_TOKEN),
            (None, None) => launch,
        }
    }

    /// # Panics
    /// If it does not become ready.
    pub async fn start(&mut self, launch: GatewayLaunch) {
        let gateway = launch.start().await;
        gateway.wait_ready().await;
        self.running = Some(gateway);
    }

    /// # Panics
    /// If it does not run.
    pub fn gateway(&self) -> &Gateway {
        self.running.as_ref().expect("a gateway that runs")
    }

    pub fn signal(&self, signal: Signal) {
        self.gateway().signal(signal);
    }

    /// Kills it.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.gateway().exit().await;
        self.running = None;
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// If it does not end well.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.gateway().exit().await;
        assert!(status.success(), "{status}:\n{}", self.gateway().log());
        self.running = None;
    }

    /// Nothing passes between it and ZooKeeper, and neither side is notified.
    pub fn cut(&self) {
        self.links.iter().for_each(ZooKeeperProxy::lose_all);
    }

    /// ZooKeeper can be reached again, over new connections.
    pub fn mend(&self) {
        for link in &self.links {
            link.cut();
            link.mend();
        }
    }
}
