//! A guard that only looks on refuses nothing and says what it would have refused; its marks are good all the same.

use fencegate_tests::{
    client::TestRequest,
    guard::{GuardFixture, StampedRequest, assert_refused},
};

#[tokio::test]
async fn what_would_be_refused_passes_and_is_reported_and_lowers_no_mark() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/settle", "100ms");
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
    assert_eq!((beside.origin.count("/x"), guard.decision_count("bypass").await), (7, 1.0));

    guard.stop().await;
    let guard = launch.start().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 45).post("/stale")).await, "stale");
    assert_refused(&guard.send(&StampedRequest::new("f", 7).post("/stale")).await, "floor");
    assert_eq!(
        guard.send(&StampedRequest::new("a", 60).post("/x")).await.status,
        200,
        "a far token has poisoned it"
    );
    assert_eq!(beside.origin.count("/stale"), 0);
}

#[tokio::test]
async fn what_runs_unfenced_while_one_looks_on_still_counts_as_running() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "100ms").with("/enforce", "observe").start().await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let beside_it = guard.send(&StampedRequest::new("a", 30).post("/new")).await;
    assert_eq!(beside_it.field("fencing-outcome"), Some("done; observe=busy"));
    old.finish().await;
    guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
    let after = guard.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/new")).await;
    assert_eq!(after.field("fencing-outcome"), Some("done"));
}

#[tokio::test]
async fn requests_without_a_token_may_pass_counted_while_bad_tokens_do_not() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/missing", "observe").start().await;
    let answer = guard.send(&TestRequest::post("/x").body("hi")).await;
    assert_eq!((answer.status, answer.field("fencing-outcome")), (200, Some("done; observe=token-missing")));
    assert_refused(
        &guard.send(&TestRequest::post("/x").field("Fencing-Token", "7")).await,
        "token-malformed",
    );
    assert_eq!(guard.send(&StampedRequest::new("a", 50).post("/x")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 40).post("/x")).await, "stale");
    assert_eq!((beside.origin.count("/x"), guard.decision_count("bypass").await), (2, 1.0));
}
