//! A service manager such as systemd (`Type=notify`) is notified when the process can do its work, and not before;
//! when it reads its policy again; and, for as long as all of its threads make progress, that it has not hung.
//!
//! A gateway can do its work when it can grant locks, and a guard when it admits dispatches. The beginning of a
//! shutdown is notified as well. The receiver is systemd, or a program that listens as systemd does.

use std::{path::PathBuf, time::Duration};

use fencegate_testkit::{
    child::Signal,
    scratch,
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::TestRequest,
    gateway::GatewayLaunch,
    guard::{self, FLOOR, GuardFixture, StampedRequest, assert_refused},
    held_request::HeldRequest,
    leases::{LeaseTokens, acquire_request},
    origin::Origin,
    site::TestSite,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::UnixDatagram;

/// A socket in place of systemd's notification socket.
struct FakeSystemd {
    socket: UnixDatagram,
    home: TempDir,
}

impl FakeSystemd {
    fn bind() -> Self {
        let home = scratch::temp_dir();
        let socket = UnixDatagram::bind(home.path().join("notify")).expect("a socket");
        Self { socket, home }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("notify")
    }

    async fn receive(&self) -> String {
        let mut told = [0; 64];
        let length = wait_until("a word of the process", self.socket.recv(&mut told), || "none").await;
        String::from_utf8_lossy(&told[..length.expect("a datagram")]).into_owned()
    }

    async fn assert_silent(&self) {
        let heard = tokio::time::timeout(QUIET, self.receive()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

/// A gateway reports `READY=1` when it can grant locks, and not at the end of an earlier reload.
#[tokio::test]
async fn gateway_notifies_ready_when_locks_granted() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let zookeeper = zookeeper.stop().await;
    let manager = FakeSystemd::bind();
    let gateway = GatewayLaunch::new(&site.policy("gw-1")).with_notify_socket(&manager.path()).start().await;
    // A reload also sends `READY=1` at its end, which must not be taken for the end of the start.
    gateway.rewrite(&site.policy("gw-1").with("/defaults/wait", "3s"));
    let (code, report) = gateway.reload(&[]).await;
    assert_eq!((code, &report["result"]), (Some(0), &"applied".into()), "{report}");
    manager.assert_silent().await;
    let _zookeeper = zookeeper.restart().await;
    assert_eq!(manager.receive().await, "READY=1");
    assert_eq!(gateway.admin("/ready").await.status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(manager.receive().await, "STOPPING=1");
    assert!(gateway.exit().await.success());
}

#[tokio::test]
async fn guard_notifies_ready_after_quarantine() {
    let manager = FakeSystemd::bind();
    let origin = Origin::start();
    let launch = guard::GuardLaunch::for_upstream(origin.open_listener("guard"))
        .with("/upstream/response_timeout", "100ms")
        .with("/send_within", "100ms")
        .with("/max_execution", "2s");
    let guard = launch.init(FLOOR).with_notify_socket(&manager.path()).start().await;
    let quarantined = guard.admin("/ready").await;
    let said = String::from_utf8_lossy(&quarantined.body).into_owned();
    assert!(quarantined.status == 503 && said.contains("the store is new"), "{said}");
    manager.assert_silent().await;
    let ready = tokio::time::timeout(Duration::from_secs(10), manager.receive()).await;
    assert_eq!(ready.as_deref(), Ok("READY=1"));
    assert_eq!(guard.admin("/ready").await.status, 200);
    guard.signal(Signal::TERM);
    assert_eq!(manager.receive().await, "STOPPING=1");
}

/// A guard that was killed reports `READY=1` when it serves the keys that were not at work.
///
/// Keys that were at work have to wait. A guard has started when it serves the other keys.
#[tokio::test]
async fn restarted_guard_ready_for_idle_keys() {
    let manager = FakeSystemd::bind();
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/max_execution", "60s");
    let guard = launch.start().await;
    let HeldRequest { request: lost, latch, .. } =
        beside.origin.hold_request(&guard, StampedRequest::new("a", FLOOR + 10).post("/work")).await;
    let launch = guard.kill().await;
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    latch.release();
    let guard = launch.with_notify_socket(&manager.path()).start().await;
    assert_eq!(manager.receive().await, "READY=1");
    assert_eq!(guard.send(&StampedRequest::new("b", FLOOR + 20).post("/other")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", FLOOR + 30).post("/work")).await, "quarantine");
}

/// The monotonic clock that systemd uses, in microseconds.
fn monotonic() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).expect("not negative").as_micros()
}

#[tokio::test]
async fn reload_is_notified_begin_and_end() {
    let site = TestSite::fresh().await;
    let manager = FakeSystemd::bind();
    let gateway = GatewayLaunch::new(&site.policy("gw-1")).with_notify_socket(&manager.path()).start().await;
    assert_eq!(manager.receive().await, "READY=1");
    let before = monotonic();
    gateway.signal(Signal::HUP);
    let told = manager.receive().await;
    let at = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&told);
    let at: u128 = at.parse().expect("a number");
    assert!((before..=monotonic()).contains(&at), "{before} {at}");
    assert_eq!(manager.receive().await, "READY=1");
    // A dry run sends no notification.
    assert_eq!(gateway.reload(&["--dry-run"]).await.0, Some(0));
    manager.assert_silent().await;
}

/// A process that sends no watchdog notification for this long counts as hung.
const WITHIN: Duration = Duration::from_secs(1);
/// The time for which the failpoint stops a thread.
const HANGS: Duration = Duration::from_secs(4);

impl FakeSystemd {
    /// Waits for four watchdog notifications, each in time.
    async fn wait_four_reports(&self) {
        for _ in 0..4 {
            let told = tokio::time::timeout(WITHIN, self.receive()).await;
            assert_eq!(told.as_deref(), Ok("WATCHDOG=1"));
        }
    }

    /// Waits until no notification comes while a thread hangs, except those that were already sent, and until they come
    /// again afterwards.
    async fn wait_hang_and_recovery(&self) {
        let mut before = 0;
        while tokio::time::timeout(WITHIN, self.receive()).await.is_ok() {
            before += 1;
            assert!(before <= 2, "it is told that all threads turn, and one hangs");
        }
        assert_eq!(self.receive().await, "WATCHDOG=1", "it goes on");
        self.wait_four_reports().await;
    }
}

/// Asserts that notifications stop while a thread hangs. `place`: the failpoint at which the thread stops. `asked`: the
/// request that takes the thread there.
async fn assert_hang_is_noticed(place: &'static str, asked: TestRequest) {
    let site = TestSite::fresh().await;
    let manager = FakeSystemd::bind();
    let tokens = LeaseTokens::default();
    let policy = tokens.policy(&site, "gw-1").with("/zookeeper/session_timeout", "8s");
    let stands = format!("1*sleep({})", HANGS.as_millis());
    let launch = GatewayLaunch::new(&policy).with_workers(2).failpoint(place, &stands);
    let gateway = launch.with_notify_socket(&manager.path()).with_watchdog(WITHIN).start().await;
    while manager.receive().await != "READY=1" {}
    manager.wait_four_reports().await;
    let request = gateway.begin(asked);
    gateway.wait_at_failpoint(place).await;
    manager.wait_hang_and_recovery().await;
    drop(request);
    // The shutdown takes some time, in which threads that have ended must not count as hung.
    gateway.signal(Signal::TERM);
    while manager.receive().await != "STOPPING=1" {}
    assert!(gateway.exit().await.success());
}

/// A gateway with a hung worker sends no watchdog notification until the worker goes on.
#[tokio::test]
async fn hung_worker_stops_gateway_watchdog() {
    assert_hang_is_noticed("before_upstream_write", TestRequest::post("/pay/7")).await;
}

/// A gateway whose session thread hangs sends no watchdog notification until the thread goes on.
#[tokio::test]
async fn hung_sessions_stop_gateway_watchdog() {
    assert_hang_is_noticed("after_create_sent", TestRequest::post("/pay/7")).await;
}

/// A gateway whose lease thread hangs sends no watchdog notification until the thread goes on.
#[tokio::test]
async fn hung_leases_stop_gateway_watchdog() {
    assert_hang_is_noticed("before_lease_taken", acquire_request(&json!({"keys": ["job/1"]}))).await;
}

/// A guard with a hung worker sends no watchdog notification until the worker goes on.
#[tokio::test]
async fn hung_worker_stops_guard_watchdog() {
    let manager = FakeSystemd::bind();
    let beside = GuardFixture::new().await;
    let stands = format!("1*sleep({})", HANGS.as_millis());
    let launch = beside.launch().await.failpoint("guard_admitted", &stands);
    let guard = launch.with_notify_socket(&manager.path()).with_watchdog(WITHIN).start().await;
    while manager.receive().await != "READY=1" {}
    manager.wait_four_reports().await;
    let request = guard.begin(StampedRequest::new("a", FLOOR + 10).post("/work"));
    guard.wait_at_failpoint("guard_admitted").await;
    manager.wait_hang_and_recovery().await;
    drop(request);
}
