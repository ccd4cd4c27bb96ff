//! An operation is recorded before it is sent, and sent only under its lock. Whatever is lost around its admission, it
//! is sent at most once.

use std::time::Duration;

use fencegate_testkit::wait::{QUIET, wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    origin::Latch,
    site::TestSite,
    zookeeper_proxy::{LockNodeOperation, OperationFault, ZooKeeperProxy},
};
use serde_json::{Value, json};

use super::operation::{
    already_done_refusal, names_in_one_shard, pay, policy, remembered_operations, status_and_reason,
    unknown_refusal, with_once,
};

/// An operation is sent once, although the gateway gets no answer to its admission, recorded or not.
#[tokio::test]
async fn unanswered_admission_is_sent_once() {
    for fate in [OperationFault::AnswerLost, OperationFault::Vanishes] {
        let site = TestSite::fresh().await;
        let [before, name] = names_in_one_shard();
        let link = ZooKeeperProxy::start(site.zookeeper).await;
        let servers = json!([link.address().to_string()]);
        let policy = with_once(site.policy_without_janitor("gw-1").with("/zookeeper/servers", servers));
        let gateway = Gateway::start(&policy).await;
        // This request makes the parent node, so the next transaction is the admission itself.
        assert_eq!(gateway.send(&pay(&before)).await.status, 200);
        let sprung = link.intercept(LockNodeOperation::Admission, fate.clone());
        let asked = gateway.begin(pay(&name));
        sprung.wait().await;
        if matches!(fate, OperationFault::Vanishes) {
            link.cut();
            link.mend();
        }
        assert_eq!(asked.answer().await.status, 200, "{fate:?}\n{}", gateway.log());
        assert_eq!(status_and_reason(&gateway.send(&pay(&name)).await), already_done_refusal(), "{fate:?}");
        assert_eq!(site.origin.count("/pay/7"), 2, "{fate:?}");
    }
}

/// A request whose lock is lost before its admission is not sent.
#[tokio::test]
async fn lost_lock_prevents_sending() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let gateway =
        site.gateway_paused_at(&policy(&site, "gw-1"), "before_admission", Duration::from_millis(600)).await;
    let asked = gateway.begin(pay("a"));
    gateway.wait_at_failpoint("before_admission").await;
    let locks = tree.locks().await;
    tree.delete(&locks[0]).await.expect("a stranger may");
    assert_eq!(status_and_reason(&asked.answer().await), (503, "suspended".into()));
    assert_eq!(site.origin.count("/pay/7"), 0);
    assert_eq!(remembered_operations(&tree).await, [Value::Null; 0]);
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
}

/// A request for several keys is not sent when one of its locks is lost.
#[tokio::test]
async fn one_lost_lock_blocks_set() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let policy = site.policy("gw-1").with_route(json!({
        "name": "transfer",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/transfer/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"], "once": {"store": "zookeeper"}},
    }));
    let gateway = site.gateway_paused_at(&policy, "before_admission", Duration::from_millis(600)).await;
    let transfer = || TestRequest::post("/transfer/1/2").field("Idempotency-Key", "a");
    let asked = gateway.begin(transfer());
    gateway.wait_at_failpoint("before_admission").await;
    let locks = tree.locks().await;
    assert_eq!(locks.len(), 2, "{locks:?}");
    tree.delete(&locks[1]).await.expect("a stranger may");
    assert_eq!(status_and_reason(&asked.answer().await), (503, "suspended".into()));
    assert_eq!(site.origin.count("/transfer/1/2"), 0);
    assert_eq!(gateway.send(&transfer()).await.status, 200);
    assert_eq!(status_and_reason(&gateway.send(&transfer()).await), already_done_refusal());
}

/// If a client hangs up before its admission is answered, nothing is sent and the admission is taken back.
#[tokio::test]
async fn client_gone_before_admission_sends_nothing() {
    let site = TestSite::fresh().await;
    let [before, name] = names_in_one_shard();
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let tree = site.tree().await;
    let servers = json!([link.address().to_string()]);
    let gateway =
        Gateway::start(&with_once(site.policy_without_janitor("gw-1").with("/zookeeper/servers", servers)))
            .await;
    assert_eq!(gateway.send(&pay(&before)).await.status, 200);
    let latch = Latch::default();
    let sprung = link.intercept(LockNodeOperation::Admission, OperationFault::AnswerHeld(latch.clone()));
    let asked = gateway.begin(pay(&name));
    sprung.wait().await;
    asked.hang_up();
    tokio::time::sleep(QUIET).await;
    latch.release();
    let aborted = async {
        while !remembered_operations(&tree).await.iter().any(|record| record["state"]["is"] == "aborted") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("the admission to be taken back", aborted, || gateway.log()).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    assert_eq!(gateway.send(&pay(&name)).await.status, 200);
}

/// An admission whose answer is lost with the session is reverted: the gateway reports that nothing was sent, and
/// removes the record under its next session. Until then the outcome is unknown at other gateways.
#[tokio::test]
async fn admission_lost_with_session_is_reverted() {
    let site = TestSite::fresh().await;
    let [before, name] = names_in_one_shard();
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let servers = json!([link.address().to_string()]);
    let ours = policy(&site, "gw-1").with("/zookeeper/servers", servers).with("/zookeeper/sessions", 1);
    let other = policy(&site, "gw-2");
    let (one, two) = Gateway::start_both(&ours, &other).await;
    assert_eq!(one.send(&pay(&before)).await.status, 200);
    let never = Latch::default();
    let sprung = link.intercept(LockNodeOperation::Admission, OperationFault::AnswerHeld(never));
    let asked = one.begin(pay(&name));
    sprung.wait().await;
    link.cut();
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (503, Some(FencingOutcome::NotDispatched)), "{answer:?}");
    assert_eq!(status_and_reason(&two.send(&pay(&name)).await), unknown_refusal(), "nobody can know yet");
    link.mend();
    let sent = async {
        loop {
            let repeat = two.send(&pay(&name)).await;
            if repeat.status == 200 {
                return;
            }
            assert_eq!(status_and_reason(&repeat), unknown_refusal());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the issuer to take it back", sent, || one.log()).await;
    assert_eq!(status_and_reason(&one.send(&pay(&name)).await), already_done_refusal());
    assert_eq!(site.origin.count("/pay/7"), 2, "the first one, and this one once");
}

/// An operation needs ZooKeeper for its admission, also under a cached tenure that other requests may use without it.
#[tokio::test]
async fn operations_stop_without_zookeeper() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let policy = policy(&site, "gw-1").with_zookeeper(link.address()).with_linger("30s");
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    link.lose_all();
    assert_eq!(status_and_reason(&gateway.send(&pay("b")).await), (503, "lock-service".into()));
    link.cut();
    link.mend();
    gateway.wait_ready().await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    assert_eq!(gateway.send(&pay("b")).await.status, 200);
    assert_eq!(status_and_reason(&gateway.send(&pay("a")).await), already_done_refusal());
}
