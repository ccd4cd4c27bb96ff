//! What a filter, signed tickets and `health` of a guard cost: each beside the same programs without it, on requests of
//! tenures that are known.

use std::{fs, net::SocketAddr};

use fencegate::demo::zookeeper::PrivateZooKeeper;
use fencegate_guard::ticket::{jwks, keys::Pair as KeyPair};
use fencegate_process::randomness::SystemRandomness;
use serde_json::{Value, json};

use crate::{
    gateway::{Behind, Gateway, policy},
    guard::{
        installation,
        released::{Guard, WARM_UP, guard_policy},
    },
    locks::ZOOKEEPER,
    nginx::Nginx,
    outcome::Outcome,
    report::{Bench, Goal},
    run::Run,
    turns::{self, Pair},
    wrk::Load,
};

/// GETs under a lock. A filter asks for `Fencing-Not-After` with each of them, because its policy names no `unfenced`
/// method: a request that nobody has stamped makes the run fail.
const LOAD: Load = Load { method: "GET", prefix: "/warm/", keys: 1000, threads: 2, clients: 64 };

/// The programs that a request passes, all by ports. All of them are started for a turn and end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A gateway whose service compares no tokens.
    Gateway,
    GatewayFilter,
    Guard,
    GuardFilter,
    /// Tickets are signed anew when a quarter of the session's proof is over: every two seconds or so for each key.
    GuardTickets,
    /// Tickets are signed anew every second for each key, which is a quarter of a short `response_timeout`.
    GuardBriefTickets,
    GuardHealth,
}

const ALL: [Way; 7] = [
    Way::Gateway,
    Way::GatewayFilter,
    Way::GuardFilter,
    Way::GuardHealth,
    Way::Guard,
    Way::GuardTickets,
    Way::GuardBriefTickets,
];

/// The pairs that are compared.
const PAIRS: [Pair<Way>; 5] = [
    ("filter", Way::GatewayFilter, Way::Gateway, "the gateway without a filter", Goal::None),
    ("guard-filter", Way::GuardFilter, Way::Guard, "the guard without a filter", Goal::None),
    ("guard-tickets", Way::GuardTickets, Way::Guard, "the guard without tickets", Goal::None),
    ("guard-tickets-brief", Way::GuardBriefTickets, Way::Guard, "the guard without tickets", Goal::None),
    ("guard-health", Way::GuardHealth, Way::Guard, "the guard without `health`", Goal::AtLeast(0.9)),
];

pub(crate) fn measure(run: &Run) -> Outcome<Vec<Bench>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-options"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let ensemble = installation(run, zookeeper.address())?;
    let keys = TicketKeys::create(run)?;
    let site = Site { run, zookeeper: zookeeper.address(), service: service.address, ensemble, keys };
    turns::compare(run, &ALL, &PAIRS, |way, round| site.rate(way, round))
}

/// The files of an Ed25519 key: its private half for the gateway, and its public half for the guard.
struct TicketKeys {
    private: String,
    public: String,
}

impl TicketKeys {
    fn create(run: &Run) -> Outcome<Self> {
        let file = |name: &str| run.folder().join(name);
        let (private, public) = (file("ticket.key"), file("ticket-keys.json"));
        let pair = KeyPair::generate(&SystemRandomness);
        pair.write(&private)?;
        fs::write(&public, jwks::render(&[pair.public()])?)?;
        Ok(Self { private: private.display().to_string(), public: public.display().to_string() })
    }
}

struct Site<'a> {
    run: &'a Run,
    zookeeper: SocketAddr,
    service: SocketAddr,
    ensemble: String,
    keys: TicketKeys,
}

impl Way {
    fn has_filter(self) -> bool {
        matches!(self, Self::GatewayFilter | Self::GuardFilter)
    }

    fn has_guard(self) -> bool {
        !matches!(self, Self::Gateway | Self::GatewayFilter)
    }

    fn has_tickets(self) -> bool {
        matches!(self, Self::GuardTickets | Self::GuardBriefTickets)
    }
}

impl Site<'_> {
    fn rate(&self, way: Way, round: u32) -> Outcome<f64> {
        let mut endpoint = format!("http://{}", self.service);
        let filter = match way.has_filter() {
            true => Some(Guard::filter(self.run, &format!("filter-{round}"), &endpoint)?),
            false => None,
        };
        endpoint = filter.as_ref().map_or(endpoint, |filter| filter.endpoint.clone());
        let guard = match way.has_guard() {
            true => Some(self.guard(way, round, &endpoint)?),
            false => None,
        };
        endpoint = guard.as_ref().map_or(endpoint, |guard| guard.endpoint.clone());
        let gateway = Gateway::of(self.run, &self.gateway_policy(way, &endpoint))?;
        LOAD.ask(self.run, gateway.public, WARM_UP)?;
        let rate = LOAD.ask(self.run, gateway.public, self.run.window)?.per_second;
        gateway.stop()?;
        guard.map_or(Ok(()), Guard::stop)?;
        filter.map_or(Ok(()), Guard::stop)?;
        Ok(rate)
    }

    fn guard(&self, way: Way, round: u32, service: &str) -> Outcome<Guard> {
        let name = format!("guard-{round}");
        let mut policy = guard_policy(self.run, &name, service);
        match way {
            Way::Gateway | Way::GatewayFilter | Way::Guard | Way::GuardTickets => {}
            Way::GuardFilter => refuses_late(&mut policy["upstream"]),
            // A gateway's `response_timeout` has to be longer than both waits of its guard together.
            Way::GuardBriefTickets => policy["settle"] = "1s".into(),
            Way::GuardHealth => policy["upstream"]["health"] = json!({"path": "/"}),
        }
        if way.has_tickets() {
            policy["tickets"] = json!({"public_keys_file": self.keys.public});
        }
        Guard::with(self.run, &name, &policy, &self.ensemble)
    }

    fn gateway_policy(&self, way: Way, endpoint: &str) -> Value {
        let behind = if way.has_guard() { Behind::Guard } else { Behind::Service };
        let mut policy = policy("gw", self.zookeeper, self.service, behind);
        let upstream = &mut policy["upstreams"]["service"];
        upstream["endpoints"] = json!([endpoint]);
        match way {
            Way::Gateway => upstream["fencing"] = "none".into(),
            Way::GatewayFilter => {
                upstream["fencing"] = "none".into();
                refuses_late(upstream);
            }
            Way::GuardBriefTickets => upstream["response_timeout"] = "4s".into(),
            Way::Guard | Way::GuardFilter | Way::GuardTickets | Way::GuardHealth => {}
        }
        if way.has_tickets() {
            policy["tickets"] = json!({"signing_key_file": self.keys.private});
        }
        policy
    }
}

/// States in the policy of a sender that a filter stands before the service, and nothing between them.
fn refuses_late(upstream: &mut Value) {
    upstream["not_after"] = "enforced".into();
    upstream["direct"] = true.into();
}
