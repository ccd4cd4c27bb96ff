//! A body that breaks off halfway looks broken to the upstream, however its client ends.

use std::time::{Duration, Instant};

use fencegate_testkit::{
    child::Signal,
    fault_proxy::FaultProxy,
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    guarded::GuardedSite,
    history::ATTEMPT,
    origin::{Latch, OriginAction, OriginReply, RequestRecord},
    origin_h2::OriginH2,
    site::TestSite,
};
use h2::Reason;
use serde_json::json;

use super::{
    MIB, body,
    client::{InFlightUpload, UploadFraming},
    with_streaming,
};

/// The way in which a client ends in the middle of its body.
#[derive(Debug, Clone, Copy)]
enum CloseKind {
    Politely,
    WithReset,
    /// Resets only the stream, for this reason. The HTTP library reports a reset with `NO_ERROR` as a regular end of the body.
    EndingItsStream(Reason),
}

fn end_upload(mut upload: InFlightUpload, way: CloseKind) {
    match way {
        CloseKind::Politely => drop(upload),
        CloseKind::WithReset => upload.reset(),
        CloseKind::EndingItsStream(reason) => {
            upload.reset_stream(reason);
            // The connection stays open until the frame has been sent.
            tokio::spawn(async move {
                tokio::time::sleep(QUIET).await;
                drop(upload);
            });
        }
    }
}

/// An upload of a MiB of which half has reached the upstream.
async fn begin_half_upload(
    site: &TestSite,
    gateway: &Gateway,
    framing: UploadFraming,
    path: &str,
) -> InFlightUpload {
    let before = site.origin.count(path);
    let mut upload = InFlightUpload::begin(gateway, framing, path, MIB).await;
    upload.send(&body(MIB / 2)).await;
    site.origin.wait_for("the head of the request", |log| log.requests_for(path).nth(before).map(drop)).await;
    upload
}

/// Waits for the end of the connection of the n-th request for the path, and returns the request.
async fn wait_broken_upload(site: &TestSite, path: &str, n: usize) -> RequestRecord {
    let over = |log: &fencegate_tests::origin::OriginLog| {
        let record = log.requests_for(path).nth(n - 1)?;
        log.ended.contains(&record.connection).then(|| record.clone())
    };
    site.origin.wait_for("the end of the connection", over).await
}

/// A client that goes halfway leaves the upstream with a visibly incomplete request, and the key is free.
#[tokio::test]
async fn client_gone_halfway_frees_key() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&with_streaming(site.policy("gw-1").with_cached_hold())).await;
    let mut tokens = Vec::new();
    for (framing, way) in [
        (UploadFraming::Length, CloseKind::Politely),
        (UploadFraming::Length, CloseKind::WithReset),
        (UploadFraming::Chunked, CloseKind::Politely),
        (UploadFraming::Chunked, CloseKind::WithReset),
        (UploadFraming::Http2, CloseKind::Politely),
        (UploadFraming::Http2, CloseKind::EndingItsStream(Reason::CANCEL)),
        (UploadFraming::Http2, CloseKind::EndingItsStream(Reason::NO_ERROR)),
        (UploadFraming::Http2Length, CloseKind::EndingItsStream(Reason::NO_ERROR)),
    ] {
        let n = site.origin.count("/pay/7") + 1;
        let upload = begin_half_upload(&site, &gateway, framing, "/pay/7").await;
        let gone = Instant::now();
        end_upload(upload, way);
        let record = wait_broken_upload(&site, "/pay/7", n).await;
        assert!(record.whole.is_none(), "{framing:?} {way:?}: it looked complete");
        let next = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)), "{framing:?} {way:?}");
        assert!(gone.elapsed() < Duration::from_secs(3), "{framing:?} {way:?}: took {:?}", gone.elapsed());
        tokens.push((record.expect_token(), next.token().expect("stamped")));
    }
    assert!(tokens.iter().all(|(broken, next)| broken.number() < next.number()), "a tenure was used again");
    let retired = |line: &fencegate_tests::gateway::LogLine| {
        line.message() == "tenure.retired" && line.field("why") == "malformed"
    };
    gateway.wait_line("that the outcome is unknown", retired).await;
}

/// A body that is incomplete when its response comes does not look complete to the upstream.
///
/// A client that has its response may stop sending and end its stream.
#[tokio::test]
async fn early_response_leaves_body_incomplete() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&with_streaming(site.policy("gw-1"))).await;
    for (n, framing) in [UploadFraming::Chunked, UploadFraming::Http2].into_iter().enumerate() {
        let latch = Latch::default();
        site.origin.script("/pay/7", [OriginAction::AnswerUnread(latch.clone(), OriginReply::ok())]);
        let mut upload = begin_half_upload(&site, &gateway, framing, "/pay/7").await;
        assert_eq!(upload.answer().await, (200, "done".to_owned()), "{framing:?}");
        latch.release();
        let record = wait_broken_upload(&site, "/pay/7", n + 1).await;
        assert!(record.whole.is_none(), "{framing:?}: it looked complete");
    }
}

