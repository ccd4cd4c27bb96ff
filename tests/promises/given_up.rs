//! Where the upstream compares no tokens, a key whose exchange was given up is granted again only after the response
//! timeout of the upstream has passed.
//!
//! The level is `none`. The proof ends, the session lives on, and the upstream answers in time. The key has no holder
//! until then, also where the request was written late and only `response_timeout` has passed. No lock is granted
//! under a proof that is about to end.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    deadline_expiry::{ExpiryRound, run_pause_round, run_reconnect_round, run_short_cut_round},
    gateway::Gateway,
    history::History,
    origin::{OriginAction, OriginReply},
    site::TestSite,
};

/// Asserts that a round has no violation. A round counts only if the machine has kept its times; otherwise another one
/// is run.
async fn assert_round_holds(round: impl AsyncFn() -> ExpiryRound) {
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

/// The key of a holder that was paused past its session deadline is free only after its upstream's response timeout.
#[tokio::test]
async fn paused_holder_keeps_key_until_timeout() {
    assert_round_holds(run_pause_round).await;
}

/// The key of a holder that was cut off past its session deadline is free only after its upstream's response timeout.
#[tokio::test]
async fn disconnected_holder_keeps_key_until_timeout() {
    assert_round_holds(run_short_cut_round).await;
}

/// After a slow connect no lock is granted until a heartbeat has moved the session deadline.
#[tokio::test]
async fn lock_waits_for_heartbeat_after_connect() {
    assert_round_holds(run_reconnect_round).await;
}

/// The key of a request that was written late is free only after its upstream's response timeout. The worker stands
/// still between the check of the session deadline and the write, for longer than an answer is waited for. Heartbeats
/// go on, so only that limit ends the exchange, and the upstream has only just begun.
#[tokio::test]
async fn late_write_keeps_key_until_timeout() {
    const TIME: Duration = Duration::from_millis(1500);
    let site = TestSite::fresh().await;
    let ours = |name| {
        site.policy(name)
            .with("/zookeeper/session_timeout", "6s")
            .with("/upstreams/ledger/fencing", "none")
            .with("/upstreams/ledger/response_timeout", "1500ms")
            .with("/routes/0/fence/wait", "20s")
    };
    let victim_policy = ours("victim");
    let next_policy = ours("next");
    let (victim, next) = tokio::join!(
        site.gateway_paused_at(&victim_policy, "after_proof_check", TIME + Duration::from_millis(200)),
        Gateway::start(&next_policy)
    );
    site.origin.script("/pay/7", [OriginAction::Answer(TIME / 2, OriginReply::ok())]);
    let late = victim.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 1).await;
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
