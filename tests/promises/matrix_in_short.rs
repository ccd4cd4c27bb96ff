//! The accidents that matter most, of the fault matrix: nothing is broken where tokens are compared, and something is where
//! nobody compares them.

use std::time::{Duration, Instant};

use fencegate_tests::matrix::{
    catalogue::CASES, level::MatrixLevel, matrix_case::CaseRun, runner, verdict::Verdict,
};

const SEED: u64 = 1;

/// What `tests/run` has time for.
const MOST: [(&str, MatrixLevel); 6] = [
    ("holder_frozen", MatrixLevel::None),
    ("holder_frozen", MatrixLevel::Guard),
    ("holder_killed", MatrixLevel::Guard),
    ("holder_killed", MatrixLevel::Upstream),
    ("guard_killed", MatrixLevel::Guard),
    ("leader_killed", MatrixLevel::Guard),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worst_accidents_break_nothing_where_tokens_are_compared_and_something_where_not() {
    let named = |(name, level): (&str, MatrixLevel)| {
        let case = CASES.iter().find(|case| case.name == name).expect("a case");
        CaseRun { case, level, seed: SEED }
    };
    let (mut ruled, mut failed) = (0, Vec::new());
    let runs = MOST.into_iter().map(named).collect();
    runner::run_all(runs, 2, Instant::now() + Duration::from_secs(180), |ruling| {
        println!("{ruling:?}");
        ruled += 1;
        if ruling.verdict != Verdict::Pass {
            failed.push(ruling);
        }
    })
    .await;
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(ruled, MOST.len(), "each run has a ruling");
}
