//! Mutation tests: changes one small thing of the code at a time, and checks whether the unit tests notice.
//! `tests/run --mutants` runs them.
//!
//! The changes are chosen at random, and as many are tried as fit into an hour.
//!
//! `tests/run --mutants` installs cargo-mutants. A change is for example `<` that becomes `<=`. Changes of the lock
//! recipe and of the operations in ZooKeeper are also judged by the tests on the ZooKeeper in memory. A test that
//! hangs for two minutes counts as a notice.
//!
//! A change that no test notices fails the run, unless `mutants.toml` explains that it means the same as the present
//! code. The same file lists the files that are changed. A house test checks the list.
//! `FENCEGATE_MUTANTS_ONLY=recipe/` selects files by a part of their paths, and `FENCEGATE_MUTANTS_MINUTES` sets the
//! time.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use fencegate_tests::mutants::{MutantList, MutationTarget, parse_line, root};

/// The time limit in minutes, unless `FENCEGATE_MUTANTS_MINUTES` sets another one.
const HOUR: u64 = 60;

/// The minimum time for each part of the code, because the first change waits for a build of everything.
const LEAST: Duration = Duration::from_secs(300);

/// The result of the changes in one package.
struct MutationResult {
    noticed: usize,
    survived: Vec<(String, String)>,
}

#[test]
fn every_mutation_is_noticed_or_explained() {
    let list = MutantList::load().only(&env::var("FENCEGATE_MUTANTS_ONLY").unwrap_or_default());
    let minutes = env::var("FENCEGATE_MUTANTS_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let began = Instant::now();
    let whole = Duration::from_secs(60 * minutes.unwrap_or(HOUR));
    let counts: Vec<usize> = list.code.iter().map(mutation_count).collect();
    let mut unexplained = Vec::new();
    for (at, code) in list.code.iter().enumerate() {
        let left = whole.saturating_sub(began.elapsed());
        let share = left.mul_f64(counts[at] as f64 / counts[at..].iter().sum::<usize>() as f64);
        let share = share.max(LEAST).min(left);
        let tried = test_mutations(code, at, share);
        let noticed = tried.noticed;
        let survived = tried.survived.len();
        println!("{}: {noticed} noticed, {survived} not, of {} changes", code.package, counts[at]);
        assert!(noticed > 0, "{}: nothing was tried", code.package);
        unexplained.extend(list.unexplained(&tried.survived));
    }
    assert!(
        unexplained.is_empty(),
        "no test notices, and tests/mutants.toml does not say why:\n{}",
        unexplained.join("\n")
    );
}

fn cargo_mutants(code: &MutationTarget) -> Vec<String> {
    // The schemas of `utoipa` are built only with a feature that the tests do not use.
    let words =
        ["cargo", "mutants", "--colors", "never", "--exclude-re", "utoipa::", "--package", &code.package];
    let files = code.files.iter().flat_map(|file| ["--file".to_owned(), file.clone()]);
    words.map(str::to_owned).into_iter().chain(files).collect()
}

fn folder() -> PathBuf {
    root().join("target/mutants")
}

/// The number of possible changes.
fn mutation_count(code: &MutationTarget) -> usize {
    let words = cargo_mutants(code);
    let listed = Command::new(&words[0]).args(&words[1..]).arg("--list").current_dir(root()).output();
    let listed = listed.expect("cargo");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let count = String::from_utf8_lossy(&listed.stdout).lines().count();
    assert!(count > 0, "{}: there is nothing to change", code.package);
    count
}

fn test_mutations(code: &MutationTarget, at: usize, within: Duration) -> MutationResult {
    let output = folder().join(format!("{at}-{}", code.package));
    // Removes the results of an earlier run, if there are any.
    drop(fs::remove_dir_all(&output));
    fs::create_dir_all(&output).expect("the target folder can be written");
    // `timeout 0` would mean no limit.
    let seconds = within.as_secs().max(1).to_string();
    let mut command = Command::new("timeout");
    command.args(["--signal", "INT", &seconds]).args(cargo_mutants(code));
    command.args(["--shuffle", "--baseline", "skip", "--timeout", "120", "--output"]).arg(&output);
    // Arguments before `--` apply to the build and to the test run; arguments after it only to the test run.
    command.arg("--cargo-arg=--lib");
    if !code.simulated.is_empty() {
        command.args(["--test-package", &code.package, "--test-package", "fencegate-tests"]);
        command.args(["--cargo-arg=--test=sim", "--", "--"]).args(&code.simulated);
    }
    // The build of the dependencies is shared by all packages and by later runs.
    command.env("CARGO_TARGET_DIR", folder().join("build")).current_dir(root());
    // The exit code is ignored: the result files say the same, and running out of time is no error.
    command.status().expect("coreutils");
    let of = |name: &str| lines(&output.join("mutants.out").join(name));
    let survived = of("missed.txt").iter().filter_map(|line| parse_line(line)).collect();
    MutationResult { noticed: of("caught.txt").len() + of("timeout.txt").len(), survived }
}

/// The lines of a result file. The file does not exist if the time was over before the first change.
fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}
