//! A gateway under test: the real binary as a process, its policy, addresses, log and metrics.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output},
    sync::Arc,
    thread,
    time::Duration,
};

use fencegate::demo::child::{Child, Signal};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    client::{Answer, Ask},
    patience::{PATIENCE, patiently},
    policy::Policy,
    scratch,
};

/// A running gateway. Dropping it kills it and checks that it never panicked.
pub struct Gateway {
    child: Arc<Child>,
    pub public: SocketAddr,
    pub admin: SocketAddr,
    _home: TempDir,
}

/// A request under way.
pub struct Pending(JoinHandle<Result<Answer, String>>);

/// How a gateway is started.
pub struct Launch {
    policy: Policy,
    failpoints: String,
    init: bool,
}

/// One line of the log.
#[derive(Debug, Clone)]
pub struct Line(Value);

/// The samples of `/metrics`: name with labels, and value.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Gateway {
    /// Starts a gateway and waits until it can grant.
    pub async fn start(policy: &Policy) -> Self {
        let gateway = Launch::new(policy).start().await;
        gateway.becomes_ready().await;
        gateway
    }

    /// # Panics
    /// If the gateway broke the connection: it has an answer for everything.
    pub async fn send(&self, ask: &Ask) -> Answer {
        let answer = patiently("an answer", ask.to(self.public), || self.log()).await;
        answer.unwrap_or_else(|error| panic!("{error}; the gateway said:\n{}", self.log()))
    }

    /// Sends a request from a client of its own, and goes on.
    pub fn begin(&self, ask: Ask) -> Pending {
        let address = self.public;
        Pending(tokio::spawn(async move { ask.to(address).await }))
    }

    /// What the admin listener answers.
    ///
    /// # Panics
    /// If the admin listener breaks the connection.
    pub async fn admin(&self, path: &str) -> Answer {
        Ask::get(path).to(self.admin).await.unwrap_or_else(|error| panic!("admin: {error}\n{}", self.log()))
    }

    /// Polls: readiness is told to whoever asks, there is no event.
    pub async fn becomes_ready(&self) {
        self.readiness(200).await;
    }

    pub async fn becomes_unready(&self) {
        self.readiness(503).await;
    }

    async fn readiness(&self, status: u16) {
        let reached = async {
            while self.admin("/ready").await.status != status {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        patiently(&format!("/ready to answer {status}"), reached, || self.log()).await;
    }

    pub async fn metrics(&self) -> Metrics {
        let answer = self.admin("/metrics").await;
        assert_eq!(answer.status, 200);
        Metrics::parse(std::str::from_utf8(&answer.body).expect("metrics are text"))
    }

    /// Polls: metrics are told to whoever asks, there is no event.
    pub async fn gauge_becomes(&self, name: &str, value: f64) {
        let reached = async {
            while (self.metrics().await.sum(name, &[]) - value).abs() > 0.1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        patiently(&format!("{name} to be {value}"), reached, || self.log()).await;
    }

    /// Waits for a line of the log, said before or to come.
    ///
    /// # Panics
    /// If it does not come.
    pub async fn says(&self, what: &str, wanted: impl Fn(&Line) -> bool + Send + 'static) -> Line {
        let line = await_line(&self.child, wanted).await;
        line.unwrap_or_else(|log| panic!("the log never said {what}:\n{log}"))
    }

    /// Waits until it stands at a failpoint.
    pub async fn stands_at(&self, failpoint: &'static str) {
        self.says(failpoint, move |line| line.message() == "failpoint" && line.field("name") == failpoint)
            .await;
    }

    /// # Panics
    /// If the kernel refuses.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal).expect("our own child");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it goes on running.
    pub async fn exit(&self) -> ExitStatus {
        let child = Arc::clone(&self.child);
        let status = spawn_blocking(move || child.wait(PATIENCE)).await.expect("no panic");
        status.unwrap_or_else(|| panic!("still running:\n{}", self.log()))
    }

    pub fn log(&self) -> String {
        self.child.log()
    }
}

impl Pending {
    /// # Panics
    /// If there is none in time, or the connection broke.
    pub async fn answer(self) -> Answer {
        self.result().await.expect("a complete answer")
    }

    /// # Panics
    /// If it neither ends nor breaks in time.
    pub async fn result(self) -> Result<Answer, String> {
        patiently("an answer", self.0, || "none").await.expect("no panic")
    }

    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// The client closes its connection.
    pub fn hang_up(self) {
        self.0.abort();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !thread::panicking() {
            let log = self.log();
            assert!(!log.contains("panicked at"), "the gateway panicked:\n{log}");
        }
    }
}

impl Launch {
    pub fn new(policy: &Policy) -> Self {
        Self { policy: policy.clone(), failpoints: String::new(), init: true }
    }

    /// Arms a failpoint, in the language of the `fail` crate.
    #[must_use]
    pub fn failpoint(mut self, name: &str, action: &str) -> Self {
        if !self.failpoints.is_empty() {
            self.failpoints.push(';');
        }
        self.failpoints.push_str(&format!("{name}={action}"));
        self
    }

    /// Does not make `meta` where it is missing.
    #[must_use]
    pub fn without_init(mut self) -> Self {
        self.init = false;
        self
    }

    /// Starts it and waits until it listens; it may not be ready.
    ///
    /// # Panics
    /// If it ends or is silent instead.
    pub async fn start(self) -> Gateway {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let file = write_policy(home.path(), &self.policy.to_string());
        let mut arguments = vec![format!("FAILPOINTS={}", self.failpoints), binary().display().to_string()];
        arguments.extend(["run", "-c"].map(str::to_owned));
        arguments.extend([file.display().to_string(), "--log-format".to_owned(), "json".to_owned()]);
        if self.init {
            arguments.push("--init".to_owned());
        }
        let child = Arc::new(Child::spawn("env", arguments).expect("env and setpriv"));
        let public = listening(&child, "public").await;
        let admin = listening(&child, "admin").await;
        Gateway { child, public, admin, _home: home }
    }
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    pub fn message(&self) -> &str {
        self.field("message")
    }

    /// All of it.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// A text field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.0["fields"][name].as_str().unwrap_or_default()
    }
}

impl Metrics {
    fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let split = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        Self(samples.map(split).collect())
    }

    /// Of the samples of this name with all these labels.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.named(name)
            .filter(|(sample, _)| labels.iter().all(|label| sample.contains(label)))
            .map(|(_, v)| v)
            .sum()
    }

    /// The largest sample of this name; 0 if there is none.
    pub fn largest(&self, name: &str) -> f64 {
        self.named(name).map(|(_, value)| value).fold(0.0, f64::max)
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let samples = self.0.iter().map(|(sample, value)| (sample.as_str(), *value));
        samples.filter(move |(sample, _)| sample.split('{').next() == Some(name))
    }
}

