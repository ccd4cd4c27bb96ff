//! Alerts for accidents of the connection to ZooKeeper, and of ZooKeeper itself.

use std::time::Duration;

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    alert_watch::{AlertWatch, FiringAlert},
    client::TestRequest,
    gateway::Gateway,
    runbook::RunbookWalk,
    site::TestSite,
    zookeeper_proxy::{LockNodeOperation, OperationFault, ZooKeeperProxy},
};

/// The alerts for an interrupted, a lost and an expired session fire while a gateway is cut off from ZooKeeper.
#[tokio::test]
async fn disconnected_gateway_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("cut");
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let gateway = Gateway::start(&site.policy("gw-1").with_zookeeper(link.address())).await;
    here.set_targets(&[gateway.admin]).await;

    // The connection of one session breaks, and the session finds no other connection.
    link.refuse();
    let broken = link.intercept(LockNodeOperation::Create, OperationFault::AnswerLost);
    let pending = gateway.begin(TestRequest::post("/pay/7"));
    broken.wait().await;
    let away = here.wait_firing("FencegateZkSessionAway").await;
    let policy = gateway.file();
    let walk = |firing: &FiringAlert| {
        RunbookWalk::for_alert(firing)
            .with("127.0.0.1:9901", gateway.admin)
            .with("/etc/fencegate/policy.yaml", policy.display())
            .with_exit_code("fencegate era show", 1)
    };
    walk(&away).follow().await;

    link.cut();
    let lost = here.wait_firing("FencegateZkSessionLost").await;
    walk(&lost).follow().await;
    drop(pending.result().await);
    link.mend();
    let expired = here.wait_firing("FencegateSessionExpired").await;
    gateway.wait_ready().await;
    for firing in [&away, &lost, &expired] {
        here.wait_resolved(firing).await;
    }
}

/// `FencegateHeartbeatSlow` fires while ZooKeeper answers slowly.
#[tokio::test]
async fn slow_zookeeper_fires() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("slow");
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let policy = site.policy("gw-1").with("/zookeeper/session_timeout", "6s");
    let gateway = Gateway::start(&policy.with_zookeeper(link.address())).await;
    here.set_targets(&[gateway.admin]).await;
    link.delay(Duration::from_millis(1200));
    let firing = here.wait_firing("FencegateHeartbeatSlow").await;
    link.delay(Duration::ZERO);
    here.wait_resolved(&firing).await;
}

/// `FencegateRolledBack` fires after ZooKeeper is restored from an older backup, until the runbook section is
/// followed.
#[tokio::test]
async fn restored_zookeeper_fires() {
    let watch = AlertWatch::shared().await;
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let here = watch.installation("restored");
    let gateway = site.gateway("gw-1").await;
    let (zookeeper, backup) = zookeeper.back_up().await;
    gateway.wait_ready().await;
    here.set_targets(&[gateway.admin]).await;
    for account in 0..60 {
        gateway.wait_ready().await;
        gateway.send(&TestRequest::post(&format!("/pay/{account}"))).await;
    }
    let _zookeeper = zookeeper.restore(&backup).await;
    let firing = here.wait_firing("FencegateRolledBack").await;
    // The restored server has the sessions of the backup, and ends each one by its timeout.
    let tree = site.tree().await;
    let ended = async {
        while !tree.members().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until("the sessions of before to end", ended, || gateway.log()).await;
    // The watermark in `meta` records the largest token, so any number does.
    let walk = RunbookWalk::for_alert(&firing).with("E", 123_456_789);
    walk.with("/etc/fencegate/policy.yaml", gateway.file().display()).follow().await;
    here.wait_resolved(&firing).await;
}
