//! Every response reports whether the request reached the upstream. An unknown outcome is never reported as a failure.
//!
//! An unknown outcome retires its tenure. A connection that was never made is reported as `not-dispatched`.

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    ensemble::free_address,
    gateway::Gateway,
    history::History,
    origin::{Latch, OriginAction, OriginLog, OriginReply},
    site::TestSite,
};
use serde_json::json;

/// A response that never came in full is an unknown outcome, and its grant is never used again.
#[tokio::test]
async fn incomplete_response_retires_grant() {
    let site = TestSite::fresh().await;
    let gateway =
        Gateway::start(&site.policy("gw-1").with("/upstreams/ledger/response_timeout", "400ms")).await;
    let silent = Latch::default();
    let half = OriginReply::with_body("half of this is lost");
    let cases = [
        ("reset", OriginAction::Reset, 502),
        ("close in the head", OriginAction::CloseInHead, 502),
        ("close in the body", OriginAction::CloseInBody(half), 502),
        ("silence", OriginAction::Hold(silent.clone(), OriginReply::ok()), 504),
    ];
    for (case, act, status) in cases {
        let path = format!("/pay/{}", case.replace(' ', "-"));
        site.origin.script(&path, [act]);
        let answer = gateway.send(&TestRequest::post(&path).body("hi")).await;
        assert_eq!((answer.status, answer.reason().as_str()), (status, "outcome-unknown"), "{case}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown), "{case}");
        assert_eq!(answer.field("retry-after"), None, "{case}: whoever retries pays twice");

        let next = gateway.send(&TestRequest::post(&path)).await;
        assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)), "{case}");
        let first = site.origin.wait_for_request(&path, 1).await;
        let second = site.origin.wait_for_request(&path, 2).await;
        assert!(
            second.expect_token().number() > first.expect_token().number(),
            "{case}: the old tenure was used again"
        );
        assert_eq!(site.origin.count(&path), 2, "{case}: re-sent");
    }
    silent.release();
}

/// A complete response is `done`, unless its status is one that a proxy may have made (502, 504).
#[tokio::test]
async fn complete_response_is_done() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for status in [200, 201, 302, 400, 404, 409, 412, 423, 429, 500, 502, 503, 504] {
        site.origin.script(
            "/pay/7",
            [OriginAction::now(OriginReply::with_body("as sent").status(status).field("X-Own", "kept"))],
        );
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, &answer.body[..]), (status, &b"as sent"[..]));
        // A proxy answers 504 when it stops waiting, and 502 when its connection breaks.
        let outcome =
            if matches!(status, 502 | 504) { FencingOutcome::Unknown } else { FencingOutcome::Done };
        assert_eq!((answer.outcome(), answer.field("x-own")), (Some(outcome), Some("kept")), "{status}");
        assert_eq!(answer.field("retry-after"), None, "{status}: not ours to say");
    }
    History::from_log(&site.origin.log()).assert_holds();
}

#[tokio::test]
async fn unreachable_upstream_is_not_dispatched() {
    let site = TestSite::fresh().await;
    // The port was bound and released, so no process listens there at this moment.
    let free = free_address();
    let policy = site.policy("gw-1").with("/upstreams/ledger/endpoints", json!([format!("http://{free}")]));
    let gateway = Gateway::start(&policy).await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream-connect"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    site.tree().await.assert_no_locks().await;
}

/// An endpoint that cannot be reached is passed over for one that answers.
#[tokio::test]
async fn unreachable_endpoint_is_skipped() {
    let site = TestSite::fresh().await;
    let free = free_address();
    let endpoints =
        json!([format!("http://{free}"), format!("http://{}", site.origin.open_listener("gw-1"))]);
    let gateway = Gateway::start(&site.policy("gw-1").with("/upstreams/ledger/endpoints", endpoints)).await;
    for n in 1..=4 {
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        site.origin.wait_for_request("/pay/7", n).await;
    }
    History::from_log(&site.origin.log()).assert_holds();
}

/// A connection that the upstream has closed while it was idle must not make the outcome of the next request unknown.
#[tokio::test]
async fn closed_idle_connection_costs_no_request() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for n in 0..20 {
        site.origin.script("/pay/7", [OriginAction::AnswerAndClose(OriginReply::ok())]);
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "request {n}");
        // The pause lets the FIN arrive at the gateway.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The rest of a request body is not sent when the response comes before the body was read.
///
/// The body is larger than the kernel buffers. Its rest must not be sent during the tenure of the next holder.
#[tokio::test]
async fn early_response_stops_request_body() {
    const LENGTH: usize = 48 << 20;
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/limits/max_body", "64MiB");
    let gateway = Gateway::start(&policy).await;
    let latch = Latch::default();
    let early = OriginReply::with_body("too much").status(413);
    site.origin.script("/pay/7", [OriginAction::AnswerUnread(latch.clone(), early)]);
    let early = gateway.send(&TestRequest::post("/pay/7").body(vec![7; LENGTH])).await;
    assert_eq!((early.status, early.outcome()), (413, Some(FencingOutcome::Done)));

    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    latch.release();
    let ended = |log: &OriginLog| log.ended.contains(&log.records[0].connection).then_some(());
    site.origin.wait_for("the end of the first connection", ended).await;
    let log = site.origin.log();
    assert_ne!(log.records[0].connection, log.records[1].connection);
    assert!(log.records[0].whole.is_none(), "written to its end after its key was given on");
}
