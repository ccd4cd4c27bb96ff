//! A log that nobody reads stops nobody: neither requests, nor the end of a gateway or guard, nor a command under a lock.

use std::time::Duration;

use fencegate_tests::{
    client::TestRequest,
    ensemble::free_ports,
    gateway::write_policy,
    policy::TestPolicy,
    scratch,
    site::TestSite,
    unread_process::{UnreadProcess, run_unread},
};
use futures_util::future::join_all;
use serde_json::json;

/// Longer than the process waits at its end for a reader of its log.
const ENDS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn gateway_with_an_unread_log_serves_and_ends() {
    let site = TestSite::fresh().await;
    let away = format!("http://127.0.0.1:{}", free_ports(1)[0]);
    let policy = site.policy("gw-1").with("/upstreams/away", json!({"endpoints": [away], "fencing": "none"}));
    let policy = policy.with_route(json!({"name": "away", "upstream": "away", "fence": "none",
        "match": {"methods": ["PUT"], "path": "/away"}}));
    let gateway = UnreadProcess::gateway(policy, &[]).await;
    // Each of these requests is a line, on each of the workers.
    for _ in 0..20 {
        let refused =
            TestRequest::with_method("PUT", "/away").send_to(gateway.public).await.expect("an answer");
        assert_eq!((refused.status, refused.reason()), (502, "upstream-connect".to_owned()));
        assert_eq!(TestRequest::post("/pay/7").send_to(gateway.public).await.expect("an answer").status, 200);
    }
    assert!(gateway.wait_end(ENDS).await, "SIGTERM does not end it");
}

/// As in a container, where one reader takes both: the line of each request finds no room any more.
#[tokio::test]
async fn gateway_with_an_unread_access_log_serves_and_ends() {
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
    assert!(gateway.wait_end(ENDS).await, "SIGTERM does not end it");
}

#[tokio::test]
async fn guard_with_an_unread_log_serves_and_ends() {
    let (site, home) = (TestSite::fresh().await, scratch::temp_dir());
    let guard =
        UnreadProcess::guard(TestPolicy::for_guard(site.origin.door("guard"), &home.path().join("store")))
            .await;
    for _ in 0..20 {
        let refused = TestRequest::post("/pay/7").send_to(guard.public).await.expect("an answer");
        assert_eq!(refused.reason(), "token-missing");
        assert_eq!(TestRequest::get("/read").send_to(guard.public).await.expect("an answer").status, 200);
    }
    assert!(guard.wait_end(ENDS).await, "SIGTERM does not end it");
}

#[tokio::test]
async fn command_under_a_lock_runs_while_nobody_reads_the_log() {
    let (site, home) = (TestSite::fresh().await, scratch::temp_dir());
    let _gateway = site.gateway("gw-1").await;
    let file = write_policy(home.path(), &site.policy("gw-1").to_string()).display().to_string();
    let done = home.path().join("done").display().to_string();
    let arguments = ["lock", "-v", "job/1", "-c", &file, "--", "touch", &done];
    let command = run_unread(home.path(), &["FENCEGATE_LOG=debug"], &arguments);
    let status = tokio::task::spawn_blocking(move || command.wait(ENDS)).await.expect("no panic");
    assert_eq!(status.and_then(|status| status.code()), Some(0), "it hangs, or has failed");
    assert!(home.path().join("done").exists(), "the command was not run");
}
