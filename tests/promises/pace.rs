//! A gateway waits for a client no longer than its time limits allow. A request that cannot be parsed is refused with
//! a response of the gateway's own.
//!
//! Each time limit is tested over both versions of HTTP: the requests that it ends, the ones that it leaves alone,
//! its response, and its metrics.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::{QUIET, wait_until};
use fencegate_tests::{
    client::{FencingOutcome, Http1Client, Http2Client, RawClient, TestRequest, frames::RawH2Client},
    gateway::Gateway,
    origin::{OriginAction, OriginReply},
    site::TestSite,
    wire::HttpWireMessage,
};
use serde_json::json;

const MIB: usize = 1 << 20;

async fn start_with_timeouts(site: &TestSite, timeouts: serde_json::Value) -> Gateway {
    Gateway::start(&site.policy("gw-1").with("/listeners/public/timeouts", timeouts)).await
}

fn refusal_parts(answer: &HttpWireMessage) -> (String, String, String) {
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
    (answer.word(1).to_owned(), text("reason"), text("outcome"))
}

fn expected_refusal(status: &str, reason: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), "not-dispatched".to_owned())
}

/// Reads to the end of the connection, and returns the answer if one came.
async fn read_to_end(gateway: &Gateway, mut client: RawClient) -> Option<HttpWireMessage> {
    let last =
        wait_until("the end of the connection", client.read_response(), || gateway.log()).await.ok()?;
    wait_until("the end of the connection", client.read_response(), || gateway.log())
        .await
        .expect_err("closed");
    Some(last)
}

async fn timeout_count(gateway: &Gateway, limit: &str) -> f64 {
    gateway.metrics().await.sum("fencegate_client_timeouts_total", &[&format!("limit=\"{limit}\"")])
}

/// A head that comes too slowly gets 408, on the first and on later requests of a connection.
#[tokio::test]
async fn slow_request_head_gets_408() {
    let site = TestSite::alone().await;
    let gateway = start_with_timeouts(&site, json!({"request_headers": "400ms"})).await;
    for before in [0, 2] {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        for _ in 0..before {
            client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
            assert_eq!(client.read_response().await.expect("answered").word(1), "200");
        }
        // The time limit counts from the first byte, however many bytes follow.
        let began = Instant::now();
        client.send("GET /x HTTP/1.1\r\n").await.expect("connected");
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.send("Host: a\r\n").await.expect("connected");
        let answer = read_to_end(&gateway, client).await.expect("told");
        let took = began.elapsed();
        assert_eq!(refusal_parts(&answer), expected_refusal("408", "slow-request"), "{answer:?}");
        assert_eq!(answer.field("fencing-outcome"), Some("not-dispatched"));
        assert_eq!(answer.field("connection"), Some("close"));
        assert!(took > Duration::from_millis(350) && took < Duration::from_secs(2), "{took:?}");
    }
    assert_eq!(timeout_count(&gateway, "request_headers").await, 2.0);
    let metrics = gateway.metrics().await;
    let none = "route=\"none\"";
    let slow = "reason=\"slow-request\"";
    assert_eq!(metrics.sum("fencegate_rejections_total", &[none, slow]), 2.0);
    assert_eq!(metrics.sum("fencegate_requests_total", &[none, "code=\"408\""]), 2.0);
}

