//! HTTP/2 to an upstream: a connection carries one exchange at a time, and ends if a request may not have left in
//! full.
//!
//! An upstream that does not speak HTTP/2 gets no byte of a request.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use fencegate_testkit::{
    fault_proxy::FaultProxy,
    scratch,
    terminator::{ClientCertificatePolicy, TestCa, TlsTerminator},
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    origin_h2::OriginH2,
    policy::TestPolicy,
    site::TestSite,
};
use hyper::Version;
use serde_json::json;

fn over_h2(policy: TestPolicy, address: SocketAddr) -> TestPolicy {
    policy
        .with("/upstreams/ledger/endpoints", json!([format!("http://{address}")]))
        .with("/upstreams/ledger/protocol", "http2")
}

/// Requests arrive stamped, and responses come back with their trailers.
#[tokio::test]
async fn request_stamp_and_trailers_pass() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let gateway = Gateway::start(&over_h2(site.policy("gw-1"), origin.address)).await;
    for n in 1..=6 {
        let ask =
            TestRequest::post("/pay/7").field("host", "shop.example").field("te", "gzip;q=0.5, trailers");
        let answer = gateway.send(&ask.body(vec![b'x'; 300_000])).await;
        assert_eq!(
            (answer.status, answer.outcome(), answer.body.len()),
            (200, Some(FencingOutcome::Done), 300_000)
        );
        assert_eq!(answer.trailers.get("x-checksum").map(|value| value.as_bytes()), Some(&b"42"[..]));
        let got = &origin.requests_on("/pay/7")[n - 1];
        assert_eq!(got.version, Version::HTTP_2);
        assert_eq!((got.authority.as_str(), got.body), ("shop.example", 300_000));
        assert_eq!(got.fields.get("te").map(String::as_str), Some("trailers"));
        assert_eq!(Some(got.token()), answer.token());
        for field in ["host", "connection", "transfer-encoding"] {
            assert!(!got.fields.contains_key(field), "{field}: {got:?}");
        }
    }
    let got = origin.requests_on("/pay/7");
    assert!(got.windows(2).all(|pair| pair[0].token() < pair[1].token()), "{got:?}");
    let used: BTreeSet<usize> = got.iter().map(|got| got.connection).collect();
    assert!(used.len() <= 2, "a connection per worker is enough: {used:?}");
    gateway.send(&TestRequest::get("/plain")).await;
    assert!(!origin.requests_on("/plain")[0].fields.contains_key("te"), "nobody asked for trailers");
}

/// With one exchange per connection, all bytes of the connection belong to one request.
#[tokio::test]
async fn connection_carries_one_exchange() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let gateway = Gateway::start(&over_h2(site.policy("gw-1"), origin.address)).await;
    let asked: Vec<_> = (0..8).map(|n| gateway.begin(TestRequest::get(&format!("/{n}/slow")))).collect();
    for asked in asked {
        assert_eq!(asked.answer().await.status, 200);
    }
    let got = origin.requests();
    assert_eq!(got.iter().map(|got| got.beside).max(), Some(1), "{got:?}");
    assert_eq!(got.iter().map(|got| got.connection).collect::<BTreeSet<_>>().len(), 8);
}

/// After the session deadline a gateway still receives the whole response to a request that it has sent completely.
///
/// The response is true, because the request was complete. A body larger than the windows arrives only if the gateway
/// opens them further.
#[tokio::test]
async fn complete_request_keeps_response_after_deadline() {
    const LARGE: usize = 1 << 20;
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let relay = FaultProxy::start(site.zookeeper);
    let policy = over_h2(site.policy("gw-1"), origin.address)
        .with_zookeeper(relay.address)
        .with("/routes/0/match/path", "/pay/{account}/{rest...}");
    let gateway = Gateway::start(&policy).await;
    let asked = gateway.begin(TestRequest::post("/pay/7/late").body(vec![7; LARGE]));
    while !origin.requests_on("/pay/7/late").first().is_some_and(|got| got.whole) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(relay);
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.body.len()), (200, LARGE), "{:?}", answer.field("fencing-outcome"));
    let outcome = answer.field("fencing-outcome").unwrap_or_default();
    assert!(outcome.starts_with("done") && outcome.contains("proof=lost"), "{outcome}");
}

/// The rest of a request body is not sent when the response comes before the body was read.
///
/// The rest must not be sent during the tenure of the next holder.
#[tokio::test]
async fn early_response_stops_request_body() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let policy = over_h2(site.policy("gw-1"), origin.address)
        .with("/routes/0/match/path", "/pay/{account}/{rest...}")
        .with("/listeners/public/limits/max_body", "16MiB");
    let gateway = Gateway::start(&policy).await;
    let early = gateway.send(&TestRequest::post("/pay/7/early").body(vec![7; 8 << 20])).await;
    assert_eq!((early.status, early.outcome()), (200, Some(FencingOutcome::Done)));
    assert_eq!(&early.body[..], b"early");
    for _ in 0..4 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7/next")).await.status, 200);
    }
    let first = origin.requests_on("/pay/7/early")[0].connection;
    assert!(
        origin.requests_on("/pay/7/next").iter().all(|got| got.connection != first),
        "the connection was used again"
    );
}

