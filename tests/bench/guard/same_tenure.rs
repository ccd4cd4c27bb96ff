//! Requests of announced tenures, for which the guard writes nothing: through a gateway alone, and through a guard
//! behind it, by ports and by unix sockets. The lower bound is the cost of the HTTP library, once and twice.

use std::net::SocketAddr;

use serde_json::json;

use super::released::{Guard, WARM_UP};
use crate::{
    gateway::{Behind, Gateway, policy},
    nginx::Nginx,
    outcome::Outcome,
    peers,
    report::{Bench, Goal},
    run::Run,
    turns::{self, Pair},
    wrk::Load,
};

const LOAD: Load = Load { method: "GET", prefix: "/warm/", keys: 1000, threads: 2, clients: 64 };

/// The programs that a request passes. All of them are started for a turn and end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
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

const ALL: [Way; 7] = [
    Way::Gateway,
    Way::Guard,
    Way::Bare,
    Way::GuardBySocket,
    Way::GatewayBySocket,
    Way::BareTwice,
    Way::GuardBetweenSockets,
];

/// The pairs that are compared.
const PAIRS: [Pair<Way>; 6] = [
    ("guard-same-tenure", Way::Guard, Way::Gateway, "the gateway without a guard", Goal::AtLeast(0.7)),
    (
        "guard-same-tenure-unix",
        Way::GuardBySocket,
        Way::Gateway,
        "the gateway without a guard",
        Goal::AtLeast(0.7),
    ),
    (
        "guard-same-tenure-unix-both",
        Way::GuardBetweenSockets,
        Way::Gateway,
        "the gateway without a guard",
        Goal::None,
    ),
    (
        "guard-between-sockets",
        Way::GuardBetweenSockets,
        Way::GatewayBySocket,
        "the gateway by a socket",
        Goal::None,
    ),
    ("gateway-unix", Way::GatewayBySocket, Way::Gateway, "the same by a port", Goal::None),
    ("bare-twice", Way::BareTwice, Way::Bare, "bare hyper once", Goal::None),
];

pub(super) fn measure(
    run: &Run,
    zookeeper: SocketAddr,
    service: &Nginx,
    ensemble: &str,
) -> Outcome<Vec<Bench>> {
    let site = Site { run, zookeeper, service, ensemble };
    turns::compare(run, &ALL, &PAIRS, |way, round| site.rate(way, round))
}

struct Site<'a> {
    run: &'a Run,
    zookeeper: SocketAddr,
    service: &'a Nginx,
    ensemble: &'a str,
}

impl Site<'_> {
    fn rate(&self, way: Way, round: u32) -> Outcome<f64> {
        let (port, socket) = (format!("http://{}", self.service.address), self.service.socket.clone());
        let guard_socket = format!("unix:{}", self.run.folder().join("guard.sock").display());
        let anywhere = "127.0.0.1:0";
        match way {
            Way::Gateway => self.through_gateway(&port, Behind::Service),
            Way::GatewayBySocket => self.through_gateway(&socket, Behind::Service),
            Way::Guard => self.through_guard(round, anywhere, &port),
            Way::GuardBySocket => self.through_guard(round, &guard_socket, &port),
            Way::GuardBetweenSockets => self.through_guard(round, &guard_socket, &socket),
            Way::Bare => {
                let bare = peers::bare(&self.bare(), self.service.address)?;
                self.ask(bare.address())
            }
            Way::BareTwice => {
                let behind = peers::bare(&self.bare(), self.service.address)?;
                let before = peers::bare(&self.bare(), behind.address())?;
                self.ask(before.address())
            }
        }
    }

    fn bare(&self) -> [String; 1] {
        [self.run.bare().display().to_string()]
    }

    fn through_guard(&self, round: u32, listen: &str, service: &str) -> Outcome<f64> {
        let guard = Guard::between(self.run, &format!("guard-{round}"), listen, service, self.ensemble)?;
        let rate = self.through_gateway(&guard.endpoint, Behind::Guard)?;
        guard.stop()?;
        Ok(rate)
    }

    fn through_gateway(&self, endpoint: &str, behind: Behind) -> Outcome<f64> {
        let mut policy = policy("gw", self.zookeeper, self.service.address, behind);
        policy["upstreams"]["service"]["endpoints"] = json!([endpoint]);
        let gateway = Gateway::of(self.run, &policy)?;
        let rate = self.ask(gateway.public)?;
        gateway.stop()?;
        Ok(rate)
    }

    fn ask(&self, address: SocketAddr) -> Outcome<f64> {
        LOAD.ask(self.run, address, WARM_UP)?;
        Ok(LOAD.ask(self.run, address, self.run.window)?.per_second)
    }
}