/// An idle connection is closed without a response, and a busy one is not.
#[tokio::test]
async fn idle_connection_closes_silently() {
    let site = TestSite::alone().await;
    let gateway = start_with_timeouts(&site, json!({"idle": "400ms", "request_headers": "5s"})).await;
    // The request takes longer than `idle`.
    site.origin.set_work_time(Duration::from_millis(600));
    let kept = async {
        let mut client = Http1Client::connect(gateway.public).await.expect("listens");
        assert_eq!(client.send(&TestRequest::get("/x")).await.expect("busy").status, 200);
        client
    };
    let closed = async {
        let mut raw = RawClient::connect(gateway.public).await.expect("listens");
        raw.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
        assert_eq!(raw.read_response().await.expect("answered").word(1), "200");
        let idle = Instant::now();
        assert!(read_to_end(&gateway, raw).await.is_none(), "nothing was asked");
        let took = idle.elapsed();
        assert!(took > Duration::from_millis(350) && took < Duration::from_secs(2), "{took:?}");
    };
    let ended = async {
        let streams = Http2Client::connect(gateway.public).await.expect("listens");
        assert_eq!(streams.send(&TestRequest::get("/x")).await.expect("busy").status, 200);
        wait_until("GOAWAY", streams.wait_closed(), || gateway.log()).await.expect("in order");
    };
    let (_client, (), ()) = tokio::join!(kept, closed, ended);
    gateway.wait_series("fencegate_client_timeouts_total", &["limit=\"idle\""], 3.0).await;
}

/// An unfenced upload may take long, but is cut off when it pauses.
///
/// The upstream already has a part of the body, so the outcome is unknown.
#[tokio::test]
async fn unfenced_upload_may_not_pause() {
    let site = TestSite::alone().await;
    let policy =
        site.policy("gw-1").with("/listeners/public/timeouts", json!({"request_body": "400ms"})).with_route(
            json!({"name": "up", "upstream": "ledger", "match": {"path": "/up/{rest...}"}, "fence": "none"}),
        );
    let gateway = Gateway::start(&policy).await;
    let head = "PUT /up/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n";
    let mut steady = RawClient::connect(gateway.public).await.expect("listens");
    steady.send(head).await.expect("connected");
    for byte in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        tokio::time::sleep(Duration::from_millis(150)).await;
        steady.send(byte).await.expect("connected");
    }
    assert_eq!(steady.read_response().await.expect("answered").word(1), "200");

    let mut pausing = RawClient::connect(gateway.public).await.expect("listens");
    pausing.send(head).await.expect("connected");
    pausing.send("1234").await.expect("connected");
    let answer = read_to_end(&gateway, pausing).await.expect("told");
    let wanted = ("408".to_owned(), "slow-request".to_owned(), "unknown".to_owned());
    assert_eq!(refusal_parts(&answer), wanted, "{answer:?}");
    assert_eq!(timeout_count(&gateway, "request_body").await, 1.0);
}

/// A client that takes nothing of its response is reset, and its request is no longer in flight.
#[tokio::test]
async fn client_reading_nothing_is_reset() {
    let site = TestSite::alone().await;
    let gateway = start_with_timeouts(&site, json!({"response_write": "600ms"})).await;
    let large = || OriginAction::now(OriginReply::with_body(vec![7; 32 * MIB]));
    site.origin.script("/large", [large(), large()]);
    let mut slow = RawClient::connect_narrow(gateway.public).await.expect("listens");
    slow.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
    assert_eq!(slow.read_head().await.expect("a head").word(1), "200");
    gateway.wait_series("fencegate_client_timeouts_total", &["limit=\"response_write\""], 1.0).await;
    let mut rest = HttpWireMessage::default();
    rest.fields.push(("content-length".to_owned(), (32 * MIB).to_string()));
    let cut = wait_until("the reset", slow.read_body(&mut rest), || gateway.log())
        .await
        .expect_err("not the whole");
    assert_eq!(cut.kind(), std::io::ErrorKind::ConnectionReset, "{cut}");

    // The client closes the window of a single HTTP/2 stream. The gateway ends the whole connection.
    let streams = RawH2Client::without_window(gateway.public).await;
    streams.get_without_reading("/large").await;
    assert_eq!(timeout_count(&gateway, "response_write").await, 2.0);
    gateway.wait_gauge("fencegate_requests_in_flight", 0.0).await;
}

