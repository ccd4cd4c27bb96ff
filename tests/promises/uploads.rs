//! Uploads under the lock: a body arrives intact and under one token, or visibly broken off. No upload holds a key
//! longer than its time limit.
//!
//! Memory stays flat, and executions do not overlap. A body that breaks off (hang-up, reset, `NO_ERROR`, stall, lost
//! proof) never looks complete, frees its key in time, and is not sent twice. The same holds for a response that
//! breaks off meanwhile. At level `none` the key of an exchange that the gateway has cut off stays closed until the
//! upstream has had its time. Neither a slow upstream nor other requests on the connection of the holder delay the
//! next holder.

mod broken;
mod client;
mod cut_short;

use std::time::{Duration, Instant};

use fencegate_check::explain;
use fencegate_policies::file;
use fencegate_testkit::{
    child::Signal,
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{FencingOutcome, Http2Client, RawClient, TestRequest},
    gateway::Gateway,
    history::History,
    origin::{Latch, OriginAction},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

use self::client::{InFlightUpload, SharedConnection, UploadFraming};
use super::{
    explain::run_explain,
    streaming::{BulkService, FLAT, GIB, peak_growth, send_pattern, warm_up},
};

const MIB: usize = 1 << 20;

/// A policy in which bodies up to 64 KiB are buffered, and larger bodies are streamed.
fn with_streaming(policy: TestPolicy) -> TestPolicy {
    policy
        .with("/listeners/public/limits/max_body", "64KiB")
        .with("/listeners/public/timeouts/request_body", "3s")
        .with("/routes/0/fence/large_bodies", "stream")
}

async fn gateway(site: &TestSite, name: &str) -> Gateway {
    Gateway::start(&with_streaming(site.policy(name))).await
}

/// A body in which neighbouring bytes and pieces differ, so that a lost or doubled piece is noticed.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place ^ (place >> 8) ^ (place >> 16)).to_le_bytes()[0]).collect()
}

/// A large body goes up intact and under one token, however it is framed.
#[tokio::test]
async fn large_body_keeps_one_token() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, "gw-1").await;
    // The body is larger than all buffers of the gateway.
    let body = body(3 * MIB);
    for framing in
        [UploadFraming::Length, UploadFraming::Chunked, UploadFraming::Http2, UploadFraming::Http2Length]
    {
        let before = site.origin.count("/pay/7");
        let mut upload = InFlightUpload::begin(&gateway, framing, "/pay/7", body.len()).await;
        upload.send(&body).await;
        let (status, outcome) = upload.finish().await;
        assert_eq!((status, outcome.as_str()), (200, "done"), "{framing:?}");
        let record = site.origin.wait_for_request("/pay/7", before + 1).await;
        assert!(record.request.body == body, "{framing:?}: the body is another one");
        let count = |name: &str| {
            record.request.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name)).count()
        };
        assert_eq!((count("fencing-token"), count("fencing-number")), (1, 1), "{framing:?}");
        let length = record.request.field("content-length").is_some();
        assert_eq!(
            length,
            matches!(framing, UploadFraming::Length | UploadFraming::Http2Length),
            "{framing:?}"
        );
    }
    assert_eq!(site.origin.log().records.len(), 4, "each of them was sent once");
}

#[tokio::test]
async fn explain_reports_large_body_handling() {
    let site = TestSite::fresh().await;
    let said = |how: &str| {
        let policy = with_streaming(site.policy("gw-1")).with("/routes/0/fence/large_bodies", how);
        let plan = file::load(&policy.to_string()).plan.expect("sound");
        run_explain(
            &plan,
            &explain::SampleRequest::new("POST /pay/7", "a", &[], body(MIB).into()).expect("a request"),
        )
    };
    let streamed = said("stream");
    assert_eq!(streamed.refused, None);
    assert_eq!(streamed.lock.expect("fenced").upload_timeout.as_deref(), Some("1m"));
    let refused = said("refuse").refused.expect("too large");
    assert_eq!((refused.status, refused.reason), (413, Some("body-too-large")));
}

