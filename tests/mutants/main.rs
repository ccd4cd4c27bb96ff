//! Changes one small thing of our code at a time, and asks its unit tests whether they notice. `tests/run --mutants` runs it.
//!
//! Which changes are tried is a matter of chance, and all that fit into an hour are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use fencegate_tests::mutants::{Code, Mutants, root, told};

const HOUR: Duration = Duration::from_secs(3600);

/// What came of the changes of one package.
struct Tried {
    noticed: usize,
    survived: Vec<(String, String)>,
}

#[test]
fn whatever_is_changed_is_noticed_or_explained() {
    let list = Mutants::stored();
    let began = Instant::now();
    let counts: Vec<usize> = list.code.iter().map(changes).collect();
    let mut unexplained = Vec::new();
    for (at, code) in list.code.iter().enumerate() {
        let left = HOUR.saturating_sub(began.elapsed());
        let share = left.mul_f64(counts[at] as f64 / counts[at..].iter().sum::<usize>() as f64);
        let tried = tried(code, share);
        let (noticed, survived) = (tried.noticed, tried.survived.len());
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

fn cargo_mutants(code: &Code) -> Vec<String> {
    // Descriptions for documents are in no build without their feature.
    let words =
        ["cargo", "mutants", "--colors", "never", "--exclude-re", "utoipa::", "--package", &code.package];
    let files = code.files.iter().flat_map(|file| ["--file".to_owned(), file.clone()]);
    words.map(str::to_owned).into_iter().chain(files).collect()
}

fn folder() -> PathBuf {
    root().join("target/mutants")
}

/// How many there are.
fn changes(code: &Code) -> usize {
    let words = cargo_mutants(code);
    let listed = Command::new(&words[0]).args(&words[1..]).arg("--list").current_dir(root()).output();
    let listed = listed.expect("cargo");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let count = String::from_utf8_lossy(&listed.stdout).lines().count();
    assert!(count > 0, "{}: there is nothing to change", code.package);
    count
}

fn tried(code: &Code, within: Duration) -> Tried {
    let output = folder().join(&code.package);
    // What an earlier run has found there is not ours.
    drop(fs::remove_dir_all(&output));
    fs::create_dir_all(&output).expect("the target folder can be written");
    // No time at all would be no limit.
    let seconds = within.as_secs().max(1).to_string();
    let mut command = Command::new("timeout");
    command.args(["--signal", "INT", &seconds]).args(cargo_mutants(code));
    command.args(["--shuffle", "--baseline", "skip", "--timeout", "300", "--output"]).arg(&output);
    // What is built of others is the same for all of them, and for the next run.
    command.env("CARGO_TARGET_DIR", folder().join("build")).current_dir(root());
    command.args(["--", "--lib"]);
    // It says by its exit code what the files say, too, and what was given up is not wrong.
    command.status().expect("coreutils");
    let of = |name: &str| lines(&output.join("mutants.out").join(name));
    let survived = of("missed.txt").iter().filter_map(|line| told(line)).collect();
    Tried { noticed: of("caught.txt").len() + of("timeout.txt").len(), survived }
}

/// None where it was given up before the first one.
fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}
