//! Faults of a gateway whose lease is the lock of a command.

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

/// The fault of the gateway that holds the lease.
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

/// Two gateways. Commands use both, and prefer the first one.
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
        // A session timeout so long that a busy machine loses no session before the fault.
        let policy = |name| tokens.policy(&site, name).with("/zookeeper/session_timeout", "4s");
        let other = policy("gw-2");
        let policy = policy("gw-1").with_zookeeper(link.address());
        let (victim, other) = Gateway::start_both(&policy, &other).await;
        Self { site, tokens, link, policy, victim, other }
    }

    /// Plays one fault for `many` leases at once, each of its own key. The commands alternately ignore SIGTERM and
    /// end on it.
    ///
    /// # Panics
    /// If the gateway that has the fault does not hold all of the leases.
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

    /// The options of the next holder, which takes the locks directly in ZooKeeper.
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
