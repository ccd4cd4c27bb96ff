//! The guard frees a key exactly when the upstream is done with the request, whatever form the answer has and whatever
//! breaks on its way.

use std::time::Duration;

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    guard::{GuardFixture, StampedRequest, assert_refused},
    history::History,
    origin::{Latch, OriginAction, OriginReply},
};

const LARGE: usize = 3 << 20;

/// A large answer keeps the key until the upstream has sent all of it, even if the gateway has gone.
#[tokio::test]
async fn large_answer_keeps_key_until_sent() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let latch = Latch::default();
    fixture
        .origin
        .script("/large", [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; LARGE]))]);
    let mut gateway = RawClient::connect(guard.public).await.expect("listens");
    let token = StampedRequest::new("a", 20).token();
    let head = format!("Host: a\r\nFencing-Token: {token}\r\nFencing-Key: a\r\nFencing-Mode: exclusive\r\n");
    gateway.send(format!("POST /large HTTP/1.1\r\n{head}\r\n")).await.expect("connected");
    assert!(gateway.read_head().await.expect("a head").start.contains("200"));
    gateway.reset().expect("still connected");

    let next = guard.begin(StampedRequest::new("a", 30).post("/next"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(fixture.origin.count("/next"), 0, "while the upstream was sending");
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    History::from_log(&fixture.origin.log()).assert_holds();
}

/// An answer that the gateway does not read does not keep the key.
#[tokio::test]
async fn unread_answer_does_not_keep_key() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/upstream/response_body_idle", "500ms");
    let launch = launch.with("/max_execution", "2s").with("/send_within", "1s");
    let guard = launch.with("/upstream/response_timeout", "1s").start().await;
    fixture.origin.script("/large", [OriginAction::now(OriginReply::with_body(vec![7; 32 << 20]))]);
    let mut gateway = RawClient::connect_narrow(guard.public).await.expect("listens");
    let token = StampedRequest::new("a", 20).token();
    let head = format!("Host: a\r\nFencing-Token: {token}\r\nFencing-Key: a\r\nFencing-Mode: exclusive\r\n");
    gateway.send(format!("POST /large HTTP/1.1\r\n{head}\r\n")).await.expect("connected");
    fixture.origin.wait_for_request("/large", 1).await;
    assert_eq!(guard.send(&StampedRequest::new("a", 30).post("/next")).await.status, 200);
    drop(gateway);
}

/// The guard stops waiting for an answer that stalls, and the upstream may go on. The guard therefore logs the doubt.
#[tokio::test]
async fn stalled_answer_is_logged_in_doubt() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/upstream/response_body_idle", "300ms").start().await;
    let latch = Latch::default();
    fixture
        .origin
        .script("/large", [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; LARGE]))]);
    let pending = guard.begin(StampedRequest::new("a", 20).post("/large"));
    guard.wait_line("the doubt", |line| line.message() == "guard.in_doubt").await;
    latch.release();
    drop(pending);
}

/// An answer without a body frees the key, whatever its method or status.
#[tokio::test]
async fn bodyless_answer_frees_key() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    fixture.origin.set_default_action(OriginAction::now(OriginReply::with_body("")));
    for (epoch, method) in [(20, "HEAD"), (30, "GET"), (40, "DELETE"), (50, "PUT")] {
        let request = StampedRequest::new("a", epoch).apply_to(TestRequest::with_method(method, "/x"));
        assert_eq!(guard.send(&request).await.status, 200, "{method}");
    }
    fixture.origin.script("/x", [OriginAction::AnswerAndClose(OriginReply::ok().status(204))]);
    for (epoch, status) in [(60, 204), (70, 200)] {
        assert_eq!(guard.send(&StampedRequest::new("a", epoch).post("/x")).await.status, status);
    }
    History::from_log(&fixture.origin.log()).assert_holds();
}

/// A dispatch whose task panics is in doubt, because it is not known what the task has done. Other keys go on.
#[tokio::test]
async fn panicked_dispatch_is_in_doubt() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/settle", "100ms");
    let guard = launch.failpoint("guard_admitted", "1*panic").start().await;
    let lost = guard.send(&StampedRequest::new("a", 20).once(1).post("/x")).await;
    assert_eq!((lost.status, lost.outcome()), (502, Some(FencingOutcome::Unknown)));
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/x")).await, "in-doubt");
    assert_refused(&guard.send(&StampedRequest::new("a", 31).once(1).post("/x")).await, "outcome-unknown");
    assert_eq!(guard.send(&StampedRequest::new("b", 30).post("/y")).await.status, 200);
    assert_eq!(fixture.origin.count("/x"), 0);
    guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
}

/// A connection that panics before a byte was written has sent nothing, and the operation may run again.
#[tokio::test]
async fn panic_before_write_sends_nothing() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.failpoint("before_upstream_write", "1*panic").start().await;
    let lost = guard.send(&StampedRequest::new("a", 20).once(1).post("/x")).await;
    assert_eq!((lost.status, lost.outcome()), (502, Some(FencingOutcome::NotDispatched)));
    let again = guard.send(&StampedRequest::new("a", 20).with_dispatch(2).once(1).post("/x")).await;
    assert_eq!((again.status, fixture.origin.count("/x")), (200, 1));
}

/// The pool uses a connection again only after a complete exchange: what one tenure has left on it must not reach
/// another.
#[tokio::test]
async fn upstream_connection_reused_after_complete_exchange() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "100ms").start().await;
    fixture.origin.set_work_time(Duration::from_millis(1));
    for epoch in 20..40 {
        assert_eq!(guard.send(&StampedRequest::new("a", epoch).post("/x")).await.status, 200);
    }
    fixture.origin.script("/x", [OriginAction::CloseInBody(OriginReply::with_body("cut in two"))]);
    assert_eq!(
        guard.send(&StampedRequest::new("a", 50).post("/x")).await.outcome(),
        Some(FencingOutcome::Unknown)
    );
    assert_eq!(guard.send(&StampedRequest::new("b", 60).post("/y")).await.status, 200);
    let log = fixture.origin.log();
    let connections: std::collections::BTreeSet<_> =
        log.records.iter().map(|record| record.connection).collect();
    assert!(connections.len() < 10, "{} connections", connections.len());
    let broken = log.requests_for("/x").last().expect("the broken one").connection;
    assert!(log.requests_for("/y").all(|record| record.connection != broken));
}
