//! Requests of known tenures, for which the guard writes nothing: through a gateway alone, and through a guard
//! behind it, over TCP and over Unix sockets. The lower bound is the cost of the HTTP library, once and twice.

use std::net::SocketAddr;

use serde_json::json;

use super::released::{BenchGuard, WARM_UP};
use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    nginx::Nginx,
    peers,
    report::{BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    turns::{self, ComparedPair},
    wrk::WrkLoad,
};

const LOAD: WrkLoad = WrkLoad { method: "GET", prefix: "/warm/", keys: 1000, threads: 2, clients: 64 };

/// The programs that a request passes. They are started for each measurement and ended after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyChain {
    Gateway,
    Guard,
    /// A unix socket between gateway and guard.
    GuardBySocket,
    /// Unix sockets between gateway and guard, and between guard and service.
    GuardBetweenSockets,
    /// A gateway alone, with a unix socket between it and the service.
    GatewayBySocket,
    Bare,
    BareTwice,
}

const ALL: [ProxyChain; 7] = [
    ProxyChain::Gateway,
    ProxyChain::Guard,
    ProxyChain::Bare,
    ProxyChain::GuardBySocket,
    ProxyChain::GatewayBySocket,
    ProxyChain::BareTwice,
    ProxyChain::GuardBetweenSockets,
];

/// The pairs that are compared.
const PAIRS: [ComparedPair<ProxyChain>; 6] = [
    (
        "guard-same-tenure",
        ProxyChain::Guard,
        ProxyChain::Gateway,
        "the gateway without a guard",
        RatioGoal::AtLeast(0.7),
    ),
    (
        "guard-same-tenure-unix",
        ProxyChain::GuardBySocket,
        ProxyChain::Gateway,
        "the gateway without a guard",
        RatioGoal::AtLeast(0.7),
    ),
    (
        "guard-same-tenure-unix-both",
        ProxyChain::GuardBetweenSockets,
        ProxyChain::Gateway,
        "the gateway without a guard",
        RatioGoal::None,
    ),
    (
        "guard-between-sockets",
        ProxyChain::GuardBetweenSockets,
        ProxyChain::GatewayBySocket,
        "the gateway by a socket",
        RatioGoal::None,
    ),
    ("gateway-unix", ProxyChain::GatewayBySocket, ProxyChain::Gateway, "the same by a port", RatioGoal::None),
    ("bare-twice", ProxyChain::BareTwice, ProxyChain::Bare, "bare hyper once", RatioGoal::None),
];

pub(super) fn measure(
    run: &BenchRun,
    zookeeper: SocketAddr,
    service: &Nginx,
    ensemble: &str,
) -> BenchResult<Vec<BenchRow>> {
    let site = BenchSite { run, zookeeper, service, ensemble };
    turns::compare(run, &ALL, &PAIRS, |way, round| site.measure_rate(way, round))
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: SocketAddr,
    service: &'a Nginx,
    ensemble: &'a str,
}

impl BenchSite<'_> {
    fn measure_rate(&self, way: ProxyChain, round: u32) -> BenchResult<f64> {
        let port = format!("http://{}", self.service.address);
        let socket = self.service.socket.clone();
        let guard_socket = format!("unix:{}", self.run.folder().join("guard.sock").display());
        let anywhere = "127.0.0.1:0";
        match way {
            ProxyChain::Gateway => self.measure_through_gateway(&port, UpstreamKind::Service),
            ProxyChain::GatewayBySocket => self.measure_through_gateway(&socket, UpstreamKind::Service),
            ProxyChain::Guard => self.measure_through_guard(round, anywhere, &port),
            ProxyChain::GuardBySocket => self.measure_through_guard(round, &guard_socket, &port),
            ProxyChain::GuardBetweenSockets => self.measure_through_guard(round, &guard_socket, &socket),
            ProxyChain::Bare => {
                let bare = peers::start_with_arguments(&self.bare_command(), self.service.address)?;
                self.run_load(bare.address())
            }
            ProxyChain::BareTwice => {
                let behind = peers::start_with_arguments(&self.bare_command(), self.service.address)?;
                let before = peers::start_with_arguments(&self.bare_command(), behind.address())?;
                self.run_load(before.address())
            }
        }
    }

    fn bare_command(&self) -> [String; 1] {
        [self.run.bare().display().to_string()]
    }

    fn measure_through_guard(&self, round: u32, listen: &str, service: &str) -> BenchResult<f64> {
        let guard =
            BenchGuard::start_between(self.run, &format!("guard-{round}"), listen, service, self.ensemble)?;
        let rate = self.measure_through_gateway(&guard.endpoint, UpstreamKind::Guard)?;
        guard.stop()?;
        Ok(rate)
    }

    fn measure_through_gateway(&self, endpoint: &str, behind: UpstreamKind) -> BenchResult<f64> {
        let mut policy = policy("gw", self.zookeeper, self.service.address, behind);
        policy["upstreams"]["service"]["endpoints"] = json!([endpoint]);
        let gateway = BenchGateway::start_with(self.run, &policy)?;
        let rate = self.run_load(gateway.public)?;
        gateway.stop()?;
        Ok(rate)
    }

    fn run_load(&self, address: SocketAddr) -> BenchResult<f64> {
        LOAD.run(self.run, address, WARM_UP)?;
        Ok(LOAD.run(self.run, address, self.run.window)?.per_second)
    }
}
