//! Who starts the process as systemd does (`Type=notify`) is told when it can do its work, and not before.

use std::{path::PathBuf, time::Duration};

use fencegate::demo::child::Signal;
use fencegate_tests::{
    gateway::Launch,
    guard::{self, Beside, Dispatch, FLOOR, assert_refused},
    held::Held,
    origin::Origin,
    patience::{QUIET, patiently},
    scratch,
    site::Site,
};
use tempfile::TempDir;
use tokio::net::UnixDatagram;

/// Listens where systemd would.
struct Manager {
    socket: UnixDatagram,
    home: TempDir,
}

impl Manager {
    fn listens() -> Self {
        let home = scratch::place();
        let socket = UnixDatagram::bind(home.path().join("notify")).expect("a socket");
        Self { socket, home }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("notify")
    }

    async fn hears(&self) -> String {
        let mut told = [0; 64];
        let length = patiently("a word of the process", self.socket.recv(&mut told), || "none").await;
        String::from_utf8_lossy(&told[..length.expect("a datagram")]).into_owned()
    }

    async fn hears_nothing(&self) {
        let heard = tokio::time::timeout(QUIET, self.hears()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

#[tokio::test]
async fn a_gateway_has_started_when_it_can_grant_locks() {
    let (zookeeper, site) = Site::on_its_own().await;
    let zookeeper = zookeeper.stop().await;
    let manager = Manager::listens();
    let gateway = Launch::new(&site.policy("gw-1")).telling(&manager.path()).start().await;
    manager.hears_nothing().await;
    let _zookeeper = zookeeper.start_again().await;
    assert_eq!(manager.hears().await, "READY=1");
    assert_eq!(gateway.admin("/ready").await.status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(manager.hears().await, "STOPPING=1");
    assert!(gateway.exit().await.success());
}

#[tokio::test]
async fn a_guard_has_started_when_its_quarantine_is_over() {
    let (manager, origin) = (Manager::listens(), Origin::start());
    let launch = guard::Launch::before(origin.door("guard"))
        .with("/upstream/response_timeout", "100ms")
        .with("/send_within", "100ms")
        .with("/max_execution", "2s");
    let guard = launch.init(FLOOR).telling(&manager.path()).start().await;
    let quarantined = guard.admin("/ready").await;
    let said = String::from_utf8_lossy(&quarantined.body).into_owned();
    assert!(quarantined.status == 503 && said.contains("the store is new"), "{said}");
    manager.hears_nothing().await;
    let ready = tokio::time::timeout(Duration::from_secs(10), manager.hears()).await;
    assert_eq!(ready.as_deref(), Ok("READY=1"));
    assert_eq!(guard.admin("/ready").await.status, 200);
    guard.signal(Signal::TERM);
    assert_eq!(manager.hears().await, "STOPPING=1");
}

/// Keys that were at work wait; the others are what a guard is started for.
#[tokio::test]
async fn a_guard_that_was_killed_has_started_when_it_serves_the_keys_that_were_not_at_work() {
    let (manager, beside) = (Manager::listens(), Beside::fresh().await);
    let launch = beside.launch().await.with("/max_execution", "60s");
    let guard = launch.start().await;
    let Held { request: lost, latch, .. } =
        beside.origin.holds_one(&guard, Dispatch::new("a", FLOOR + 10).post("/work")).await;
    let launch = guard.dies().await;
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    latch.let_go();
    let guard = launch.telling(&manager.path()).start().await;
    assert_eq!(manager.hears().await, "READY=1");
    assert_eq!(guard.send(&Dispatch::new("b", FLOOR + 20).post("/other")).await.status, 200);
    assert_refused(&guard.send(&Dispatch::new("a", FLOOR + 30).post("/work")).await, "quarantine");
}
