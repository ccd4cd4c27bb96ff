//! Fencegate at each of its levels: two gateways, a guard if the level has one, and clients that take no lock.

use std::net::SocketAddr;

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    ensemble::free_ports,
    gateway::{Gateway, GatewayLaunch},
    guard::{self, Guard},
    guarded::GuardedSite,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

use crate::{
    account::{AccountService, TokenCheck},
    clients::{CLIENTS, ClientProcesses, ClientProgram},
    run::LockProcesses,
    schedule::LEASE,
};

/// The `fencing` of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FencingLevel {
    None,
    Delay,
    Guard,
    Upstream,
}

/// The delay of level `delay`: longer than any pause of the schedule lasts beyond the session.
const DELAY: &str = "5s";
const GATEWAYS: usize = 2;

pub(crate) struct GatewayProcesses {
    policies: Vec<TestPolicy>,
    /// `None` while a gateway is being restarted.
    running: Vec<Option<Gateway>>,
    guard: Option<Guard>,
    clients: ClientProcesses,
}

impl FencingLevel {
    /// Level `upstream` requires a service that compares tokens; for the other levels it does not.
    pub(crate) fn token_check(self) -> TokenCheck {
        match self {
            Self::Upstream => TokenCheck::Tokens,
            Self::None | Self::Delay | Self::Guard => TokenCheck::Nothing,
        }
    }

    fn applied(self, policy: TestPolicy) -> TestPolicy {
        match self {
            // As policies/REFERENCE.md advises: not longer than a session less its margin.
            Self::None => policy
                .with("/upstreams/ledger/fencing", "none")
                .with("/upstreams/ledger/response_timeout", "1s"),
            Self::Delay => policy
                .with("/upstreams/ledger/fencing", "delay")
                .with("/upstreams/ledger/delay", DELAY)
                .with("/upstreams/ledger/response_timeout", DELAY),
            Self::Guard | Self::Upstream => policy,
        }
    }
}

impl GatewayProcesses {
    pub(crate) async fn start(level: FencingLevel, zookeeper: SocketAddr, account: &AccountService) -> Self {
        let site = GuardedSite::new(TestSite::at(zookeeper).await).await;
        let guard = match level {
            FencingLevel::Guard => Some(guard_before(account, &site).await),
            _ => None,
        };
        let ports = free_ports(GATEWAYS);
        let policy = |number: usize| {
            let name = format!("gw-{number}");
            let policy = match &guard {
                Some(guard) => site.policy(&name, &[guard.public]),
                None => level
                    .applied(site.site.policy(&name))
                    .with("/upstreams/ledger/endpoints", json!([format!("http://{}", account.address)])),
            };
            policy
                .with("/listeners/public/address", format!("127.0.0.1:{}", ports[number]))
                .with("/zookeeper/session_timeout", format!("{}s", LEASE.as_secs()))
                // The default mode of a real policy, which the test policy overrides.
                .with("/defaults/hold", json!({"mode": "cached"}))
                .with("/routes/0/fence/wait", "30s")
        };
        let policies: Vec<TestPolicy> = (0..GATEWAYS).map(policy).collect();
        let (one, other) = Gateway::start_both(&policies[0], &policies[1]).await;
        let doors = [one.public, other.public];
        let clients =
            ClientProcesses::start(ClientProgram::python("none"), String::new(), &doors, "/pay/7").await;
        Self { policies, running: vec![Some(one), Some(other)], guard, clients }
    }

    fn gateway(&self, victim: usize) -> &Gateway {
        self.running[victim].as_ref().expect("it runs")
    }
}

async fn guard_before(account: &AccountService, site: &GuardedSite) -> Guard {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]));
    let launch = guard::GuardLaunch::for_upstream(account.address).for_ensemble(&site.ensemble);
    let made = launch.with("/listener/address", address.to_string()).init_with_floor(site.floor).await;
    made.start().await
}

/// The faults happen to the gateways, because clients hold no locks.
impl LockProcesses for GatewayProcesses {
    fn victims(&self) -> usize {
        GATEWAYS
    }

    fn names(&self, victim: usize) -> Vec<String> {
        (0..CLIENTS).filter(|client| client % GATEWAYS == victim).map(ClientProcesses::name).collect()
    }

    /// Replaces the gateway by one that is paused once by a failpoint, between the check of its lock validity and
    /// its first write.
    async fn wait_before_request(&mut self, victim: usize, _account: &AccountService) {
        let before = self.running[victim].take().expect("it runs");
        before.signal(Signal::TERM);
        before.exit().await;
        drop(before);
        let launch =
            GatewayLaunch::new(&self.policies[victim]).failpoint("after_proof_check", "1*sleep(600)");
        let gateway = launch.start().await;
        gateway.wait_at_failpoint("after_proof_check").await;
        self.running[victim] = Some(gateway);
    }

    fn signal(&self, victim: usize, signal: Signal) {
        self.gateway(victim).signal(signal);
    }

    async fn restart(&mut self, victim: usize) {
        drop(self.running[victim].take());
        self.running[victim] = Some(Gateway::start(&self.policies[victim]).await);
    }

    async fn refused_writes(&self) -> usize {
        match &self.guard {
            Some(guard) => guard.decision_count("stale").await as usize,
            None => 0,
        }
    }

    fn output(&self) -> String {
        self.clients.output()
    }
}
