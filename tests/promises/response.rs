//! A large response passes intact, and its resource stays held until all of it has passed or a time limit ends it.
//!
//! Bodies pass intact in both directions.

use std::time::Duration;

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::Gateway,
    history::History,
    origin::{Latch, OriginAction, OriginReply},
    site::TestSite,
};
use serde_json::json;

const MIB: usize = 1 << 20;

/// A body in which neighbouring bytes differ, so that a lost or doubled piece is noticed.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Bodies of every size pass intact both ways.
#[tokio::test]
async fn bodies_of_every_size_pass_intact() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for length in [0, 1, 65_535, MIB - 1, MIB, MIB + 1, 5 * MIB] {
        let body = pattern(length);
        let sent = &body[..length.min(MIB)];
        for (path, ask) in [
            ("/pay/7", TestRequest::post("/pay/7").body(sent.to_vec())),
            ("/read", TestRequest::get("/read")),
        ] {
            let reply = OriginReply::with_body(body.clone());
            site.origin.script(
                path,
                [OriginAction::now(reply.clone()), OriginAction::now(reply.trailer("X-Sum", "9"))],
            );
            for chunked in [false, true] {
                let before = site.origin.count(path);
                let answer = gateway.send(&ask.clone().field("TE", "trailers")).await;
                assert_eq!(answer.status, 200, "{path} {length}");
                assert!(answer.body == body, "{path}: {length} bytes did not pass intact");
                assert_eq!(answer.trailers.contains_key("x-sum"), chunked, "{path} {length}");
                let record = site.origin.wait_for_request(path, before + 1).await;
                let expected = if path == "/read" { &[][..] } else { sent };
                assert!(record.request.body == expected, "{path}: the request body did not pass intact");
            }
        }
    }
    History::from_log(&site.origin.log()).assert_holds();
}

/// A large response holds its resource until the upstream has sent all of it.
#[tokio::test]
async fn large_response_holds_key_until_sent() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let latch = Latch::default();
    site.origin.script(
        "/pay/7",
        [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(pattern(5 * MIB)))],
    );
    let large = one.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 1).await;
    let next = two.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "the key was given on within an answer");
    latch.release();
    let answer = large.answer().await;
    assert!(answer.body == pattern(5 * MIB));
    assert_eq!(answer.outcome(), Some(FencingOutcome::Done));
    assert_eq!(next.answer().await.status, 200);
    History::from_log(&site.origin.log()).assert_holds();
}

/// A client that leaves within a large response frees nothing before the upstream has sent all of it.
#[tokio::test]
async fn client_reset_frees_no_key_early() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let latch = Latch::default();
    site.origin.script(
        "/pay/7",
        [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(pattern(5 * MIB)))],
    );
    let mut reader = RawClient::connect(one.public).await.expect("listens");
    reader.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await.expect("connected");
    reader.read_head().await.expect("a head");
    reader.reset().expect("still connected");
    let next = two.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "the key was given on within an answer");
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    History::from_log(&site.origin.log()).assert_holds();
}

/// A large response holds its resource until a slow reader has it.
///
/// The answer is larger than the kernel buffers: the gateway cannot have sent all of it before the client reads.
#[tokio::test]
async fn slow_reader_holds_key_until_read() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let two = Gateway::start(&site.policy("gw-2").with("/routes/0/fence/wait", "500ms")).await;
    site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body(pattern(48 * MIB)))]);
    let mut reader = RawClient::connect_narrow(gateway.public).await.expect("listens");
    reader.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await.expect("connected");
    let mut answer = reader.read_head().await.expect("a head");

    assert_eq!(
        two.send(&TestRequest::post("/pay/7")).await.status,
        423,
        "given on while the answer was on its way"
    );
    reader.read_body(&mut answer).await.expect("a complete answer");
    assert!(answer.body == pattern(48 * MIB));
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// A reader that has stopped reading holds the resource for `response_body_idle`, and no longer.
#[tokio::test]
async fn stalled_reader_frees_key_after_idle() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/upstreams/ledger/response_body_idle", "500ms");
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body(pattern(48 * MIB)))]);
    let mut reader = RawClient::connect_narrow(gateway.public).await.expect("listens");
    reader.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await.expect("connected");
    let mut answer = reader.read_head().await.expect("a head");

    let next = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(next.status, 200);
    assert!(next.took() < Duration::from_secs(3), "took {:?}", next.took());
    reader.read_body(&mut answer).await.expect_err("cut off, not completed");
    let first = site.origin.wait_for_request("/pay/7", 1).await;
    let second = site.origin.wait_for_request("/pay/7", 2).await;
    assert!(second.expect_token().number() > first.expect_token().number());
}

/// A reader that drips holds its resource for `response_body_total` at most, and makes no outcome unknown.
///
/// Such a reader takes a small piece from time to time, which must neither hold the key for hours nor make the outcome
/// of a finished request unknown.
#[tokio::test]
async fn dripping_reader_frees_key_after_total() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/response_body_total", "1s")
        .with("/routes/0/fence/once", json!({"store": "zookeeper"}))
        .with("/routes/0/fence/wait", "8s");
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body(pattern(48 * MIB)))]);
    let mut reader = RawClient::connect_narrow(gateway.public).await.expect("listens");
    let request = "POST /pay/7 HTTP/1.1\r\nHost: a\r\nIdempotency-Key: one\r\nContent-Length: 0\r\n\r\n";
    reader.send(request).await.expect("connected");
    let mut answer = reader.read_head().await.expect("a head");
    let dripping = tokio::spawn(async move {
        reader.set_read_pause(Duration::from_millis(50));
        reader.read_body(&mut answer).await
    });

    let next = gateway.send(&TestRequest::post("/pay/7").field("Idempotency-Key", "two")).await;
    assert_eq!(next.status, 200, "{next:?}");
    assert!(next.took() < Duration::from_secs(5), "took {:?}", next.took());
    let again = gateway.send(&TestRequest::post("/pay/7").field("Idempotency-Key", "one")).await;
    assert_eq!((again.outcome(), site.origin.count("/pay/7")), (Some(FencingOutcome::Done), 2), "{again:?}");
    let unknown = gateway.metrics().await.sum("fencegate_outcome_unknown_total", &[]);
    assert!(unknown < 0.5, "{unknown}");
    dripping.abort();
}
