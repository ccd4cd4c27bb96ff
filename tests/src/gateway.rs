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

/// How a gateway is started.
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
    /// Starts a gateway and waits until it can grant.
    pub async fn start(policy: &TestPolicy) -> Self {
        let gateway = GatewayLaunch::new(policy).start().await;
        gateway.wait_ready().await;
        gateway
    }

    /// Starts two gateways at the same time.
    pub async fn start_both(one: &TestPolicy, other: &TestPolicy) -> (Self, Self) {
        tokio::join!(Self::start(one), Self::start(other))
    }

    /// The file that it was started with.
    pub fn file(&self) -> PathBuf {
        self.home.path().join("policy.yaml")
    }

    /// Writes another policy into the file.
    pub fn rewrite(&self, policy: &TestPolicy) {
        write_policy(self.home.path(), &policy.to_string());
    }

    /// Has the file read again, and gives the exit code and what was printed.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub async fn reload(&self, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
        let admin = self.admin.to_string();
        let asked = [&["reload", "--admin", &admin, "--format", "json"], arguments].concat();
        let output = command(&asked).await.expect("started");
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Ends the gateway in order: its sessions are closed, and its nodes are gone.
    ///
    /// # Panics
    /// If it does not end well.
    pub async fn stop(self) {
        self.signal(Signal::TERM);
        let status = self.exit().await;
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Waits for two lookups of one name each with this `result`, `good` or `bad`. The second lookup has begun after
    /// this call.
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

    /// The gateway resolves these names instead of those of the machine.
    #[must_use]
    pub fn with_hosts(mut self, hosts: &HostsFile) -> Self {
        self.names = hosts.command();
        self
    }

    /// The gateway reads these clocks instead of those of the machine.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.names = clock.command();
        self
    }

    /// The gateway is started by this command, for example in a network namespace. Its admin listener demands the
    /// token.
    #[must_use]
    pub fn with_command(mut self, command: Vec<String>, token: &str) -> Self {
        self.names = command;
        self.token = Some(token.to_owned());
        self
    }

    /// The gateway logs at every level.
    #[must_use]
    pub fn with_debug_log(mut self) -> Self {
        self.names = TALKATIVE.map(str::to_owned).into();
        self
    }

    /// The binary is that of another version.
    #[must_use]
    pub fn with_binary(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    /// The gateway reports its number of allocations to each client of this socket.
    #[must_use]
    pub fn with_allocation_socket(mut self, socket: &Path) -> Self {
        self.binary = counting_binary();
        self.names = ["env".to_owned(), format!("COUNTED_AT={}", socket.display())].into();
        self
    }

    /// Limits the memory of the gateway for its data to so many bytes (`RLIMIT_DATA`).
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

    /// The gateway reports to this socket, as it does under systemd.
    #[must_use]
    pub fn with_notify_socket(mut self, socket: &Path) -> Self {
        self.names = ["env".to_owned(), format!("NOTIFY_SOCKET={}", socket.display())].into();
        self
    }

    /// The supervisor at the socket takes the gateway for hung after so long without a report.
    #[must_use]
    pub fn with_watchdog(mut self, within: Duration) -> Self {
        self.names.push(format!("WATCHDOG_USEC={}", within.as_micros()));
        self
    }

    /// The gateway logs the events that pass this filter.
    #[must_use]
    pub fn with_log_filter(mut self, filter: &str) -> Self {
        self.names = vec!["env".to_owned(), format!("FENCEGATE_LOG={filter}")];
        self
    }

    /// The gateway does not make `meta` where it is missing.
    #[must_use]
    pub fn without_init(mut self) -> Self {
        self.init = false;
        self
    }

    /// The gateway reads its policy again when the file changes.
    #[must_use]
    pub fn with_file_watch(mut self) -> Self {
        self.watch = true;
        self
    }

    /// The gateway has so many workers, which share its connections evenly.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// The output of a gateway that does not start.
    ///
    /// # Panics
    /// If it starts.
    pub async fn expect_start_failure(self) -> String {
        let home = scratch::temp_dir();
        let file = write_policy(home.path(), &self.policy.to_string());
        let output = command(&["run", "-c", &file.display().to_string()]).await.expect("it can be started");
        assert!(!output.status.success(), "it has started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The gateway takes the address of another gateway that is about to stop.
    #[must_use]
    pub fn with_shared_address(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Starts it and waits until it listens; it may not be ready.
    ///
    /// # Panics
    /// If it ends or is silent instead.
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

/// Runs the binary to its end; a run that hangs ends with status 124.
///
/// # Errors
/// When it cannot be started.
pub async fn command(arguments: &[&str]) -> io::Result<Output> {
    command_with_timeout(PATIENCE, arguments).await
}

/// The same with another time limit, for a run that takes longer.
///
/// # Errors
/// When it cannot be started.
pub async fn command_with_timeout(patience: Duration, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(patience.as_secs().to_string()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// The same, with these names instead of those of the machine.
///
/// # Errors
/// When it cannot be started.
pub async fn command_with_hosts(hosts: &HostsFile, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).args(hosts.command()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// The same, by these clocks.
///
/// # Errors
/// When it cannot be started.
pub async fn command_with_clock(clock: &SteppedClock, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).args(clock.command()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// The same, with variables of the environment.
///
/// # Errors
/// When it cannot be started.
pub async fn command_with_env(environment: &[(&str, &str)], arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(binary()).args(arguments);
    command.envs(environment.iter().copied());
    spawn_blocking(move || command.output()).await.expect("no panic")
}

/// A policy in a file of its own, for a command that reads it.
pub struct PolicyFile {
    path: String,
    _home: TempDir,
}

impl PolicyFile {
    /// The file is deleted with the returned value.
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

/// Writes a policy file and gives its path.
///
/// # Panics
/// If the folder cannot be written.
pub fn write_policy(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("policy.yaml");
    fs::write(&file, text).expect("the folder can be written");
    file
}
