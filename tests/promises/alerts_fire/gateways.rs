//! Alerts for accidents of a gateway's process, its files and its policy.

use std::{fs, time::Duration};

use fencegate_testkit::{child::Signal, scratch, terminator::TestCa};
use fencegate_tests::{
    alert_watch::AlertWatch,
    client::{Http1Client, Http2Client, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    guard,
    policy::TestPolicy,
    runbook::RunbookWalk,
    site::TestSite,
    stepped_clock::SteppedClock,
    unread_process::UnreadProcess,
};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use crate::identity::{IssuerKey, issuer, policy_by_token, rotation::KeyServer};

/// `FencegateFilesRunOut` fires while clients keep nine tenths of the permitted files open.
#[tokio::test]
async fn nearly_exhausted_files_fire() {
    const FILES: usize = 300;
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("files");
    let gateway = GatewayLaunch::new(&site.policy("gw-1")).with_files(FILES).start().await;
    gateway.wait_ready().await;
    here.set_targets(&[gateway.admin]).await;
    let open = gateway.metrics().await.sum("process_open_fds", &[]) as usize;
    let mut clients = Vec::new();
    for _ in open..FILES * 9 / 10 {
        // A client that has sent a request may keep its connection for a while.
        let mut client = Http1Client::connect(gateway.public).await.expect("listens");
        assert_eq!(client.send(&TestRequest::get("/x")).await.expect("answered").status, 200);
        clients.push(client);
    }
    let firing = here.wait_firing("FencegateFilesRunOut").await;
    drop(clients);
    here.wait_resolved(&firing).await;
}

/// `FencegateLogLinesLost` fires when lines are lost because nothing reads the log. The gateway lives meanwhile, and its
/// probes report the lines that were dropped.
#[tokio::test]
async fn unread_log_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("log");
    let gateway = UnreadProcess::gateway(site.policy("gw-1"), &["FENCEGATE_LOG=trace"]).await;
    here.set_targets(&[gateway.admin]).await;
    let client = Http2Client::connect(gateway.public).await.expect("listens");
    let probe = async |path: &str| {
        let answer = TestRequest::get(path).send_to(gateway.admin).await.expect("an answer");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{path}: {text}");
        text
    };
    let dropped = async {
        loop {
            // At log level `trace` the HTTP/2 library writes about a hundred lines for each request.
            for answer in join_all((0..50).map(|_| client.send(&TestRequest::get("/read")))).await {
                assert_eq!(answer.expect("answered").status, 200);
            }
            let fenced = TestRequest::post("/pay/7").send_to(gateway.public).await.expect("an answer");
            assert_eq!(fenced.status, 200);
            let live = probe("/live").await;
            if live.contains("dropped") {
                return live;
            }
        }
    };
    let told = timeout(Duration::from_secs(60), dropped).await.expect("lines are dropped");
    assert!(told.starts_with("live\nlines of the log that were dropped"), "{told}");
    let ready = probe("/ready").await;
    assert!(ready.contains("dropped"), "{ready}");
    let firing = here.wait_firing("FencegateLogLinesLost").await;
    assert!(gateway.terminate_within(Duration::from_secs(10)).await, "SIGTERM does not end it");
    here.wait_resolved(&firing).await;
}

/// `FencegateThreadHangs` names the worker that hangs, and resolves when the worker goes on.
#[tokio::test]
async fn hanging_worker_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("hangs");
    let launch = GatewayLaunch::new(&site.policy("gw-1")).with_workers(2);
    let gateway = launch.failpoint("before_upstream_write", "1*sleep(15000)").start().await;
    gateway.wait_ready().await;
    here.set_targets(&[gateway.admin]).await;
    let request = gateway.begin(TestRequest::post("/pay/7"));
    let firing = here.wait_firing("FencegateThreadHangs").await;
    let summary = firing.annotations["summary"].as_str().expect("a text");
    assert!(summary.ends_with(" hangs: requests"), "{summary}");
    RunbookWalk::for_alert(&firing).with("127.0.0.1:9901", gateway.admin).follow().await;
    here.wait_resolved(&firing).await;
    drop(request);
}

/// `FencegateConfigReloadFailed` fires after the reload of an invalid policy file, until a valid reload.
#[tokio::test]
async fn failed_reload_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("reload");
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    here.set_targets(&[gateway.admin]).await;
    gateway.rewrite(&policy.clone().with("/zookeeper/session_timeout", "twelve"));
    gateway.signal(Signal::HUP);
    let firing = here.wait_firing("FencegateConfigReloadFailed").await;
    let walk = RunbookWalk::for_alert(&firing).with("/etc/fencegate/policy.yaml", gateway.file().display());
    walk.with_exit_code("fencegate check", 78).follow().await;
    gateway.rewrite(&policy);
    gateway.signal(Signal::HUP);
    here.wait_resolved(&firing).await;
}

