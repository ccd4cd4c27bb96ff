//! Alerts for contended keys, too many keys, requests of unknown outcome, and a paused gateway.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    alert_watch::AlertWatch,
    client::{Http1Client, TestRequest},
    gateway::Gateway,
    guarded::run_operator,
    load::{LoadPlan, RunningLoad},
    origin::OriginAction,
    runbook::RunbookWalk,
    site::TestSite,
};
use serde_json::{Value, json};

/// The alerts for a hot key and an unknown outcome fire, and are resolved afterwards.
#[tokio::test]
async fn hot_key_and_unknown_outcome_alert() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("hot");
    let gateway = Gateway::start(&site.policy("gw-1").with("/routes/0/fence/wait", "900ms")).await;
    here.set_targets(&[gateway.admin]).await;
    site.origin.set_work_time(Duration::from_millis(280));
    let plan = LoadPlan {
        gateways: vec![gateway.public],
        paths: vec!["/pay/hot".to_owned()],
        clients: 6,
        requests: 10_000,
        pause: Duration::from_millis(10),
    };
    let load = RunningLoad::start("hot", &plan);
    site.origin.script("/pay/lost", [OriginAction::Reset]);
    assert_eq!(gateway.send(&TestRequest::post("/pay/lost")).await.status, 502);
    let unknown = here.wait_firing("FencegateOutcomeUnknown").await;
    let rejecting = here.wait_firing("FencegateRejecting").await;
    let high = here.wait_firing("FencegateLockWaitHigh").await;
    drop(load.stop().await);
    here.wait_resolved(&rejecting).await;
    here.wait_resolved(&high).await;
    here.wait_resolved(&unknown).await;
}

/// The alert for an operation of unknown outcome fires when ZooKeeper keeps the journal. The same alert for the
/// journal of a guard is tested by `promises`.
#[tokio::test]
async fn unknown_operation_alerts() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("once");
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({"store": "zookeeper"}));
    let gateway = Gateway::start(&policy).await;
    here.set_targets(&[gateway.admin]).await;
    site.origin.script("/pay/7", [OriginAction::Reset]);
    let asked = TestRequest::post("/pay/7").field("idempotency-key", "op-7");
    assert_eq!(gateway.send(&asked).await.status, 502);
    let firing = here.wait_firing("FencegateOperationUnknown").await;
    let file = gateway.file().display().to_string();
    let listed = run_operator(&["once", "list", "-c", &file, "--format", "json"]).await;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let all = listed["operations"].as_array().or(listed.as_array()).expect("a list");
    let reference = all[0]["reference"].as_str().expect("a reference");
    let walk = RunbookWalk::for_alert(&firing).skip("fencegate guard").with("REF", reference);
    walk.with("/etc/fencegate/policy.yaml", file).follow().await;
    here.wait_resolved(&firing).await;
}

/// The alert for process pauses fires after a gateway was paused, and is resolved afterwards.
#[tokio::test]
async fn paused_gateway_alerts() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("pauses");
    let gateway = Gateway::start(&site.policy("gw-1").with("/zookeeper/session_timeout", "6s")).await;
    here.set_targets(&[gateway.admin]).await;
    gateway.signal(Signal::STOP);
    // Longer than a third of the session timeout, and shorter than the time from a heartbeat to the session
    // deadline.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    gateway.signal(Signal::CONT);
    let firing = here.wait_firing("FencegateProcessPauses").await;
    here.wait_resolved(&firing).await;
}

/// The alert for ephemeral bytes fires when a session has nearly as many locks as it may have.
#[tokio::test]
async fn nearly_full_session_alerts() {
    let watch = AlertWatch::shared().await;
    let site = TestSite::fresh().await;
    let here = watch.installation("many");
    // With this linger the first key is still held when enough keys have been used, however slow the machine is.
    let policy = site.policy("gw-1").with_linger("75s").with("/zookeeper/sessions", 1);
    let gateway = Gateway::start(&policy).await;
    here.set_targets(&[gateway.admin]).await;
    let next = AtomicUsize::new(0);
    let client = async || {
        let mut connection = Http1Client::connect(gateway.public).await.expect("listens");
        while !is_nearly_full(&gateway).await {
            for _ in 0..16 {
                let key = next.fetch_add(1, Ordering::Relaxed);
                let asked = connection.send(&TestRequest::post(&format!("/pay/{key:0>430}"))).await;
                assert_eq!(asked.expect("answered").status, 200, "key {key}");
            }
        }
    };
    tokio::join!(client(), client(), client(), client());
    let firing = here.wait_firing("FencegateEphemeralBytesHigh").await;
    here.wait_resolved(&firing).await;
}

async fn is_nearly_full(gateway: &Gateway) -> bool {
    let metrics = gateway.metrics().await;
    let limit = metrics.sum("fencegate_zk_ephemeral_bytes_limit", &[]);
    metrics.sum("fencegate_zk_ephemeral_bytes", &[]) > 0.85 * limit
}
