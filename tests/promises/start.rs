//! A gateway that cannot serve reports it: it keeps trying where that helps, and otherwise ends with a clear message.
//!
//! ZooKeeper is away at the start, the root has no `meta` node, or a port is in use.

use std::{net::TcpListener, time::Duration};

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    ensemble::free_address,
    gateway::{Gateway, GatewayLaunch, command, write_policy},
    policy::TestPolicy,
    site::TestSite,
};

/// The exit code and stderr of a run that must end by itself.
async fn run_to_end(policy: &TestPolicy) -> (Option<i32>, String) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string());
    let output = command(&["run", "-c", &file.display().to_string(), "--init"]).await.expect("started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Without ZooKeeper at its start a gateway serves unfenced requests, refuses fenced ones, and keeps trying.
#[tokio::test]
async fn gateway_starts_without_zookeeper() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let zookeeper = zookeeper.stop().await;

    let gateway = GatewayLaunch::new(&site.policy("gw-1")).start().await;
    assert_eq!(gateway.admin("/live").await.status, 200);
    assert_eq!(gateway.admin("/ready").await.status, 503);
    assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200);
    let refused = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "lock-service"));

    let _zookeeper = zookeeper.restart().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// A root that was never initialised is not used until `era init` ran.
///
/// Tokens of two ensembles must not be mixed by accident, so only an operator makes `meta`.
#[tokio::test]
async fn uninitialised_root_is_not_used() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    gateway.wait_line("what to run", |line| line.text().contains("era init")).await;
    assert_eq!(gateway.admin("/ready").await.status, 503);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 503);
    assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200);
    assert_eq!(site.tree().await.paths().await, [""; 0], "it made nodes of its own accord");

    era_init(&policy).await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

async fn era_init(policy: &TestPolicy) -> Option<i32> {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string());
    let output = command(&["era", "init", "-c", &file.display().to_string()]).await.expect("started");
    output.status.code()
}

#[tokio::test]
async fn repeated_init_keeps_era() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    assert_eq!(era_init(&policy).await, Some(0));
    let tree = site.tree().await;
    let meta = tree.data("/meta").await;
    era_init(&policy).await;
    let _gateway = Gateway::start(&policy).await;
    assert_eq!(tree.data("/meta").await, meta);
}

/// `era init` without ZooKeeper ends with exit code 1 and a message.
#[tokio::test]
async fn init_without_zookeeper_fails_cleanly() {
    let nobody = free_address();
    let policy = TestPolicy::new("gw-1", nobody, "/t/none", nobody);
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string());
    let output = command(&["era", "init", "-c", &file.display().to_string()]).await.expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ZooKeeper") && !said.contains("panicked"), "{said}");
}

/// A port in use ends the start with a message that names its address.
#[tokio::test]
async fn port_in_use_prevents_start() {
    let site = TestSite::fresh().await;
    let running = site.gateway("gw-1").await;
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    for (case, pointer, address) in [
        ("public", "/listeners/public/address", address),
        ("admin", "/admin/address", address),
        ("public of another gateway", "/listeners/public/address", running.public),
        ("admin of another gateway", "/admin/address", running.admin),
    ] {
        let (code, said) = run_to_end(&site.policy("gw-2").with(pointer, address.to_string())).await;
        assert_eq!(code, Some(1), "{case}: {said}");
        assert!(said.contains(&address.to_string()), "{case}: {said}");
        assert!(said.to_lowercase().contains("in use"), "{case}: {said}");
        assert!(!said.contains("panicked"), "{case}: {said}");
    }
}

#[tokio::test]
async fn gateways_with_same_name_coexist() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw"), site.gateway("gw"));
    for _ in 0..3 {
        assert_eq!(one.send(&TestRequest::post("/pay/7")).await.status, 200);
        assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