/// Without `large_bodies: stream` a large body is refused before any lock.
#[tokio::test]
async fn large_body_refused_without_opt_in() {
    let site = TestSite::fresh().await;
    let policy = with_streaming(site.policy("gw-1")).with("/routes/0/fence/large_bodies", "refuse");
    let gateway = Gateway::start(&policy).await;
    let refused = gateway.send(&TestRequest::post("/pay/7").body(body(MIB))).await;
    assert_eq!((refused.status, refused.reason().as_str()), (413, "body-too-large"));
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    let mut chunked = InFlightUpload::begin(&gateway, UploadFraming::Chunked, "/pay/7", 0).await;
    chunked.send(&body(MIB)).await;
    assert_eq!(chunked.answer().await, (413, "not-dispatched".to_owned()));
    assert_eq!(site.origin.log().records.len(), 0);
}

/// An upload of a gibibyte under the lock arrives intact, and the memory of the gateway does not grow with it.
#[tokio::test]
async fn gibibyte_upload_keeps_memory_flat() {
    let site = TestSite::fresh().await;
    let service = BulkService::start().await;
    let policy = with_streaming(site.policy("gw-1"))
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", service.address)]));
    let gateway = Gateway::start(&policy).await;
    let before = warm_up(&gateway).await;
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    let head = format!("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\n\r\n");
    client.send(head).await.expect("connected");
    let sent =
        tokio::time::timeout(Duration::from_secs(120), send_pattern(client.output(), GIB, |_| ())).await;
    sent.expect("a gibibyte takes seconds").expect("taken in full");
    let answer = wait_until("an answer", client.read_response(), || gateway.log()).await.expect("answered");
    assert_eq!(answer.word(1), "200", "the service compared every byte");
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
}

/// An upstream that reads slowly holds the client back, and memory stays flat.
#[tokio::test]
async fn slow_upstream_backpressures_client() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, "gw-1").await;
    let before = warm_up(&gateway).await;
    let latch = Latch::default();
    site.origin.script("/pay/7", [OriginAction::ReadLater(latch.clone())]);
    let body = body(48 * MIB);
    let mut upload = InFlightUpload::begin(&gateway, UploadFraming::Length, "/pay/7", body.len()).await;
    let stuck = tokio::time::timeout(Duration::from_secs(2), upload.send(&body)).await;
    assert!(stuck.is_err(), "not exercised: everything was taken");
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
    latch.release();
    // The future above was dropped with half of the body, so this upload ends here. The next request is not held up.
    drop(upload);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
}

/// Uploads that wait for the key do not block the body of its holder on the same connection.
///
/// Many uploads share one connection, as behind a proxy.
#[tokio::test]
async fn waiting_uploads_spare_shared_connection() {
    const WAITERS: usize = 24;
    let site = TestSite::fresh().await;
    let gateway =
        Gateway::start(&with_streaming(site.policy("gw-1")).with("/routes/0/fence/wait", "30s")).await;
    let tree = site.tree().await;
    let shared = SharedConnection::connect(&gateway).await;
    // Each half is larger than the window of a stream.
    let body = body(256 << 10);
    let mut holder = shared.upload("/pay/7").await;
    holder.send(&body[..128 << 10]).await;
    site.origin.wait_for("the head of the request", |log| log.records.first().map(drop)).await;
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        let mut upload = shared.upload("/pay/7").await;
        let body = body.clone();
        // The upload sends as much as its window allows, and the rest when it has the key.
        waiting.push(tokio::spawn(async move {
            upload.send(&body).await;
            upload.finish().await
        }));
    }
    tree.wait_waiters(WAITERS).await;
    tokio::time::sleep(QUIET).await;
    let rest = tokio::time::timeout(Duration::from_secs(2), holder.send(&body[128 << 10..])).await;
    rest.expect("nothing of its body is taken any more");
    assert_eq!(holder.finish().await, (200, "done".to_owned()));
    for waited in waiting {
        assert_eq!(waited.await.expect("no panic"), (200, "done".to_owned()));
    }
    let log = site.origin.log();
    assert!(log.records.iter().all(|record| record.request.body == body), "another body");
    History::from_log(&log).assert_holds();
}

