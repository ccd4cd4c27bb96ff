//! The cost of a filter, of signed tickets and of `health` of a guard: each is compared with the same programs
//! without it, on requests of known tenures.

use std::{fs, net::SocketAddr};

use fencegate_process::randomness::SystemRandomness;
use fencegate_testkit::zookeeper::PrivateZooKeeper;
use fencegate_ticket::{jwks, keys::SigningKeyPair as KeyPair};
use serde_json::{Value, json};

use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    guard::{
        installation,
        released::{BenchGuard, WARM_UP, guard_policy},
    },
    locks::ZOOKEEPER,
    nginx::Nginx,
    report::{BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    turns::{self, ComparedPair},
    wrk::WrkLoad,
};

/// GETs under a lock. The filter demands `Fencing-Not-After` on each of them, because its policy names no `unfenced`
/// method: a request without the field makes the run fail.
const LOAD: WrkLoad = WrkLoad { method: "GET", prefix: "/warm/", keys: 1000, threads: 2, clients: 64 };

/// The programs that a request passes, over TCP. They are started for each measurement and ended after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyChain {
    /// A gateway whose service compares no tokens.
    Gateway,
    GatewayFilter,
    Guard,
    GuardFilter,
    /// The gateway signs a new ticket after a quarter of the time to the session deadline: about every two seconds
    /// for each key.
    GuardTickets,
    /// The gateway signs a new ticket every second for each key: after a quarter of a short `response_timeout`.
    GuardBriefTickets,
    GuardHealth,
}

const ALL: [ProxyChain; 7] = [
    ProxyChain::Gateway,
    ProxyChain::GatewayFilter,
    ProxyChain::GuardFilter,
    ProxyChain::GuardHealth,
    ProxyChain::Guard,
    ProxyChain::GuardTickets,
    ProxyChain::GuardBriefTickets,
];

/// The pairs that are compared.
const PAIRS: [ComparedPair<ProxyChain>; 5] = [
    (
        "filter",
        ProxyChain::GatewayFilter,
        ProxyChain::Gateway,
        "the gateway without a filter",
        RatioGoal::None,
    ),
    (
        "guard-filter",
        ProxyChain::GuardFilter,
        ProxyChain::Guard,
        "the guard without a filter",
        RatioGoal::None,
    ),
    (
        "guard-tickets",
        ProxyChain::GuardTickets,
        ProxyChain::Guard,
        "the guard without tickets",
        RatioGoal::None,
    ),
    (
        "guard-tickets-brief",
        ProxyChain::GuardBriefTickets,
        ProxyChain::Guard,
        "the guard without tickets",
        RatioGoal::None,
    ),
    (
        "guard-health",
        ProxyChain::GuardHealth,
        ProxyChain::Guard,
        "the guard without `health`",
        RatioGoal::AtLeast(0.9),
    ),
];

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-options"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let ensemble = installation(run, zookeeper.address())?;
    let keys = TicketKeyFiles::create(run)?;
    let site = BenchSite { run, zookeeper: zookeeper.address(), service: service.address, ensemble, keys };
    turns::compare(run, &ALL, &PAIRS, |way, round| site.measure_rate(way, round))
}

/// The files of an Ed25519 key: its private half for the gateway, and its public half for the guard.
struct TicketKeyFiles {
    private: String,
    public: String,
}

impl TicketKeyFiles {
    fn create(run: &BenchRun) -> BenchResult<Self> {
        let file = |name: &str| run.folder().join(name);
        let private = file("ticket.key");
        let public = file("ticket-keys.json");
        let pair = KeyPair::generate(&SystemRandomness);
        pair.write(&private)?;
        fs::write(&public, jwks::render_key_set(&[pair.public()])?)?;
        Ok(Self { private: private.display().to_string(), public: public.display().to_string() })
    }
}

struct BenchSite<'a> {
    run: &'a BenchRun,
    zookeeper: SocketAddr,
    service: SocketAddr,
    ensemble: String,
    keys: TicketKeyFiles,
}

impl ProxyChain {
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

impl BenchSite<'_> {
    fn measure_rate(&self, way: ProxyChain, round: u32) -> BenchResult<f64> {
        let mut endpoint = format!("http://{}", self.service);
        let filter = match way.has_filter() {
            true => Some(BenchGuard::start_filter(self.run, &format!("filter-{round}"), &endpoint)?),
            false => None,
        };
        endpoint = filter.as_ref().map_or(endpoint, |filter| filter.endpoint.clone());
        let guard = match way.has_guard() {
            true => Some(self.guard(way, round, &endpoint)?),
            false => None,
        };
        endpoint = guard.as_ref().map_or(endpoint, |guard| guard.endpoint.clone());
        let gateway = BenchGateway::start_with(self.run, &self.gateway_policy(way, &endpoint))?;
        LOAD.run(self.run, gateway.public, WARM_UP)?;
        let rate = LOAD.run(self.run, gateway.public, self.run.window)?.per_second;
        gateway.stop()?;
        guard.map_or(Ok(()), BenchGuard::stop)?;
        filter.map_or(Ok(()), BenchGuard::stop)?;
        Ok(rate)
    }

    fn guard(&self, way: ProxyChain, round: u32, service: &str) -> BenchResult<BenchGuard> {
        let name = format!("guard-{round}");
        let mut policy = guard_policy(self.run, &name, service);
        match way {
            ProxyChain::Gateway
            | ProxyChain::GatewayFilter
            | ProxyChain::Guard
            | ProxyChain::GuardTickets => {}
            ProxyChain::GuardFilter => require_deadline_filter(&mut policy["upstream"]),
            // The default of `settle` would be too long: the gateway's short `response_timeout` has to exceed both
            // wait limits of its guard together.
            ProxyChain::GuardBriefTickets => policy["settle"] = "1s".into(),
            ProxyChain::GuardHealth => policy["upstream"]["health"] = json!({"path": "/"}),
        }
        if way.has_tickets() {
            policy["tickets"] = json!({"public_keys_file": self.keys.public});
        }
        BenchGuard::start_with(self.run, &name, &policy, &self.ensemble)
    }

    fn gateway_policy(&self, way: ProxyChain, endpoint: &str) -> Value {
        let behind = if way.has_guard() { UpstreamKind::Guard } else { UpstreamKind::Service };
        let mut policy = policy("gw", self.zookeeper, self.service, behind);
        let upstream = &mut policy["upstreams"]["service"];
        upstream["endpoints"] = json!([endpoint]);
        match way {
            ProxyChain::Gateway => upstream["fencing"] = "none".into(),
            ProxyChain::GatewayFilter => {
                upstream["fencing"] = "none".into();
                require_deadline_filter(upstream);
            }
            ProxyChain::GuardBriefTickets => upstream["response_timeout"] = "4s".into(),
            ProxyChain::Guard
            | ProxyChain::GuardFilter
            | ProxyChain::GuardTickets
            | ProxyChain::GuardHealth => {}
        }
        if way.has_tickets() {
            policy["tickets"] = json!({"signing_key_file": self.keys.private});
        }
        policy
    }
}

/// States in the policy of a gateway or guard that a filter stands directly before the service.
fn require_deadline_filter(upstream: &mut Value) {
    upstream["not_after"] = "enforced".into();
    upstream["direct"] = true.into();
}
