//! The fault matrix in full: every case at each of its levels with three seeds, as far as the time allows. The next
//! run of this test plays the remaining cases.

use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};

use fencegate_testkit::scratch;
use fencegate_tests::matrix::{
    catalogue::CASES,
    matrix_case::CaseRun,
    report::{MatrixReport, state_of_sources},
    runner,
    verdict::{RunVerdict, Verdict},
};

const SEEDS: [u64; 3] = [7, 77, 79];

/// The number of runs at the same time. The processes of a run are idle most of the time.
const LANES: usize = 2;

/// A number from an environment variable.
fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// The runs of all selected cases, ordered by seed: if the time is short, each case is played at least with the
/// first seed.
fn selected_runs() -> Vec<CaseRun> {
    let only = env::var("FENCEGATE_FAULTS_ONLY").unwrap_or_default();
    let cases = || CASES.iter().filter(|case| case.name.contains(&only));
    SEEDS.into_iter().flat_map(|seed| cases().flat_map(move |case| case.runs(seed))).collect()
}

fn line(ruling: &RunVerdict) -> String {
    let RunVerdict { case, level, seed, executions, hand_overs, stale, hit, violations, .. } = ruling;
    let recovery = ruling.recovery.map_or("-".to_owned(), |time| format!("{time:.1} s"));
    format!(
        "{case} at {level}, seed {seed}: {executions} executions, {hand_overs} hand-overs, {stale} stale, {hit} hit, \
         {violations} violations, recovered in {recovery}: {} {}",
        ruling.verdict.as_str(),
        ruling.reason,
    )
}

/// No accident of the fault matrix breaks an invariant that its level promises.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_accident_breaks_promise() {
    let until = Instant::now() + Duration::from_secs(60 * number("FENCEGATE_FAULTS_MINUTES").unwrap_or(60));
    let folder = scratch::binaries().with_file_name("faults");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let state = state_of_sources(root);
    let again = number("FENCEGATE_FAULTS_AGAIN").is_some();
    let mut report =
        if again { MatrixReport::new(&folder, &state) } else { MatrixReport::resume(&folder, &state) };
    let runs: Vec<CaseRun> = selected_runs().into_iter().filter(|run| !report.has(run)).collect();
    let all = runs.len();
    let mut ruled = 0;
    runner::run_all(runs, LANES, until, |ruling| {
        println!("{}", line(&ruling));
        ruled += 1;
        report.add(ruling).expect("the target directory can be written");
    })
    .await;
    let failed: Vec<String> =
        report.rulings.iter().filter(|ruling| ruling.verdict == Verdict::Fail).map(line).collect();
    println!("{} runs, {} failed: {}", report.rulings.len(), failed.len(), folder.display());
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(ruled, all, "each run has a ruling");
}
