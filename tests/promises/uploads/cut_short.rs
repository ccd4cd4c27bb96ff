//! A response that breaks off, or is no valid one, while the body is still sent: the client gets an unknown outcome or
//! a visibly incomplete response, and the key becomes free.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::{QUIET, wait_until};
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    effort::effort,
    gateway::Gateway,
    origin::{Latch, OriginAction},
    site::TestSite,
    wire::HttpWireMessage,
};

use super::{
    MIB, body,
    client::{InFlightUpload, UploadFraming},
    with_streaming,
};

/// Beginnings of answers after which a service closes its side. None is a complete answer: the first one breaks off in
/// the head, the others in or before the body.
const CUT_SHORT: [&str; 5] = [
    "HTTP/1.1 2",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "no such protocol\r\n\r\n",
];

/// Asserts that the next request gets the key at once, under another tenure.
async fn assert_next_served(site: &TestSite, gateway: &Gateway, before: usize, case: &str) {
    let began = Instant::now();
    let next = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)), "{case}");
    assert!(began.elapsed() < Duration::from_secs(2), "{case}: held for {:?}", began.elapsed());
    let cut = site.origin.log().requests_for("/pay/7").nth(before).cloned().expect("it came");
    assert!(
        next.token().expect("stamped").number() > cut.expect_token().number(),
        "{case}: its tenure was used again"
    );
    assert_eq!(site.origin.count("/pay/7"), before + 2, "{case}: sent again");
}

/// A response that breaks off while the client still sends is an unknown outcome.
#[tokio::test]
async fn broken_response_during_upload_is_unknown() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&with_streaming(site.policy("gw-1").with_cached_hold())).await;
    for words in CUT_SHORT {
        for framing in [UploadFraming::Length, UploadFraming::Chunked, UploadFraming::Http2] {
            let before = site.origin.count("/pay/7");
            site.origin.script("/pay/7", [OriginAction::BreakUnread(words)]);
            let mut upload = InFlightUpload::begin(&gateway, framing, "/pay/7", MIB).await;
            upload.send(&body(MIB / 2)).await;
            let case = format!("{words:?} {framing:?}");
            assert_eq!(upload.answer().await, (502, "unknown".to_owned()), "{case}");
            assert_next_served(&site, &gateway, before, &case).await;
        }
    }
}

/// A response that breaks off while a buffered body goes up is an unknown outcome.
///
/// The body is larger than the kernel buffers, so it is still being sent.
#[tokio::test]
async fn buffered_body_broken_response_is_unknown() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with_cached_hold().with("/listeners/public/limits/max_body", "32MiB");
    let gateway = Gateway::start(&policy).await;
    // A body without a content type would be read as a form.
    let upload =
        TestRequest::post("/pay/7").field("content-type", "application/octet-stream").body(body(24 * MIB));
    // The tests of streamed bodies use all of these answers in each run.
    for words in CUT_SHORT.into_iter().take(effort(2, CUT_SHORT.len())) {
        let before = site.origin.count("/pay/7");
        site.origin.script("/pay/7", [OriginAction::BreakUnread(words)]);
        let answer = gateway.send(&upload).await;
        assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"), "{words:?}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown), "{words:?}");
        assert_next_served(&site, &gateway, before, words).await;
    }
}

/// A large response that breaks off while the client still sends does not look complete.
///
/// The head of the answer was already passed on when the break came, so only the end of the answer can show it. The
/// client must neither take the answer for complete, nor the request for one that never arrived.
#[tokio::test]
async fn broken_large_response_looks_incomplete() {
    const BEGUN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nhalf";
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&with_streaming(site.policy("gw-1").with_cached_hold())).await;
    for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let before = site.origin.count("/pay/7");
        site.origin.script("/pay/7", [OriginAction::BreakUnread(BEGUN)]);
        let mut raw = RawClient::connect(gateway.public).await.expect("listens");
        let head = format!("POST /pay/7 HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        let piece = if framing.starts_with('C') { String::new() } else { "20000\r\n".to_owned() };
        raw.send(format!("{head}{piece}{}", "x".repeat(0x20000))).await.expect("connected");
        let answer = wait_until("an end", raw.read_response(), || gateway.log()).await;
        let is_unknown = |told: &HttpWireMessage| {
            let outcome = told.field("fencing-outcome").unwrap_or_default();
            told.word(1) == "502" && outcome.starts_with("unknown")
        };
        assert!(answer.as_ref().map_or(true, is_unknown), "{framing}: {answer:?}");
        assert_next_served(&site, &gateway, before, framing).await;
    }
}

/// Where no service compares tokens, the key of an upload that was cut off stays held until `response_timeout` has
/// passed.
///
/// The service has not ended the exchange, and may be at work on the part that it has.
#[tokio::test]
async fn cut_upload_keeps_key_for_upstream() {
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    const CODED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    tokio::join!(
        assert_upload_cut_off(UploadCutOff::ByItsClient, UploadFraming::Length, None),
        assert_upload_cut_off(UploadCutOff::ByItsClient, UploadFraming::Chunked, None),
        assert_upload_cut_off(UploadCutOff::ByItsClient, UploadFraming::Length, Some(HALF)),
        assert_upload_cut_off(UploadCutOff::ByItsTimeLimit, UploadFraming::Length, None),
        assert_upload_cut_off(UploadCutOff::ForItsAnswer, UploadFraming::Length, Some(CODED)),
    );
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadCutOff {
    ByItsClient,
    ByItsTimeLimit,
    ForItsAnswer,
}

/// Cuts an upload off, and asserts that its key stays held. `answer`: the part of an answer that the service has sent
/// before.
async fn assert_upload_cut_off(how: UploadCutOff, framing: UploadFraming, answer: Option<&'static str>) {
    const TIME: Duration = Duration::from_millis(1800);
    // The service reads bytes up to this much later than the gateway has written them.
    const LATE: Duration = Duration::from_millis(400);
    let site = TestSite::fresh().await;
    let policy = with_streaming(site.policy("gw-1"))
        .with("/upstreams/ledger/fencing", "none")
        .with("/upstreams/ledger/response_timeout", "1800ms")
        .with("/routes/0/fence/wait", "20s")
        .with("/routes/0/fence/upload_timeout", "900ms");
    let gateway = Gateway::start(&policy).await;
    let at_work = Latch::default();
    site.origin.script("/pay/7", answer.map(|words| OriginAction::BeginUnread(words, at_work.clone())));
    let mut upload = InFlightUpload::begin(&gateway, framing, "/pay/7", MIB).await;
    upload.send(&body(MIB / 2)).await;
    site.origin.wait_for("the head of the request", |log| log.requests_for("/pay/7").next().map(drop)).await;
    let stays = if how == UploadCutOff::ByItsClient {
        tokio::time::sleep(QUIET).await;
        upload.reset();
        None
    } else {
        Some(upload)
    };
    let next = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(next.status, 200, "{how:?} {framing:?} {answer:?}: {next:?}");
    drop(stays);
    at_work.release();
    let log = site.origin.log();
    let [cut, second] = [0, 1].map(|n| log.requests_for("/pay/7").nth(n).expect("it came").clone());
    let pieces = log.pieces.iter().filter(|piece| piece.connection == cut.connection);
    let last = pieces.map(|piece| piece.at).max().expect("its head came");
    let rested = second.arrived.duration_since(last);
    assert!(rested >= TIME - LATE, "{how:?} {framing:?} {answer:?}: given on after {rested:?}");
}
