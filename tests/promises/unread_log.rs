//! A log without a reader blocks nothing: no request, no shutdown of a gateway or guard, and no command under a lock.
//!
//! `alerts_fire` shows that the probes go on and that dropped lines are reported.

use std::time::Duration;

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    ensemble::free_ports,
    gateway::write_policy,
    policy::TestPolicy,
    site::TestSite,
    unread_process::{UnreadProcess, run_unread},
};
use futures_util::future::join_all;
use serde_json::json;

/// Longer than a process waits at its end until its log is read.
const ENDS: Duration = Duration::from_secs(10);

/// A gateway whose log nobody reads serves requests and ends on SIGTERM.
#[tokio::test]
async fn gateway_survives_unread_log() {
    let site = TestSite::fresh().await;
    let away = format!("http://127.0.0.1:{}", free_ports(1)[0]);
    let policy = site.policy("gw-1").with("/upstreams/away", json!({"endpoints": [away], "fencing": "none"}));
    let policy = policy.with_route(json!({"name": "away", "upstream": "away", "fence": "none",
        "match": {"methods": ["PUT"], "path": "/away"}}));
    let gateway = UnreadProcess::gateway(policy, &[]).await;
    // Each of these requests writes a line, on each of the workers.
    for _ in 0..20 {
        let refused =
            TestRequest::with_method("PUT", "/away").send_to(gateway.public).await.expect("an answer");
        assert_eq!((refused.status, refused.reason()), (502, "upstream-connect".to_owned()));
        assert_eq!(TestRequest::post("/pay/7").send_to(gateway.public).await.expect("an answer").status, 200);
    }
    assert!(gateway.terminate_within(ENDS).await, "SIGTERM does not end it");
}

/// A gateway whose access log nobody reads serves requests and ends on SIGTERM.
///
/// One pipe takes both logs, as in a container, so the line of each request has no room any more.
#[tokio::test]
async fn gateway_survives_unread_access_log() {
    let site = TestSite::fresh().await;
    let gateway =
        UnreadProcess::gateway(site.policy("gw-1").with("/log", json!({"access": "stdout"})), &[]).await;
    let asked = (0..16).map(|_| async {
        for _ in 0..600 {
            assert_eq!(
                TestRequest::get("/read").send_to(gateway.public).await.expect("an answer").status,
                200
            );
        }
    });
    join_all(asked).await;
    assert_eq!(TestRequest::post("/pay/7").send_to(gateway.public).await.expect("an answer").status, 200);
    assert!(gateway.terminate_within(ENDS).await, "SIGTERM does not end it");
}

/// A guard whose log nobody reads serves requests and ends on SIGTERM.
#[tokio::test]
async fn guard_survives_unread_log() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let guard = UnreadProcess::guard(TestPolicy::for_guard(
        site.origin.open_listener("guard"),
        &home.path().join("store"),
    ))
    .await;
    for _ in 0..20 {
        let refused = TestRequest::post("/pay/7").send_to(guard.public).await.expect("an answer");
        assert_eq!(refused.reason(), "token-missing");
        assert_eq!(TestRequest::get("/read").send_to(guard.public).await.expect("an answer").status, 200);
    }
    assert!(guard.terminate_within(ENDS).await, "SIGTERM does not end it");
}

#[tokio::test]
async fn locked_command_survives_unread_log() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let _gateway = site.gateway("gw-1").await;
    let file = write_policy(home.path(), &site.policy("gw-1").to_string()).display().to_string();
    let done = home.path().join("done").display().to_string();
    let arguments = ["lock", "-v", "job/1", "-c", &file, "--", "touch", &done];
    let command = run_unread(home.path(), &["FENCEGATE_LOG=debug"], &arguments);
    let status = tokio::task::spawn_blocking(move || command.wait(ENDS)).await.expect("no panic");
    assert_eq!(status.and_then(|status| status.code()), Some(0), "it hangs, or has failed");
    assert!(home.path().join("done").exists(), "the command was not run");
}
