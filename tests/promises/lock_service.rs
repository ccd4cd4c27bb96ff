//! Without ZooKeeper no lock is granted and unfenced requests pass. When ZooKeeper is back, the gateway grants locks
//! again by itself.
//!
//! ZooKeeper is stopped, or it is silent. A fenced request then gets 503 `lock-service` in time.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    site::TestSite,
};

/// Asserts that a gateway without a lock service refuses fenced requests and serves others, in a time that a load
/// balancer accepts.
async fn assert_only_unfenced_served(gateway: &Gateway) {
    let refused = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "lock-service"));
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(refused.field("retry-after").is_some());
    assert!(refused.took() < Duration::from_secs(6), "took {:?}", refused.took());
    assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200);
    assert_eq!(gateway.admin("/live").await.status, 200);
}

/// While ZooKeeper is stopped, fenced requests are refused and others pass, and service resumes by itself.
#[tokio::test]
async fn stopped_zookeeper_refuses_fenced_requests_only() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let gateway = site.gateway("gw-1").await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);

    let zookeeper = zookeeper.stop().await;
    gateway.wait_unready().await;
    assert_only_unfenced_served(&gateway).await;
    // The wait is longer than the session timeout, so the gateway needs a new session.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_only_unfenced_served(&gateway).await;

    let _zookeeper = zookeeper.restart().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let log = site.origin.log();
    let tokens: Vec<_> = log.requests_for("/pay/7").map(|record| record.expect_token()).collect();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
}

/// While ZooKeeper does not answer, fenced requests are refused in time, and service resumes by itself.
///
/// Connections stay open without an answer, so only time limits detect it.
#[tokio::test]
async fn silent_zookeeper_refuses_fenced_requests_only() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let gateway = site.gateway("gw-1").await;

    zookeeper.server.pause().expect("our own child");
    let first = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((first.status, first.outcome()), (503, Some(FencingOutcome::NotDispatched)), "{first:?}");
    assert!(first.took() < Duration::from_secs(6), "took {:?}", first.took());
    gateway.wait_unready().await;
    assert_only_unfenced_served(&gateway).await;

    zookeeper.server.resume().expect("our own child");
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    site.tree().await.assert_no_locks().await;
    assert_eq!(site.origin.count("/pay/7"), 1, "what was refused was never sent");
}
