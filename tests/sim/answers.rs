//! Sends the same random requests to the ZooKeeper in memory and to a real one, and compares the answers.

mod answer_line;
mod memory_backend;
mod real_backend;
mod runner;
mod script;
mod silence;

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use fencegate_zookeeper::session::client::{NodeCreateMode, ZkClient, ZkConnector};
use memory_backend::SimZooKeeperBackend;
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestCaseResult, TestRng, TestRunner},
};
use real_backend::RealBackend;
use runner::{TestBackend, play};
use script::{ScriptStep, SessionOperation, TransactionStep};
use silence::{SilenceTimes, TIMEOUT, fall_silent};

use crate::run;

#[test]
fn memory_answers_like_real_server() {
    let exercised = [
        "NoNode",
        "NodeExists",
        "NotEmpty",
        "BadVersion",
        "refused",
        "failed in step Some(2)",
        "Container",
        "by session",
        "number 3",
        "x-0000000002",
        "version 2",
        "fired",
        "unread, [",
        "steps done; ",
        "Ephemerals(\"\"): [\"",
    ];
    compare("calm", 200, script::unbroken_scripts(), &exercised);
}

/// A transaction that deletes and recreates the nodes of one key, and creates those of another, gets the answers of
/// a real server.
#[test]
fn memory_recreates_keys_like_real_server() {
    let container = NodeCreateMode::Container;
    let node = NodeCreateMode::EphemeralSequential;
    let begins = |key: &str| {
        [
            TransactionStep::Create(key.to_owned(), container),
            TransactionStep::Create(format!("{key}/x-"), node),
        ]
    };
    let ends = |key: &str| {
        [TransactionStep::Delete(format!("{key}/x-0000000000")), TransactionStep::Delete(key.to_owned())]
    };
    let look = |path: &str| SessionOperation::Seen(path.to_owned());
    let script = [
        SessionOperation::Commit([begins("/a"), begins("/b")].concat()),
        SessionOperation::Commit([ends("/a"), begins("/a"), begins("/c")].concat()),
        look("/a/x-0000000000"),
        look("/c/x-0000000000"),
        // The server refuses a step in the middle of this transaction, so none of its steps takes effect.
        SessionOperation::Commit([ends("/a"), begins("/b"), begins("/d")].concat()),
        look("/a/x-0000000000"),
        look("/d"),
        SessionOperation::Commit([ends("/a"), ends("/b"), ends("/c")].concat()),
        SessionOperation::Children(String::new()),
    ];
    let script: Vec<_> = script.into_iter().map(|op| ScriptStep::Do(0, op)).collect();
    let expected = RealBackend::start().run(async |site| play(&*site, "/keys", &script).await);
    assert_eq!(SimZooKeeperBackend::run(async |site| play(&*site, "/keys", &script).await), expected);
    assert!(expected.iter().any(|line| line.contains("failed in step Some(2)")), "{expected:#?}");
}

#[test]
fn memory_reconnects_like_real_session() {
    compare("broken", 30, script::broken_scripts(), &["fired", "NoNode", "steps done"]);
}

#[test]
fn memory_grants_timeout_like_real_server() {
    for asked in [Duration::from_millis(300), TIMEOUT, Duration::from_secs(3600)] {
        let real = RealBackend::start().run(async |site| granted_timeout(&*site, asked).await);
        assert_eq!(
            SimZooKeeperBackend::run(async |site| granted_timeout(&*site, asked).await),
            real,
            "{asked:?}"
        );
    }
}

async fn granted_timeout<S: TestBackend>(site: &S, asked: Duration) -> Duration {
    site.client(0, asked).connect().await.expect("a session").negotiated_timeout()
}

/// The memory server ends a silent session at the same time as a real server, and the client notices the end at the
/// same time.
#[test]
fn memory_expires_session_like_real_server() {
    let real = RealBackend::start().run(async |site| fall_silent(&*site).await);
    let memory = SimZooKeeperBackend::run(async |site| fall_silent(&*site).await);
    // The server counts from the last ping, and ends a session at the end of a tick. A real server is a little late.
    let ping = TIMEOUT * 3 / 20;
    let tick = Duration::from_millis(200);
    let late = Duration::from_millis(500);
    for (SilenceTimes { node_gone, client_over }, late) in [(&real, late), (&memory, Duration::ZERO)] {
        assert!(*node_gone >= TIMEOUT - ping && *node_gone <= TIMEOUT + tick + late, "{real:?} {memory:?}");
        let gives_up = TIMEOUT * 7 / 5;
        assert!(*client_over >= gives_up - ping && *client_over <= gives_up + late, "{real:?} {memory:?}");
    }
}

/// Plays random scripts on both servers, and asserts that they give the same answers. Each text in `exercised` must
/// occur in enough answers, so that the comparison means something.
fn compare(
    test: &str,
    cases: u32,
    scripts: impl Strategy<Value = Vec<ScriptStep>>,
    exercised: &[&'static str],
) {
    let seed = run::seed(test);
    let cases = run::cases(cases);
    let real = RealBackend::start();
    let played = Cell::new(0);
    let lines = RefCell::new(vec![0; exercised.len()]);
    let case = |script: Vec<ScriptStep>| -> TestCaseResult {
        let root = &format!("/{test}-{}", played.replace(played.get() + 1));
        let expected = real.run(async |site| play(&*site, root, &script).await);
        let ours = SimZooKeeperBackend::run(async |site| play(&*site, root, &script).await);
        for (count, what) in lines.borrow_mut().iter_mut().zip(exercised) {
            *count += expected.iter().filter(|line| line.contains(what)).count();
        }
        check_same(&expected, &ours)
    };
    let config = Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    let told = |lines: &[usize]| exercised.iter().copied().zip(lines.iter().copied()).collect::<Vec<_>>();
    // A rare answer may be missing in one round, so play further rounds, up to the limit.
    for round in 0..ROUNDS {
        let rng = TestRng::from_seed(
            RngAlgorithm::XorShift,
            &(u128::from(seed) + (u128::from(round) << 64)).to_le_bytes(),
        );
        // Make a new runner for each round: one that has played its cases plays no more.
        let mut runner = TestRunner::new_with_rng(config.clone(), rng);
        runner.run(&scripts, case).unwrap_or_else(|failed| panic!("{failed}"));
        if lines.borrow().iter().all(|count| *count >= 3) {
            return eprintln!("{test}: {} scripts, lines with {:?}", played.get(), told(&lines.borrow()));
        }
    }
    panic!("not exercised in {} scripts: {:?}", played.get(), told(&lines.borrow()));
}

/// The maximum of rounds that are played until every wanted answer has occurred.
const ROUNDS: u64 = 8;

fn check_same(expected: &[String], ours: &[String]) -> TestCaseResult {
    let differs = (0..expected.len().max(ours.len())).find(|at| expected.get(*at) != ours.get(*at));
    let Some(at) = differs else { return Ok(()) };
    let real = expected.get(at);
    let memory = ours.get(at);
    let before = expected[..at].join("\n  ");
    Err(TestCaseError::fail(format!("\n  real:   {real:?}\n  memory: {memory:?}\n  after:\n  {before}")))
}
