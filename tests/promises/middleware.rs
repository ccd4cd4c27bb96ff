//! What the tests of all middlewares need: two instances of a sample service, and `fencegate verify` against them.
//!
//! In all five languages a service in deadline mode has no database. It begins a request that is in time. It refuses
//! with `expired` a request that is sent late, and one that reaches a frozen service in time and is read late. In
//! Python it also refuses one that waited behind two busy workers. The same service without the middleware begins
//! each of them. An uptime that is covered by another file, as LXCFS does, is not trusted.

pub(crate) mod in_time;

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use fencegate_testkit::{child::ChildProcess, scratch, wait::PATIENCE};
use fencegate_tests::prometheus::deploy;
use serde_json::Value;
use tempfile::TempDir;

/// Two instances of a service with one of the middlewares, on one database. An instance that is killed is started
/// again.
pub(super) struct SampleService {
    home: TempDir,
    instances: Vec<(u16, ChildProcess)>,
}

/// The requests that a sample has in addition to its debits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleRequests {
    Debits,
    /// Credits of the same keys.
    Credits,
}

impl SampleRequests {
    fn verify_options(self) -> &'static [&'static str] {
        match self {
            Self::Debits => &[],
            Self::Credits => &["--also", "POST /v1/accounts/{key}/credit", "--remember", "1s"],
        }
    }

    /// The names of the cases that the sample's requests do not cover.
    fn unasked(self) -> &'static [&'static str] {
        match self {
            Self::Debits => &["other-request", "remembered"],
            Self::Credits => &[],
        }
    }
}

/// The folder of the contract and of all middlewares.
pub(super) fn upstream() -> PathBuf {
    deploy().join("upstream")
}

