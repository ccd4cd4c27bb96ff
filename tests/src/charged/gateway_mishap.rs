//! Mishaps of a gateway, where the lock of a command is a lease of that gateway.

use std::time::Duration;

use fencegate_lock::client::{ConnectOptions, LockClient};
use fencegate_testkit::child::Signal;
use futures_util::future::join_all;

use super::{
    CommandBehavior, GRACE, LockedCommand, TestLockSource,
    measured::{CommandDeath, FaultTiming},
};
use crate::{
    gateway::{Gateway, GatewayLaunch},
    leases::LeaseTokens,
    policy::TestPolicy,
    site::TestSite,
    zookeeper_proxy::ZooKeeperProxy,
};

/// What happens to the gateway that holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayFault {
    Stopped,
    Killed,
    /// No message passes between the gateway and ZooKeeper any more.
    CutOff,
}

impl GatewayFault {
    pub const ALL: [Self; 3] = [Self::Stopped, Self::Killed, Self::CutOff];
}

/// Two gateways. Commands send to both, the first one first.
pub struct GatewayFaultFixture {
    site: TestSite,
    tokens: LeaseTokens,
    link: ZooKeeperProxy,
    policy: TestPolicy,
    victim: Gateway,
    other: Gateway,
}

impl GatewayFaultFixture {
    pub async fn new() -> Self {
        let site = TestSite::fresh().await;
        let tokens = LeaseTokens::default();
        let link = ZooKeeperProxy::start(site.zookeeper).await;
        // The session is long enough that a busy machine loses none before the mishap.
        let policy = |name| tokens.policy(&site, name).with("/zookeeper/session_timeout", "4s");
        let (policy, other) = (policy("gw-1").with_zookeeper(link.address()), policy("gw-2"));
        let (victim, other) = Gateway::start_both(&policy, &other).await;
        Self { site, tokens, link, policy, victim, other }
    }

    /// Plays one mishap for `many` leases at once, each of a key of its own. The commands are alternately stubborn and
    /// meek.
    ///
    /// # Panics
    /// If the gateway that suffers the mishap does not hold all of the leases.
    pub async fn run_rounds(&mut self, mishap: GatewayFault, many: usize) -> Vec<FaultTiming<GatewayFault>> {
        let all: Vec<_> = (0..many).map(|number| self.start_command(mishap, number)).collect();
        for (charged, _) in &all {
            charged.wait_record().await;
        }
        self.victim.wait_series("fencegate_leases", &["state=\"held\""], many as f64).await;
        match mishap {
            GatewayFault::Stopped => self.victim.signal(Signal::STOP),
            GatewayFault::Killed => self.victim.signal(Signal::KILL),
            GatewayFault::CutOff => self.link.lose_all(),
        }
        let next = LockClient::connect(self.direct_options()).await.expect("ZooKeeper serves");
        let measured = all.iter().map(async |(charged, key)| {
            CommandDeath::observe(charged, key, &next).await.measure(mishap, true).await
        });
        let measured = join_all(measured).await;
        next.close().await;
        self.recover_from(mishap).await;
        measured
    }

    fn start_command(&self, mishap: GatewayFault, number: usize) -> (LockedCommand, String) {
        let key = format!("job/{mishap:?}-{number}");
        let manner = if number.is_multiple_of(2) { CommandBehavior::Stubborn } else { CommandBehavior::Meek };
        let doors = TestLockSource::via_gateways(&[&self.victim, &self.other], &self.tokens.file("client"));
        (LockedCommand::spawn(doors, &[&["lock", &key, "--ttl", "3s"], &GRACE[..]].concat(), manner), key)
    }

    /// Options of the next holder, which takes locks in ZooKeeper without a gateway.
    fn direct_options(&self) -> ConnectOptions {
        let session_timeout = Duration::from_secs(2);
        let tick = Duration::from_millis(200);
        let zookeeper = self.site.zookeeper.to_string();
        let root = &self.site.root;
        ConnectOptions { session_timeout, tick, ..ConnectOptions::new(&zookeeper, root, "next") }
    }

    async fn recover_from(&mut self, mishap: GatewayFault) {
        match mishap {
            GatewayFault::Stopped => self.victim.signal(Signal::CONT),
            GatewayFault::Killed => self.victim = GatewayLaunch::new(&self.policy).start().await,
            GatewayFault::CutOff => {
                self.link.cut();
                self.link.mend();
            }
        }
        self.victim.wait_ready().await;
    }
}
