//! Clients may use HTTP/2 on the same port, and with the same promises, as HTTP/1.1.
//!
//! Clients speak HTTP/2 by prior knowledge. Locks, refusals, resets and drains mean the same as over HTTP/1.1. A
//! flood ends only its own connection.

use std::time::{Duration, Instant};

use fencegate_testkit::{
    child::Signal,
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{
        FencingOutcome, Http2Client, RawClient, TestRequest,
        frames::{
            CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, RawH2Client, frame, get,
            literal, post,
        },
    },
    gateway::Gateway,
    history::History,
    site::TestSite,
};
use futures_util::future::join_all;
use serde_json::json;

async fn connect(gateway: &Gateway) -> Http2Client {
    Http2Client::connect(gateway.public).await.expect("listens")
}

/// One port speaks HTTP/1.1 and HTTP/2, and a fenced POST is stamped alike.
#[tokio::test]
async fn http1_and_http2_share_port() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let streams = connect(&gateway).await;
    let request =
        TestRequest::post("/pay/7").field("cookie", "a=1").field("cookie", "b=2").field("te", "trailers");
    let answer = streams.send(&request.body("hi")).await.expect("answered");
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    assert_eq!(record.request.start, "POST /pay/7 HTTP/1.1");
    assert_eq!(record.request.body, b"hi");
    assert_eq!(record.request.field("host"), Some(gateway.public.to_string().as_str()));
    // The cookie is one field, as over HTTP/1.1: a server that reads only the first of two fields would lose a cookie.
    assert_eq!(record.request.field("cookie"), Some("a=1; b=2"));
    assert_eq!(record.request.field("te"), None);
    assert_eq!((record.key(), record.token()), (Some("account/7"), answer.token()));

    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(streams.send(&TestRequest::get("/x")).await.expect("answered").status, 200);
}

/// An offer to upgrade to HTTP/2 is not taken, and not forwarded.
#[tokio::test]
async fn upgrade_to_h2c_is_ignored() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    let offer =
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n";
    client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{offer}\r\n")).await.expect("connected");
    assert_eq!(client.read_response().await.expect("answered").word(1), "200");
    let record = site.origin.wait_for_request("/x", 1).await;
    for field in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(record.request.field(field), None);
    }
}

/// A request that is refused over HTTP/2 gets the status, reason and outcome of HTTP/1.1.
#[tokio::test]
async fn refusals_match_http1() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/listeners/public/timeouts", json!({"request_body": "700ms"}))
        .with("/listeners/public/limits", json!({"max_header": "8KiB", "max_body": "1KiB"}));
    let gateway = Gateway::start(&policy).await;
    let streams = connect(&gateway).await;
    let pay = TestRequest::post("/pay/7");
    let mut many = pay.clone();
    for n in 0..120 {
        many = many.field(&format!("x-{n}"), "y");
    }
    for (case, request, status, reason) in [
        ("another host", pay.clone().field("host", "b"), 400, "malformed"),
        ("user", TestRequest::post(&format!("http://user@{}/pay/7", gateway.public)), 400, "malformed"),
        ("scheme", TestRequest::post(&format!("ftp://{}/pay/7", gateway.public)), 400, "malformed"),
        ("connect", TestRequest::with_method("CONNECT", "a:80"), 405, "method"),
        ("route", TestRequest::post("/nothing"), 404, "no-route"),
        ("expectation", pay.clone().field("expect", "cake"), 417, "expectation"),
        ("fields", many, 431, "header-too-large"),
        ("head", pay.clone().field("x-long", &"x".repeat(9 << 10)), 431, "header-too-large"),
        ("target", TestRequest::post(&format!("/pay/{}", "x".repeat(9 << 10))), 414, "target-too-large"),
        ("body", pay.clone().body(vec![0; 2 << 10]), 413, "body-too-large"),
        ("slow body", pay.clone().field("content-length", "5"), 408, "slow-request"),
    ] {
        // The head announces a body, and no body follows.
        let answer = if case == "slow body" {
            send_headers_only(&gateway).await;
            continue;
        } else {
            wait_until(case, streams.send(&request), || gateway.log()).await.expect(case)
        };
        assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{case}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{case}");
    }
    assert_eq!(site.origin.log().records.len(), 0, "a refused request reached the upstream");
    assert_eq!(streams.send(&pay).await.expect("the connection goes on").status, 200);
}

