//! Accidents of the way to ZooKeeper, and of ZooKeeper itself.

use std::time::Duration;

use fencegate_tests::{
    client::TestRequest,
    faulty_link::{LockOperation, OperationFault, ZooKeeperProxy},
    gateway::Gateway,
    patience::patiently,
    runbook::RunbookWalk,
    site::TestSite,
    watch::{AlertWatch, FiringAlert},
};

#[tokio::test]
async fn a_gateway_that_is_cut_off() {
    let (watch, site) = (AlertWatch::shared().await, TestSite::fresh().await);
    let here = watch.installation("cut");
    let link = ZooKeeperProxy::to(site.zookeeper).await;
    let gateway = Gateway::start(&site.policy("gw-1").through(link.address())).await;
    here.looks_at(&[gateway.admin]).await;

    // The connection of one session breaks, and the session finds no other connection.
    link.turn_away();
    let broken = link.trap(LockOperation::Create, OperationFault::AnswerLost);
    let asked = gateway.begin(TestRequest::post("/pay/7"));
    broken.happened().await;
    let away = here.fires("FencegateZkSessionAway").await;
    let policy = gateway.file();
    let walk = |firing: &FiringAlert| {
        RunbookWalk::of(firing)
            .with("127.0.0.1:9901", gateway.admin)
            .with("/etc/fencegate/policy.yaml", policy.display())
            .ending("fencegate era show", 1)
    };
    walk(&away).through().await;

    link.cut();
    let lost = here.fires("FencegateZkSessionLost").await;
    walk(&lost).through().await;
    drop(asked.result().await);
    link.mend();
    let expired = here.fires("FencegateSessionExpired").await;
    gateway.becomes_ready().await;
    for firing in [&away, &lost, &expired] {
        here.ends(firing).await;
    }
}

#[tokio::test]
async fn a_zookeeper_that_answers_slowly() {
    let (watch, site) = (AlertWatch::shared().await, TestSite::fresh().await);
    let here = watch.installation("slow");
    let link = ZooKeeperProxy::to(site.zookeeper).await;
    let policy = site.policy("gw-1").with("/zookeeper/session_timeout", "6s");
    let gateway = Gateway::start(&policy.through(link.address())).await;
    here.looks_at(&[gateway.admin]).await;
    link.delay(Duration::from_millis(1200));
    let firing = here.fires("FencegateHeartbeatSlow").await;
    link.delay(Duration::ZERO);
    here.ends(&firing).await;
}

#[tokio::test]
async fn a_zookeeper_that_was_restored() {
    let watch = AlertWatch::shared().await;
    let (zookeeper, site) = TestSite::on_its_own().await;
    let here = watch.installation("restored");
    let gateway = site.gateway("gw-1").await;
    let (zookeeper, backup) = zookeeper.backed_up().await;
    gateway.becomes_ready().await;
    here.looks_at(&[gateway.admin]).await;
    for account in 0..60 {
        gateway.becomes_ready().await;
        gateway.send(&TestRequest::post(&format!("/pay/{account}"))).await;
    }
    let _zookeeper = zookeeper.restored(&backup).await;
    let firing = here.fires("FencegateRolledBack").await;
    // The restored server has the sessions of the backup, and ends each one by its timeout.
    let tree = site.tree().await;
    let ended = async {
        while !tree.members().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patiently("the sessions of before to end", ended, || gateway.log()).await;
    // The mark in `meta` says how far tokens had come, so any number does.
    let walk = RunbookWalk::of(&firing).with("E", 123_456_789);
    walk.with("/etc/fencegate/policy.yaml", gateway.file().display()).through().await;
    here.ends(&firing).await;
}
