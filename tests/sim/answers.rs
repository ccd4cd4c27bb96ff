//! Asks the ZooKeeper in memory and a real one the same random questions: the answers are the same.

mod cable;
mod in_memory;
mod line;
mod play;
mod real;
mod script;

use std::cell::{Cell, RefCell};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestCaseResult, TestRng, TestRunner},
};
use real::Real;
use script::Act;

use crate::seed;

/// Both answer the same; and each of `exercised` has been part of an answer often enough for that to mean something.
fn compare(test: &str, cases: u32, scripts: impl Strategy<Value = Vec<Act>>, exercised: &[&'static str]) {
    let seed = seed::of_this_run(test);
    let real = Real::start();
    let (played, lines) = (Cell::new(0), RefCell::new(vec![0; exercised.len()]));
    let config = Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::XorShift, &u128::from(seed).to_le_bytes());
    let case = |script: Vec<Act>| -> TestCaseResult {
        let root = format!("/{test}-{}", played.replace(played.get() + 1));
        let (expected, ours) = (real.answers(&root, &script), in_memory::answers(&root, &script));
        let differs = (0..expected.len().max(ours.len())).find(|at| expected.get(*at) != ours.get(*at));
        if let Some(at) = differs {
            let before = expected[..at].join("\n  ");
            let why =
                format!("real: {:?}\n  memory: {:?}\n  after:\n  {before}", expected.get(at), ours.get(at));
            return Err(TestCaseError::fail(why));
        }
        for (count, what) in lines.borrow_mut().iter_mut().zip(exercised) {
            *count += expected.iter().filter(|line| line.contains(what)).count();
        }
        Ok(())
    };
    TestRunner::new_with_rng(config, rng).run(&scripts, case).unwrap_or_else(|failed| panic!("{failed}"));
    let lines = lines.into_inner();
    eprintln!("{test}: {cases} scripts, {:?}", exercised.iter().zip(&lines).collect::<Vec<_>>());
    let missing: Vec<_> = exercised.iter().zip(&lines).filter(|(_, count)| **count < 5).collect();
    assert!(missing.is_empty(), "not exercised: {missing:?}");
}

#[test]
fn memory_answers_as_a_real_server_does() {
    let exercised = [
        "NoNode",
        "NodeExists",
        "NotEmpty",
        "BadVersion",
        "refused",
        "failed in step Some(3)",
        "Container",
        "by session",
        "number 3",
        "x-0000000002",
        "version 2",
        "fired",
        "steps done; ",
        "Ephemerals(\"\"): [\"",
    ];
    compare("calm", 250, script::calm(), &exercised);
}

#[test]
fn memory_comes_back_as_a_real_session_does() {
    compare("broken", 30, script::broken(), &["fired", "NoNode", "steps done"]);
}
