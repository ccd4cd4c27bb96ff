//! Where nobody compares tokens, a key whose exchange was given up is nobody's until the upstream has had its time.

use fencegate_tests::lapse::{Round, pause, reconnect, short_cut};

/// A round counts in which the machine has kept the times.
async fn holds(round: impl AsyncFn() -> Round) {
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
