//! Every example policy runs as it is written, apart from addresses and paths, and serves a fenced request.

use std::fs;

use fencegate_testkit::{scratch, terminator::TestCa};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    guard,
    guarded::{GuardedSite, run_operator},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

const MINIMAL: &str = include_str!("../../policies/examples/minimal.yaml");
const PAYMENTS: &str = include_str!("../../policies/examples/payments.yaml");
const INVENTORY: &str = include_str!("../../policies/examples/inventory.yaml");
const TENANTS: &str = include_str!("../../policies/examples/multi-tenant.yaml");
const GUARD: &str = include_str!("../../policies/examples/guard.yaml");
const FILTER: &str = include_str!("../../policies/examples/filter.yaml");

/// The example with the addresses of this test. Sessions are shorter than the ticks of the example allow.
fn localized_example(example: &str, site: &TestSite, upstreams: &[(&str, String)]) -> TestPolicy {
    let policy = TestPolicy::from_yaml(example)
        .with("/name", "gw-1")
        .with("/listeners/public/address", "127.0.0.1:0")
        .with("/admin/address", "127.0.0.1:0")
        .with("/zookeeper/servers", json!([site.zookeeper.to_string()]))
        .with("/zookeeper/root", site.root.as_str());
    upstreams.iter().fold(policy, |policy, (name, endpoint)| {
        policy.with(&format!("/upstreams/{name}/endpoints"), json!([endpoint]))
    })
}

fn origin(site: &TestSite) -> String {
    format!("http://{}", site.origin.open_listener("gw-1"))
}

async fn assert_served(gateway: &Gateway, ask: TestRequest) -> ClientResponse {
    let answer = gateway.send(&ask).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
    assert!(answer.field("fencing-token").is_some(), "{answer:?}");
    answer
}

fn key(site: &TestSite, path: &str) -> Option<String> {
    let log = site.origin.log();
    log.requests_for(path).last().and_then(|record| record.key().map(str::to_owned))
}

/// `minimal.yaml` serves a fenced request under its key, and has no other route.
#[tokio::test]
async fn minimal_example_runs() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&localized_example(MINIMAL, &site, &[("orders", origin(&site))])).await;
    assert_served(&gateway, TestRequest::post("/orders/42")).await;
    assert_eq!(key(&site, "/orders/42").as_deref(), Some("order/42"));
    assert_eq!(gateway.send(&TestRequest::get("/orders/42")).await.status, 404);
}

/// `inventory.yaml` serves its routes, and takes the keys of a transfer from the JSON body.
#[tokio::test]
async fn inventory_example_runs() {
    let site = TestSite::fresh().await;
    let home = scratch::temp_dir();
    let authority = TestCa::new();
    authority.write(&home.path().join("gateways.pem"));
    let (certificate, key_file) = authority.sign(&["gw-1.internal"]).write(home.path(), "gw-1");
    let policy = localized_example(INVENTORY, &site, &[("stock", origin(&site))])
        .with("/peer/address", "127.0.0.1:0")
        .with("/peer/tls/certificate_file", json!(certificate))
        .with("/peer/tls/key_file", json!(key_file))
        .with("/peer/tls/ca_file", json!(home.path().join("gateways.pem")));
    let gateway = Gateway::start(&policy).await;
    assert_served(&gateway, TestRequest::post("/warehouses/berlin/skus/A7/reservations")).await;
    assert_served(&gateway, TestRequest::get("/warehouses/berlin/skus/A7/count")).await;
    let transfer = r#"{"sku": "A7", "from": "turin", "to": "berlin", "pieces": 3}"#;
    assert_served(
        &gateway,
        TestRequest::post("/transfers").field("content-type", "application/json").body(transfer),
    )
    .await;
    assert_eq!(key(&site, "/transfers").as_deref(), Some("sku/berlin/a7, sku/turin/a7"));
    assert_eq!(gateway.send(&TestRequest::get("/warehouses/berlin")).await.status, 200);
}