/// The SQL of a recipe that creates its tables.
pub(super) fn tables(database: &str, form: &str) -> String {
    let file = upstream().join(database).join(format!("{form}.sql"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let tables = text.split("-- ").nth(1).and_then(|section| section.strip_prefix("table\n"));
    tables.expect("the tables come first").to_owned()
}

/// A script that keeps one process running. `$0` is the file for its process ID, and `$@` its command line. The pause
/// limits restarts of a process that ends at once.
const KEEP: &str = r#"
while :; do
    setpriv --pdeathsig KILL -- "$@" &
    echo $! > "$0"
    wait $!
    sleep 0.1
done
"#;

impl SampleService {
    /// Starts both instances. `command`: program and arguments that listen at this port of 127.0.0.1 and then print
    /// `listening`.
    ///
    /// # Panics
    /// Panics if an instance does not listen in time.
    pub(super) fn start(command: impl Fn(u16) -> Vec<String>) -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let instances = [free_port(), free_port()].map(|port| {
            let number = home.path().join(port.to_string()).display().to_string();
            let words = ["-c".to_owned(), KEEP.to_owned(), number].into_iter().chain(command(port));
            (port, ChildProcess::spawn("sh", words).expect("setpriv"))
        });
        for (_, child) in &instances {
            let listens = |line: &str| line.contains("listening");
            child.wait_line(listens, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
        }
        Self { home, instances: instances.into() }
    }

    /// Asserts that every case of `fencegate verify` that applies to a service of this form passes, and that no other
    /// case is skipped. `form`: what the service compares, `token` or `number`.
    ///
    /// # Panics
    /// Panics if a case fails or another case is skipped.
    pub(super) fn assert_verified(&self, form: &str, offers: SampleRequests) {
        let (report, said) = self.run_verify(form, offers);
        let wrong: Vec<&Value> =
            cases_by_verdict(&report, |verdict| verdict != "passed" && verdict != "skipped");
        assert!(wrong.is_empty(), "{said}\n{wrong:#?}\n{}", self.log());
        let skipped = cases_by_verdict(&report, |verdict| verdict == "skipped").into_iter();
        let skipped: BTreeSet<&str> = skipped.map(|case| case["name"].as_str().expect("a name")).collect();
        let other_form = if form == "token" { &BY_NUMBER_ALONE[..] } else { &BY_TOKEN_ALONE };
        let unasked =
            other_form.iter().chain(&OF_PROBES).chain(offers.unasked()).chain(&OF_DEADLINES).copied();
        assert_eq!(skipped, unasked.collect(), "{said}");
        assert!(cases_by_verdict(&report, |verdict| verdict == "passed").len() > 30, "{report:#}");
    }

    fn run_verify(&self, form: &str, offers: SampleRequests) -> (Value, String) {
        let mut command = Command::new("timeout");
        // The time limit in seconds. A busy machine takes some minutes.
        command.arg("300").arg(scratch::binaries().join("fencegate")).arg("verify");
        command.args(self.instances.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")));
        command.args([
            "--request",
            "POST /v1/accounts/{key}/debit",
            "--body",
            r#"{"amount":1,"to":"{other}"}"#,
        ]);
        command.args(["--slow-request", "POST /v1/accounts/{key}/debit?work_ms=100"]);
        command.args(["--token", if form == "token" { "field" } else { "number" }]);
        command.args(offers.verify_options());
        command.args(["--observe", "GET /v1/accounts/{key}", "--pick", "/balance"]);
        command.args(["--fencing-key", "account/{key}", "--shared", "--read", "GET /v1/accounts/{key}"]);
        // On a busy machine a killed process of large size listens for a moment longer, so the script waits for its
        // end.
        let restart = format!(
            "all=$(cat {}/*); kill -9 $all; for n in $all; do while kill -0 $n 2>/dev/null; do sleep 0.01; done; done",
            self.home.path().display()
        );
        command.args(["--restart", &restart, "--rounds", "3", "--format", "json"]);
        let output = command.output().expect("`timeout` is there");
        let said = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        let report = serde_json::from_slice(&output.stdout);
        (report.unwrap_or_else(|error| panic!("{error}\n{said}\n{}", self.log())), said)
    }

    fn log(&self) -> String {
        self.instances.iter().map(|(_, child)| child.log()).collect()
    }
}

/// Runs a check for a service that compares tokens and for one that compares numbers, at the same time: both wait more
/// than they compute.
pub(super) fn check_both_forms(check: impl Fn(&'static str) + Sync) {
    let check = &check;
    thread::scope(|threads| {
        for form in ["token", "number"] {
            threads.spawn(move || check(form));
        }
    });
}

fn cases_by_verdict(report: &Value, verdict: impl Fn(&str) -> bool) -> Vec<&Value> {
    let cases = report["cases"].as_array().expect("a list");
    cases.iter().filter(|case| verdict(case["verdict"].as_str().expect("a word"))).collect()
}

/// Asserts that the code in a README of a middleware is part of its sample, line by line.
///
/// # Panics
/// Panics if a block of code is not in one of the files of the sample.
pub(super) fn assert_shown(middleware: &str, language: &str) {
    let folder = upstream().join(middleware);
    let readme = fs::read_to_string(folder.join("README.md")).expect("shipped");
    let sources: Vec<String> =
        files(&folder.join("sample")).iter().map(|file| without_indentation(&read(file))).collect();
    let blocks: Vec<&str> = readme.split(&format!("```{language}\n")).skip(1).collect();
    assert!(!blocks.is_empty(), "{middleware}: nothing is shown in {language}");
    for block in blocks {
        let block = without_indentation(block.split("```").next().expect("it ends"));
        assert!(
            sources.iter().any(|source| source.contains(&block)),
            "{middleware}: not in the sample:\n{block}"
        );
    }
}

/// Asserts that the commands of a README start the sample on an empty database, and that the service passes the
/// `fencegate verify` that is printed behind them. `replaced`: words of the README and their replacements here.
///
/// # Panics
/// Panics if nothing listens in the end, or if a case fails.
pub(super) fn assert_starts(middleware: &str, environment: &[&str], replaced: &[(&str, &str)]) {
    let folder = upstream().join(middleware);
    let readme = read(&folder.join("README.md"));
    let end = readme.rsplit("```").next().expect("all of it, at least");
    let lines: Vec<&str> = end.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let verify =
        lines.iter().position(|line| line.starts_with("fencegate verify")).expect("how to verify it");
    let (start, verify) = lines.split_at(verify);
    let (last, before) = start.split_last().expect("the commands stand there, indented");
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let port = free_port().to_string();
    let place = home.path().join("accounts").display().to_string();
    let of_test = |script: String| {
        let all = [("8000", port.as_str()), ("/tmp/accounts", &place)];
        all.iter().chain(replaced).fold(script, |script, (what, by)| script.replace(what, by))
    };
    // The shell becomes the service, so the service ends with the test.
    let script = format!("set -e\ncd '{}'\n{}\nexec {last}", folder.display(), before.join("\n"));
    let script = of_test(script);
    let child = ChildProcess::spawn("env", [environment, &["sh", "-c", &script]].concat()).expect("setpriv");
    child.wait_line(|line| line.contains("listening"), COMPILED).unwrap_or_else(|error| panic!("{error}"));
    let script = format!("PATH='{}':$PATH\n{}", scratch::binaries().display(), verify.join("\n"));
    run(&folder, &["sh", "-c", &of_test(script)]);
}

/// Cases for services with operations. A middleware knows no operations.
const OF_PROBES: [&str; 4] = ["no-elsewhere", "no-is-final", "no-is-kept", "repeat-runs"];

/// Cases for services that compare numbers, and cases for services that compare tokens. All dispatches of a tenure
/// have equal numbers.
const BY_NUMBER_ALONE: [&str; 1] = ["number-suffices"];
const BY_TOKEN_ALONE: [&str; 6] =
    ["duplicate", "sequence", "number-alone", "dispatch-width", "same-token", "same-token-apart"];

/// Cases for services that compare `Fencing-Not-After`. The samples compare tokens only.
const OF_DEADLINES: [&str; 3] = ["late", "not-after-malformed", "not-after-twice"];

/// The time limit of a start that compiles the sample first, on a busy machine.
const COMPILED: Duration = Duration::from_mins(2);

/// The text without indentation and empty lines.
fn without_indentation(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All files below a folder, in the order of their names.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A port that no process uses at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// Runs a command in a folder to its end, two minutes at most, because a compiler is slow on a busy machine.
///
/// # Panics
/// Panics if the command fails.
pub(super) fn run(folder: &Path, words: &[&str]) {
    let mut command = Command::new("timeout");
    let output = command.arg("120").args(words).current_dir(folder).output().expect("`timeout` is there");
    let [said, wrong] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{words:?}: {}\n{said}\n{wrong}", output.status);
}
