//! The demo as its users start it: the binary, with a real ZooKeeper, two real gateways and the real ledger.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

fn demo_command(arguments: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_fencegate"));
    let ledger = program.with_file_name("fencegate-ledger");
    assert!(ledger.is_file(), "run `cargo build --workspace` first: {} is missing", ledger.display());
    let mut command = Command::new(program);
    command.arg("demo").args(arguments).stdin(Stdio::null());
    command
}

fn summary(output: &Output) -> Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let last = stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last:?}"))
}

/// With a guard the late debit is refused before a service that compares nothing.
#[test]
fn guard_refuses_late_debit() {
    assert_every_claim_holds("guard", &["--once", "--format", "json"]);
}

/// With a service that compares tokens, the service itself refuses the late debit.
#[test]
fn comparing_service_refuses_late_debit() {
    assert_every_claim_holds("upstream", &["--once", "--level", "upstream", "--format", "json"]);
}

fn assert_every_claim_holds(level: &str, arguments: &[&str]) {
    let output = demo_command(arguments).output().expect("started");
    let story = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{story}");
    let summary = summary(&output);
    assert_eq!(summary["level"], level, "{story}");
    assert!(summary["payments"].as_u64() >= Some(200), "{summary}");
    for none in ["executed_twice", "overlaps", "stale_executed"] {
        assert_eq!(summary[none], 0, "{none} in {summary}");
    }
    assert!(summary["stale_refused"].as_u64() >= Some(1), "{summary}");
    assert_eq!(summary["balance_ok"], true, "{summary}");
    assert!(summary["zookeeper"].as_str().is_some_and(|version| version.starts_with("3.")), "{summary}");
    let tokens: Vec<_> = summary["tokens"].as_array().expect("a list").iter().map(Value::as_str).collect();
    assert!(tokens.len() > 1 && tokens.is_sorted_by(|a, b| a < b), "{summary}");
}

/// Without the fence a debit is executed twice or with a stale token.
#[test]
fn accident_happens_without_fence() {
    let output = demo_command(&["--once", "--without-fence", "--format", "json"]).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = summary(&output);
    assert_eq!(summary["level"], "none");
    let accidents =
        ["executed_twice", "stale_executed"].map(|count| summary[count].as_u64().expect("a count"));
    assert!(accidents.iter().sum::<u64>() >= 1, "{summary}");
}

/// However the demo ends, no process of it is left. After SIGINT and SIGTERM no folder is left either.
#[test]
fn demo_leaves_nothing_behind() {
    for (signal, leaves_folder) in [(Signal::INT, false), (Signal::TERM, false), (Signal::KILL, true)] {
        let mark = tempfile::tempdir().expect("a folder");
        let folder = || std::fs::read_dir(mark.path()).expect("our folder").count();
        let mut demo =
            demo_command(&[]).env("TMPDIR", mark.path()).stdout(Stdio::piped()).spawn().expect("started");
        let mut stdout = demo.stdout.take().expect("piped");
        read_until(&mut stdout, "gateway-2 at");
        assert!(count_processes_of(mark.path()) >= 5, "a ZooKeeper, a ledger, a guard and two gateways");

        rustix::process::kill_process(Pid::from_child(&demo), signal).expect("our own child");
        demo.wait().expect("our own child");
        let deadline = Instant::now() + Duration::from_secs(10);
        while count_processes_of(mark.path()) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(count_processes_of(mark.path()), 0, "processes are left behind after {signal:?}");
        assert_eq!(folder() > 0, leaves_folder, "{signal:?}");
    }
}

/// On a machine without Java, the error names the package to install.
#[test]
fn missing_java_names_package() {
    let empty = tempfile::tempdir().expect("a folder");
    let output = demo_command(&["--once"]).env("PATH", empty.path()).output().expect("started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("Java is missing: run `apt-get install") && text.lines().count() == 1, "{text}");
}

/// Reads until a line contains `text`.
fn read_until(from: &mut impl Read, text: &str) {
    let mut read_text = String::new();
    let mut byte = [0];
    while !read_text.contains(text) {
        assert_eq!(from.read(&mut byte).expect("a pipe"), 1, "it ended after {read_text}");
        read_text.push(char::from(byte[0]));
    }
}

/// The number of processes with `folder` in their command line, as all children of the demo have.
fn count_processes_of(folder: &Path) -> usize {
    let folder = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let command_lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    command_lines.filter(|line| String::from_utf8_lossy(line).contains(&folder)).count()
}
