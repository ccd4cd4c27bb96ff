//! The mishaps after which a command must be dead before somebody else gets its lock, and the time between the two.

use std::time::Duration;

use fencegate::demo::child::Signal;
use fencegate_lock::client::{Client, Options};
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    Charged, GRACE, Manner, installed,
    measured::{Death, Measured},
    signal,
};
use crate::{
    faulty_link::FaultyLink,
    policy::Policy,
    zookeeper::{OwnZooKeeper, fresh_root},
};

/// What happens to one `fencegate lock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    KeeperStopped,
    KeeperKilled,
    WatchmanStopped,
    WatchmanKilled,
    /// The command is stopped, and the keeper is killed as well.
    CommandStopped,
    ZooKeeperStopped,
    Cut,
}

impl Mishap {
    pub const ALL: [Self; 7] = [
        Self::KeeperStopped,
        Self::KeeperKilled,
        Self::WatchmanStopped,
        Self::WatchmanKilled,
        Self::CommandStopped,
        Self::ZooKeeperStopped,
        Self::Cut,
    ];

    /// The keeper lives on and can report its exit code.
    fn tells(self) -> bool {
        !matches!(self, Self::KeeperKilled | Self::CommandStopped)
    }
}

/// The place of some mishaps: a ZooKeeper server of its own, and a link to it that can fail.
pub struct Scene {
    zookeeper: OwnZooKeeper,
    link: FaultyLink,
    policy: Policy,
    direct: Options,
}

impl Scene {
    pub async fn new() -> Self {
        let zookeeper = OwnZooKeeper::start();
        let (address, root) = (zookeeper.server.address(), fresh_root());
        let link = FaultyLink::to(address).await;
        let nobody = "127.0.0.1:9".parse().expect("an address");
        let policy = Policy::new("jobs", address, &root, nobody);
        installed(&policy).await;
        let (session_timeout, tick) = (Duration::from_secs(2), Duration::from_millis(200));
        let direct = Options { session_timeout, tick, ..Options::of(&address.to_string(), &root, "next") };
        let policy = policy.through(link.address());
        Self { zookeeper, link, policy, direct }
    }

    /// Plays one mishap for `many` commands at once, each with a key of its own. The commands are alternately stubborn
    /// and meek.
    pub async fn plays(&self, mishap: Mishap, many: usize) -> Vec<Measured<Mishap>> {
        let all: Vec<_> = (0..many).map(|number| self.begins(mishap, number)).collect();
        for (charged, _) in &all {
            charged.lives().await;
        }
        let next = Client::connect(self.direct.clone()).await.expect("ZooKeeper serves");
        let (happens, all) = (self.happens(mishap, &all), &all);
        let measured = async {
            let measured = all.iter().map(async |(charged, key)| {
                let dead = Death::of(charged, key, &next).await;
                if mishap == Mishap::KeeperStopped {
                    charged.signal(Signal::CONT);
                }
                dead.measured(mishap, mishap.tells()).await
            });
            join_all(measured).await
        };
        let ((), measured) = tokio::join!(happens, measured);
        next.close().await;
        measured
    }

    fn begins(&self, mishap: Mishap, number: usize) -> (Charged, String) {
        let key = format!("{mishap:?}/{number}");
        let manner = if number.is_multiple_of(2) { Manner::Stubborn } else { Manner::Meek };
        (Charged::living(&self.policy, &[&["lock", &key], &GRACE[..]].concat(), manner), key)
    }

    async fn happens(&self, mishap: Mishap, all: &[(Charged, String)]) {
        // The pause spreads the mishaps over the time between two heartbeats.
        for (charged, _) in all {
            sleep(Duration::from_millis(37)).await;
            match mishap {
                Mishap::KeeperStopped => signal(charged.keeper(), Signal::STOP),
                Mishap::KeeperKilled => signal(charged.keeper(), Signal::KILL),
                Mishap::WatchmanStopped => signal(charged.watchman(), Signal::STOP),
                Mishap::WatchmanKilled => signal(charged.watchman(), Signal::KILL),
                Mishap::CommandStopped => {
                    signal(charged.command(), Signal::STOP);
                    signal(charged.keeper(), Signal::KILL);
                }
                Mishap::ZooKeeperStopped | Mishap::Cut => {}
            }
        }
        match mishap {
            Mishap::ZooKeeperStopped => {
                self.zookeeper.server.pause().expect("our own child");
                for (charged, _) in all {
                    charged.says("proven until ").await;
                }
                self.zookeeper.server.resume().expect("our own child");
            }
            Mishap::Cut => {
                self.link.lose_all();
                for (charged, _) in all {
                    charged.exit().await;
                }
                self.link.cut();
                self.link.mend();
            }
            _ => {}
        }
    }
}