/// Runs the binary to its end; a run that hangs ends with status 124.
///
/// # Errors
/// When it cannot be started.
pub async fn command(arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(binary()).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic")
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

/// Cargo builds the library for these tests, but the binary only when the whole workspace is built.
fn binary() -> PathBuf {
    let file = scratch::binaries().join("fencegate");
    assert!(file.exists(), "{} is missing: run `cargo build --workspace` first", file.display());
    file
}

async fn listening(child: &Arc<Child>, listener: &'static str) -> SocketAddr {
    let wanted = move |line: &Line| line.message() == "listening" && line.field("listener") == listener;
    let line = await_line(child, wanted).await;
    let line = line.unwrap_or_else(|log| panic!("no {listener} listener:\n{log}"));
    line.field("address").parse().expect("an address")
}

async fn await_line(
    child: &Arc<Child>,
    wanted: impl Fn(&Line) -> bool + Send + 'static,
) -> Result<Line, String> {
    let child = Arc::clone(child);
    let found = spawn_blocking(move || {
        let wanted = |text: &str| Line::parse(text).is_some_and(|line| wanted(&line));
        child.wait_line(wanted, PATIENCE).map_err(|timeout| timeout.to_string())
    });
    found.await.expect("no panic").map(|text| Line::parse(&text).expect("found by parsing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_named_with_its_labels() {
        let text = "# HELP a b\n# TYPE a counter\na{route=\"x y\",code=\"200\"} 3\nb 0.5\n";
        let expected = [("a{route=\"x y\",code=\"200\"}".to_owned(), 3.0), ("b".to_owned(), 0.5)];
        assert_eq!(Metrics::parse(text), Metrics(expected.into()));
    }
}
