//! A gateway or guard process under test: its addresses, log, metrics and signals.

mod output;

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    thread,
    time::Duration,
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    fault_proxy::FaultProxy,
    scratch,
    wait::{PATIENCE, wait_until},
};
use tokio::task::{JoinHandle, spawn_blocking};

pub use self::output::{LogLine, MetricSamples};

use crate::{
    client::{ClientResponse, TestRequest},
    log_lines,
};

/// The pause between two reads of all metrics of a process, which are some hundred lines.
pub(crate) const METRICS_POLL: Duration = Duration::from_millis(25);

/// A running gateway or guard. Dropping the value kills the process, and checks that it never panicked.
pub struct TestProcess {
    child: Arc<ChildProcess>,
    pub public: SocketAddr,
    pub admin: SocketAddr,
    /// True if a failpoint of the test makes the process panic.
    panics: bool,
    /// The token for the admin listener, if the listener demands one.
    token: Option<String>,
    /// Connects `public` to the Unix socket of the process, if it listens at one.
    _relay: Option<FaultProxy>,
}

/// The arguments of `prlimit` in front of the process. The soft limit of 1024 files is the usual default of a
/// system, so the process has to raise it.
const SOFT_LIMITS: [&str; 2] = ["--nofile=1024:", "--"];

/// The words in front of a process that logs everything.
pub(crate) const TALKATIVE: [&str; 2] = ["env", "FENCEGATE_LOG=trace"];

/// A request in flight.
pub struct PendingRequest(JoinHandle<Result<ClientResponse, String>>);

/// Failpoints to set, in the syntax of the `fail` crate.
#[derive(Debug, Clone, Default)]
pub struct Failpoints(String);

impl TestProcess {
    /// Starts the binary and waits until it listens. `listener` is the name of the listener beside the admin
    /// listener, and `names` is a command in front of the binary that changes the host names it sees.
    ///
    /// # Errors
    /// Returns the log if the process does not report both listeners.
    pub(crate) async fn start(
        binary: &Path,
        failpoints: &Failpoints,
        names: Vec<String>,
        listener: &'static str,
        arguments: Vec<String>,
    ) -> Result<Self, String> {
        let mut command: Vec<String> = SOFT_LIMITS.map(str::to_owned).into();
        command.extend(names);
        command.extend(["env".to_owned(), failpoints.variable(), binary.display().to_string()]);
        command.extend(arguments);
        let child = Arc::new(ChildProcess::spawn("prlimit", command).expect("setpriv"));
        let public = wait_listening(&child, listener).await?;
        let (relay, public) = match public.strip_prefix("unix:") {
            Some(path) => {
                let relay = FaultProxy::to_socket(Path::new(path));
                let address = relay.address;
                (Some(relay), address)
            }
            None => (None, public.parse().expect("an address")),
        };
        let admin = wait_listening(&child, "admin").await?.parse().expect("an address");
        Ok(Self { child, public, admin, panics: failpoints.0.contains("panic"), token: None, _relay: relay })
    }

