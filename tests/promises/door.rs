//! A request that cannot be forwarded safely is refused with a reason before a lock is taken, and never reaches an
//! upstream.
//!
//! These requests have ambiguous paths, or missing or oversized keys, or they are malformed, oversized or slow.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::Gateway,
    site::TestSite,
    wire::HttpWireMessage,
};
use serde_json::json;

const MIB: usize = 1 << 20;

/// A gateway with further routes whose keys come from a query parameter and from a header field.
async fn gateway(site: &TestSite) -> Gateway {
    let fenced = |name: &str, path: &str, key: &str| {
        let matched = json!({"methods": ["POST"], "path": path});
        json!({"name": name, "upstream": "ledger", "match": matched, "fence": {"key": key}})
    };
    let policy = site
        .policy("gw-1")
        .with_route(fenced("sku", "/sku", "sku/{query.id}"))
        .with_route(fenced("shop", "/shop", "shop/{header.x-shop}"))
        .with(
            "/listeners/public/timeouts",
            json!({"detect": "1500ms", "request_headers": "1500ms", "request_body": "1500ms"}),
        );
    Gateway::start(&policy).await
}

/// Sends the bytes and reads the one answer.
async fn send_raw(gateway: &Gateway, bytes: &str) -> HttpWireMessage {
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    client.send(bytes).await.expect("connected");
    let answer = tokio::time::timeout(Duration::from_secs(5), client.read_response()).await;
    answer.unwrap_or_else(|_| panic!("no answer to {:?}", head_of(bytes))).expect("an HTTP answer")
}

fn head_of(bytes: &str) -> &str {
    &bytes[..bytes.len().min(120)]
}

/// Status and reason; the reason is empty where the answer is not a problem body.
fn refusal(answer: &HttpWireMessage) -> (u16, String) {
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let reason = problem["reason"].as_str().unwrap_or_default();
    if !reason.is_empty() {
        assert_eq!(problem["outcome"], "not-dispatched", "{problem}");
    }
    (answer.word(1).parse().unwrap_or_default(), reason.to_owned())
}

/// A request without a route, or without one usable value of its key, is refused and does not reach the upstream.
#[tokio::test]
async fn unroutable_and_keyless_requests_are_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let long = "x".repeat(600);
    for (ask, status, reason) in [
        (TestRequest::post("/nothing/here"), 404, "no-route"),
        (TestRequest::post("/"), 404, "no-route"),
        (TestRequest::with_method("DELETE", "/pay/7"), 404, "no-route"),
        (TestRequest::post("/sku"), 400, "key-missing"),
        (TestRequest::post("/sku?id="), 400, "key-missing"),
        (TestRequest::post("/sku?other=7"), 400, "key-missing"),
        (TestRequest::post("/shop"), 400, "key-missing"),
        (TestRequest::post("/sku?id=7&id=8"), 400, "key-invalid"),
        (TestRequest::post(&format!("/pay/{long}")), 400, "key-invalid"),
        (TestRequest::post(&format!("/sku?id={long}")), 400, "key-invalid"),
        (TestRequest::post("/shop").field("X-Shop", &long), 400, "key-invalid"),
    ] {
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{ask:?}");
        assert_eq!(
            answer.outcome().unwrap_or(FencingOutcome::NotDispatched),
            FencingOutcome::NotDispatched,
            "{ask:?}"
        );
    }
    let good = [
        TestRequest::post("/pay/7"),
        TestRequest::post("/sku?id=7"),
        TestRequest::post("/shop").field("X-Shop", "7"),
    ];
    for ask in &good {
        assert_eq!(gateway.send(ask).await.status, 200, "{ask:?}");
    }
    assert_eq!(site.origin.log().records.len(), good.len(), "a refused request reached the upstream");
}

/// A path that two servers could read differently is refused on fenced and on unfenced routes.
#[tokio::test]
async fn ambiguous_paths_are_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    for path in [
        "/pay/../pay/7",
        "/pay/./7",
        "/pay/%2e%2e/7",
        "/pay/a%2Fb",
        "/pay/a%2fb",
        "/pay/a%5Cb",
        "/pay/a\\b",
        "/pay/a%00b",
        "/pay/%2525",
        "/pay/%25",
        "/pay//7",
        "//pay/7",
        "/pay/%ff",
        "/pay/%",
        "/pay/%4",
        "/pay/%zz",
    ] {
        // The unfenced route leads to the same upstream, which would read the same path.
        for method in ["POST", "GET"] {
            let bytes = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            let (status, reason) = refusal(&send_raw(&gateway, &bytes).await);
            let fitting = ["ambiguous-path", "malformed", "no-route", ""].contains(&reason.as_str());
            assert!(matches!(status, 400 | 404) && fitting, "{method} {path}: {status} {reason}");
        }
    }
    assert_eq!(site.origin.log().records.len(), 0, "a refused request reached the upstream");
}

/// All accepted spellings of a path lead to one key and one forwarded path. Otherwise two requests would work on one
/// resource at once.
#[tokio::test]
async fn equivalent_paths_have_one_key() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    for path in ["/pay/a~b", "/pay/a%7Eb", "/pay/a%7eb", "/pay/%61~%62", "/p%61y/a~b"] {
        assert_eq!(gateway.send(&TestRequest::post(path)).await.status, 200, "{path}");
    }
    let log = site.origin.log();
    assert_eq!(log.records.len(), 5);
    for record in &log.records {
        assert_eq!((record.path(), record.key()), ("/pay/a~b", Some("account/a~b")));
    }
}

