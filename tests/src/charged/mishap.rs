//! Faults after which a command must have ended before another holder gets its lock.

use std::time::Duration;

use fencegate_lock::client::{ConnectOptions, LockClient};
use fencegate_testkit::child::Signal;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    CommandBehavior, GRACE, LockedCommand, install,
    measured::{CommandDeath, FaultTiming},
    signal,
};
use crate::{
    policy::TestPolicy,
    zookeeper::{OwnZooKeeper, fresh_root},
    zookeeper_proxy::ZooKeeperProxy,
};

/// A fault of one `fencegate lock` or of its ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    KeeperStopped,
    KeeperKilled,
    WatchmanStopped,
    WatchmanKilled,
    /// The command is stopped by SIGSTOP, and the lock keeper is killed.
    CommandStopped,
    ZooKeeperStopped,
    Cut,
}

impl CommandFault {
    pub const ALL: [Self; 7] = [
        Self::KeeperStopped,
        Self::KeeperKilled,
        Self::WatchmanStopped,
        Self::WatchmanKilled,
        Self::CommandStopped,
        Self::ZooKeeperStopped,
        Self::Cut,
    ];

    /// True if the fault affects every command of the fixture, and not only those of its own round.
    pub fn hits_all_commands(self) -> bool {
        matches!(self, Self::ZooKeeperStopped | Self::Cut)
    }

    /// True if the lock keeper goes on and can report its exit code.
    fn reports_exit_code(self) -> bool {
        !matches!(self, Self::KeeperKilled | Self::CommandStopped)
    }
}

/// The set-up for these faults: a ZooKeeper server of its own, and a proxy before it that can fail.
pub struct CommandFaultFixture {
    zookeeper: OwnZooKeeper,
    link: ZooKeeperProxy,
    policy: TestPolicy,
    direct: ConnectOptions,
}

impl CommandFaultFixture {
    pub async fn new() -> Self {
        let zookeeper = OwnZooKeeper::start();
        let address = zookeeper.server.address();
        let root = fresh_root();
        let link = ZooKeeperProxy::start(address).await;
        let nobody = "127.0.0.1:9".parse().expect("an address");
        let policy = TestPolicy::new("jobs", address, &root, nobody);
        install(&policy).await;
        let session_timeout = Duration::from_secs(2);
        let tick = Duration::from_millis(200);
        let direct = ConnectOptions {
            session_timeout,
            tick,
            ..ConnectOptions::new(&address.to_string(), &root, "next")
        };
        let policy = policy.with_zookeeper(link.address());
        Self { zookeeper, link, policy, direct }
    }

    /// Plays one fault for `many` commands at once, each with its own key. The commands alternately ignore SIGTERM
    /// and end on it.
    pub async fn run_rounds(&self, mishap: CommandFault, many: usize) -> Vec<FaultTiming<CommandFault>> {
        let all: Vec<_> = (0..many).map(|number| self.start_command(mishap, number)).collect();
        for (charged, _) in &all {
            charged.wait_record().await;
        }
        let next = LockClient::connect(self.direct.clone()).await.expect("ZooKeeper serves");
        let happens = self.cause_fault(mishap, &all);
        let all = &all;
        let measured = async {
            let measured = all.iter().map(async |(charged, key)| {
                let dead = CommandDeath::observe(charged, key, &next).await;
                if mishap == CommandFault::KeeperStopped {
                    charged.signal(Signal::CONT);
                }
                dead.measure(mishap, mishap.reports_exit_code()).await
            });
            join_all(measured).await
        };
        let ((), measured) = tokio::join!(happens, measured);
        next.close().await;
        measured
    }

    fn start_command(&self, mishap: CommandFault, number: usize) -> (LockedCommand, String) {
        let key = format!("{mishap:?}/{number}");
        let manner = if number.is_multiple_of(2) { CommandBehavior::Stubborn } else { CommandBehavior::Meek };
        (LockedCommand::spawn(&self.policy, &[&["lock", &key], &GRACE[..]].concat(), manner), key)
    }

    async fn cause_fault(&self, mishap: CommandFault, all: &[(LockedCommand, String)]) {
        // The pauses spread the faults over the time between two heartbeats.
        for (charged, _) in all {
            sleep(Duration::from_millis(37)).await;
            match mishap {
                CommandFault::KeeperStopped => signal(charged.keeper(), Signal::STOP),
                CommandFault::KeeperKilled => signal(charged.keeper(), Signal::KILL),
                CommandFault::WatchmanStopped => signal(charged.supervisor(), Signal::STOP),
                CommandFault::WatchmanKilled => signal(charged.supervisor(), Signal::KILL),
                CommandFault::CommandStopped => {
                    signal(charged.command(), Signal::STOP);
                    signal(charged.keeper(), Signal::KILL);
                }
                CommandFault::ZooKeeperStopped | CommandFault::Cut => {}
            }
        }
        match mishap {
            CommandFault::ZooKeeperStopped => {
                self.zookeeper.server.pause().expect("our own child");
                for (charged, _) in all {
                    charged.wait_output("proven until ").await;
                }
                self.zookeeper.server.resume().expect("our own child");
            }
            CommandFault::Cut => {
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
