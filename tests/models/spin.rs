//! Has SPIN search one variant of a model, and reads what it found.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The memory limit of a search. Every variant fits into half of it, so a larger need is a mistake in the model.
const MEMORY_MB: u32 = 2000;
/// The depth limit of a search. A search that reaches it reports so, and fails.
const DEPTH: u32 = 200_000;

/// Optimised, for a search of all schedules: the search takes longer than the compilation.
const THOROUGH: [&str; 2] = ["cc", "-O1"];
/// For a search that ends with the first violation, which is found at once. `cc` would take 0.2 s of processor time
/// for each search.
const QUICK: [&str; 1] = ["tcc"];

/// The result of a search.
struct SpinModelResult {
    /// The first error, as SPIN prints it.
    violation: Option<String>,
    states: String,
    complete: bool,
    took: Duration,
}

/// Asserts that no schedule of the variant has a violation. `switches` (such as `ES=2 GS=2 HOP`) choose the variant of
/// `model`.
pub(crate) fn assert_holds(model: &str, switches: &str) {
    let found = search(model, switches, &THOROUGH);
    report(model, switches, &found);
    assert!(found.complete, "{model} {switches}: not every state was seen");
    assert_eq!(found.violation, None, "{model} {switches}");
}

/// Asserts that the first violation that SPIN finds in the variant of `model` is one of `property`.
pub(crate) fn assert_violates(model: &str, switches: &str, property: &str) {
    let found = search(model, switches, &QUICK);
    report(model, switches, &found);
    let violation = found.violation.unwrap_or_else(|| panic!("{model} {switches}: nothing goes wrong"));
    let expected = match property {
        "deadlock" => "invalid end state".to_owned(),
        property => format!("assertion violated  !({property})"),
    };
    assert!(violation.starts_with(&expected), "{model} {switches}: {violation}, not {property}");
}

/// Asserts that the accident or refusal `number` occurs in some schedule, so that the properties do not hold only
/// because nothing happens. The model defines a name for each number.
pub(crate) fn assert_reachable(model: &str, switches: &str, number: u8) {
    assert_violates(model, &format!("{switches} SEE={number}"), "seen");
}

fn search(model: &str, switches: &str, compiler: &[&str]) -> SpinModelResult {
    let started = Instant::now();
    let dir = tempfile::tempdir().expect("a directory for one search");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/spin").join(format!("{model}.pml"));
    // SPIN writes its files into the current folder, and does not quote paths.
    fs::copy(&source, dir.path().join("model.pml")).expect("the model is in the sources");
    let defines = switches.split_whitespace().map(|switch| format!("-D{switch}"));
    run(dir.path(), Command::new("spin").arg("-a").args(defines).arg("model.pml"));
    let memory = format!("-DMEMLIM={MEMORY_MB}");
    // Only safety is checked, which needs neither acceptance cycles nor fairness. States are stored as they are: compressed (`-DCOLLAPSE`)
    // they take half the memory, and a third more time.
    let options = ["-w", "-DSAFETY", "-DNOFAIR", &memory, "-o", "pan", "pan.c"];
    run(dir.path(), Command::new(compiler[0]).args(&compiler[1..]).args(options));
    let said = run(dir.path(), Command::new("./pan").arg(format!("-m{DEPTH}")));
    SpinModelResult {
        violation: said.lines().find_map(|line| line.strip_prefix("pan:1: ")).map(str::to_owned),
        states: word_before(&said, "states, stored"),
        complete: is_complete(&said),
        took: started.elapsed(),
    }
}

/// True if the output has a summary. A search that was killed does not write `errors:`.
fn is_complete(said: &str) -> bool {
    said.contains("errors: 0") && !INCOMPLETE.iter().any(|words| said.contains(words))
}

/// Messages of a search that did not see all states.
const INCOMPLETE: [&str; 4] =
    ["Search not completed", "max search depth too small", "reached -DMEMLIM bound", "VECTORSZ is too small"];

/// The whole output of a command. The exit code is zero even if a search found a violation; only the output shows it.
fn run(dir: &Path, command: &mut Command) -> String {
    let output = command.current_dir(dir).output().unwrap_or_else(|error| {
        panic!("{}: {error} (tests/run installs what is missing)", command.get_program().display())
    });
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn word_before(said: &str, words: &str) -> String {
    let line = said.lines().find(|line| line.contains(words)).unwrap_or("?");
    line.split_whitespace().next().unwrap_or("?").to_owned()
}

/// Prints a row of a table. Test output shows it only with `--nocapture`.
fn report(model: &str, switches: &str, found: &SpinModelResult) {
    let outcome = found.violation.as_deref().unwrap_or("holds");
    println!(
        "{model:8} {switches:32} {:>9} states {:6.1?} s  {outcome}",
        found.states,
        found.took.as_secs_f32()
    );
}

/// A search that SPIN cut short is not taken for a complete one.
#[test]
fn truncated_search_is_not_complete() {
    let summary = "State-vector 120 byte, depth reached 223, errors: 0\n";
    assert!(is_complete(summary));
    assert!(!is_complete(""), "killed before its summary");
    for words in INCOMPLETE {
        assert!(!is_complete(&format!("pan: {words}\n{summary}")));
    }
}
