//! A guard that was killed makes up for what it has lost by waiting: the keys at work stay closed for the quarantine, and
//! no operation is executed twice. A clean stop loses nothing.
//!
//! The guard is killed at each place between the first commit and the recorded result. No older token is admitted,
//! and an unknown outcome is reported as unknown. A stop that is cut short counts as a kill.

use std::time::{Duration, Instant};

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome},
    guard::{Guard, GuardFixture, GuardLaunch, StampedRequest, assert_refused, operation_reference},
    held_request::HeldRequest,
    origin::OriginAction,
};
use tokio::time::sleep;

/// The quarantine after an unclean stop: short enough for a test to wait for.
const QUARANTINE: Duration = Duration::from_millis(1500);

async fn launch(fixture: &GuardFixture) -> GuardLaunch {
    let launch = fixture.launch().await.with("/max_execution", "1500ms");
    launch.with("/upstream/response_timeout", "1s").with("/send_within", "500ms").with("/settle", "200ms")
}

/// The state of a key after a crash: its requests wait for the quarantine, or continue at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyStateAfterCrash {
    Waits,
    GoesOn,
}

/// Asserts that after a crash a key that was at work admits nothing within the quarantine, and then no tenure from
/// before.
async fn start_after_crash(launch: &GuardLaunch, ran: u64, then: KeyStateAfterCrash) -> Guard {
    let began = Instant::now();
    let guard = launch.start().await;
    assert_refused(
        &guard.send(&StampedRequest::new("a", ran).with_dispatch(7).post("/stale")).await,
        "stale",
    );
    assert_eq!(guard.decision_count("recovered").await, 1.0, "a restart is no accident");
    let next = StampedRequest::new("a", ran + 10);
    if then == KeyStateAfterCrash::Waits && began.elapsed() < QUARANTINE / 2 {
        let early = guard.send(&next.clone().with_dispatch(2).post("/early")).await;
        assert_refused(&early, "quarantine");
        assert_eq!((early.status, early.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    }
    if then == KeyStateAfterCrash::Waits {
        guard.wait_ready().await;
        assert!(began.elapsed() >= QUARANTINE, "admitted after {:?}", began.elapsed());
    }
    assert_eq!(guard.send(&next.with_dispatch(3).post("/next")).await.status, 200);
    for old in [ran, ran + 9] {
        assert_refused(
            &guard.send(&StampedRequest::new("a", old).with_dispatch(9).post("/stale")).await,
            "stale",
        );
    }
    guard
}

/// The fate of the operation that a killed guard had in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationFate {
    NotSent,
    Executed,
    /// The outcome depends on whether the store had taken the change.
    Whichever,
}

/// Kills a guard at a failpoint with an operation in flight, and checks the next start.
async fn kill_at_failpoint(failpoint: &'static str, fate: OperationFate) {
    let fixture = GuardFixture::new().await;
    let launch = launch(&fixture).await;
    let guard = launch.start().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/first")).await.status, 200);
    let launch = guard.stop().await;

    let guard = launch.clone().failpoint(failpoint, "1*sleep(60000)").start().await;
    let lost = guard.begin(StampedRequest::new("a", 30).once(1).post("/pay"));
    guard.wait_at_failpoint(failpoint).await;
    let launch = guard.kill().await;
    lost.result().await.expect_err("its guard was killed");
    let executed = fixture.origin.count("/pay");
    match fate {
        OperationFate::NotSent => assert_eq!(executed, 0),
        OperationFate::Executed => assert_eq!(executed, 1),
        OperationFate::Whichever => assert!(executed <= 1),
    }

    // A request that was not durable was not sent, so no key waits for it.
    let (ran, then) = if failpoint == "before_guard_commit" {
        (20, KeyStateAfterCrash::GoesOn)
    } else {
        (30, KeyStateAfterCrash::Waits)
    };
    let guard = start_after_crash(&launch, ran, then).await;
    let repeat = guard.send(&StampedRequest::new("a", 60).once(1).post("/pay")).await;
    if failpoint == "before_guard_commit" {
        assert_eq!(
            (repeat.status, fixture.origin.count("/pay")),
            (200, 1),
            "nothing had been promised to it"
        );
    } else {
        assert_unknown(&repeat, 1);
        assert_eq!(fixture.origin.count("/pay"), executed, "never executed again by itself");
    }
    assert_eq!(fixture.origin.count("/stale") + fixture.origin.count("/early"), 0);
}

fn assert_unknown(answer: &ClientResponse, operation: u64) {
    assert_refused(answer, "outcome-unknown");
    assert_eq!((answer.status, answer.outcome()), (409, Some(FencingOutcome::Unknown)));
    assert!(answer.field("retry-after").is_none(), "a client that obeyed would pay twice");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(problem["operation_ref"], operation_reference(operation).as_str());
}

/// A guard that is killed before the commit of an operation has sent nothing, and the operation may run.
#[tokio::test]
async fn killed_before_commit_has_sent_nothing() {
    kill_at_failpoint("before_guard_commit", OperationFate::NotSent).await;
}

/// A guard that is killed after the commit refuses older tokens, and does not run the operation by itself.
#[tokio::test]
async fn killed_after_commit_refuses_older_tokens() {
    kill_at_failpoint("after_guard_commit", OperationFate::NotSent).await;
}

/// A guard that is killed after admission executes nothing twice.
#[tokio::test]
async fn killed_after_admission_repeats_nothing() {
    kill_at_failpoint("guard_admitted", OperationFate::NotSent).await;
}

/// A guard that is killed before the write to the upstream executes nothing twice.
#[tokio::test]
async fn killed_before_write_repeats_nothing() {
    kill_at_failpoint("before_upstream_write", OperationFate::NotSent).await;
}

/// A guard that is killed between the last check and the write to the upstream executes nothing twice.
#[tokio::test]
async fn killed_after_check_repeats_nothing() {
    kill_at_failpoint("after_proof_check", OperationFate::Whichever).await;
}

/// A guard that is killed before the result is recorded executes nothing twice.
#[tokio::test]
async fn killed_before_result_repeats_nothing() {
    kill_at_failpoint("before_result_recorded", OperationFate::Executed).await;
}

/// A guard that is killed while the upstream works admits nothing beside that execution.
#[tokio::test]
async fn killed_during_execution_keeps_key_closed() {
    let fixture = GuardFixture::new().await;
    let guard = launch(&fixture).await.start().await;
    let HeldRequest { request: lost, latch, record } =
        fixture.origin.hold_request(&guard, StampedRequest::new("a", 30).once(1).post("/pay")).await;
    let last = record.whole.expect("read");
    let launch = guard.kill().await;
    drop(lost);
    let guard = start_after_crash(&launch, 30, KeyStateAfterCrash::Waits).await;
    let next = fixture.origin.wait_for_request("/next", 1).await;
    assert!(next.arrived >= last + QUARANTINE, "{:?} too early", last + QUARANTINE - next.arrived);
    assert_unknown(&guard.send(&StampedRequest::new("a", 70).once(1).post("/pay")).await, 1);
    assert_eq!(fixture.origin.count("/pay"), 1);
    latch.release();
}

/// A clean stop loses no watermark and needs no quarantine, at the next start only.
#[tokio::test]
async fn clean_stop_needs_no_quarantine() {
    let fixture = GuardFixture::new().await;
    let guard = launch(&fixture).await.start().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).with_dispatch(5).post("/pay")).await.status, 200);
    assert_eq!(guard.send(&StampedRequest::new("r", 22).shared().post("/read")).await.status, 200);
    let launch = guard.stop().await;
    let guard = launch.with_permanent_quarantine().start().await;
    assert_eq!(guard.admin("/ready").await.status, 200);
    assert_refused(
        &guard.send(&StampedRequest::new("a", 20).with_dispatch(5).post("/again")).await,
        "duplicate",
    );
    assert_refused(&guard.send(&StampedRequest::new("a", 19).post("/again")).await, "stale");
    assert_refused(&guard.send(&StampedRequest::new("r", 21).post("/again")).await, "stale");
    assert_eq!(
        guard.send(&StampedRequest::new("a", 20).with_dispatch(6).post("/pay")).await.status,
        200,
        "the tenure goes on"
    );
    assert_eq!(fixture.origin.count("/again"), 0);
    // The record of the clean stop counts for one start only.
    let launch = guard.kill().await;
    start_after_crash(&launch, 20, KeyStateAfterCrash::Waits).await;
}

