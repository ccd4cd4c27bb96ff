//! A guard under test: the real binary as a process beside an origin, its store, and what a gateway would send it.

mod dispatch;

use std::{
    fs::{self, Permissions},
    net::SocketAddr,
    ops::Deref,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
    sync::Arc,
    time::Duration,
};

use fencegate::demo::child::Signal;
use fencegate_policies::token::Token;
use serde_json::Value;
use tempfile::TempDir;

pub use self::dispatch::{Dispatch, ENSEMBLE, assert_refused, operation_reference};
use crate::{
    ensemble::free_ports,
    gateway::{command, write_policy},
    origin::Origin,
    patience::patiently,
    policy::Policy,
    process::{Failpoints, Process, TALKATIVE, binary},
    scratch,
    site::Turn,
    stepped_clock::SteppedClock,
};

/// What one test has to itself: an origin with one door, and guards beside it.
pub struct Beside {
    pub origin: Origin,
    door: SocketAddr,
    _turn: Turn,
}

/// A running guard. Dropping it kills it and checks that it never panicked.
pub struct Guard {
    process: Process,
    launch: Launch,
}

/// How a guard is started, and the folder with its store.
#[derive(Clone)]
pub struct Launch {
    file: Policy,
    binary: PathBuf,
    failpoints: Failpoints,
    /// A command in front of it.
    behind: Vec<String>,
    init: Option<u64>,
    ensemble: String,
    workers: usize,
    home: Arc<TempDir>,
}

/// No token up to here passes a fresh guard.
pub const FLOOR: u64 = 10;

impl Beside {
    pub async fn fresh() -> Self {
        let origin = Origin::start();
        let door = origin.door("guard");
        Self { origin, door, _turn: Turn::beside_others().await }
    }

    /// A guard with a new store, out of its first quarantine.
    pub async fn guard(&self) -> Guard {
        self.launch().await.start().await
    }

    /// How to start one.
    pub async fn launch(&self) -> Launch {
        self.unmade().made().await
    }

    /// How to start one that has no store yet.
    pub fn unmade(&self) -> Launch {
        Launch::before(self.door)
    }
}

impl Launch {
    /// Of a guard before this upstream that has no store yet.
    ///
    /// # Panics
    /// If the folder cannot be made.
    pub fn before(upstream: SocketAddr) -> Self {
        let home = Arc::new(scratch::place());
        Self {
            file: Policy::of_guard(upstream, &home.path().join("guard.redb")),
            binary: binary(),
            failpoints: Failpoints::default(),
            behind: Vec::new(),
            init: None,
            ensemble: ENSEMBLE.to_owned(),
            workers: 2,
            home,
        }
    }

    /// Of another version than this one.
    #[must_use]
    pub fn of_version(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    /// Its store will be made for the tokens of this installation.
    #[must_use]
    pub fn of(mut self, ensemble: &str) -> Self {
        ensemble.clone_into(&mut self.ensemble);
        self
    }

    async fn made(self) -> Self {
        self.made_from(FLOOR).await
    }

    /// Makes the store and waits its first quarantine out, which is short only because nothing has run before.
    pub async fn made_from(self, floor: u64) -> Self {
        let short = self
            .clone()
            .with("/upstream/response_timeout", "10ms")
            .with("/send_within", "10ms")
            .with("/max_execution", "20ms");
        let guard = short.init(floor).start().await;
        guard.becomes_ready().await;
        guard.stops().await;
        self
    }

    /// Sets a value of the guard's file.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        self.file = self.file.with(pointer, value);
        self
    }

    /// What it is told.
    pub fn file(&self) -> &Policy {
        &self.file
    }

    /// The same store under another file, which has to name it.
    #[must_use]
    pub fn reading(mut self, file: Policy) -> Self {
        self.file = file;
        self
    }

    /// Arms a failpoint, in the language of the `fail` crate.
    #[must_use]
    pub fn failpoint(mut self, name: &str, action: &str) -> Self {
        self.failpoints.arm(name, action);
        self
    }

    /// Logs all that it could.
    #[must_use]
    pub fn talkative(mut self) -> Self {
        self.behind = TALKATIVE.map(str::to_owned).into();
        self
    }

    /// Once a key has been used, its store holds for ever that something may be at work on it. Ends by a kill only.
    #[must_use]
    pub fn without_rest(self) -> Self {
        self.failpoint("guard_rests", "sleep(600000)")
    }

    /// Its operators have to show a token.
    ///
    /// # Panics
    /// If its folder cannot be written.
    #[must_use]
    pub fn asking_for_a_token(self) -> Self {
        let file = self.token_file();
        fs::write(&file, "a-token-that-nobody-guesses").expect("our own folder");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own file");
        self.with("/admin/auth/bearer_file", file.display().to_string())
    }

    /// Where that token is.
    pub fn token_file(&self) -> PathBuf {
        self.home().join("token")
    }

    /// Sees these clocks in the place of the machine's.
    #[must_use]
    pub fn timed_by(mut self, clock: &SteppedClock) -> Self {
        self.behind = clock.command();
        self
    }

