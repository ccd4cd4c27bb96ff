//! With `log.access` every request can be found again by its line in the access log, its request ID and its trace: at the
//! client, at the gateway and at the upstream. The log never contains a query string or a hidden key.

use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, LogLine},
    held_request::HeldRequest,
    site::TestSite,
};
use serde_json::{Value, json};

async fn start_with_log(site: &TestSite, log: Value) -> Gateway {
    Gateway::start(&site.policy("gw-1").with("/log", log)).await
}

/// The access log line of the request for this path.
async fn line(gateway: &Gateway, path: &'static str) -> Value {
    let of_path = move |line: &LogLine| access(line)["path"] == path;
    access(&gateway.wait_line("a line in the access log", of_path).await)
}

fn access(line: &LogLine) -> Value {
    serde_json::from_str(&line.text()).unwrap_or_default()
}

/// An access log line records client, route, key, token, status, outcome and times of a request, but not its query.
#[tokio::test]
async fn access_line_records_request_and_outcome() {
    let site = TestSite::fresh().await;
    let gateway = start_with_log(&site, json!({"access": "stdout"})).await;
    let answer = gateway.send(&TestRequest::post("/pay/7?card=4111").field("X-Request-Id", "shop-42")).await;
    assert_eq!((answer.status, answer.field("x-request-id")), (200, Some("shop-42")));
    let line = line(&gateway, "/pay/7").await;
    for (field, value) in [
        ("request_id", json!("shop-42")),
        ("client", json!("127.0.0.1")),
        ("route", json!("pay")),
        ("method", json!("POST")),
        ("key", json!("account/7")),
        ("token", json!(answer.field("fencing-token"))),
        ("status", json!(200)),
        ("outcome", json!("done")),
        ("bytes", json!(answer.body.len())),
        ("complete", json!(true)),
    ] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    for field in ["wait_ms", "upstream_ms", "head_ms", "total_ms"] {
        assert!(line[field].as_f64().is_some_and(|millis| millis >= 0.0), "{field}: {line}");
    }
    assert!(!line.to_string().contains("4111"), "the query is told: {line}");
}

/// Refused requests and requests of clients that hang up have an access log line; with `keys: off` the line has no
/// key.
#[tokio::test]
async fn refusals_and_hangups_are_logged() {
    let site = TestSite::fresh().await;
    let gateway = start_with_log(&site, json!({"access": "stdout", "keys": "off"})).await;
    assert_eq!(gateway.send(&TestRequest::post("/nowhere")).await.status, 404);
    let refused = line(&gateway, "/nowhere").await;
    assert_eq!((&refused["status"], &refused["reason"]), (&json!(404), &json!("no-route")), "{refused}");
    let HeldRequest { request: gone, latch: held, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/8")).await;
    gone.hang_up();
    let gone = line(&gateway, "/pay/8").await;
    held.release();
    assert_eq!(
        (&gone["status"], &gone["complete"], &gone["key"]),
        (&json!(499), &json!(false), &Value::Null),
        "{gone}"
    );
}

/// A valid `traceparent` continues with a span of the gateway; an invalid one is replaced by a new trace without
/// `tracestate`.
#[tokio::test]
async fn trace_continues_and_invalid_trace_restarts() {
    let site = TestSite::fresh().await;
    let gateway = start_with_log(&site, json!({"access": "stdout"})).await;
    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{ID}-00f067aa0ba902b7-01");
    gateway
        .send(&TestRequest::get("/traced").field("traceparent", &parent).field("tracestate", "vendor=1"))
        .await;
    gateway
        .send(&TestRequest::get("/broken").field("traceparent", "00-zz").field("tracestate", "vendor=1"))
        .await;
    let traced = line(&gateway, "/traced").await;
    let broken = line(&gateway, "/broken").await;
    let log = site.origin.log();
    let sent = |path| &log.requests_for(path).next().expect("it arrived").request;
    let span = traced["span_id"].as_str().unwrap_or_default();
    assert_eq!(sent("/traced").field("traceparent"), Some(format!("00-{ID}-{span}-01").as_str()));
    assert_eq!(
        (traced["trace_id"].as_str(), sent("/traced").field("tracestate")),
        (Some(ID), Some("vendor=1"))
    );
    let id = broken["trace_id"].as_str().unwrap_or_default();
    let span = broken["span_id"].as_str().unwrap_or_default();
    assert_eq!(sent("/broken").field("traceparent"), Some(format!("00-{id}-{span}-00").as_str()));
    assert_eq!(sent("/broken").field("tracestate"), None);
    assert!(sent("/broken").field("x-request-id").is_some_and(|name| name.len() == 16));
}

/// Without `log.access` the log has no line for a request.
#[tokio::test]
async fn no_access_log_by_default() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    assert_eq!(gateway.send(&TestRequest::get("/silent")).await.status, 200);
    assert!(!gateway.log().contains("/silent"), "{}", gateway.log());
}