/// A guard that is killed between two parts of its watermarks has not stopped cleanly. A clean stop writes all
/// watermarks in parts, because their number grows with the keys.
#[tokio::test]
async fn killed_during_stop_is_unclean() {
    const KEYS: u64 = 2_100;
    const COMMIT: &str = "before_guard_commit";
    let commits = |guard: &Guard| guard.log().matches(COMMIT).count();
    let fixture = GuardFixture::new().await;
    let guard = launch(&fixture).await.failpoint(COMMIT, "sleep(0)").start().await;
    for first in (0..KEYS).step_by(64) {
        let some = (first..KEYS.min(first + 64)).map(|key| StampedRequest::new(&format!("k{key}"), 20));
        let requests: Vec<_> = some.map(|dispatch| guard.begin(dispatch.post("/pay"))).collect();
        for pending in requests {
            assert_eq!(pending.answer().await.status, 200);
        }
    }
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/pay")).await.status, 200);
    guard.wait_gauge("fencegate_guard_keys_at_work", 0.0).await;
    let before = commits(&guard);
    let launch = stop_keeping_log(&guard).await;
    let parts = commits(&guard) - before;
    assert!(parts >= 4, "three parts and the word that they are all: {parts}");

    // The guard is stopped once more without a kill, to count the commits of a clean stop.
    let guard = launch.clone().failpoint(COMMIT, "sleep(0)").start().await;
    let launch = stop_keeping_log(&guard).await;
    let amid = commits(&guard) - 2;
    let stands = format!("{}*sleep(0)->sleep(60000)", amid - 1);
    let guard = launch.failpoint(COMMIT, &stands).start().await;
    guard.signal(Signal::TERM);
    let reached = async {
        while commits(&guard) < amid {
            sleep(Duration::from_millis(5)).await
        }
    };
    wait_until("a part of the marks", reached, || guard.log()).await;
    let launch = guard.kill().await;
    start_after_crash(&launch, 20, KeyStateAfterCrash::GoesOn).await;
}