/// `multi-tenant.yaml` gives each tenant host keys of its own, and refuses repeated routing fields and unknown hosts.
#[tokio::test]
async fn multi_tenant_example_runs() {
    let site = TestSite::fresh().await;
    let upstreams = [("shops", origin(&site)), ("acme", origin(&site))];
    let gateway = Gateway::start(&localized_example(TENANTS, &site, &upstreams)).await;
    for (host, wanted) in
        [("acme.shops.example", "acme.shops.example"), ("B.shops.example", "b.shops.example")]
    {
        assert_served(&gateway, TestRequest::post("/orders/42").field("host", host)).await;
        assert_eq!(key(&site, "/orders/42"), Some(format!("{wanted}/order/42")));
    }
    let import = TestRequest::post("/orders?mode=full").field("host", "b.shops.example");
    assert_served(&gateway, import.clone().field("x-job", "import")).await;
    assert_eq!(gateway.send(&import).await.status, 404, "without its field it is another request");
    let twice = import.field("x-job", "import").field("x-job", "other");
    assert_eq!(gateway.send(&twice).await.status, 400, "nobody knows which of the two counts");
    assert_eq!(gateway.send(&TestRequest::get("/").field("host", "elsewhere.example")).await.status, 421);
}

/// `payments.yaml` runs before `guard.yaml`; a repeated capture is replayed and not executed again.
#[tokio::test]
async fn payments_example_captures_once() {
    let guarded = GuardedSite::fresh().await;
    let site = &guarded.site;
    let home = scratch::temp_dir();
    let path = |name: &str| home.path().join(name).display().to_string();
    run_operator(&["keys", "new", &path("key.json")]).await;
    fs::write(path("keys.json"), run_operator(&["keys", "public", &path("key.json")]).await)
        .expect("our folder");
    // The guard has a store already, and the quarantine of a first start is over.
    let launch = guarded.launch().await;
    let file = TestPolicy::from_yaml(GUARD)
        .with("/listener/address", "127.0.0.1:0")
        .with("/admin/address", "127.0.0.1:0")
        .with("/upstream/endpoint", format!("http://{}", site.origin.open_listener("guard")))
        .with("/store/redb", launch.store().display().to_string())
        .with("/tickets/public_keys_file", path("keys.json"));
    let guard = launch.with_policy(file).start().await;
    guard.wait_ready().await;
    let policy = localized_example(PAYMENTS, site, &[("payments", format!("http://{}", guard.public))])
        .with("/state_dir", home.path().display().to_string())
        .with("/tickets/signing_key_file", path("key.json"));
    let gateway = GatewayLaunch::new(&policy).start().await;
    gateway.wait_ready().await;
    let capture = TestRequest::post("/v1/orders/42/capture").field("idempotency-key", "first");
    assert_served(&gateway, capture.clone()).await;
    let again = gateway.send(&capture).await;
    assert_eq!((again.status, again.outcome()), (200, Some(FencingOutcome::Replayed)), "{again:?}");
    assert_eq!(site.origin.count("/v1/orders/42/capture"), 1);
    let without = gateway.send(&TestRequest::post("/v1/orders/42/capture")).await;
    let without: Value = serde_json::from_slice(&without.body).expect("a problem");
    assert_eq!(without["reason"], "idempotency-key-required");
    assert_eq!(gateway.send(&TestRequest::get("/v1/orders/42")).await.status, 200);
}

/// `filter.yaml` behind `minimal.yaml` passes its requests, and refuses expired requests and requests without a time
/// limit.
#[tokio::test]
async fn filter_example_runs_behind_minimal() {
    let site = TestSite::fresh().await;
    let file = TestPolicy::from_yaml(FILTER)
        .with("/listener/address", "127.0.0.1:0")
        .with("/admin/address", "127.0.0.1:0")
        .with("/upstream/endpoint", origin(&site));
    let filter = guard::GuardLaunch::for_upstream(site.zookeeper).with_policy(file).start().await;
    let upstreams = [("orders", format!("http://{}", filter.public))];
    let policy =
        localized_example(MINIMAL, &site, &upstreams).with("/upstreams/orders/not_after", "enforced");
    let gateway = Gateway::start(&policy).await;
    assert_served(&gateway, TestRequest::post("/orders/42")).await;
    assert_eq!(key(&site, "/orders/42").as_deref(), Some("order/42"));
    let past = TestRequest::post("/orders/42").field("Fencing-Not-After", "1");
    assert_eq!(filter.send(&past).await.field("fencing-refusal"), Some("expired"));
    assert_eq!(filter.send(&TestRequest::post("/orders/42")).await.status, 403);
}