    /// Sends a request and returns the answer.
    ///
    /// # Panics
    /// If the process breaks the connection, because it should answer every request.
    pub async fn send(&self, ask: &TestRequest) -> ClientResponse {
        let answer = wait_until("an answer", ask.send_to(self.public), || self.log()).await;
        answer.unwrap_or_else(|error| panic!("{error}; the process said:\n{}", self.log()))
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Sends a request on a connection of its own, and does not wait for the answer.
    pub fn begin(&self, ask: TestRequest) -> PendingRequest {
        let address = self.public;
        PendingRequest(tokio::spawn(async move { ask.send_to(address).await }))
    }

    /// Returns the answer of the admin listener for a path.
    ///
    /// # Panics
    /// If the admin listener breaks the connection.
    pub async fn admin(&self, path: &str) -> ClientResponse {
        let ask = match &self.token {
            Some(token) => TestRequest::get(path).field("authorization", &format!("Bearer {token}")),
            None => TestRequest::get(path),
        };
        ask.send_to(self.admin).await.unwrap_or_else(|error| panic!("admin: {error}\n{}", self.log()))
    }

    /// From now on sends this token with each request to the admin listener.
    pub(crate) fn set_admin_token(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    /// Waits until the process is ready. Polls, because readiness sends no event.
    pub async fn wait_ready(&self) {
        self.wait_readiness(200).await;
    }

    pub async fn wait_unready(&self) {
        self.wait_readiness(503).await;
    }

    /// `Some(true)` if the process is ready, `Some(false)` if it has ended, and `None` otherwise.
    ///
    /// # Panics
    /// Never: the check whether the process has ended cannot panic.
    pub async fn wait_ready_or_ended(&self) -> Option<bool> {
        let child = Arc::clone(&self.child);
        let ended = spawn_blocking(move || child.wait(Duration::ZERO)).await.expect("no panic");
        if ended.is_some() {
            return Some(false);
        }
        let answer = TestRequest::get("/ready").send_to(self.admin).await;
        answer.is_ok_and(|answer| answer.status == 200).then_some(true)
    }

    async fn wait_readiness(&self, status: u16) {
        let reached = async {
            while self.admin("/ready").await.status != status {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        wait_until(&format!("/ready to answer {status}"), reached, || self.log()).await;
    }

    pub async fn metrics(&self) -> MetricSamples {
        let answer = self.admin("/metrics").await;
        assert_eq!(answer.status, 200);
        MetricSamples::parse(std::str::from_utf8(&answer.body).expect("metrics are text"))
    }

    /// Waits until the samples of this name add up to a value. Polls, because metrics send no event.
    pub async fn wait_gauge(&self, name: &str, value: f64) {
        self.wait_series(name, &[], value).await;
    }

    /// Waits until the samples with these labels add up to at least a value. Polls, because metrics send no event.
    pub async fn wait_series_at_least(&self, name: &str, labels: &[&str], value: f64) {
        let reached = async {
            while self.metrics().await.sum(name, labels) < value {
                tokio::time::sleep(METRICS_POLL).await;
            }
        };
        wait_until(&format!("{name} to be at least {value}"), reached, || self.log()).await;
    }

    /// Waits until the samples with these labels add up to a value. Polls, because metrics send no event.
    pub async fn wait_series(&self, name: &str, labels: &[&str], value: f64) {
        let reached = async {
            while (self.metrics().await.sum(name, labels) - value).abs() > 0.1 {
                tokio::time::sleep(METRICS_POLL).await;
            }
        };
        wait_until(&format!("{name} to be {value}"), reached, || self.log()).await;
    }

    /// Waits for a line of the log. The line may have been written before the call.
    ///
    /// # Panics
    /// If the line does not appear in time.
    pub async fn wait_line(&self, what: &str, wanted: impl Fn(&LogLine) -> bool + Send + 'static) -> LogLine {
        let line = await_line(&self.child, wanted).await;
        line.unwrap_or_else(|log| panic!("the log never said {what}:\n{log}"))
    }

    /// Waits until the process stands at a failpoint.
    pub async fn wait_at_failpoint(&self, failpoint: &'static str) {
        self.wait_line(failpoint, move |line| {
            line.message() == "failpoint" && line.field("name") == failpoint
        })
        .await;
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal).expect("our own child");
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    /// If the process does not end in time.
    pub async fn exit(&self) -> ExitStatus {
        let child = Arc::clone(&self.child);
        let ended = move || {
            let status = child.wait(PATIENCE);
            // The reader thread may not have read the last output of the process yet.
            child.wait_output_end(PATIENCE / 10);
            status
        };
        let status = spawn_blocking(ended).await.expect("no panic");
        status.unwrap_or_else(|| panic!("still running:\n{}", self.log()))
    }

    pub fn log(&self) -> String {
        self.child.log()
    }

    /// Resets the peak of [`TestProcess::peak`] to the memory in use now.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn reset_peak(&self) {
        // The kernel resets the peak when a process writes 5 to this file (proc(5)).
        fs::write(self.proc_path("clear_refs"), "5").expect("our own child");
    }

    /// The number of bytes of memory in use now.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn resident(&self) -> usize {
        self.status("VmRSS:")
    }

    /// The peak of the memory in use, in bytes.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn peak(&self) -> usize {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> usize {
        let status = fs::read_to_string(self.proc_path("status")).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says so");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        kib << 10
    }

    fn proc_path(&self, file: &str) -> PathBuf {
        PathBuf::from("/proc").join(self.pid().to_string()).join(file)
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        if !thread::panicking() && !self.panics {
            let log = self.log();
            assert!(!log.contains("panicked at"), "the process panicked:\n{log}");
            if let Some(why) = log_lines::invalid_line(&log) {
                panic!("its log has a line that is {why}");
            }
        }
    }
}

impl Failpoints {
    pub(crate) fn arm(&mut self, name: &str, action: &str) {
        if !self.0.is_empty() {
            self.0.push(';');
        }
        self.0.push_str(&format!("{name}={action}"));
    }

    fn variable(&self) -> String {
        format!("FAILPOINTS={}", self.0)
    }
}

impl PendingRequest {
    /// Waits for the answer, which can be taken only once. Never returns if the connection breaks.
    pub(crate) async fn take_answer(&mut self) -> ClientResponse {
        match (&mut self.0).await.expect("the client's task") {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for the answer.
    ///
    /// # Panics
    /// If there is no answer in time, or the connection breaks.
    pub async fn answer(self) -> ClientResponse {
        self.result().await.expect("a complete answer")
    }

    /// Waits for the answer, or for the error of a broken connection.
    ///
    /// # Panics
    /// If neither comes in time.
    pub async fn result(self) -> Result<ClientResponse, String> {
        wait_until("an answer", self.0, || "none").await.expect("no panic")
    }

    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Closes the connection of the client without waiting for the answer.
    pub fn hang_up(self) {
        self.0.abort();
    }
}

/// The binary under test. Cargo builds the binary only when the whole workspace is built.
///
/// `FENCEGATE_BINARY` names another build, for example one without the change under test, to see that the test
/// fails.
pub fn binary() -> PathBuf {
    env::var_os("FENCEGATE_BINARY").map_or_else(|| named("fencegate"), PathBuf::from)
}

/// The build of the binary with an allocator that counts.
pub(crate) fn counting_binary() -> PathBuf {
    named("counted")
}

fn named(name: &str) -> PathBuf {
    let file = scratch::binaries().join(name);
    assert!(file.exists(), "{} is missing: run `cargo build --workspace` first", file.display());
    file
}

async fn wait_listening(child: &Arc<ChildProcess>, listener: &'static str) -> Result<String, String> {
    let wanted = move |line: &LogLine| line.message() == "listening" && line.field("listener") == listener;
    let line = await_line(child, wanted).await;
    let line = line.map_err(|log| format!("no {listener} listener:\n{log}"))?;
    Ok(line.field("address").to_owned())
}

async fn await_line(
    child: &Arc<ChildProcess>,
    wanted: impl Fn(&LogLine) -> bool + Send + 'static,
) -> Result<LogLine, String> {
    let child = Arc::clone(child);
    let found = spawn_blocking(move || {
        let wanted = |text: &str| LogLine::parse(text).is_some_and(|line| wanted(&line));
        child.wait_line(wanted, PATIENCE).map_err(|timeout| timeout.to_string())
    });
    found.await.expect("no panic").map(|text| LogLine::parse(&text).expect("found by parsing"))
}
