//! If a server keeps a session for less time than the server before it, the session deadline becomes shorter as well.

use std::time::{Duration, Instant};

use fencegate_tests::{
    client::TestRequest, gateway::Gateway, history::History, site::TestSite, zookeeper_proxy::ZooKeeperProxy,
};
use serde_json::json;

/// A session that reconnects to a server with a smaller `maxSessionTimeout` has an earlier deadline.
///
/// The servers of an ensemble are restarted with a smaller limit while a gateway runs, and then the gateway is cut off.
/// It has to stop before the server releases its keys, which is earlier than by the timeout that the session began
/// with.
#[tokio::test]
async fn shorter_server_timeout_shortens_session_deadline() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let policy = |name| {
        site.policy(name)
            .with("/zookeeper/session_timeout", "12s")
            .with("/upstreams/ledger/fencing", "none")
            .with("/routes/0/fence/wait", "20s")
            .with_linger("60s")
    };
    let servers = json!([link.address().to_string()]);
    let ours = policy("victim").with("/zookeeper/servers", servers).with("/zookeeper/sessions", 1);
    let victim = Gateway::start(&ours).await;
    assert_eq!(victim.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert!(victim.metrics().await.largest("fencegate_zk_session_timeout_seconds") > 11.0);

    let _zookeeper = zookeeper.with_max_session(Duration::from_secs(2)).await;
    victim.wait_series_at_least("fencegate_zk_reconnects_total", &[], 1.0).await;
    victim.wait_ready().await;
    let next = Gateway::start(&policy("next")).await;
    assert_eq!(victim.send(&TestRequest::post("/pay/7")).await.status, 200);

    let taken = next.begin(TestRequest::post("/pay/8"));
    assert_eq!(taken.answer().await.status, 200, "another key is free");
    link.cut();
    let before = Instant::now();
    let taken = site.origin.hold_request(&next, TestRequest::post("/pay/7")).await;
    assert!(
        before.elapsed() < Duration::from_secs(8),
        "not exercised: the session was kept for {:?}",
        before.elapsed()
    );
    let asked: Vec<_> =
        (0..8).map(|_| victim.begin(TestRequest::post("/pay/7").field("Prefer", "wait=1"))).collect();
    for asked in asked {
        let answer = asked.answer().await;
        assert!(matches!(answer.status, 423 | 503), "{answer:?}");
    }
    let written = site.origin.log().bytes_since("victim", before);
    assert!(written.is_empty(), "{}", String::from_utf8_lossy(&written));
    assert_eq!(taken.finish().await.status, 200);
    assert!(victim.metrics().await.largest("fencegate_zk_session_timeout_seconds") < 2.1);
    History::from_log(&site.origin.log()).assert_holds();
}