/// A request that the HTTP library cannot parse is refused with a problem document of the gateway, and counted.
#[tokio::test]
async fn unparsable_request_is_refused_and_counted() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/limits/max_header", "128KiB");
    let gateway = Gateway::start(&policy).await;
    let long = "x".repeat(70 << 10);
    let cases = [
        ("malformed", "400", "GARBAGE\r\n\r\n".to_owned()),
        ("malformed", "400", "GET /x HTTP/1.1\r\nHost : a\r\n\r\n".to_owned()),
        ("malformed", "400", "GET /x HTTP/1.1\r\nHost: a\r\nX\u{0}: a\r\n\r\n".to_owned()),
        ("target-too-large", "414", format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        (
            "header-too-large",
            "431",
            format!("GET /x HTTP/1.1\r\nHost: a\r\nX-A: {long}{long}{long}{long}\r\n\r\n"),
        ),
    ];
    for (word, status, bytes) in &cases {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        // The bad bytes follow an answered request, and arrive in one piece with it.
        client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n\r\n{bytes}")).await.expect("connected");
        assert_eq!(client.read_response().await.expect("answered").word(1), "200");
        let answer = read_to_end(&gateway, client).await.expect("told");
        assert_eq!(refusal_parts(&answer), expected_refusal(status, word), "{answer:?}");
        assert_eq!(answer.field("fencing-outcome"), Some("not-dispatched"));
    }
    let metrics = gateway.metrics().await;
    for (word, times) in [("malformed", 3.0), ("target-too-large", 1.0), ("header-too-large", 1.0)] {
        let labels = ["route=\"none\"", &format!("reason=\"{word}\"")];
        assert_eq!(metrics.sum("fencegate_rejections_total", &labels), times, "{word}");
    }
    assert_eq!(metrics.sum("fencegate_requests_total", &["route=\"none\"", "code=\"400\""]), 3.0);
}

/// An answer of an upstream that looks like a refusal of the HTTP library is passed on unchanged.
#[tokio::test]
async fn imitated_library_refusal_passes_unchanged() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let imitated = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\
                    date: Sat, 21 Nov 2026 05:53:00 GMT\r\n\r\n";
    let bare = OriginReply::with_body("").status(400).field("Date", "Sat, 21 Nov 2026 05:53:00 GMT");
    let within = |text: &str| OriginAction::now(OriginReply::with_body(text));
    site.origin.script(
        "/x",
        [OriginAction::now(bare.clone()), within(imitated), OriginAction::now(bare), within(imitated)],
    );
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    let get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    // All requests arrive at once, with garbage behind them.
    client.send(format!("{get}{get}{get}{get}GARBAGE\r\n\r\n")).await.expect("connected");
    for body in ["", imitated, "", imitated] {
        let answer =
            wait_until("an answer", client.read_response(), || gateway.log()).await.expect("answered");
        assert_eq!(String::from_utf8_lossy(&answer.body), body);
        assert_eq!(answer.word(1), if body.is_empty() { "400" } else { "200" });
        assert_eq!(answer.field("content-type"), None);
    }
    assert_eq!(
        refusal_parts(&read_to_end(&gateway, client).await.expect("told")),
        expected_refusal("400", "malformed")
    );
}

/// A refusal arrives although the client still sends: no reset of the connection may overtake it.
#[tokio::test]
async fn refusal_arrives_while_client_sends() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for _ in 0..20 {
        let mut client = RawClient::connect(gateway.public).await.expect("listens");
        let head = format!("GET /x HTTP/1.1\r\nHost: a\r\nX-A: {}", "x".repeat(MIB / 2));
        drop(client.send(head).await);
        let answer =
            wait_until("an answer", client.read_response(), || gateway.log()).await.expect("it arrives");
        assert_eq!(refusal_parts(&answer), expected_refusal("431", "header-too-large"));
    }
    let answer = gateway.send(&TestRequest::post("/pay/7").body(vec![0; 3 * MIB])).await;
    assert_eq!((answer.status, answer.outcome()), (413, Some(FencingOutcome::NotDispatched)));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.log().records.len(), 0);
}
