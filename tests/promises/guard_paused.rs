//! A guard that was paused sends nothing that others may take for over by now.

use std::time::Duration;

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::FencingOutcome,
    guard::{GuardFixture, StampedRequest, assert_refused},
    origin::{Act, Latch},
    wait::QUIET,
};

/// Longer than the `max_execution` of anything that was admitted before.
const PAUSE: Duration = Duration::from_millis(1200);

async fn paused_at(failpoint: &'static str) {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/max_execution", "1s").with("/send_within", "500ms");
    let launch = launch.with("/upstream/response_timeout", "500ms");
    let guard = launch.failpoint(failpoint, "1*sleep(600)").start().await;
    let asked = guard.begin(StampedRequest::new("a", 20).once(1).post("/pay"));
    guard.wait_at_failpoint(failpoint).await;
    guard.signal(Signal::STOP);
    tokio::time::sleep(PAUSE).await;
    guard.signal(Signal::CONT);
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    assert_eq!(answer.reason(), "suspended");
    assert!(beside.origin.log().pieces.is_empty(), "written by a guard that had stood still");
    // Nothing was sent, so nothing is in doubt, and the operation may run.
    let again = guard.send(&StampedRequest::new("a", 20).with_dispatch(2).once(1).post("/pay")).await;
    assert_eq!((again.status, beside.origin.count("/pay")), (200, 1));
}

#[tokio::test]
async fn stopped_after_admission_it_writes_not_one_byte() {
    paused_at("guard_admitted").await;
}

#[tokio::test]
async fn stopped_before_the_write_it_writes_not_one_byte() {
    paused_at("before_upstream_write").await;
}

/// The time counts from the admission, and not from the commit.
#[tokio::test]
async fn stopped_within_the_commit_it_writes_not_one_byte() {
    paused_at("before_guard_commit").await;
}

#[tokio::test]
async fn a_request_that_is_half_written_when_its_time_is_over_is_never_completed() {
    const BODY: usize = 32 << 20;
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/send_within", "1s").with("/settle", "100ms");
    let guard = launch.with("/listener/limits/max_body", "64MiB").start().await;
    let latch = Latch::default();
    beside.origin.script("/pay", [Act::ReadLater(latch.clone())]);
    let asked = guard.begin(StampedRequest::new("a", 20).once(1).post("/pay").body(vec![b'x'; BODY]));
    beside.origin.wait_for("the head of the request", |log| log.records.first().map(drop)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    latch.release();
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (502, Some(FencingOutcome::Unknown)));
    let ended = |log: &fencegate_tests::origin::OriginLog| (!log.ended.is_empty()).then_some(());
    beside.origin.wait_for("the end of the connection", ended).await;
    assert_eq!(beside.origin.log().records[0].whole, None, "the upstream got all of it");
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/next")).await, "in-doubt");
    assert_refused(
        &guard.send(&StampedRequest::new("b", 30).once(1).post("/pay")).await,
        "idempotency-mismatch",
    );
    assert_refused(&guard.send(&StampedRequest::new("a", 31).once(1).post("/pay")).await, "outcome-unknown");
}

/// What was sent in time is waited for, however long the guard stood still meanwhile.
#[tokio::test]
async fn stopped_while_the_upstream_works_it_keeps_the_key_and_passes_the_answer_on() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/send_within", "1s");
    let guard = launch.start().await;
    let asked = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).once(1).post("/pay")).await;
    guard.signal(Signal::STOP);
    let next = guard.begin(StampedRequest::new("a", 30).post("/next"));
    tokio::time::sleep(PAUSE).await;
    guard.signal(Signal::CONT);
    tokio::time::sleep(QUIET).await;
    assert_eq!(beside.origin.count("/next"), 0);
    assert_eq!((asked.finish().await.status, next.answer().await.status), (200, 200));
}
