//! The schedules in which a session deadline passes before its session ends, many times: a rare overlap shows only in
//! repetition.

use fencegate_tests::deadline_expiry::{
    ExpiryRound, run_pause_round, run_reconnect_round, run_short_cut_round,
};

/// Repeats a schedule, and asserts that no round has a violation. A third of the rounds may miss the intended times,
/// because the machine was too busy.
async fn repeat_rounds(what: &str, rounds: usize, round: impl AsyncFn() -> ExpiryRound) {
    let mut exercised = 0;
    let mut violations = Vec::new();
    for _ in 0..rounds {
        let round = round().await;
        exercised += usize::from(round.exercised);
        violations.extend(round.violations);
    }
    println!("{what}: {rounds} rounds, {exercised} exercised, {} violations", violations.len());
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(exercised * 3 >= rounds * 2, "not exercised: {exercised} of {rounds}");
}

/// No overlap when a holder is paused for longer than its session deadline and less than its session timeout.
#[tokio::test]
async fn holder_paused_past_session_deadline() {
    repeat_rounds("pauses", 6, run_pause_round).await;
}

/// No overlap when a holder is cut off for longer than its session deadline and less than its session timeout.
#[tokio::test]
async fn holder_disconnected_past_session_deadline() {
    repeat_rounds("short cuts", 14, run_short_cut_round).await;
}

/// No overlap when a session took nearly as long to connect as its deadline lasts.
#[tokio::test]
async fn session_connect_takes_nearly_session_deadline() {
    repeat_rounds("slow connects", 9, run_reconnect_round).await;
}