/// Stops the guard cleanly and keeps its log. Returns the launch with which to start the guard again.
async fn stop_keeping_log(guard: &Guard) -> GuardLaunch {
    guard.signal(Signal::TERM);
    let status = guard.exit().await;
    assert!(status.success(), "{status}:\n{}", guard.log());
    guard.launch().clone()
}

/// A clean stop keeps what is in doubt for the time that is left.
#[tokio::test]
async fn clean_stop_keeps_doubts() {
    let fixture = GuardFixture::new().await;
    let guard = launch(&fixture).await.with("/max_execution", "3s").start().await;
    fixture.origin.script("/broken", [OriginAction::Reset]);
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/broken")).await.status, 502);
    let last = fixture.origin.wait_for_request("/broken", 1).await.whole.expect("read");
    let launch = guard.stop().await;
    let guard = launch.start().await;
    assert_eq!(guard.admin("/ready").await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/early")).await, "in-doubt");
    assert_eq!(guard.send(&StampedRequest::new("b", 30).post("/other")).await.status, 200);
    let launch = guard.stop().await.with("/settle", "8s");
    let guard = launch.start().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 40).post("/late")).await.status, 200);
    let late = fixture.origin.wait_for_request("/late", 1).await.arrived;
    assert!(late >= last + Duration::from_secs(3), "admitted after {:?}", late - last);
    assert_eq!(fixture.origin.count("/early"), 0);
}

/// A clean stop within the quarantine does not end the quarantine.
#[tokio::test]
async fn clean_stop_keeps_running_quarantine() {
    let fixture = GuardFixture::new().await;
    let guard = launch(&fixture).await.with("/max_execution", "3s").with_permanent_quarantine().start().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/pay")).await.status, 200);
    let died = Instant::now();
    let launch = guard.kill().await;
    let launch = launch.start().await.stop().await;
    let guard = launch.start().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/early")).await, "stale");
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/early")).await, "quarantine");
    guard.wait_ready().await;
    assert!(died.elapsed() >= Duration::from_secs(3), "over after {:?}", died.elapsed());
    assert_eq!(fixture.origin.count("/early"), 0);
}

/// A request that does not end within the drain is in doubt for the next start.
#[tokio::test]
async fn exchange_beyond_drain_is_in_doubt() {
    let fixture = GuardFixture::new().await;
    let guard = launch(&fixture).await.with("/max_execution", "4s").with("/upstream/response_timeout", "3s");
    let guard = guard.with("/listener/timeouts/drain", "200ms").start().await;
    let HeldRequest { request: long, latch, .. } =
        fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).once(1).post("/long")).await;
    let launch = guard.stop().await;
    long.result().await.expect_err("its guard has left");
    let guard = launch.start().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/early")).await, "in-doubt");
    assert_unknown(&guard.send(&StampedRequest::new("a", 31).once(1).post("/early")).await, 1);
    assert_eq!(fixture.origin.count("/early"), 0);
    latch.release();
}