/// Each malformed, oversized or slow request is refused with its own reason and does not reach the upstream.
#[tokio::test]
async fn malformed_or_oversized_requests_are_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let pay = "POST /pay/7 HTTP/1.1\r\n";
    let large = "x".repeat(2 * MIB);
    let mut wrong = Vec::new();
    let fields: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    for (case, bytes, status, reason) in [
        ("no host", format!("{pay}Content-Length: 0\r\n\r\n"), 400, "malformed"),
        ("two hosts", format!("{pay}Host: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n"), 400, "malformed"),
        (
            "another host",
            "POST http://b/pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".into(),
            400,
            "malformed",
        ),
        ("connect", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".into(), 405, "method"),
        (
            "coding",
            format!("{pay}Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            501,
            "transfer-encoding",
        ),
        (
            "expectation",
            format!("{pay}Host: a\r\nExpect: cake\r\nContent-Length: 0\r\n\r\n"),
            417,
            "expectation",
        ),
        (
            "announced body",
            format!("{pay}Host: a\r\nContent-Length: {}\r\n\r\n", 2 * MIB),
            413,
            "body-too-large",
        ),
        (
            "chunked body",
            format!("{pay}Host: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n{large}\r\n0\r\n\r\n"),
            413,
            "body-too-large",
        ),
        ("fields", format!("{pay}Host: a\r\n{fields}Content-Length: 0\r\n\r\n"), 431, "header-too-large"),
        ("slow body", format!("{pay}Host: a\r\nContent-Length: 5\r\n\r\nhi"), 408, "slow-request"),
        ("bad chunk", format!("{pay}Host: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400, "malformed"),
        (
            "two lengths",
            format!("{pay}Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi"),
            400,
            "malformed",
        ),
        (
            "folded field",
            format!("{pay}Host: a\r\nX-A: b\r\n c\r\nContent-Length: 0\r\n\r\n"),
            400,
            "malformed",
        ),
        ("not HTTP", "hello\r\n\r\n".into(), 400, "malformed"),
        ("version", "POST /pay/7 HTTP/3.0\r\nHost: a\r\n\r\n".into(), 400, "malformed"),
        ("method", "PO\u{1}ST /pay/7 HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400, "malformed"),
        ("TLS", "\u{16}\u{3}\u{1}\u{0}\u{5}hello".into(), 400, "malformed"),
        ("head", format!("{pay}Host: a\r\nX-A: {large}\r\n\r\n"), 431, "header-too-large"),
        ("many fields", format!("{pay}Host: a\r\n{fields}{fields}\r\n"), 431, "header-too-large"),
    ] {
        let answer = send_raw(&gateway, &bytes).await;
        if refusal(&answer) != (status, reason.to_owned()) {
            wrong.push((case, status, reason, answer));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(site.origin.log().records.len(), 0, "a refused request reached the upstream");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "goes on serving");
}

/// A request takes no lock before its body is complete, so that a slow client does not block the resource.
#[tokio::test]
async fn no_lock_before_body_is_complete() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let mut slow = RawClient::connect(gateway.public).await.expect("listens");
    slow.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nha").await.expect("connected");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;
    slow.send("lf").await.expect("connected");
    assert!(slow.read_response().await.expect("answered").start.contains(" 200 "));
    assert_eq!(site.origin.wait_for_request("/pay/7", 2).await.request.body, b"half");
}

/// `Expect: 100-continue` is answered with 100 before the body is sent, and is not passed on to the upstream.
#[tokio::test]
async fn expect_continue_is_answered() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    let head = "POST /pay/7 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    client.send(head).await.expect("connected");
    assert_eq!(client.read_head().await.expect("an interim answer").word(1), "100");
    client.send("hi").await.expect("connected");
    assert_eq!(client.read_response().await.expect("answered").word(1), "200");
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    assert_eq!((record.request.field("expect"), &record.request.body[..]), (None, &b"hi"[..]));
}

/// An incomplete request gets no answer, and its connection is closed.
#[tokio::test]
async fn incomplete_head_is_cut_off() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    for bytes in ["", "POST /pay/7 HTT", "POST /pay/7 HTTP/1.1\r\nHost: a\r\nX-A: "] {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        client.send(bytes).await.expect("connected");
        let cut = tokio::time::timeout(Duration::from_secs(5), client.read_response()).await;
        let answer = cut.unwrap_or_else(|_| panic!("still open after {bytes:?}"));
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.word(1) == "408"), "{bytes:?}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    let one = |n: usize| format!("POST /pay/{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n{n}");
    client.send((0..5).map(one).collect::<String>()).await.expect("connected");
    for n in 0..5 {
        let answer = client.read_response().await.expect("answered");
        assert!(answer.start.contains(" 200 "), "{answer:?}");
        let record = site.origin.wait_for_request(&format!("/pay/{n}"), 1).await;
        assert_eq!(record.request.body, n.to_string().as_bytes());
    }
}
