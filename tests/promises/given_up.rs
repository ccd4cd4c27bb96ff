//! Where nobody compares tokens, a key whose exchange was given up is nobody's until the upstream has had its time.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    deadline_expiry::{ExpiryRound, pause, reconnect, short_cut},
    gateway::Gateway,
    history::History,
    origin::{Act, OriginReply},
    site::TestSite,
};

/// Fails on any violation. A round without violations counts only if the machine has kept the times.
async fn holds(round: impl AsyncFn() -> ExpiryRound) {
    const ROUNDS: usize = 3;
    for _ in 0..ROUNDS {
        let round = round().await;
        assert!(round.violations.is_empty(), "{:#?}", round.violations);
        if round.exercised {
            return;
        }
    }
    panic!("not exercised in {ROUNDS} rounds");
}

#[tokio::test]
async fn the_key_of_a_holder_that_stood_still_is_free_when_its_upstream_has_had_its_time() {
    holds(pause).await;
}

#[tokio::test]
async fn the_key_of_a_holder_that_was_cut_off_for_a_while_is_free_when_its_upstream_has_had_its_time() {
    holds(short_cut).await;
}

#[tokio::test]
async fn nothing_is_granted_under_a_proof_that_no_beat_has_moved() {
    holds(reconnect).await;
}

/// The worker stands still between the gate's look at the proof and the write, for longer than an answer is waited for.
/// Heartbeats go on, so only that limit ends the exchange, and the upstream has only just begun.
#[tokio::test]
async fn the_key_of_a_request_that_was_written_late_is_free_when_its_upstream_has_had_its_time() {
    const TIME: Duration = Duration::from_millis(1500);
    let site = TestSite::fresh().await;
    let ours = |name| {
        site.policy(name)
            .with("/zookeeper/session_timeout", "6s")
            .with("/upstreams/ledger/fencing", "none")
            .with("/upstreams/ledger/response_timeout", "1500ms")
            .with("/routes/0/fence/wait", "20s")
    };
    let (victim_policy, next_policy) = (ours("victim"), ours("next"));
    let (victim, next) = tokio::join!(
        site.gateway_paused_at(&victim_policy, "after_proof_check", TIME + Duration::from_millis(200)),
        Gateway::start(&next_policy)
    );
    site.origin.script("/pay/7", [Act::Answer(TIME / 2, OriginReply::ok())]);
    let late = victim.begin(TestRequest::post("/pay/7"));
    site.origin.request("/pay/7", 1).await;
    let newer = next.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(newer.status, 200, "{newer:?}");
    assert_eq!(
        late.answer().await.outcome(),
        Some(FencingOutcome::Unknown),
        "not exercised: it was waited for"
    );
    assert!(!victim.log().contains("session.ended"), "not exercised: the session ended");
    History::from_log(&site.origin.log()).assert_holds();
}
