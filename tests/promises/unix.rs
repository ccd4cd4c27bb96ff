//! Unix sockets between processes of one machine do what TCP does, and the file of a socket belongs to one process at
//! a time.
//!
//! The sockets connect gateway, guard and service. Fenced and unfenced requests pass, stale ones are refused, and a
//! guard is killed and comes back. The file is removed at the end of its process. The next process takes it over
//! without a gap. A file of another process is left alone.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch, command, write_policy},
    guard::{self, StampedRequest, assert_refused},
    guarded::GuardedSite,
    policy::TestPolicy,
    site::TestSite,
};
use tempfile::TempDir;

/// Paths that are short enough for the kernel, wherever the tests are built.
struct SocketFolder(TempDir);

impl SocketFolder {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn address(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// A guard that listens on one socket, before a service that listens on another one.
async fn guard_between_sockets(
    guarded: &GuardedSite,
    sockets: &SocketFolder,
) -> (guard::GuardLaunch, FaultProxy) {
    let service =
        FaultProxy::from_socket(&sockets.path("service"), guarded.site.origin.open_listener("guard"));
    let launch = guarded.launch().await;
    let launch = launch
        .with("/listener/address", sockets.address("guard"))
        .with("/listener/socket_mode", "0600")
        .with("/upstream/endpoint", sockets.address("service"));
    (launch, service)
}

fn guarded_file(launch: &guard::GuardLaunch) -> String {
    write_policy(launch.home(), &launch.file().to_string()).display().to_string()
}

fn policy_through_socket(guarded: &GuardedSite, sockets: &SocketFolder) -> TestPolicy {
    guarded.policy("gw", &[]).with("/upstreams/ledger/endpoints", vec![sockets.address("guard")])
}

/// Requests pass by two sockets through a guard that stops, is killed and comes back; in between none is dispatched.
#[tokio::test]
async fn unix_sockets_serve_across_guard_restart() {
    let guarded = GuardedSite::fresh().await;
    let sockets = SocketFolder::new();
    let (launch, _service) = guard_between_sockets(&guarded, &sockets).await;
    let guard = launch.start().await;
    assert_eq!(mode(&sockets.path("guard")), 0o600);
    let gateway = Gateway::start(&policy_through_socket(&guarded, &sockets)).await;
    let pay = TestRequest::post("/pay/7").body("1");

    let paid = gateway.send(&pay).await;
    assert_eq!(
        (paid.status, paid.outcome()),
        (200, Some(FencingOutcome::Done)),
        "{paid:?}\n{}",
        gateway.log()
    );
    assert_eq!(gateway.send(&TestRequest::get("/read")).await.status, 200);
    let token = guarded.site.origin.wait_for_request("/pay/7", 1).await.expect_token();
    let old = StampedRequest::new("account/7", token.number() - 1);
    let stale = guard.send(&old.post("/stale")).await;
    assert_refused(&stale, "stale");
    assert_eq!(guarded.site.origin.count("/stale"), 0);

    // After an orderly stop, the socket file is removed, and the gateway sends nothing.
    let launch = guard.stop().await;
    assert!(!sockets.path("guard").exists(), "it takes its file along");
    let refused = gateway.send(&pay).await;
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{refused:?}");
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);

    let guard = launch.start().await;
    guard.wait_ready().await;
    assert_eq!(gateway.send(&pay).await.status, 200, "{}", gateway.log());
    // After a kill, the socket file stays, and no process answers.
    let launch = guard.kill().await;
    assert!(is_socket(&sockets.path("guard")));
    let refused = gateway.send(&pay).await;
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{refused:?}");
    let guard = launch.start().await;
    assert!(guard.log().contains("socket.stale_removed"));
    assert_eq!(guarded.site.origin.count("/pay/7"), 2, "executed twice, and refused twice");
}

/// A file or a live socket at the path of a socket stays, and the start fails with FG0526.
#[tokio::test]
async fn foreign_socket_path_prevents_start() {
    let guarded = GuardedSite::fresh().await;
    let sockets = SocketFolder::new();
    let (launch, _service) = guard_between_sockets(&guarded, &sockets).await;
    let taken = sockets.path("guard");
    fs::write(&taken, "somebody's").expect("our own folder");
    let file = guarded_file(&launch);
    let checked = command(&["check", &file, "--online"]).await.expect("started");
    let text = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
    assert!(text.contains("FG0526") && text.contains("no socket"), "{text}");
    let failed = launch.expect_start_failure().await;
    let log = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && log.contains("FG0526") && log.contains("no socket"), "{log}");
    assert_eq!(fs::read_to_string(&taken).expect("it is there"), "somebody's");
    fs::remove_file(&taken).expect("our own file");

