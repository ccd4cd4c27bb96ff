//! The most important faults of the fault matrix break no promise where tokens are compared, and some promise where no
//! service compares them.

use std::time::{Duration, Instant};

use fencegate_tests::matrix::{
    catalogue::CASES, level::MatrixLevel, matrix_case::CaseRun, runner, verdict::Verdict,
};

const SEED: u64 = 1;

/// What `tests/run` has time for: one accident with its control, and one of the servers. `tests/run --faults` plays them all.
const MOST: [(&str, MatrixLevel); 3] = [
    ("holder_frozen", MatrixLevel::None),
    ("holder_frozen", MatrixLevel::Guard),
    ("leader_killed", MatrixLevel::Guard),
];

/// The worst faults break nothing where tokens are compared, and something where they are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worst_faults_break_only_unchecked_services() {
    let named = |(name, level): (&str, MatrixLevel)| {
        let case = CASES.iter().find(|case| case.name == name).expect("a case");
        CaseRun { case, level, seed: SEED }
    };
    let mut ruled = 0;
    let mut failed = Vec::new();
    let runs = MOST.into_iter().map(named).collect();
    // One after the other, all of them with the same three servers.
    runner::run_all(runs, 1, Instant::now() + Duration::from_secs(180), |ruling| {
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
