//! The service receives the address of the client and of the proxies before it, and never from a client that is not
//! trusted.
//!
//! Both sides get a `Via` field. A request that comes back to its gateway is refused. Hosts that are not served, and
//! fields that override method or path, are refused.

use fencegate_testkit::fault_proxy::FaultProxy;
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::Gateway,
    origin::RequestRecord,
    site::TestSite,
};
use serde_json::json;

const CLAIMS: [(&str, &str); 4] = [
    ("X-Forwarded-For", "203.0.113.9, 198.51.100.7"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "shop.example"),
    ("Forwarded", "for=198.51.100.7;proto=https"),
];

fn request_with_claims(path: &str) -> TestRequest {
    CLAIMS.iter().fold(TestRequest::get(path), |ask, (name, value)| ask.field(name, value))
}

async fn recorded_request(site: &TestSite, path: &str) -> RequestRecord {
    let log = site.origin.log();
    log.records.iter().find(|record| record.path() == path).cloned().expect("it arrived")
}

/// Forwarding fields of a client that is not trusted are dropped and replaced by its own address and scheme.
#[tokio::test]
async fn untrusted_forwarding_fields_are_replaced() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1")).await;
    assert_eq!(gateway.send(&request_with_claims("/stranger")).await.status, 200);
    let request = recorded_request(&site, "/stranger").await.request;
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"), "{request:?}");
    assert_eq!(request.field("x-forwarded-proto"), Some("http"), "{request:?}");
    assert_eq!((request.field("x-forwarded-host"), request.field("forwarded")), (None, None), "{request:?}");
}

/// Forwarding fields of a trusted proxy are passed on with the address of the proxy appended.
#[tokio::test]
async fn trusted_forwarding_fields_are_extended() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/trusted_peers", json!(["127.0.0.0/8"]));
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&request_with_claims("/proxy")).await.status, 200);
    let request = recorded_request(&site, "/proxy").await.request;
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9, 198.51.100.7, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("forwarded", "for=198.51.100.7;proto=https, for=127.0.0.1"),
    ] {
        assert_eq!(request.field(name), Some(value), "{request:?}");
    }
}

/// The gateway adds itself to `Via` of the request and of the answer.
#[tokio::test]
async fn via_is_added_in_both_directions() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1")).await;
    let answer = gateway.send(&TestRequest::get("/via").field("Via", "1.0 fred")).await;
    let request = recorded_request(&site, "/via").await.request;
    let entries: Vec<&str> = request.field("via").expect("a Via field").split(", ").collect();
    assert_eq!((entries.len(), entries[0]), (2, "1.0 fred"), "{entries:?}");
    assert!(entries[1].starts_with("1.1 fencegate-"), "{entries:?}");
    assert_eq!(answer.field("via"), Some(entries[1]));
}

/// A gateway whose upstream is the gateway itself.
async fn start_self_loop(site: &TestSite) -> (Gateway, FaultProxy) {
    let back = FaultProxy::start_balancing(&[]);
    let endpoint = format!("http://{}", back.address);
    let gateway =
        Gateway::start(&site.policy("gw-1").with("/upstreams/ledger/endpoints", json!([endpoint]))).await;
    back.set_targets(&[gateway.public]);
    (gateway, back)
}

/// A request that comes back to its own gateway is refused with 508, before it waits for the key that it holds
/// itself.
#[tokio::test]
async fn looping_request_is_refused() {
    let site = TestSite::fresh().await;
    let (gateway, _back) = start_self_loop(&site).await;
    let answer = gateway.send(&TestRequest::get("/round")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (508, "loop"), "{answer:?}");
    // On the fenced route, the second round is refused before it waits for the key that the first round holds.
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    client.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await.expect("sent");
    let answer = client.read_response().await.expect("an answer");
    assert_eq!(answer.word(1), "508", "{answer:?}");
    // The upstream of the first round is the gateway itself, so the refusal comes with the outcome of the first
    // round.
    assert!(answer.field("fencing-outcome").is_some_and(|outcome| outcome.starts_with("done")), "{answer:?}");
}

/// With `hosts` a request for another host is refused with 421.
#[tokio::test]
async fn unknown_host_is_refused() {
    let site = TestSite::fresh().await;
    let policy =
        site.policy("gw-1").with("/listeners/public/hosts", json!(["pay.example", "*.shop.example"]));
    let gateway = Gateway::start(&policy).await;
    for (host, status) in [
        ("pay.example", 200),
        ("PAY.example.:8443", 200),
        ("a.shop.example", 200),
        ("shop.example", 421),
        ("evil.example", 421),
    ] {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        client.send(format!("GET /host HTTP/1.1\r\nHost: {host}\r\n\r\n")).await.expect("sent");
        let answer = client.read_response().await.expect("an answer");
        assert_eq!(answer.word(1), status.to_string(), "{host}: {answer:?}");
        assert_eq!(answer.field("fencing-outcome").is_some(), status == 421, "{answer:?}");
    }
    assert_eq!(site.origin.count("/host"), 3);
}

/// Fields that override method or path are refused: some frameworks take the method or path from such a field, and the
/// request would not be the one for which the route was found.
#[tokio::test]
async fn override_fields_are_refused() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1")).await;
    for (name, status, reason) in [
        ("X-HTTP-Method-Override", 405, "method"),
        ("X_Http_Method_Override", 405, "method"),
        ("x-http-method", 405, "method"),
        ("X-Method-Override", 405, "method"),
        ("X-Original-URL", 400, "ambiguous-path"),
        ("X-Rewrite-URL", 400, "ambiguous-path"),
    ] {
        let answer = gateway.send(&TestRequest::get("/override").field(name, "POST")).await;
        assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{name}");
        assert_eq!(
            answer.outcome().unwrap_or(FencingOutcome::NotDispatched),
            FencingOutcome::NotDispatched,
            "{name}"
        );
    }
    assert_eq!(site.origin.count("/override"), 0);
}