    let guard = launch.start().await;
    let failed = launch.copy().expect_start_failure().await;
    let log = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && log.contains("FG0526"), "{log}");
    UnixStream::connect(&taken).expect("the first one listens still");
    guard.stop().await;

    let nowhere = launch.with("/listener/address", sockets.address("none/guard"));
    let failed = nowhere.expect_start_failure().await;
    let log = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && log.contains("FG0526") && log.contains("none"), "{log}");
}

/// A gateway takes over a socket while its predecessor finishes its requests.
#[tokio::test]
async fn gateway_takes_over_shared_socket() {
    let site = TestSite::fresh().await;
    let sockets = SocketFolder::new();
    let policy = |name: &str| {
        let policy = site.policy(name).with("/listeners/public/address", sockets.address("gw"));
        policy.with("/listeners/public/trusted_peers", vec!["127.0.0.1"]).with("/log/access", "stdout")
    };
    let old = Gateway::start(&policy("old")).await;
    assert_eq!(mode(&sockets.path("gw")), 0o660);
    let held = site
        .origin
        .hold_request(&old, TestRequest::post("/pay/7").field("X-Forwarded-For", "192.0.2.7"))
        .await;
    let forwarded = held.record.request.field("x-forwarded-for").map(str::to_owned);
    assert_eq!(forwarded.as_deref(), Some("192.0.2.7, 127.0.0.1"), "the other side of the socket is a proxy");

    let log = GatewayLaunch::new(&policy("late")).expect_start_failure().await;
    assert!(log.contains("FG0526"), "{log}");

    let new = GatewayLaunch::new(&policy("new")).with_shared_address().start().await;
    new.wait_ready().await;
    old.signal(Signal::TERM);
    assert_eq!(
        old.begin(TestRequest::get("/read")).answer().await.status,
        200,
        "its path leads to the new one"
    );
    assert_eq!(site.origin.wait_for_request("/read", 1).await.gateway, "new");
    assert_eq!(held.finish().await.status, 200, "what was begun is ended");
    assert_eq!(old.exit().await.code(), Some(0));
    assert!(is_socket(&sockets.path("gw")), "the file is the new one's");

    new.rewrite(&policy("new").with("/listeners/public/limits", serde_json::json!({"max_body": "2KiB"})));
    assert_eq!(new.reload(&[]).await.0, Some(0), "{}", new.log());
    let large = new.send(&TestRequest::post("/pay/8").body(vec![b'x'; 4096])).await;
    assert_eq!(large.status, 413, "{large:?}");
    new.signal(Signal::TERM);
    assert_eq!(new.exit().await.code(), Some(0));
    assert!(!sockets.path("gw").exists());
}

#[tokio::test]
async fn check_reports_unreachable_sockets() {
    let site = TestSite::fresh().await;
    let sockets = SocketFolder::new();
    let _service = FaultProxy::from_socket(&sockets.path("service"), site.origin.open_listener("gw"));
    let there = vec![sockets.address("service"), sockets.address("nobody")];
    let gateway = Gateway::start(&site.policy("gw").with("/upstreams/ledger/endpoints", there)).await;
    let file = gateway.file().display().to_string();
    let checked = command(&["check", &file, "--online"]).await.expect("started");
    let text = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
    let reached = format!("{0} answers at {0}", sockets.address("service"));
    assert!(text.contains(&reached), "{text}");
    assert!(text.contains("FG0507") && text.contains(&sockets.address("nobody")), "{text}");
    for n in 0..4 {
        assert_eq!(
            gateway.send(&TestRequest::post(&format!("/pay/{n}"))).await.status,
            200,
            "the other one is tried"
        );
    }
}