/// `FencegateRoutesRefused` and `FencegateConfigsDiffer` fire while two gateways derive different keys for a route.
#[tokio::test]
async fn incompatible_gateways_fire() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("differ");
    let first = Gateway::start(&site.policy("gw-1")).await;
    let other = site.policy("gw-2").with("/routes/0/fence/key", "konto/{path.account}");
    let second = Gateway::start(&other).await;
    here.set_targets(&[first.admin, second.admin]).await;
    let refused = here.wait_firing("FencegateRoutesRefused").await;
    let differ = here.wait_firing("FencegateConfigsDiffer").await;
    let walk = RunbookWalk::for_alert(&refused).with("/etc/fencegate/policy.yaml", second.file().display());
    walk.follow().await;
    second.rewrite(&site.policy("gw-2"));
    assert_eq!(second.reload(&[]).await.0, Some(0));
    here.wait_resolved(&refused).await;
    here.wait_resolved(&differ).await;
}

/// `FencegateClockOffset` fires while the clock of a filter is 20 s off.
#[tokio::test]
async fn filter_clock_offset_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let clock = SteppedClock::start();
    let here = watch.installation("clock");
    let file = json!({
        "version": 1,
        "listener": {"address": "127.0.0.1:0"},
        "admin": {"address": "127.0.0.1:0"},
        "upstream": {"endpoint": format!("http://{}", site.origin.open_listener("filtered"))},
        "filter": {"clock_error": "500ms"},
        "unfenced": ["GET"],
    });
    let launch = guard::GuardLaunch::for_upstream(site.zookeeper)
        .with_policy(TestPolicy::from_yaml(&file.to_string()));
    let filter = launch.with_clock(&clock).start().await;
    let endpoint = json!([format!("http://{}", filter.public)]);
    let gateway = Gateway::start(&site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoint)).await;
    here.set_targets(&[gateway.admin]).await;
    clock.set_wall(20);
    assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200);
    let firing = here.wait_firing("FencegateClockOffset").await;
    clock.set_wall(0);
    assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200);
    here.wait_resolved(&firing).await;
}

/// `FencegateCertificateExpires` fires for a certificate with a week left, until its renewal.
#[tokio::test]
async fn expiring_certificate_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let authority = TestCa::new();
    let here = watch.installation("certificate");
    let folder = scratch::temp_dir();
    let week = Duration::from_secs(7 * 86_400);
    let (certificate, key) = authority.sign_for(&["pay.example"], week).write(folder.path(), "a");
    let certificates = json!([{"certificate_file": certificate, "key_file": key}]);
    let policy = site.policy("gw-1").with("/listeners/public/tls", json!({"certificates": certificates}));
    let gateway = Gateway::start(&policy).await;
    here.set_targets(&[gateway.admin]).await;
    let firing = here.wait_firing("FencegateCertificateExpires").await;
    authority.sign(&["pay.example"]).write(folder.path(), "a");
    here.wait_resolved(&firing).await;
}

/// `FencegateIssuerKeysUnusable` fires while the server of a key set is away and the keys are too old.
#[tokio::test]
async fn unusable_issuer_keys_fire() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("issuer-keys");
    let server = KeyServer::start(&[&IssuerKey::new("a")]);
    let mut by_url = issuer(("jwks_url", &server.url()));
    by_url["cache_duration"] = "1s".into();
    by_url["max_key_age"] = "2s".into();
    let gateway = Gateway::start(&policy_by_token(&site, by_url)).await;
    here.set_targets(&[gateway.admin]).await;
    server.go_away();
    let firing = here.wait_firing("FencegateIssuerKeysUnusable").await;
    server.publish(&[&IssuerKey::new("a")]);
    here.wait_resolved(&firing).await;
}

/// `FencegateStateNotWritten` fires while the state folder is missing.
#[tokio::test]
async fn unwritable_state_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let here = watch.installation("state");
    let state = home.path().join("state");
    fs::create_dir(&state).expect("our own");
    let gateway = Gateway::start(&site.policy("gw-1").with("/state_dir", state.display().to_string())).await;
    here.set_targets(&[gateway.admin]).await;
    fs::remove_dir_all(&state).expect("our own");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let firing = here.wait_firing("FencegateStateNotWritten").await;
    fs::create_dir(&state).expect("our own");
    here.wait_resolved(&firing).await;
}
