//! The site of one test: an origin, a root in ZooKeeper, and gateways that use both. Tests do not share sites.

use std::{net::SocketAddr, thread, time::Duration};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    ensemble::over_tls::{is_enabled, shared as secured_servers},
    gateway::{Gateway, GatewayLaunch},
    origin::{AccountIsolation, Origin},
    policy::TestPolicy,
    zookeeper::{self, OwnZooKeeper, ZnodeTree},
};

pub struct TestSite {
    pub origin: Origin,
    pub zookeeper: SocketAddr,
    pub root: String,
    /// True if the gateways speak TLS with ZooKeeper servers that identify them.
    over_tls: bool,
    _turn: TestSlot,
}

/// Lets tests run beside each other, except those that measure how long something takes.
static TURNS: RwLock<()> = RwLock::const_new(());

/// The names of the tests that need the machine alone. `tests/run` runs them one by one after all others, because
/// each of them would wait for every running test, and block every test that has not begun.
const ALONE: &str = include_str!("../alone");

/// The permission of a test to run. The test keeps it until its end.
pub enum TestSlot {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl TestSlot {
    /// Waits until no test runs that measures times. Others may run at the same time.
    pub async fn beside_others() -> Self {
        Self::Shared { _guard: TURNS.read().await }
    }
}

impl TestSite {
    /// A site on the ZooKeeper that all tests share.
    pub async fn fresh() -> Self {
        Self::shared(TestSlot::beside_others().await)
    }

    /// A site on ZooKeeper servers that speak TLS. The gateways of the site share a certificate, by which the
    /// servers identify them.
    pub async fn secured() -> Self {
        Self::over_tls(TestSlot::beside_others().await)
    }

    /// A site on the ZooKeeper at this address, which belongs to the test.
    pub async fn at(zookeeper: SocketAddr) -> Self {
        Self::new(zookeeper, TestSlot::beside_others().await)
    }

    /// A site on a new ZooKeeper that belongs to the test, and that ZooKeeper.
    pub async fn with_own_zookeeper() -> (OwnZooKeeper, Self) {
        let zookeeper = OwnZooKeeper::start();
        let site = Self::at(zookeeper.server.address()).await;
        (zookeeper, site)
    }

    /// A site for promises with a time limit: no other test of this process runs meanwhile.
    ///
    /// # Panics
    /// If the test is not listed in `tests/alone`.
    pub async fn alone() -> Self {
        let thread = thread::current();
        // If tests run one after the other, all of them run on the main thread.
        let test = thread.name().filter(|name| *name != "main");
        let is_listed = |test| ALONE.lines().any(|listed| listed == test);
        assert!(
            test.is_none_or(is_listed),
            "{test:?} waits for all others, and they for it: list it in tests/alone, and tests/run plays it when they are over"
        );
        Self::shared(TestSlot::Alone { _guard: TURNS.write().await })
    }

    fn shared(turn: TestSlot) -> Self {
        if is_enabled() { Self::over_tls(turn) } else { Self::new(zookeeper::shared(), turn) }
    }

    fn over_tls(turn: TestSlot) -> Self {
        let (zookeeper, root) =
            (secured_servers().address(), zookeeper::fresh_root().replace("/t/", "/tls-"));
        Self { root, over_tls: true, ..Self::new(zookeeper, turn) }
    }

    fn new(zookeeper: SocketAddr, turn: TestSlot) -> Self {
        let origin = Origin::start();
        let root = zookeeper::fresh_root();
        Self { origin, zookeeper, root, over_tls: false, _turn: turn }
    }

    /// Replaces the origin by one that compares tokens.
    #[must_use]
    pub fn with_comparison(self) -> Self {
        Self { origin: Origin::with_comparison(), ..self }
    }

    /// Replaces the origin by one that keeps accounts.
    #[must_use]
    pub fn with_accounts(self, rule: AccountIsolation) -> Self {
        Self { origin: Origin::with_accounts(rule), ..self }
    }

    /// The policy of a gateway. The gateway gets a listener of its own at the origin.
    pub fn policy(&self, name: &str) -> TestPolicy {
        let policy = TestPolicy::new(name, self.zookeeper, &self.root, self.origin.open_listener(name));
        if !self.over_tls {
            return policy;
        }
        let servers = secured_servers();
        let listed = policy.with("/zookeeper/servers", servers.addresses());
        let shown = listed.with("/zookeeper/tls", servers.tls_for_client("gateways"));
        if is_enabled() { shown.with("/zookeeper/acl", "closed") } else { shown }
    }

    pub async fn gateway(&self, name: &str) -> Gateway {
        Gateway::start(&self.policy(name)).await
    }

    /// Like [`TestSite::policy`], with a long session: no janitor removes a node during the test, so a node that is
    /// gone was removed by its own attempt.
    pub fn policy_without_janitor(&self, name: &str) -> TestPolicy {
        self.policy(name).with("/zookeeper/session_timeout", "60s")
    }

    /// Starts a gateway that pauses once, at this failpoint, for this time.
    pub async fn gateway_paused_at(&self, policy: &TestPolicy, failpoint: &str, pause: Duration) -> Gateway {
        let action = format!("1*sleep({})", pause.as_millis());
        let gateway = GatewayLaunch::new(policy).failpoint(failpoint, &action).start().await;
        gateway.wait_ready().await;
        gateway
    }

    pub async fn tree(&self) -> ZnodeTree {
        let server = if self.over_tls { secured_servers().plain_address() } else { self.zookeeper };
        ZnodeTree::connect(server, &self.root).await
    }
}