/// Streamed and buffered uploads of one key never overlap, also where gateways keep the key between requests.
#[tokio::test]
async fn uploads_of_one_key_never_overlap() {
    let site = TestSite::fresh().await;
    let one = Gateway::start(&with_streaming(site.policy("gw-1").with_cached_hold())).await;
    let two = Gateway::start(&with_streaming(site.policy("gw-2").with_cached_hold())).await;
    site.origin.set_work_time(Duration::from_millis(3));
    let small = body(32 << 10);
    let large = body(MIB);
    let mut asked = Vec::new();
    for n in 0..12 {
        let gateway = if n % 2 == 0 { &one } else { &two };
        let body = if n % 3 == 0 { &small } else { &large };
        asked.push(gateway.begin(TestRequest::post("/pay/7").body(body.clone())));
    }
    for asked in asked {
        assert_eq!(asked.answer().await.status, 200);
    }
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 12);
    assert!(history.hand_overs() > 0, "not exercised");
}

/// A client that goes while its upload waits for the lock leaves the queue within a second.
///
/// The gateway does not read the body while it waits, so it has to check in another way whether the client is
/// connected.
#[tokio::test]
async fn waiting_upload_leaves_queue_on_disconnect() {
    let site = TestSite::alone().await;
    let gateway = Gateway::start(&with_streaming(site.policy_without_janitor("gw-1"))).await;
    let tree = site.tree().await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    for (framing, resets) in
        [(UploadFraming::Length, false), (UploadFraming::Chunked, true), (UploadFraming::Http2, false)]
    {
        let mut upload = InFlightUpload::begin(&gateway, framing, "/pay/7", MIB).await;
        // This is more than the gateway buffers, and fits into the first window of a stream.
        upload.send(&body(96 << 10)).await;
        tree.wait_waiters(1).await;
        let left = Instant::now();
        if resets {
            upload.reset()
        } else {
            drop(upload)
        }
        tree.wait_waiters(0).await;
        assert!(left.elapsed() < Duration::from_secs(1), "{framing:?}: took {:?}", left.elapsed());
    }
    assert_eq!(holder.finish().await.status, 200);
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.log().records.len(), 1, "nothing of the others was sent");
}

#[tokio::test]
async fn upload_before_sigterm_is_finished() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, "gw-1").await;
    let body = body(MIB);
    let mut upload = InFlightUpload::begin(&gateway, UploadFraming::Chunked, "/pay/7", body.len()).await;
    upload.send(&body[..MIB / 2]).await;
    site.origin.wait_for("the head of the request", |log| log.records.first().map(drop)).await;
    gateway.signal(Signal::TERM);
    gateway.wait_unready().await;
    upload.send(&body[MIB / 2..]).await;
    assert_eq!(upload.finish().await, (200, "done".to_owned()));
    assert!(site.origin.wait_for_request("/pay/7", 1).await.request.body == body);
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// `response_timeout` counts from the end of the upload, so that a slow client is not counted against the upstream.
#[tokio::test]
async fn slow_upload_may_exceed_response_timeout() {
    let site = TestSite::alone().await;
    let policy = with_streaming(site.policy("gw-1")).with("/upstreams/ledger/response_timeout", "600ms");
    let gateway = Gateway::start(&policy).await;
    let streams = Http2Client::connect(gateway.public).await.expect("listens");
    let body = body(MIB);
    let send_slowly = async |framing, path| {
        let mut upload = InFlightUpload::begin(&gateway, framing, path, body.len()).await;
        upload.send(&body[..MIB / 2]).await;
        // The pause is longer than `response_timeout`.
        tokio::time::sleep(Duration::from_millis(800)).await;
        upload.send(&body[MIB / 2..]).await;
        assert_eq!(upload.finish().await, (200, "done".to_owned()), "{framing:?}");
    };
    tokio::join!(send_slowly(UploadFraming::Length, "/pay/7"), send_slowly(UploadFraming::Http2, "/pay/8"));
    // `response_timeout` counts from the end of the upload, and can pass.
    let latch = site.origin.hold("/pay/7");
    let late = streams.send(&TestRequest::post("/pay/7").body(body)).await.expect("answered");
    assert_eq!((late.status, late.reason().as_str()), (504, "outcome-unknown"));
    latch.release();
}