/// A stream that is reset is an unknown outcome and retires its grant.
#[tokio::test]
async fn stream_reset_retires_grant() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let policy = over_h2(site.policy("gw-1").with_cached_hold(), origin.address)
        .with("/routes/0/match/path", "/pay/{account}/{rest...}");
    let gateway = Gateway::start(&policy).await;
    let reset = gateway.send(&TestRequest::post("/pay/7/reset").body("hi")).await;
    assert_eq!((reset.status, reset.outcome()), (502, Some(FencingOutcome::Unknown)));
    assert_eq!(gateway.send(&TestRequest::post("/pay/7/next")).await.status, 200);
    assert_eq!(origin.requests_on("/pay/7/reset").len(), 1, "sent again");
    let first = origin.requests_on("/pay/7/reset")[0].token();
    let next = origin.requests_on("/pay/7/next")[0].token();
    assert!(next.number() > first.number(), "{first} then {next}");
}

/// A connection that the upstream is about to close costs no request.
#[tokio::test]
async fn closing_connection_costs_no_request() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let policy =
        over_h2(site.policy("gw-1"), origin.address).with("/routes/0/match/path", "/pay/{account}/{rest...}");
    let gateway = Gateway::start(&policy).await;
    for n in 0..20 {
        let answer = gateway.send(&TestRequest::post("/pay/7/last")).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "request {n}");
        // The gateway has read the upstream's GOAWAY: it closes the connection.
        origin.wait_closed(n + 1).await;
    }
    // Now requests also come while the GOAWAY is on its way. The upstream serves them.
    for n in 0..20 {
        let answer = gateway.send(&TestRequest::post("/pay/7/last")).await;
        assert_eq!(
            (answer.status, answer.outcome()),
            (200, Some(FencingOutcome::Done)),
            "request {n} at once"
        );
    }
    let connections: Vec<_> = origin.requests().iter().take(20).map(|got| got.connection).collect();
    assert_eq!(connections, (0..20).collect::<Vec<_>>(), "each of the first has a connection of its own");
}

/// Nothing of a request is written to an upstream that does not speak HTTP/2.
///
/// An upstream without HTTP/2 would take the HTTP/2 preface for a request, and answer it.
#[tokio::test]
async fn upstream_without_http2_gets_nothing() {
    let site = TestSite::fresh().await;
    let policy = over_h2(site.policy("gw-1"), site.origin.open_listener("gw-1"))
        .with("/upstreams/ledger/connect_timeout", "1s");
    let gateway = Gateway::start(&policy).await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream-connect"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    let told = |what: &[u8]| {
        site.origin.log().pieces.iter().any(|piece| piece.bytes.windows(what.len()).any(|part| part == what))
    };
    assert!(!told(b"fencing"), "fields of the request were written");
}

/// With `protocol: auto` the upstream chooses the protocol; with `http2` one without it gets nothing.
#[tokio::test]
async fn upstream_chooses_protocol_with_auto() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let home = scratch::temp_dir();
    let authority = TestCa::new();
    authority.write(&home.path().join("ca.pem"));
    let signed = authority.sign(&["127.0.0.1"]);
    let both =
        TlsTerminator::start(&signed, &ClientCertificatePolicy::Anybody, &["h2", "http/1.1"], origin.address);
    let old = TlsTerminator::start(
        &signed,
        &ClientCertificatePolicy::Anybody,
        &["http/1.1"],
        site.origin.open_listener("gw-2"),
    );
    let policy = |name: &str, address: SocketAddr, protocol: &str| {
        site.policy(name)
            .with("/upstreams/ledger/endpoints", json!([format!("https://{address}")]))
            .with("/upstreams/ledger/tls", json!({"ca_file": home.path().join("ca.pem")}))
            .with("/upstreams/ledger/protocol", protocol)
    };
    let new = Gateway::start(&policy("gw-1", both.address, "auto")).await;
    assert_eq!(new.send(&TestRequest::post("/pay/7").body("x")).await.outcome(), Some(FencingOutcome::Done));
    assert_eq!(both.handshakes()[0].protocol.as_deref(), Some("h2"));
    assert_eq!(origin.requests_on("/pay/7")[0].version, Version::HTTP_2);
    let older = Gateway::start(&policy("gw-2", old.address, "auto")).await;
    assert_eq!(
        older.send(&TestRequest::post("/pay/8").body("x")).await.outcome(),
        Some(FencingOutcome::Done)
    );
    assert_eq!(site.origin.count("/pay/8"), 1);
    let strict = Gateway::start(&policy("gw-3", old.address, "http2")).await;
    let refused = strict.send(&TestRequest::post("/pay/9")).await;
    assert_eq!((refused.status, refused.outcome()), (502, Some(FencingOutcome::NotDispatched)));
}

/// No frame of a request leaves after the session is lost.
///
/// The proof of the session is checked below HTTP/2, in each write to the socket.
#[tokio::test]
async fn no_frame_leaves_after_session_loss() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let relay = FaultProxy::start(site.zookeeper);
    let policy = over_h2(site.policy("gw-1"), origin.address).with_zookeeper(relay.address);
    let gateway = site.gateway_paused_at(&policy, "before_upstream_write", Duration::from_millis(3500)).await;
    let asked = gateway.begin(TestRequest::post("/pay/7"));
    gateway.wait_at_failpoint("before_upstream_write").await;
    drop(relay);
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "suspended"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(origin.requests().is_empty());
}
