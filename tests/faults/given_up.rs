//! The schedules in which a proof ends before its session, many times: a rare overlap shows only in repetition.

use fencegate_tests::deadline_expiry::{ExpiryRound, pause, reconnect, short_cut};

/// One round of three may be without effect, because the machine was too busy for its times.
async fn again(what: &str, rounds: usize, round: impl AsyncFn() -> ExpiryRound) {
    let (mut exercised, mut violations) = (0, Vec::new());
    for _ in 0..rounds {
        let round = round().await;
        exercised += usize::from(round.exercised);
        violations.extend(round.violations);
    }
    println!("{what}: {rounds} rounds, {exercised} exercised, {} violations", violations.len());
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(exercised * 3 >= rounds * 2, "not exercised: {exercised} of {rounds}");
}

#[tokio::test]
async fn a_holder_that_stands_still_for_longer_than_its_proof_and_less_than_its_session() {
    again("pauses", 6, pause).await;
}

#[tokio::test]
async fn a_holder_that_is_cut_off_for_longer_than_its_proof_and_less_than_its_session() {
    again("short cuts", 14, short_cut).await;
}

#[tokio::test]
async fn a_session_that_took_nearly_as_long_to_make_as_its_proof_lasts() {
    again("slow connects", 9, reconnect).await;
}
