//! A guard under `enforce: observe` refuses nothing and reports what it would have refused. Its watermarks are correct
//! all the same.

use fencegate_tests::{
    client::TestRequest,
    guard::{GuardFixture, StampedRequest, assert_refused},
};

/// A guard in `observe` passes what it would refuse, reports it, and changes no watermark by it.
#[tokio::test]
async fn observe_passes_and_reports_refusals() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await.with("/settle", "100ms");
    let guard = launch.clone().with("/enforce", "observe").start().await;
    assert_eq!(
        guard.send(&StampedRequest::new("a", 50).post("/x")).await.field("fencing-outcome"),
        Some("done")
    );
    for (dispatch, reason) in [
        (StampedRequest::new("a", 40), "stale"),
        (StampedRequest::new("a", 50), "duplicate"),
        (StampedRequest::new("f", 5), "floor"),
        (StampedRequest::new("a", 1 << 62), "token-future"),
    ] {
        let answer = guard.send(&dispatch.post("/x")).await;
        let outcome = format!("done; observe={reason}");
        assert_eq!((answer.status, answer.field("fencing-outcome")), (200, Some(outcome.as_str())));
    }
    let malformed = TestRequest::post("/x").field("Fencing-Token", "7");
    let answer = guard.send(&malformed).await;
    assert_eq!(
        (answer.status, answer.field("fencing-outcome")),
        (200, Some("done; observe=token-malformed"))
    );
    let answer = guard.send(&TestRequest::post("/x")).await;
    assert_eq!((answer.status, answer.field("fencing-outcome")), (200, Some("done; observe=token-missing")));
    assert_eq!((fixture.origin.count("/x"), guard.decision_count("bypass").await), (7, 1.0));

    guard.stop().await;
    let guard = launch.start().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 45).post("/stale")).await, "stale");
    assert_refused(&guard.send(&StampedRequest::new("f", 7).post("/stale")).await, "floor");
    assert_eq!(
        guard.send(&StampedRequest::new("a", 60).post("/x")).await.status,
        200,
        "a far token has poisoned it"
    );
    assert_eq!(fixture.origin.count("/stale"), 0);
}

/// An execution that runs unfenced under `observe` counts as running.
#[tokio::test]
async fn observed_execution_counts_as_running() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "100ms").with("/enforce", "observe").start().await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let beside_it = guard.send(&StampedRequest::new("a", 30).post("/new")).await;
    assert_eq!(beside_it.field("fencing-outcome"), Some("done; observe=busy"));
    old.finish().await;
    guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
    let after = guard.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/new")).await;
    assert_eq!(after.field("fencing-outcome"), Some("done"));
}

/// Under `missing: observe` requests without a token pass and are counted, and bad tokens are still refused.
#[tokio::test]
async fn missing_token_passes_under_observe() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/missing", "observe").start().await;
    let answer = guard.send(&TestRequest::post("/x").body("hi")).await;
    assert_eq!((answer.status, answer.field("fencing-outcome")), (200, Some("done; observe=token-missing")));
    assert_refused(
        &guard.send(&TestRequest::post("/x").field("Fencing-Token", "7")).await,
        "token-malformed",
    );
    assert_eq!(guard.send(&StampedRequest::new("a", 50).post("/x")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 40).post("/x")).await, "stale");
    assert_eq!((fixture.origin.count("/x"), guard.decision_count("bypass").await), (2, 1.0));
}
