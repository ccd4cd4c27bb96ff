//! Buffered bodies and request heads use no more memory than their quota. A request that exceeds the quota is refused, and
//! other clients are served all the same.
//!
//! Some of the requests get 503. A gateway with 512 MiB of memory survives, and other clients are served while one
//! client takes all memory that it may. A body that could never fit gets 413. An HTTP/2 head that does not end is
//! limited in time.

use std::time::Duration;

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{
        FencingOutcome, Http2Client, RawClient, TestRequest,
        frames::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, RawH2Client, frame},
    },
    gateway::{Gateway, GatewayLaunch},
    held_request::HeldRequest,
    history::History,
    origin::{OriginAction, OriginReply},
    site::TestSite,
};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use super::clients_share::send_from;

const MIB: usize = 1 << 20;
const CONNECTIONS: usize = 5;
const STREAMS: usize = 100;

/// The requests of the flood so far: the number refused, and the number that wait for the key with their bodies.
async fn flood_counts(gateway: &Gateway) -> (f64, f64) {
    let metrics = gateway.metrics().await;
    let refused = metrics.sum("fencegate_rejections_total", &["reason=\"overloaded\""]);
    (refused, metrics.sum("fencegate_lock_waiters", &[]))
}

/// A flood of bodies above the buffer quota is refused in part with 503; the gateway and other clients are not
/// harmed.
#[tokio::test]
async fn body_flood_is_partly_refused() {
    let site = TestSite::alone().await;
    let policy = site
        .policy("gw-1")
        // The flood keeps a small machine busy. A long timeout keeps the session alive, because this test is not
        // about sessions.
        .with("/zookeeper/session_timeout", "30s")
        .with("/routes/0/fence/queue", 1000)
        .with("/routes/0/fence/wait", "60s")
        .with("/listeners/public/timeouts/request_body", "60s");
    let gateway = GatewayLaunch::new(&policy).with_memory(512 * MIB).start().await;
    gateway.wait_ready().await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;

    let mut flood = JoinSet::new();
    let request = TestRequest::post("/pay/7").body(vec![b'x'; MIB - 1]);
    for _ in 0..CONNECTIONS {
        let streams = Http2Client::connect(gateway.public).await.expect("listens");
        for _ in 0..STREAMS {
            flood.spawn(streams.send(&request));
        }
        // The connection lives as long as one of its requests does.
        flood.spawn(async move { streams.wait_closed().await.and(Err("closed".to_owned())) });
    }
    let all = (CONNECTIONS * STREAMS) as f64;
    let settled = async {
        while {
            let (refused, waiting) = flood_counts(&gateway).await;
            refused + waiting < all
        } {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Half a gigabyte takes a while on a busy machine.
    timeout(Duration::from_secs(60), settled).await.unwrap_or_else(|_| panic!("{}", gateway.log()));
    let (refused, waiting) = flood_counts(&gateway).await;
    println!("{refused} refused, {waiting} wait, {} MiB at most", gateway.peak() / MIB);
    assert!(refused > 0.0 && waiting > 20.0, "{refused} refused, {waiting} wait");
    let metrics = gateway.metrics().await;
    let bytes = metrics.sum("fencegate_buffered_bytes", &[]);
    let limit = metrics.sum("fencegate_buffered_limit_bytes", &[]);
    assert!(bytes > 0.0 && bytes <= limit && limit < 256.0 * MIB as f64, "{bytes} of {limit}");

    // Other clients are served meanwhile, with a body and without.
    for round in 0..5 {
        for request in [TestRequest::get("/x"), TestRequest::post("/pay/8").body(vec![b'y'; 20_000])] {
            let answer = gateway.send(&request).await;
            assert_eq!(answer.status, 200, "round {round}: {answer:?}");
        }
    }
    let mut received = 0.0;
    while received < refused {
        let answer = flood.join_next().await.expect("there are more").expect("no panic").expect("an answer");
        assert_eq!((answer.status, answer.reason().as_str()), (503, "overloaded"), "{answer:?}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(answer.field("retry-after").is_some());
        received += 1.0;
    }
    flood.shutdown().await;
    assert_eq!(holder.finish().await.status, 200);
    gateway.wait_gauge("fencegate_buffered_bytes", 0.0).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7").body(vec![b'z'; MIB])).await.status, 200);
    History::from_log(&site.origin.log()).assert_holds();
}

/// Starts a gateway with 512 MiB of memory, a request that holds the key, and a queue for all other requests.
async fn start_small_gateway() -> (TestSite, Gateway, HeldRequest) {
    let site = TestSite::alone().await;
    let policy = site
        .policy("gw-1")
        .with("/zookeeper/session_timeout", "30s")
        .with("/routes/0/fence/queue", 20_000)
        .with("/routes/0/fence/wait", "120s")
        .with("/listeners/public/timeouts/request_headers", "60s");
    let gateway = GatewayLaunch::new(&policy).with_memory(512 * MIB).start().await;
    gateway.wait_ready().await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    (site, gateway, holder)
}

/// Waits until each of `all` requests was refused or is `kept`; returns both counts.
async fn wait_all_settled(gateway: &Gateway, all: usize, kept: impl AsyncFn() -> f64) -> (f64, f64) {
    let settled = async {
        loop {
            let refused = flood_counts(gateway).await.0;
            let kept = kept().await;
            if refused + kept >= all as f64 {
                return (refused, kept);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(120), settled).await.unwrap_or_else(|_| panic!("{}", gateway.log()))
}

/// Asserts that some heads were refused and others kept within the quota, and that requests with small heads are served.
async fn assert_others_served(gateway: &Gateway, refused: f64, kept: f64) {
    println!("{refused} refused, {kept} kept, {} MiB at most", gateway.peak() / MIB);
    assert!(refused > 0.0 && kept > 20.0, "{refused} refused, {kept} kept");
    let metrics = gateway.metrics().await;
    let heads = metrics.sum("fencegate_buffered_head_bytes", &[]);
    let limit = metrics.sum("fencegate_buffered_limit_bytes", &[]);
    assert!(heads > 0.0 && heads <= limit / 2.0, "{heads} of {limit}");
    assert_eq!(metrics.sum("fencegate_buffered_without_room_total", &["kind=\"head\""]), refused);
    for request in [TestRequest::get("/x"), TestRequest::post("/pay/8").body(vec![b'y'; 20_000])] {
        let answer = gateway.send(&request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Asserts that the whole quota is free again when the clients have gone.
async fn assert_quota_freed(site: &TestSite, gateway: &Gateway, holder: HeldRequest) {
    gateway.wait_gauge("fencegate_buffered_head_bytes", 0.0).await;
    gateway.wait_gauge("fencegate_buffered_bytes", 0.0).await;
    let large = TestRequest::post("/pay/8").field("large", &"x".repeat(50_000));
    assert_eq!(gateway.send(&large).await.status, 200);
    assert_eq!(holder.finish().await.status, 200);
    History::from_log(&site.origin.log()).assert_holds();
}

/// A hundred connections with a hundred streams each, all with a head of 57 KB: the heads above the quota are refused, and
/// other clients are served.
#[tokio::test]
async fn http2_head_flood_is_partly_refused() {
    const CONNECTIONS: usize = 100;
    let (site, gateway, holder) = start_small_gateway().await;
    let fields: Vec<u8> =
        (0..60).flat_map(|n| frames::literal(&format!("f-{n}"), &"x".repeat(900))).collect();
    let head = [frames::post("/pay/7"), fields].concat();
    let mut pieces = head.chunks(16 << 10).peekable();
    let mut kinds = std::iter::once((HEADERS, END_STREAM)).chain(std::iter::repeat((CONTINUATION, 0)));
    let mut parts = Vec::new();
    while let (Some(piece), Some((kind, flags))) = (pieces.next(), kinds.next()) {
        let flags = if pieces.peek().is_none() { flags | END_HEADERS } else { flags };
        parts.push((kind, flags, piece));
    }
    let mut flood = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = RawH2Client::connect(gateway.public).await;
        for stream in (1..).step_by(2).take(STREAMS) {
            let head = parts.iter().map(|(kind, flags, piece)| frame(*kind, *flags, stream, piece));
            let sent = client.try_send(&head.collect::<Vec<_>>()).await;
            sent.unwrap_or_else(|error| panic!("{error}: {}", gateway.log()));
        }
        flood.push(client);
    }
    let waiting = async || flood_counts(&gateway).await.1;
    let (refused, kept) = wait_all_settled(&gateway, CONNECTIONS * STREAMS, waiting).await;
    assert_others_served(&gateway, refused, kept).await;
    drop(flood);
    assert_quota_freed(&site, &gateway, holder).await;
}

/// Unfinished heads above the quota are refused. A byte of such a head can mean a field, so few bytes could cost much
/// memory.
#[tokio::test]
async fn unfinished_http2_heads_are_partly_refused() {
    const CONNECTIONS: usize = 3000;
    /// `accept-encoding: gzip, deflate` of the static table.
    const FIELD: u8 = 0x90;
    let (site, gateway, holder) = start_small_gateway().await;
    let head = [frames::post("/pay/7"), vec![FIELD; 1300]].concat();
    let mut flood = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = RawH2Client::connect(gateway.public).await;
        client.send(&[frame(HEADERS, END_STREAM, 1, &head)]).await;
        flood.push(client);
    }
    let kept = async || {
        // The quota for a head that is not complete is four times the largest head that the HTTP library reads.
        gateway.metrics().await.sum("fencegate_buffered_head_bytes", &[]) / (4 * (80 << 10)) as f64
    };
    let (refused, kept) = wait_all_settled(&gateway, CONNECTIONS, kept).await;
    assert_others_served(&gateway, refused, kept).await;
    drop(flood);
    assert_quota_freed(&site, &gateway, holder).await;
}

/// One client with unfinished heads gets half of the quota for heads, so that the large heads of other clients find quota.
#[tokio::test]
async fn one_client_gets_half_head_quota() {
    const CONNECTIONS: usize = 600;
    let (site, gateway, holder) = start_small_gateway().await;
    let large = TestRequest::post("/pay/8").field("large", &"x".repeat(50_000));
    let mut flood = Vec::new();
    let greedy = "127.0.0.2".parse().expect("an address");
    for _ in 0..CONNECTIONS {
        let mut client = RawH2Client::connect_from(greedy, gateway.public).await;
        client.send(&[frame(HEADERS, END_STREAM, 1, &frames::post("/pay/7"))]).await;
        flood.push(client);
    }
    let each = (4 * (80 << 10)) as f64;
    let kept = async || gateway.metrics().await.sum("fencegate_buffered_head_bytes", &[]) / each;
    let (refused, kept) = wait_all_settled(&gateway, CONNECTIONS, kept).await;
    println!("{refused} refused, {kept} kept");
    let limit = gateway.metrics().await.sum("fencegate_buffered_limit_bytes", &[]);
    assert!(refused > 0.0 && kept * each <= limit / 4.0, "{kept} of {limit}");
    assert_eq!(send_from("127.0.0.2", &gateway, large.clone()).await.expect("no panic").status, 503);
    for address in ["127.0.0.1", "127.0.0.3"] {
        let answer = send_from(address, &gateway, large.clone()).await.expect("no panic");
        assert_eq!(answer.status, 200, "{address}: {answer:?}");
    }
    drop(flood);
    assert_quota_freed(&site, &gateway, holder).await;
}

/// The head of an HTTP/2 request has the same time limit as that of an HTTP/1.1 request; then its connection is closed.
#[tokio::test]
async fn slow_http2_head_closes_connection() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/timeouts/request_headers", "1s");
    let gateway = Gateway::start(&policy).await;
    let mut client = RawH2Client::connect(gateway.public).await;
    client.send(&[frame(HEADERS, END_STREAM, 1, &frames::post("/pay/7"))]).await;
    wait_until("the end of the connection", client.wait_closed(), || gateway.log()).await;
    assert_eq!(site.origin.log().records.len(), 0);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("fencegate_client_timeouts_total", &["limit=\"request_headers\""]), 1.0);
}

/// Each connection has a head buffer of its own, and the heads above the quota are refused with 503.
#[tokio::test]
async fn http1_head_flood_is_partly_refused() {
    const CONNECTIONS: usize = 3800;
    let (site, gateway, holder) = start_small_gateway().await;
    let fields: String = (0..60).map(|n| format!("F-{n}: {}\r\n", "x".repeat(900))).collect();
    let head = format!("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{fields}\r\n");
    let mut flood = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        // A connection without quota is closed, maybe before its whole head is sent.
        client.send(&head).await.ok();
        flood.push(client);
    }
    let waiting = async || flood_counts(&gateway).await.1;
    let (refused, kept) = wait_all_settled(&gateway, CONNECTIONS, waiting).await;
    assert_others_served(&gateway, refused, kept).await;
    let refused = async {
        for client in flood.iter_mut().rev().take(10) {
            let answer = client.read_response().await.expect("answered");
            assert_eq!(answer.word(1), "503");
        }
    };
    wait_until("an answer", refused, || gateway.log()).await;
    drop(flood);
    assert_quota_freed(&site, &gateway, holder).await;
}

/// The request was dispatched, so its answer cannot be refused any more: an answer that exceeds the quota is streamed.
#[tokio::test]
async fn answer_without_quota_is_streamed() {
    let site = TestSite::fresh().await;
    let limits = json!({"buffered": "100KiB", "max_body": "72KiB"});
    let gateway = Gateway::start(&site.policy("gw-1").with("/listeners/public/limits", limits)).await;
    let body: Vec<u8> = (0..500_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body(body.clone()))]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    assert!(answer.body == body, "{} bytes", answer.body.len());
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("fencegate_buffered_without_room_total", &["kind=\"answer\""]) > 0.5);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7").body(vec![1; 50_000])).await.status, 200);
    gateway.wait_gauge("fencegate_buffered_bytes", 0.0).await;
}

/// A body that exceeds the whole quota is refused with 413 and without `Retry-After`, because a repeat would fail as well.
#[tokio::test]
async fn body_above_quota_is_too_large() {
    let site = TestSite::fresh().await;
    let limits = json!({"buffered": "100KiB", "max_body": "10MiB"});
    let gateway = Gateway::start(&site.policy("gw-1").with("/listeners/public/limits", limits)).await;
    gateway.wait_line("that this is too little", |line| line.field("code") == "FG0142").await;
    let announced = gateway.send(&TestRequest::post("/pay/7").body(vec![1; 75 * 1024 + 1])).await;
    assert_eq!((announced.status, announced.reason().as_str()), (413, "body-too-large"));
    assert_eq!(
        (announced.outcome(), announced.field("retry-after")),
        (Some(FencingOutcome::NotDispatched), None)
    );
    // The part of the body that arrived before the answer may occupy the quota until its connection is closed.
    gateway.wait_gauge("fencegate_buffered_bytes", 0.0).await;
    let mut unannounced = RawClient::connect(gateway.public).await.expect("listens");
    let piece = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let head = "POST /pay/7 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    unannounced.send(format!("{head}{}", piece.repeat(19))).await.expect("connected");
    let answer =
        wait_until("an answer", unannounced.read_response(), || gateway.log()).await.expect("answered");
    assert_eq!((answer.word(1), answer.field("fencing-outcome")), ("413", Some("not-dispatched")));
    let sent = site.origin.log().records.clone();
    assert!(sent.is_empty(), "nothing of them was sent: {sent:?}");
    assert_eq!(
        gateway.send(&TestRequest::post("/pay/7").body(vec![1; 75 * 1024])).await.status,
        200,
        "all that there is"
    );
    gateway.wait_gauge("fencegate_buffered_bytes", 0.0).await;
}