/// On an unfenced route, too, half a body does not look complete.
///
/// A service could otherwise execute half a request.
#[tokio::test]
async fn unfenced_half_body_looks_incomplete() {
    let site = TestSite::fresh().await;
    let policy =
        site.policy("gw-1").with("/routes/1/match", json!({"methods": ["POST"], "path": "/{rest...}"}));
    let gateway = Gateway::start(&policy).await;
    for (n, (framing, way)) in [
        (UploadFraming::Chunked, CloseKind::Politely),
        (UploadFraming::Http2, CloseKind::EndingItsStream(Reason::CANCEL)),
        (UploadFraming::Http2, CloseKind::EndingItsStream(Reason::NO_ERROR)),
    ]
    .into_iter()
    .enumerate()
    {
        end_upload(begin_half_upload(&site, &gateway, framing, "/x").await, way);
        let record = wait_broken_upload(&site, "/x", n + 1).await;
        assert!(record.whole.is_none(), "{framing:?} {way:?}: it looked complete");
    }
}

/// Over HTTP/2 to the upstream half a body does not look complete.
#[tokio::test]
async fn http2_half_body_looks_incomplete() {
    let site = TestSite::fresh().await;
    let origin = OriginH2::start();
    let policy = with_streaming(site.policy("gw-1"))
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", origin.address)]))
        .with("/upstreams/ledger/protocol", "http2");
    let gateway = Gateway::start(&policy).await;
    for (framing, way) in [
        (UploadFraming::Length, CloseKind::Politely),
        (UploadFraming::Chunked, CloseKind::WithReset),
        (UploadFraming::Http2, CloseKind::EndingItsStream(Reason::NO_ERROR)),
    ] {
        let before = origin.requests_on("/pay/7").len();
        let mut upload = InFlightUpload::begin(&gateway, framing, "/pay/7", MIB).await;
        upload.send(&body(MIB / 2)).await;
        let begun = async {
            while origin.requests_on("/pay/7").len() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        wait_until("the head of the request", begun, || gateway.log()).await;
        end_upload(upload, way);
        let next = gateway.send(&TestRequest::post("/pay/7").body(body(MIB))).await;
        assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)), "{framing:?}");
        let whole: Vec<bool> = origin.requests_on("/pay/7")[before..].iter().map(|got| got.whole).collect();
        assert_eq!(whole, [false, true], "{framing:?}: half of it looked complete");
    }
}

/// A client that stops halfway holds the key no longer than `request_body` allows a pause.
#[tokio::test]
async fn stalled_upload_frees_key_in_time() {
    let site = TestSite::alone().await;
    let policy = with_streaming(site.policy("gw-1")).with("/listeners/public/timeouts/request_body", "700ms");
    let gateway = Gateway::start(&policy).await;
    for (n, framing) in
        [UploadFraming::Length, UploadFraming::Chunked, UploadFraming::Http2].into_iter().enumerate()
    {
        let mut upload = begin_half_upload(&site, &gateway, framing, "/pay/7").await;
        let stopped = Instant::now();
        let next = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!(next.status, 200);
        assert!(stopped.elapsed() < Duration::from_secs(2), "{framing:?}: held for {:?}", stopped.elapsed());
        assert_eq!(upload.answer().await, (408, "unknown".to_owned()), "{framing:?}");
        assert!(
            wait_broken_upload(&site, "/pay/7", 2 * n + 1).await.whole.is_none(),
            "{framing:?}: it looked complete"
        );
    }
}

/// A slow client holds the key no longer than an upload may take.
///
/// The client sends slowly and never pauses for long.
#[tokio::test]
async fn upload_timeout_limits_slow_client() {
    let site = TestSite::alone().await;
    let policy = with_streaming(site.policy("gw-1")).with("/routes/0/fence/upload_timeout", "1s");
    let gateway = Gateway::start(&policy).await;
    let mut upload = begin_half_upload(&site, &gateway, UploadFraming::Length, "/pay/7").await;
    let began = Instant::now();
    let next = gateway.begin(TestRequest::post("/pay/7"));
    let trickle = upload.trickle(Duration::from_millis(50));
    tokio::select! {
        broke = trickle => drop(broke),
        () = tokio::time::sleep(Duration::from_secs(2)) => {}
    }
    assert_eq!(next.answer().await.status, 200);
    assert!(began.elapsed() < Duration::from_secs(3), "held for {:?}", began.elapsed());
    assert!(wait_broken_upload(&site, "/pay/7", 1).await.whole.is_none(), "it looked complete");
    assert_eq!(upload.answer().await, (408, "unknown".to_owned()));
}

