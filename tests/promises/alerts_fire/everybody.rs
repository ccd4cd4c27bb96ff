//! Alerts about all targets of one Prometheus. These tests have a Prometheus of their own.

use std::net::SocketAddr;

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    alert_watch::AlertWatch, client::TestRequest, ensemble::free_ports, gateway::Gateway,
    guard::StampedRequest, guarded::GuardedSite, runbook::RunbookWalk,
};

/// A forged token fires both stale-token alerts; a killed gateway fires `FencegateDown` and `FencegateNoGateway`.
#[tokio::test]
async fn forged_token_and_killed_gateway_fire() {
    let watch = AlertWatch::own().await;
    let guarded = GuardedSite::fresh().await;
    let here = watch.installation("alone");
    let guard = guarded.guard().await;
    let admin = SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]));
    let policy = guarded.policy("gw-1", &[guard.public]).with("/admin/address", admin.to_string());
    let gateway = Gateway::start(&policy).await;
    here.set_targets(&[gateway.admin, guard.admin]).await;
    // `FencegateStaleTokenUnexplained` fires only if no gateway or guard has started within a quarter of an hour, which
    // is 15 s with the hurried times.
    here.wait_for_value(&format!("fencegate_build_info{{job=\"{}\"}} offset 16s", here.job())).await;

    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    // A client that reaches a guard without tickets can invent a token. The tokens of the gateways are then older.
    let made_up = StampedRequest::new("account/7", guarded.floor + (1 << 20)).post("/pay/7");
    assert_eq!(guard.send(&made_up).await.status, 200);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.reason(), "fenced");
    let stale = here.wait_firing("FencegateStaleTokenRejected").await;
    let unexplained = here.wait_firing("FencegateStaleTokenUnexplained").await;
    RunbookWalk::for_alert(&unexplained).with("127.0.0.1:9902", guard.admin).follow().await;
    here.wait_resolved(&stale).await;
    here.wait_resolved(&unexplained).await;

    let file = gateway.file();
    gateway.signal(Signal::KILL);
    gateway.exit().await;
    let down = here.wait_firing("FencegateDown").await;
    let none = here.wait_firing("FencegateNoGateway").await;
    RunbookWalk::for_alert(&down).with("/etc/fencegate/policy.yaml", file.display()).follow().await;
    drop(gateway);
    let _gateway = Gateway::start(&policy).await;
    here.wait_resolved(&down).await;
    here.wait_resolved(&none).await;
}
