//! Runs the operator's command that moves the store of a guard from a file into a database, to its end or until a
//! kill.

use std::{
    path::{Path, PathBuf},
    process::Output,
    sync::Arc,
    time::Duration,
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::PATIENCE,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::{
    gateway::{command, write_policy},
    guard::GuardLaunch,
};

/// A migration from the store file of one guard to the store that the policy of another guard names.
#[derive(Debug, Clone)]
pub struct StoreMigration {
    from: PathBuf,
    policy: PathBuf,
    _home: Arc<TempDir>,
}

impl StoreMigration {
    pub fn new(from: &Path, to: &GuardLaunch) -> Self {
        let home = Arc::new(scratch::temp_dir());
        let policy = write_policy(home.path(), &to.file().to_string());
        Self { from: from.to_owned(), policy, _home: home }
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let from = format!("redb:{}", self.from.display());
        let policy = self.policy.display().to_string();
        let words = ["guard", "migrate", "--log-format", "json", "-c", &policy, "--from", &from];
        words.iter().chain(&["--to", "postgres"]).chain(more).map(|word| (*word).to_owned()).collect()
    }

    /// Runs the command to its end.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub async fn run(&self, more: &[&str]) -> Output {
        let arguments = self.arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        command(&arguments).await.expect("the binary starts")
    }

    /// Runs the command with JSON output, and returns that output.
    ///
    /// # Panics
    /// If the command fails.
    pub async fn run_json(&self, more: &[&str]) -> Value {
        let output = self.run(&[&["--format", "json"], more].concat()).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs the command, and returns its output, which must have this outcome.
    ///
    /// # Panics
    /// If the command fails, or has another outcome.
    pub async fn expect_outcome(&self, outcome: &str) -> Value {
        let told = self.run_json(&[]).await;
        assert_eq!(told["outcome"], outcome, "{told}");
        told
    }

    /// Runs the command as a dry run and then in earnest: both must fail, and print these words.
    ///
    /// # Panics
    /// If a run does not fail with exit code 1, or does not print one of the words.
    pub async fn expect_refusal(&self, said: &[&str]) {
        for more in [["--dry-run"].as_slice(), &[]] {
            let output = self.run(more).await;
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{more:?}: {told}");
            assert!(said.iter().all(|words| told.contains(words)), "{more:?}: {told}");
        }
    }

    /// Starts the command, and kills it when it has reached a failpoint.
    ///
    /// # Panics
    /// If the command does not reach the failpoint.
    pub async fn kill_at(&self, failpoint: &str) {
        let mut words = vec![format!("FAILPOINTS={failpoint}=sleep(60000)")];
        words.push(scratch::binaries().join("fencegate").display().to_string());
        words.extend(self.arguments(&[]));
        let failpoint = failpoint.to_owned();
        let killed = move || {
            let child = ChildProcess::spawn("env", words).expect("setpriv");
            let stands = |line: &str| line.contains("\"failpoint\"") && line.contains(&failpoint);
            child.wait_line(stands, PATIENCE).unwrap_or_else(|never| panic!("{never}"));
            child.signal(Signal::KILL).expect("our own child");
            child.wait(PATIENCE).expect("it was killed");
        };
        spawn_blocking(killed).await.expect("no panic");
    }

    /// Runs the command to its end, and returns the peak of its memory in bytes.
    ///
    /// # Panics
    /// If the command fails.
    pub async fn run_measuring_peak_memory(&self) -> usize {
        let binary = scratch::binaries().join("fencegate");
        let words = self.arguments(&[]);
        let runs = move || {
            let child = ChildProcess::spawn(binary, words).expect("setpriv");
            let mut peak = 0;
            loop {
                let status =
                    std::fs::read_to_string(format!("/proc/{}/status", child.pid())).unwrap_or_default();
                let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kibibytes = kibibytes.and_then(|told| told.trim().strip_suffix(" kB"));
                peak = kibibytes.and_then(|told| told.trim().parse::<usize>().ok()).unwrap_or(peak);
                if let Some(ended) = child.wait(Duration::from_millis(5)) {
                    assert!(ended.success(), "{ended}: {}", child.log());
                    return peak << 10;
                }
            }
        };
        spawn_blocking(runs).await.expect("no panic")
    }
}