    /// Started by somebody who listens at this socket, as systemd does.
    #[must_use]
    pub fn telling(mut self, socket: &Path) -> Self {
        self.behind = ["env".to_owned(), format!("NOTIFY_SOCKET={}", socket.display())].into();
        self
    }

    /// Whoever listens there takes it for hung when it says nothing for so long.
    #[must_use]
    pub fn watched(mut self, within: Duration) -> Self {
        self.behind.push(format!("WATCHDOG_USEC={}", within.as_micros()));
        self
    }

    /// Makes the store at the next start.
    #[must_use]
    pub fn init(mut self, floor: u64) -> Self {
        self.init = Some(floor);
        self
    }

    /// Operators and Prometheus find it at one address, however often it is started.
    #[must_use]
    pub fn staying(self) -> Self {
        self.with("/admin/address", format!("127.0.0.1:{}", free_ports(1)[0]))
    }

    /// Where its file is, once it was started.
    pub fn path(&self) -> PathBuf {
        self.home().join("policy.yaml")
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn store(&self) -> PathBuf {
        self.home().join("guard.redb")
    }

    /// Starts it and waits until it listens; it may not admit anything yet.
    ///
    /// # Panics
    /// If it ends or is silent instead.
    pub async fn start(&self) -> Guard {
        self.tries().await.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Like [`Launch::start`].
    ///
    /// # Errors
    /// With its log, if it ends or is silent instead.
    pub async fn tries(&self) -> Result<Guard, String> {
        let process =
            Process::start((&self.binary, &self.failpoints), self.behind.clone(), "guard", self.arguments())
                .await?;
        let launch = Self { init: None, failpoints: Failpoints::default(), ..self.clone() };
        Ok(Guard { process, launch })
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn fails(&self) -> Output {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        command(&arguments).await.expect("the binary starts")
    }

    fn arguments(&self) -> Vec<String> {
        let file = write_policy(self.home(), &self.file.to_string());
        let mut arguments: Vec<String> = ["guard", "--log-format", "json", "-c"].map(str::to_owned).into();
        arguments.push(file.display().to_string());
        arguments.extend(["--workers".to_owned(), self.workers.to_string()]);
        if let Some(floor) = self.init {
            arguments.push("--init".to_owned());
            arguments.extend(["--floor".to_owned(), floor.to_string()]);
            arguments.extend(["--ensemble".to_owned(), self.ensemble.clone()]);
        }
        arguments
    }

    /// Another home with a copy of this one's store.
    ///
    /// # Panics
    /// If it cannot be copied.
    #[must_use]
    pub fn copied(&self) -> Self {
        let home = Arc::new(scratch::place());
        let store = home.path().join("guard.redb");
        fs::copy(self.store(), &store).expect("a copy");
        let file = self.file.clone().with("/store/redb", store.display().to_string());
        Self { file, home, ..self.clone() }
    }
}

impl Guard {
    /// Ends it in order. What to start it with again, on the same store and without failpoints.
    ///
    /// # Panics
    /// If it does not end well.
    pub async fn stops(self) -> Launch {
        self.signal(Signal::TERM);
        let status = self.exit().await;
        assert!(status.success(), "{status}:\n{}", self.log());
        self.launch.clone()
    }

    /// Kills it. What to start it with again, on the same store and without failpoints.
    pub async fn dies(self) -> Launch {
        self.signal(Signal::KILL);
        self.exit().await;
        self.launch.clone()
    }

    /// Polls until something could be admitted on every key: that is told to whoever asks, there is no event.
    pub async fn becomes_ready(&self) {
        self.process.becomes_ready().await;
        self.gauge_becomes("fencegate_guard_keys_in_quarantine", 0.0).await;
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Polls until this epoch has been announced for a key: marks are told to whoever asks, there is no event.
    pub async fn marked(&self, key: &str, epoch: u64) {
        let path = format!("/api/v1/keys/{key}");
        let reached = async {
            loop {
                let told = self.told(&path).await;
                let number = told["write"].as_str().and_then(|token| Token::parse(token).ok());
                if number.is_some_and(|token| token.number() >= epoch) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        patiently(&format!("{key} to be marked with {epoch}"), reached, || self.log()).await;
    }

    /// How many claims were decided so.
    pub async fn decided(&self, decision: &str) -> f64 {
        let label = format!("decision=\"{decision}\"");
        self.metrics().await.sum("fencegate_guard_decisions_total", &[&label])
    }

    /// Polls until so many claims were decided so: metrics are told to whoever asks, there is no event.
    pub async fn decides(&self, decision: &str, count: f64) {
        let reached = async {
            while self.decided(decision).await < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        patiently(&format!("{count} decisions `{decision}`"), reached, || self.log()).await;
    }

    /// What its admin listener says, as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub async fn told(&self, path: &str) -> Value {
        let answer = self.admin(path).await;
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {answer:?}"))
    }
}

impl Deref for Guard {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