/// HEADERS without END_STREAM, and nothing after it.
async fn send_headers_only(gateway: &Gateway) {
    let mut bare = RawH2Client::connect(gateway.public).await;
    bare.send(&[frame(HEADERS, END_HEADERS, 1, &post("/pay/7"))]).await;
    let answer = bare.read_until(|frame| frame.kind == DATA).await;
    assert!(String::from_utf8_lossy(&answer.payload).contains("slow-request"), "{answer:?}");
}

/// A stream that is reset in flight frees no key before the upstream has answered.
#[tokio::test]
async fn reset_stream_in_flight_keeps_key() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let latch = site.origin.hold("/pay/7");
    let streams = connect(&one).await;
    let gone = tokio::spawn(streams.send(&TestRequest::post("/pay/7")));
    site.origin.wait_for_request("/pay/7", 1).await;

    gone.abort();
    let next = two.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "the next began while the upstream worked");
    assert!(site.origin.log().records[0].abandoned.is_none(), "the upstream was hung up on");
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 2);
    assert_eq!(streams.send(&TestRequest::post("/pay/7")).await.expect("the connection goes on").status, 200);
}

/// A stream that is reset while it waits leaves the queue, and an unfenced one closes its upstream connection.
#[tokio::test]
async fn reset_waiting_stream_leaves_queue() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy_without_janitor("gw-1")).await;
    let tree = site.tree().await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let streams = connect(&gateway).await;
    let waiter = tokio::spawn(streams.send(&TestRequest::post("/pay/7")));
    tree.wait_waiters(1).await;
    waiter.abort();
    tree.wait_waiters(0).await;
    assert_eq!(holder.finish().await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 1, "nobody was left to want it");

    let _held = site.origin.hold("/x");
    let reader = tokio::spawn(streams.send(&TestRequest::get("/x")));
    site.origin.wait_for_request("/x", 1).await;
    reader.abort();
    let abandoned = |log: &fencegate_tests::origin::OriginLog| log.requests_for("/x").next()?.abandoned;
    site.origin.wait_for("the upstream to be hung up on", abandoned).await;
}

#[tokio::test]
async fn two_hundred_streams_keep_exclusion() {
    const STREAMS: usize = 200;
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(3));
    let policy = |name| {
        let policy = site
            .policy(name)
            .with_cached_hold()
            .with("/listeners/public/limits", json!({"streams": STREAMS}));
        policy.with("/routes/0/fence/queue", 1000).with("/routes/0/fence/wait", "20s")
    };
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    let (first, second) = tokio::join!(connect(&one), connect(&two));
    let request = |n: usize| TestRequest::post(&format!("/pay/{}", n % 5));
    let requests =
        (0..2 * STREAMS).map(|n| if n % 2 == 0 { first.send(&request(n)) } else { second.send(&request(n)) });
    let answers = wait_until("all answers", join_all(requests), || one.log()).await;
    for answer in answers {
        assert_eq!(answer.expect("answered").status, 200);
    }
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 2 * STREAMS);
}