/// A slow upstream holds the key no longer than an upload may take, and the timeout counts against its endpoint.
///
/// The upstream reads a little from time to time, so no other time limit is reached.
#[tokio::test]
async fn upload_timeout_limits_slow_upstream() {
    let site = TestSite::alone().await;
    let endpoints = [site.origin.open_listener("a"), site.origin.open_listener("b")];
    let policy = with_streaming(site.policy("gw-1"))
        .with("/upstreams/ledger/endpoints", json!(endpoints.map(|endpoint| format!("http://{endpoint}"))))
        .with("/upstreams/ledger/eject", json!({"failures": 1, "for": "60s"}))
        .with("/upstreams/ledger/response_timeout", "10s")
        .with("/routes/0/fence/wait", "20s")
        .with("/routes/0/fence/upload_timeout", "2s");
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [OriginAction::ReadSlowly(Duration::from_millis(20))]);
    let body = body(48 * MIB);
    let mut upload = InFlightUpload::begin(&gateway, UploadFraming::Length, "/pay/7", body.len()).await;
    let began = Instant::now();
    let uploading = tokio::spawn(async move {
        upload.send(&body).await;
        upload.answer().await
    });
    site.origin.wait_for("the head of the request", |log| log.records.first().map(drop)).await;
    let next = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(next.status, 200, "not given on");
    assert!(began.elapsed() < Duration::from_secs(6), "held for {:?}", began.elapsed());
    assert!(began.elapsed() > Duration::from_secs(2), "not exercised: it ended after {:?}", began.elapsed());
    assert!(wait_broken_upload(&site, "/pay/7", 1).await.whole.is_none(), "it looked complete");
    // The status is not 408, because the client kept sending.
    assert_eq!(uploading.await.expect("no panic"), (504, "unknown".to_owned()));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("fencegate_upstream_errors_total", &["kind=\"timeout\""]), 1.0);
    assert_eq!(metrics.sum("fencegate_upstream_ejections_total", &[]), 1.0, "nobody said it is too slow");
}

/// An upload is cut off when its session deadline passes, before the next holder begins.
#[tokio::test]
async fn upload_cut_off_at_session_deadline() {
    for level in ["none", "upstream"] {
        let site = TestSite::fresh().await;
        let relay = FaultProxy::start(site.zookeeper);
        let policy = with_streaming(site.policy("gw-1"))
            .with_zookeeper(relay.address)
            .with("/listeners/public/timeouts/request_body", "10s")
            .with("/upstreams/ledger/fencing", level);
        let gateway = Gateway::start(&policy).await;
        let next = site.gateway("gw-2").await;
        let mut upload = begin_half_upload(&site, &gateway, UploadFraming::Chunked, "/pay/7").await;
        let lost = Instant::now();
        drop(relay);
        assert_eq!(next.send(&TestRequest::post("/pay/7")).await.status, 200);
        let cut = wait_broken_upload(&site, "/pay/7", 1).await;
        let second = site.origin.wait_for_request("/pay/7", 2).await;
        assert!(cut.whole.is_none() && cut.expect_token() < second.expect_token(), "{level}: {cut:?}");
        let late = site.origin.log().bytes_since("gw-1", second.arrived);
        assert!(late.is_empty(), "{level}: {} bytes came when the key was another's", late.len());
        let (status, outcome) = upload.answer().await;
        assert_eq!((status, outcome.as_str()), (502, "unknown"), "{level}");
        // The upload ends at once. It does not wait for the next byte of the client, nor for the limit on its pause.
        assert!(lost.elapsed() < Duration::from_secs(6), "{level}: took {:?}", lost.elapsed());
    }
}

/// After a stale refusal by a guard, a gateway sends a request once more. A request whose body is gone is not sent
/// again.
#[tokio::test]
async fn stale_streamed_dispatch_is_not_resent() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.launch().await.with("/listener/limits/max_body", "4MiB").start().await;
    let relay = FaultProxy::start(guard.public);
    let victim = Gateway::start(&with_streaming(guarded.policy("victim", &[relay.address]))).await;
    let next = Gateway::start(&guarded.policy("next", &[guard.public])).await;
    let hold = relay.hold_containing("the-old-one");
    // The body is small enough that all of it is on its way.
    let asked = victim.begin(TestRequest::post("/pay/7").field(ATTEMPT, "the-old-one").body(body(100 << 10)));
    hold.wait_captured().await;
    tokio::time::sleep(QUIET).await;
    victim.signal(Signal::STOP);
    assert_eq!(next.send(&TestRequest::post("/pay/7")).await.status, 200);
    hold.release();
    guard.wait_decisions("stale", 1.0).await;
    victim.signal(Signal::CONT);
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "fenced"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    victim.wait_ready().await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(guard.decision_count("stale").await, 1.0);
    assert_eq!(guarded.site.origin.log().records.len(), 1, "only the next one's was executed");
}

/// A body that is too large for the guard gets 413, and the request is not sent again.
///
/// Repeating this request would never end.
#[tokio::test]
async fn guard_body_limit_ends_request() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.launch().await.with("/listener/limits/max_body", "256KiB").start().await;
    let gateway = Gateway::start(&with_streaming(guarded.policy("gw-1", &[guard.public]))).await;
    let small = gateway.send(&TestRequest::post("/pay/7").body(body(200 << 10))).await;
    assert_eq!((small.status, small.outcome()), (200, Some(FencingOutcome::Done)));
    let large = TestRequest::post("/pay/7").body(body(MIB));
    let refused =
        wait_until("an answer", large.send_to(gateway.public), || gateway.log()).await.expect("answered");
    assert_eq!((refused.status, refused.reason().as_str()), (413, "body-too-large"));
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    assert_eq!(guarded.site.origin.log().records.len(), 1);
}
