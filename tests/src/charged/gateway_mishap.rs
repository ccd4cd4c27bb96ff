//! Mishaps of a gateway, where the lock of a command is a lease of that gateway.

use std::time::Duration;

use fencegate::demo::child::Signal;
use fencegate_lock::client::{Client, Options};
use futures_util::future::join_all;

use super::{
    Charged, GRACE, Manner, Way,
    measured::{Death, Measured},
};
use crate::{
    faulty_link::FaultyLink,
    gateway::{Gateway, Launch},
    leases::Tokens,
    policy::Policy,
    site::Site,
};

/// What happens to the gateway that holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMishap {
    Stopped,
    Killed,
    /// The gateway and ZooKeeper hear nothing of each other any more.
    CutOff,
}

impl GatewayMishap {
    pub const ALL: [Self; 3] = [Self::Stopped, Self::Killed, Self::CutOff];
}

/// Two gateways. Commands ask both, the first one first.
pub struct GatewayScene {
    site: Site,
    tokens: Tokens,
    link: FaultyLink,
    policy: Policy,
    victim: Gateway,
    other: Gateway,
}

impl GatewayScene {
    pub async fn new() -> Self {
        let (site, tokens) = (Site::fresh().await, Tokens::default());
        let link = FaultyLink::to(site.zookeeper).await;
        // The session is long enough that a busy machine loses none before the mishap.
        let policy = |name| tokens.policy(&site, name).with("/zookeeper/session_timeout", "4s");
        let (policy, other) = (policy("gw-1").through(link.address()), policy("gw-2"));
        let (victim, other) = Gateway::start_both(&policy, &other).await;
        Self { site, tokens, link, policy, victim, other }
    }

    /// Plays one mishap for `many` leases at once, each of a key of its own. The commands are alternately stubborn and
    /// meek.
    ///
    /// # Panics
    /// If the gateway that suffers the mishap does not hold all of the leases.
    pub async fn plays(&mut self, mishap: GatewayMishap, many: usize) -> Vec<Measured<GatewayMishap>> {
        let all: Vec<_> = (0..many).map(|number| self.begins(mishap, number)).collect();
        for (charged, _) in &all {
            charged.lives().await;
        }
        self.victim.series_becomes("fencegate_leases", &["state=\"held\""], many as f64).await;
        match mishap {
            GatewayMishap::Stopped => self.victim.signal(Signal::STOP),
            GatewayMishap::Killed => self.victim.signal(Signal::KILL),
            GatewayMishap::CutOff => self.link.lose_all(),
        }
        let next = Client::connect(self.direct()).await.expect("ZooKeeper serves");
        let measured = all
            .iter()
            .map(async |(charged, key)| Death::of(charged, key, &next).await.measured(mishap, true).await);
        let measured = join_all(measured).await;
        next.close().await;
        self.goes_on_after(mishap).await;
        measured
    }

    fn begins(&self, mishap: GatewayMishap, number: usize) -> (Charged, String) {
        let key = format!("job/{mishap:?}-{number}");
        let manner = if number.is_multiple_of(2) { Manner::Stubborn } else { Manner::Meek };
        let doors = Way::through(&[&self.victim, &self.other], &self.tokens.file("client"));
        (Charged::living(doors, &[&["lock", &key, "--ttl", "3s"], &GRACE[..]].concat(), manner), key)
    }

    /// Options of the next holder, which takes locks in ZooKeeper without a gateway.
    fn direct(&self) -> Options {
        let (session_timeout, tick) = (Duration::from_secs(2), Duration::from_millis(200));
        let (zookeeper, root) = (self.site.zookeeper.to_string(), &self.site.root);
        Options { session_timeout, tick, ..Options::of(&zookeeper, root, "next") }
    }

    async fn goes_on_after(&mut self, mishap: GatewayMishap) {
        match mishap {
            GatewayMishap::Stopped => self.victim.signal(Signal::CONT),
            GatewayMishap::Killed => self.victim = Launch::new(&self.policy).start().await,
            GatewayMishap::CutOff => {
                self.link.cut();
                self.link.mend();
            }
        }
        self.victim.becomes_ready().await;
    }
}
