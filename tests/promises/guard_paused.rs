//! A guard that was paused does not send a request that counts as over by the time the guard runs again.
//!
//! The pause lies anywhere between the commit and the write, and not one byte is sent after it.

use std::time::Duration;

use fencegate_testkit::{child::Signal, wait::QUIET};
use fencegate_tests::{
    client::FencingOutcome,
    guard::{GuardFixture, StampedRequest, assert_refused},
    origin::{Latch, OriginAction},
};

/// Longer than the `max_execution` of anything that was admitted before.
const PAUSE: Duration = Duration::from_millis(1200);

async fn assert_safe_when_paused_at(failpoint: &'static str) {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/max_execution", "1s").with("/send_within", "500ms");
    let launch = launch.with("/upstream/response_timeout", "500ms");
    let guard = launch.failpoint(failpoint, "1*sleep(600)").start().await;
    let pending = guard.begin(StampedRequest::new("a", 20).once(1).post("/pay"));
    guard.wait_at_failpoint(failpoint).await;
    guard.signal(Signal::STOP);
    tokio::time::sleep(PAUSE).await;
    guard.signal(Signal::CONT);
    let answer = pending.answer().await;
    assert_eq!((answer.status, answer.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    assert_eq!(answer.reason(), "suspended");
    assert!(fixture.origin.log().pieces.is_empty(), "written by a guard that had stood still");
    // Nothing was sent, so nothing is in doubt, and the operation may run.
    let again = guard.send(&StampedRequest::new("a", 20).with_dispatch(2).once(1).post("/pay")).await;
    assert_eq!((again.status, fixture.origin.count("/pay")), (200, 1));
}

/// A guard that was paused after admission, for longer than `send_within`, writes not one byte.
#[tokio::test]
async fn paused_after_admission_sends_nothing() {
    assert_safe_when_paused_at("guard_admitted").await;
}

/// A guard that was paused before the write, for longer than `send_within`, writes not one byte.
#[tokio::test]
async fn paused_before_write_sends_nothing() {
    assert_safe_when_paused_at("before_upstream_write").await;
}

/// A guard that was paused within the commit, for longer than `send_within`, writes not one byte: the time counts from
/// the admission, and not from the commit.
#[tokio::test]
async fn paused_within_commit_sends_nothing() {
    assert_safe_when_paused_at("before_guard_commit").await;
}

/// A request that is half written when `send_within` is over is never completed, and its outcome is unknown.
#[tokio::test]
async fn expired_partial_request_is_never_completed() {
    const BODY: usize = 32 << 20;
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/send_within", "1s").with("/settle", "100ms");
    let guard = launch.with("/listener/limits/max_body", "64MiB").start().await;
    let latch = Latch::default();
    fixture.origin.script("/pay", [OriginAction::ReadLater(latch.clone())]);
    let pending = guard.begin(StampedRequest::new("a", 20).once(1).post("/pay").body(vec![b'x'; BODY]));
    fixture.origin.wait_for("the head of the request", |log| log.records.first().map(drop)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    latch.release();
    let answer = pending.answer().await;
    assert_eq!((answer.status, answer.outcome()), (502, Some(FencingOutcome::Unknown)));
    let ended = |log: &fencegate_tests::origin::OriginLog| (!log.ended.is_empty()).then_some(());
    fixture.origin.wait_for("the end of the connection", ended).await;
    assert_eq!(fixture.origin.log().records[0].whole, None, "the upstream got all of it");
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/next")).await, "in-doubt");
    assert_refused(
        &guard.send(&StampedRequest::new("b", 30).once(1).post("/pay")).await,
        "idempotency-mismatch",
    );
    assert_refused(&guard.send(&StampedRequest::new("a", 31).once(1).post("/pay")).await, "outcome-unknown");
}

/// A guard that was paused while the upstream works keeps the key and passes the answer on: an answer to what was sent
/// in time is waited for, however long the guard stood still meanwhile.
#[tokio::test]
async fn paused_during_execution_keeps_key() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/send_within", "1s");
    let guard = launch.start().await;
    let pending =
        fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).once(1).post("/pay")).await;
    guard.signal(Signal::STOP);
    let next = guard.begin(StampedRequest::new("a", 30).post("/next"));
    tokio::time::sleep(PAUSE).await;
    guard.signal(Signal::CONT);
    tokio::time::sleep(QUIET).await;
    assert_eq!(fixture.origin.count("/next"), 0);
    assert_eq!((pending.finish().await.status, next.answer().await.status), (200, 200));
}
