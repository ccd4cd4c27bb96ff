//! A gateway under test: the real binary as a process, and its policy.
//!
//! It starts on free ports and gets signals, and its log is awaited line by line. To drop it fails the test if it has
//! ever panicked.

use std::{
    fmt, fs, io,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use fencegate_testkit::{child::Signal, scratch, wait::PATIENCE};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

pub use crate::process::{LogLine, MetricSamples, PendingRequest};
use crate::{
    hosts::HostsFile,
    policy::TestPolicy,
    process::{Failpoints, TALKATIVE, TestProcess, binary, counting_binary},
    stepped_clock::SteppedClock,
};

/// A running gateway. Dropping it kills it and checks that it never panicked.
pub struct Gateway {
    process: TestProcess,
    home: TempDir,
}

/// The options with which a gateway is started.
pub struct GatewayLaunch {
    policy: TestPolicy,
    binary: PathBuf,
    /// The arguments in front of the binary, such as `env` or `prlimit`.
    names: Vec<String>,
    failpoints: Failpoints,
    init: bool,
    watch: bool,
    beside: bool,
    workers: Option<usize>,
    token: Option<String>,
}

impl Gateway {
    /// Starts a gateway and waits until it can grant locks.
    pub async fn start(policy: &TestPolicy) -> Self {
        let gateway = GatewayLaunch::new(policy).start().await;
        gateway.wait_ready().await;
        gateway
    }

    /// Starts two gateways at the same time.
    pub async fn start_both(one: &TestPolicy, other: &TestPolicy) -> (Self, Self) {
        tokio::join!(Self::start(one), Self::start(other))
    }

    /// The policy file with which the gateway was started.
    pub fn file(&self) -> PathBuf {
        self.home.path().join("policy.yaml")
    }

    /// Writes another policy into the policy file.
    pub fn rewrite(&self, policy: &TestPolicy) {
        write_policy(self.home.path(), &policy.to_string());
    }

    /// Runs `fencegate reload`, and returns its exit code and its output.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub async fn reload(&self, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
        let admin = self.admin.to_string();
        let asked = [&["reload", "--admin", &admin, "--format", "json"], arguments].concat();
        let output = command(&asked).await.expect("started");
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Stops the gateway in order, so that its sessions are closed and its nodes removed.
    ///
    /// # Panics
    /// If the gateway does not end, or not with success.
    pub async fn stop(self) {
        self.signal(Signal::TERM);
        let status = self.exit().await;
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Waits for two further lookups with this `result`, `good` or `bad`. The second of them began after this call.
    pub async fn wait_lookup(&self, result: &str) {
        let name = "fencegate_upstream_resolutions_total";
        let label = format!("result=\"{result}\"");
        let before = self.metrics().await.sum(name, &[&label]);
        self.wait_series_at_least(name, &[&label], before + 2.0).await;
    }
}

impl Deref for Gateway {
    type Target = TestProcess;

    fn deref(&self) -> &TestProcess {
        &self.process
    }
}

impl GatewayLaunch {
    pub fn new(policy: &TestPolicy) -> Self {
        Self {
            policy: policy.clone(),
            binary: binary(),
            names: Vec::new(),
            failpoints: Failpoints::default(),
            init: true,
            watch: false,
            beside: false,
            workers: None,
            token: None,
        }
    }

    /// Arms a failpoint, in the language of the `fail` crate.
    #[must_use]
    pub fn failpoint(mut self, name: &str, action: &str) -> Self {
        self.failpoints.arm(name, action);
        self
    }

    /// Makes the gateway resolve names by this file, and not by those of the machine.
    #[must_use]
    pub fn with_hosts(mut self, hosts: &HostsFile) -> Self {
        self.names = hosts.command();
        self
    }

    /// Makes the gateway read these clocks, and not those of the machine.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.names = clock.command();
        self
    }

    /// Starts the gateway by this command, for example in a network namespace. Its admin listener requires the
    /// token.
    #[must_use]
    pub fn with_command(mut self, command: Vec<String>, token: &str) -> Self {
        self.names = command;
        self.token = Some(token.to_owned());
        self
    }

    /// Makes the gateway log at every level.
    #[must_use]
    pub fn with_debug_log(mut self) -> Self {
        self.names = TALKATIVE.map(str::to_owned).into();
        self
    }

    /// Starts the binary of another version.
    #[must_use]
    pub fn with_binary(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    /// Starts a binary that reports its number of allocations to each client of this socket.
    #[must_use]
    pub fn with_allocation_socket(mut self, socket: &Path) -> Self {
        self.binary = counting_binary();
        self.names = ["env".to_owned(), format!("COUNTED_AT={}", socket.display())].into();
        self
    }

    /// Limits the memory for the gateway's data to this number of bytes (`RLIMIT_DATA`).
    #[must_use]
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.names = vec!["prlimit".to_owned(), format!("--data={bytes}"), "--".to_owned()];
        self
    }

    /// Limits the number of files that the gateway may have open.
    #[must_use]
    pub fn with_files(mut self, files: usize) -> Self {
        self.names = vec!["prlimit".to_owned(), format!("--nofile={files}:{files}"), "--".to_owned()];
        self
    }

    /// Makes the gateway report to this socket, as it does under systemd.
    #[must_use]
    pub fn with_notify_socket(mut self, socket: &Path) -> Self {
        self.names = ["env".to_owned(), format!("NOTIFY_SOCKET={}", socket.display())].into();
        self
    }

    /// Tells the gateway the watchdog's time limit, after which the supervisor at the socket would restart it.
    #[must_use]
    pub fn with_watchdog(mut self, within: Duration) -> Self {
        self.names.push(format!("WATCHDOG_USEC={}", within.as_micros()));
        self
    }

    /// Makes the gateway log the events that pass this filter.
    #[must_use]
    pub fn with_log_filter(mut self, filter: &str) -> Self {
        self.names = vec!["env".to_owned(), format!("FENCEGATE_LOG={filter}")];
        self
    }

    /// Starts the gateway without `--init`, so that it does not create a missing installation.
    #[must_use]
    pub fn without_init(mut self) -> Self {
        self.init = false;
        self
    }

    /// Makes the gateway reload its policy when the file changes.
    #[must_use]
    pub fn with_file_watch(mut self) -> Self {
        self.watch = true;
        self
    }

    /// Sets the number of workers, which share the gateway's connections evenly.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Starts a gateway that must not come up, and returns its output.
    ///
    /// # Panics
    /// If the gateway starts.
    pub async fn expect_start_failure(self) -> String {
        let home = scratch::temp_dir();
        let file = write_policy(home.path(), &self.policy.to_string());
        let output = command(&["run", "-c", &file.display().to_string()]).await.expect("it can be started");
        assert!(!output.status.success(), "it has started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Lets the gateway listen at the address of another gateway that is about to stop.
    #[must_use]
    pub fn with_shared_address(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Starts the gateway and waits until it listens. It may not be ready yet.
    ///
    /// # Panics
    /// If the gateway ends, or does not listen in time.
    pub async fn start(self) -> Gateway {
        let home = scratch::temp_dir();
        let file = write_policy(home.path(), &self.policy.to_string());
        let mut arguments: Vec<String> = ["run", "--log-format", "json", "-c"].map(str::to_owned).into();
        arguments.push(file.display().to_string());
        if self.init {
            arguments.push("--init".to_owned());
        }
        if self.watch {
            arguments.push("--watch".to_owned());
        }
        if self.beside {
            arguments.push("--beside".to_owned());
        }
        if let Some(workers) = self.workers {
            arguments.extend(["--workers".to_owned(), workers.to_string()]);
        }
        let process =
            TestProcess::start(&self.binary, &self.failpoints, self.names, "public", arguments).await;
        let mut process = process.unwrap_or_else(|error| panic!("{error}"));
        if let Some(token) = &self.token {
            process.set_admin_token(token);
        }
        Gateway { process, home }
    }
}

/// Runs the binary until it ends. A run that hangs ends with status 124.
///
/// # Errors
/// Returns an error if the binary cannot be started.
pub async fn command(arguments: &[&str]) -> io::Result<Output> {
    command_with_timeout(PATIENCE, arguments).await
}

/// Runs the binary with another time limit, for a run that takes longer.
///
/// # Errors
/// Returns an error if the binary cannot be started.
pub async fn command_with_timeout(patience: Duration, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(patience.as_secs().to_string()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// Runs the binary with these host names, and not those of the machine.
///
/// # Errors
/// Returns an error if the binary cannot be started.
pub async fn command_with_hosts(hosts: &HostsFile, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).args(hosts.command()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// Runs the binary with these clocks, and not those of the machine.
///
/// # Errors
/// Returns an error if the binary cannot be started.
pub async fn command_with_clock(clock: &SteppedClock, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).args(clock.command()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// Runs the binary with these environment variables.
///
/// # Errors
/// Returns an error if the binary cannot be started.
pub async fn command_with_env(environment: &[(&str, &str)], arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(binary()).args(arguments);
    command.envs(environment.iter().copied());
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// A policy in a file of its own, for a command that reads it. The value dereferences to the path.
pub struct PolicyFile {
    path: String,
    _home: TempDir,
}

impl PolicyFile {
    /// Writes the file, which is deleted with the returned value.
    pub fn new(policy: &(impl fmt::Display + ?Sized)) -> Self {
        let home = scratch::temp_dir();
        let path = write_policy(home.path(), &policy.to_string()).display().to_string();
        Self { path, _home: home }
    }
}

/// The path of the file.
impl Deref for PolicyFile {
    type Target = str;

    fn deref(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Writes a policy file and returns its path.
///
/// # Panics
/// If the folder cannot be written.
pub fn write_policy(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("policy.yaml");
    fs::write(&file, text).expect("the folder can be written");
    file
}
