//! One lock system under all schedules, each time with an account of its own, and the assertions about the results.

use std::{fs, time::SystemTime};

use fencegate_testkit::scratch;
use fencegate_tests::comparison::{ExpectedResult, LockComparisonReport, LockSystem, LockSystemRun};

use crate::{
    account::{AccountService, TokenCheck},
    clients::{ClientProcesses, ClientProgram},
    run::{LockProcesses, run},
    schedule::FaultSchedule,
};

/// The report of all lock systems, in the build folder.
pub(crate) fn report() -> LockComparisonReport {
    let folder = scratch::binaries().with_file_name("duel");
    fs::create_dir_all(&folder).expect("the target directory can be written");
    LockComparisonReport::open(folder.join("report.json")).expect("a report, or none")
}

/// Runs all schedules for a lock system whose clients take the locks of a library themselves.
pub(crate) async fn run_seeds_with_clients(
    contestant: LockSystem,
    program: impl Fn() -> ClientProgram,
    server: String,
) {
    let start = async |account: &AccountService| {
        ClientProcesses::start(program(), server.clone(), &[account.address], "/pay/7").await
    };
    run_seeds(contestant, TokenCheck::Nothing, start).await;
}

/// Runs all schedules for a lock system, and writes its results into the report.
///
/// # Panics
/// If a result breaks an assertion. The report is written before.
pub(crate) async fn run_seeds<S: LockProcesses>(
    contestant: LockSystem,
    compares: TokenCheck,
    start: impl AsyncFn(&AccountService) -> S,
) {
    let mut bouts = Vec::new();
    for schedule in FaultSchedule::all() {
        let account = AccountService::start(compares).await.expect("a free port");
        let side = start(&account).await;
        let bout = run(side, &account, &schedule).await;
        println!("{}: {bout:?}", contestant.name());
        bouts.push(bout);
    }
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    report().replace(contestant, &date[.."2026-01-31".len()], &bouts).expect("the report can be written");
    let complaints: Vec<_> = bouts.iter().filter_map(|bout| broken_expectation(contestant, bout)).collect();
    assert!(complaints.is_empty(), "{}: {complaints:#?}", contestant.name());
}

/// The message about the assertion that a run breaks, if there is one.
fn broken_expectation(contestant: LockSystem, bout: &LockSystemRun) -> Option<String> {
    let harm = [bout.overlaps, bout.lost, bout.stale] != [0; 3];
    let everywhere = bout.taken_over == bout.pauses;
    let wrong = match contestant.expected() {
        ExpectedResult::Violated => (!everywhere || bout.stale == 0).then_some("not exercised"),
        ExpectedResult::Holds | ExpectedResult::Waits if harm => Some("harm was done"),
        ExpectedResult::Holds => (!everywhere || bout.refused < bout.pauses).then_some("not exercised"),
        ExpectedResult::Waits => (bout.taken_over > 0).then_some("somebody was let in"),
    };
    wrong.map(|wrong| format!("{wrong}, seed {}: {bout:?}", bout.seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes_with(contestant: LockSystem, change: fn(&mut LockSystemRun)) -> bool {
        let (taken_over, stale, refused) = match contestant.expected() {
            ExpectedResult::Violated => (2, 1, 0),
            ExpectedResult::Holds => (2, 0, 2),
            ExpectedResult::Waits => (0, 0, 0),
        };
        let mut bout = LockSystemRun {
            executions: 10,
            pauses: 2,
            taken_over,
            stale,
            refused,
            ..LockSystemRun::default()
        };
        change(&mut bout);
        broken_expectation(contestant, &bout).is_none()
    }

    /// A run with too few faults of the kind that its lock system is tested for does not pass.
    #[test]
    fn unexercised_bout_is_no_result() {
        assert!(passes_with(LockSystem::Kazoo, |_| ()) && passes_with(LockSystem::Guard, |_| ()));
        assert!(!passes_with(LockSystem::Kazoo, |bout| bout.stale = 0));
        assert!(!passes_with(LockSystem::Kazoo, |bout| bout.taken_over = 1));
        assert!(!passes_with(LockSystem::Guard, |bout| bout.taken_over = 1));
        assert!(!passes_with(LockSystem::Guard, |bout| bout.refused = 1));
    }

    /// An overlap, a lost update or a stale write fails a lock system that compares tokens or delays.
    #[test]
    fn safe_locks_allow_no_violation() {
        assert!(passes_with(LockSystem::Delay, |_| ()));
        assert!(!passes_with(LockSystem::Delay, |bout| bout.taken_over = 1));
        for contestant in [LockSystem::Guard, LockSystem::Upstream, LockSystem::Delay] {
            assert!(!passes_with(contestant, |bout| bout.overlaps = 1));
            assert!(!passes_with(contestant, |bout| bout.lost = 1));
            assert!(!passes_with(contestant, |bout| bout.stale = 1));
        }
    }
}