/// A drain sends GOAWAY, closes idle connections, and finishes what is in flight.
#[tokio::test]
async fn drain_sends_goaway_and_finishes_streams() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let latch = site.origin.hold("/pay/7");
    let (busy, idle) = tokio::join!(connect(&gateway), connect(&gateway));
    assert_eq!(idle.send(&TestRequest::get("/x")).await.expect("answered").status, 200);
    let in_flight = tokio::spawn(busy.send(&TestRequest::post("/pay/7")));
    site.origin.wait_for_request("/pay/7", 1).await;
    gateway.signal(Signal::TERM);
    gateway.wait_unready().await;
    wait_until("the idle connection to close", idle.wait_closed(), || gateway.log()).await.expect("in order");
    assert!(!in_flight.is_finished(), "given up instead of finished");
    latch.release();
    let finished = in_flight.await.expect("no panic").expect("answered");
    assert_eq!((finished.status, finished.outcome()), (200, Some(FencingOutcome::Done)));
    wait_until("the connection to close", busy.wait_closed(), || gateway.log()).await.expect("in order");
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// A client that sends too little to detect the protocol is disconnected after the `detect` timeout.
#[tokio::test]
async fn undetected_protocol_closes_connection() {
    let site = TestSite::alone().await;
    let policy = site.policy("gw-1").with("/listeners/public/timeouts/detect", "300ms");
    let gateway = Gateway::start(&policy).await;
    for bytes in ["", "PRI * HTTP/2.0\r\n\r\nS"] {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        let began = Instant::now();
        client.send(bytes).await.expect("connected");
        wait_until("the end", client.read_response(), || gateway.log())
            .await
            .expect_err("no answer to nothing");
        let took = began.elapsed();
        assert!(took > Duration::from_millis(250) && took < Duration::from_secs(3), "{bytes:?}: {took:?}");
    }
}

/// A listener does not speak a protocol that is not in its `protocols`.
#[tokio::test]
async fn unlisted_protocol_is_refused() {
    let site = TestSite::fresh().await;
    let only = |protocol: &str| site.policy("gw-1").with("/listeners/public/protocols", json!([protocol]));
    let http1 = Gateway::start(&only("http1")).await;
    assert_eq!(http1.send(&TestRequest::get("/x")).await.status, 200);
    connect(&http1).await.send(&TestRequest::get("/x")).await.expect_err("no HTTP/2");
    drop(http1);
    let http2 = Gateway::start(&only("http2")).await;
    assert_eq!(connect(&http2).await.send(&TestRequest::get("/x")).await.expect("answered").status, 200);
    let refused = http2.send(&TestRequest::get("/x")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (400, "malformed"));
}

/// A flood, with which a client sends little and costs the server much, ends its own connection. The gateway serves
/// other clients meanwhile.
#[tokio::test]
async fn flood_ends_only_own_connection() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let streams = connect(&gateway).await;
    let reset = |n: u32| {
        let stream = 2 * n + 1;
        [
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/")),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    };
    let rapid_reset: Vec<Vec<u8>> = (0..20_000).map(reset).collect();
    let begun = [get("/"), literal("x-0", "y")].concat();
    let endless =
        (0..20_000).map(|n| frame(CONTINUATION, 0, 1, &literal(&format!("x-{n}"), &"y".repeat(90))));
    let continuation: Vec<Vec<u8>> =
        [frame(HEADERS, END_STREAM, 1, &begun)].into_iter().chain(endless).collect();
    for (name, flood) in [("rapid reset", rapid_reset), ("continuation", continuation)] {
        let mut bare = RawH2Client::connect(gateway.public).await;
        let ended = wait_until(name, bare.flood(&flood), || gateway.log()).await;
        assert!(ended, "{name}: all of it was taken");
        assert_eq!(streams.send(&TestRequest::post("/pay/7")).await.expect("others are served").status, 200);
    }
    gateway.wait_gauge("fencegate_requests_in_flight", 0.0).await;
}

/// A cookie in many pieces becomes one field. A browser gives each cookie a field of its own (RFC 9113, 8.2.3), and may
/// have more of them than a request may have fields.
#[tokio::test]
async fn split_cookie_becomes_one_field() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let request = (0..150)
        .fold(TestRequest::post("/pay/7"), |request, n| request.field("cookie", &format!("c{n}={n}")));
    let answer = connect(&gateway).await.send(&request).await.expect("answered");
    assert_eq!(answer.status, 200, "{answer:?}");
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    let all: Vec<String> = (0..150).map(|n| format!("c{n}={n}")).collect();
    assert_eq!(record.request.field("cookie"), Some(all.join("; ").as_str()));
}
