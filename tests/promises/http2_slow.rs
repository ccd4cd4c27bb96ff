//! An HTTP/2 client that reads its answer slowly gets all of it, also the part that the HTTP library still holds.
//! Half an answer would leave the outcome unknown.
//!
//! The client takes its answer in small windows. Its connection is not idle, gives up its place to no other client,
//! and is not cut when the process stops.

use std::time::Duration;

use bytes::Bytes;
use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    gateway::{Gateway, GatewayLaunch},
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use h2::{RecvStream, client::SendRequest};
use hyper::Request;
use serde_json::json;
use tokio::{net::TcpStream, time::sleep};

/// The bytes that the client reads at once, and its pause before it reads more.
const TAKES: usize = 65_535;
const PAUSES: Duration = Duration::from_millis(400);
/// The sizes of answers in bytes. The gateway can buffer such an answer completely.
const ANSWER: usize = 450_000;
const LONG_ANSWER: usize = 900_000;

/// A gateway with a short idle timeout.
fn policy(site: &TestSite) -> TestPolicy {
    let policy = site.policy("gw-1").with("/listeners/public/timeouts/idle", "1s");
    policy.with("/listeners/public/limits", json!({"connections": 1}))
}

/// Sends a POST that is executed, and returns when the head of the answer has come.
async fn begin_post(site: &TestSite, gateway: &Gateway, bytes: usize) -> (SendRequest<Bytes>, RecvStream) {
    site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body(vec![7; bytes]))]);
    let stream = TcpStream::connect(gateway.public).await.expect("listens");
    let (requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(async { drop(connection.await) });
    let mut requests = requests.ready().await.expect("HTTP/2");
    let request = Request::post(format!("http://{}/pay/7", gateway.public)).body(()).expect("a request");
    let (answer, _) = requests.send_request(request, true).expect("HTTP/2");
    let answer = answer.await.expect("answered");
    let outcome = answer.headers()["fencing-outcome"].to_str().expect("a word");
    assert!(answer.status() == 200 && outcome.starts_with("done"), "{answer:?}");
    (requests, answer.into_body())
}

/// Reads the whole body, window by window.
async fn read_slowly(mut body: RecvStream) -> Result<usize, String> {
    let mut all = 0;
    let mut window = 0;
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|error| format!("after {all} bytes: {error}"))?;
        all += piece.len();
        window += piece.len();
        if window >= TAKES {
            sleep(PAUSES).await;
            body.flow_control().release_capacity(window).expect("what came");
            window = 0;
        }
    }
    Ok(all)
}

/// A client that reads its answer slowly is not disconnected as idle.
#[tokio::test]
async fn slow_reader_is_not_idle() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site)).await;
    let (_requests, body) = begin_post(&site, &gateway, LONG_ANSWER).await;
    assert_eq!(wait_until("the answer", read_slowly(body), || gateway.log()).await, Ok(LONG_ANSWER));
}

/// A client that reads its answer slowly gets all of it when the process stops.
#[tokio::test]
async fn stop_waits_for_slow_reader() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site)).await;
    let (_requests, body) = begin_post(&site, &gateway, ANSWER).await;
    gateway.signal(Signal::TERM);
    assert_eq!(wait_until("the answer", read_slowly(body), || gateway.log()).await, Ok(ANSWER));
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// A client that reads its answer slowly is not disconnected in favour of a new connection.
#[tokio::test]
async fn slow_reader_is_not_evicted() {
    let site = TestSite::fresh().await;
    let policy = policy(&site).with("/listeners/public/timeouts/idle", "60s");
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    gateway.wait_ready().await;
    let (_requests, body) = begin_post(&site, &gateway, LONG_ANSWER).await;
    let other = async {
        // Longer than the 2 s after its last exchange for which a connection counts as busy in any case.
        sleep(Duration::from_millis(2300)).await;
        TcpStream::connect(gateway.public).await.expect("listens")
    };
    let (all, _other) = tokio::join!(wait_until("the answer", read_slowly(body), || gateway.log()), other);
    assert_eq!(all, Ok(LONG_ANSWER));
}
