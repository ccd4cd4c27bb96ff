//! A guard under test: the real binary as a process before an origin, its store, and requests as a gateway would
//! send them.

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

use fencegate_policies::token::FencingToken;
use fencegate_testkit::{child::Signal, scratch, wait::wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::dispatch::{ENSEMBLE, StampedRequest, assert_refused, operation_reference};
use crate::{
    ensemble::free_ports,
    gateway::{command, write_policy},
    origin::Origin,
    policy::TestPolicy,
    process::{Failpoints, METRICS_POLL, TALKATIVE, TestProcess, binary},
    site::TestSlot,
    stepped_clock::SteppedClock,
};

/// The set-up of one test: an origin with one listener, before which guards are started.
pub struct GuardFixture {
    pub origin: Origin,
    door: SocketAddr,
    _turn: TestSlot,
}

/// A running guard. Dropping it kills it and checks that it never panicked.
pub struct Guard {
    process: TestProcess,
    launch: GuardLaunch,
}

/// The options with which a guard is started, and the folder of its store.
#[derive(Clone)]
pub struct GuardLaunch {
    file: TestPolicy,
    binary: PathBuf,
    failpoints: Failpoints,
    /// The words of the command line before the binary.
    behind: Vec<String>,
    init: Option<u64>,
    ensemble: String,
    workers: usize,
    home: Arc<TempDir>,
}

/// The floor of a new guard, which refuses every token up to this number.
pub const FLOOR: u64 = 10;

impl GuardFixture {
    pub async fn new() -> Self {
        let origin = Origin::start();
        let door = origin.open_listener("guard");
        Self { origin, door, _turn: TestSlot::beside_others().await }
    }

    /// Starts a guard with a new store, and waits for the end of its first quarantine.
    pub async fn guard(&self) -> Guard {
        self.launch().await.start().await
    }

    /// The launch of a guard with a new store, after its first quarantine.
    pub async fn launch(&self) -> GuardLaunch {
        self.uninitialized_launch().initialized().await
    }

    /// The launch of a guard that has no store yet.
    pub fn uninitialized_launch(&self) -> GuardLaunch {
        GuardLaunch::for_upstream(self.door)
    }
}

impl GuardLaunch {
    /// The launch of a guard before this upstream. It has no store yet.
    ///
    /// # Panics
    /// If the guard's folder cannot be made.
    pub fn for_upstream(upstream: SocketAddr) -> Self {
        let home = Arc::new(scratch::temp_dir());
        Self {
            file: TestPolicy::for_guard(upstream, &home.path().join("guard.redb")),
            binary: binary(),
            failpoints: Failpoints::default(),
            behind: Vec::new(),
            init: None,
            ensemble: ENSEMBLE.to_owned(),
            workers: 2,
            home,
        }
    }

    /// The launch of a filter before the service at this address: it has no store, and only refuses late requests.
    ///
    /// # Panics
    /// If the filter's folder cannot be made.
    pub fn filter(service: SocketAddr) -> Self {
        let file = json!({
            "version": 1,
            "listener": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": {"endpoint": format!("http://{service}"), "response_timeout": "6s"},
            "filter": {"clock_error": "500ms"},
        });
        Self::for_upstream(service).with_policy(TestPolicy::from_yaml(&file.to_string()))
    }

    /// Starts the binary of another version.
    #[must_use]
    pub fn with_binary(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self
    }

    /// Sets the installation for whose tokens the store will be made.
    #[must_use]
    pub fn for_ensemble(mut self, ensemble: &str) -> Self {
        ensemble.clone_into(&mut self.ensemble);
        self
    }

    async fn initialized(self) -> Self {
        self.init_with_floor(FLOOR).await
    }

    /// Makes the store and waits for the end of its first quarantine. The times for this are short, which is safe
    /// because nothing has run before.
    pub async fn init_with_floor(self, floor: u64) -> Self {
        let short = self
            .clone()
            .with("/upstream/response_timeout", "10ms")
            .with("/send_within", "10ms")
            .with("/max_execution", "20ms");
        let guard = short.init(floor).start().await;
        guard.wait_ready().await;
        guard.stop().await;
        self
    }

    /// Sets a value in the guard's configuration file.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        self.file = self.file.with(pointer, value);
        self
    }

    /// The configuration file of the guard.
    pub fn file(&self) -> &TestPolicy {
        &self.file
    }

    /// Sets another configuration file, which has to name the same store.
    #[must_use]
    pub fn with_policy(mut self, file: TestPolicy) -> Self {
        self.file = file;
        self
    }

    /// Arms a failpoint, in the language of the `fail` crate.
    #[must_use]
    pub fn failpoint(mut self, name: &str, action: &str) -> Self {
        self.failpoints.arm(name, action);
        self
    }

    /// Makes the guard log at every level.
    #[must_use]
    pub fn with_debug_log(mut self) -> Self {
        self.behind = TALKATIVE.map(str::to_owned).into();
        self
    }

    /// Prevents the record that a used key is at rest, so that it stays in quarantine after a restart. Such a guard
    /// does not stop in order; it has to be killed.
    #[must_use]
    pub fn with_permanent_quarantine(self) -> Self {
        self.failpoint("guard_rests", "sleep(600000)")
    }

    /// Makes the guard's admin listener require a token.
    ///
    /// # Panics
    /// If the guard's folder cannot be written.
    #[must_use]
    pub fn with_admin_token(self) -> Self {
        let file = self.token_file();
        fs::write(&file, "a-token-that-nobody-guesses").expect("our own folder");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own file");
        self.with("/admin/auth/bearer_file", file.display().to_string())
    }

    /// The file with the token of [`Self::with_admin_token`].
    pub fn token_file(&self) -> PathBuf {
        self.home().join("token")
    }

    /// Makes the guard read these clocks, and not those of the machine.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.behind = clock.command();
        self
    }

    /// Makes the guard report to this socket, as it does under systemd.
    #[must_use]
    pub fn with_notify_socket(mut self, socket: &Path) -> Self {
        self.behind = ["env".to_owned(), format!("NOTIFY_SOCKET={}", socket.display())].into();
        self
    }

    /// Tells the guard the watchdog's time limit, after which the supervisor at the socket would restart it.
    #[must_use]
    pub fn with_watchdog(mut self, within: Duration) -> Self {
        self.behind.push(format!("WATCHDOG_USEC={}", within.as_micros()));
        self
    }

    /// Makes the next start create the store, with this floor.
    #[must_use]
    pub fn init(mut self, floor: u64) -> Self {
        self.init = Some(floor);
        self
    }

    /// Gives the admin listener one address for all starts, for operators and Prometheus.
    #[must_use]
    pub fn with_fixed_admin_port(self) -> Self {
        self.with("/admin/address", format!("127.0.0.1:{}", free_ports(1)[0]))
    }

    /// Sets one worker, so that all connections to the upstream belong to it.
    #[must_use]
    pub fn with_one_worker(mut self) -> Self {
        self.workers = 1;
        self
    }

    /// The path of the configuration file. The file exists after the first start.
    pub fn path(&self) -> PathBuf {
        self.home().join("policy.yaml")
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn store(&self) -> PathBuf {
        self.home().join("guard.redb")
    }

    /// Starts the guard and waits until it listens. It may not admit requests yet.
    ///
    /// # Panics
    /// If the guard ends, or does not listen in time.
    pub async fn start(&self) -> Guard {
        self.try_start().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts the guard as [`GuardLaunch::start`] does.
    ///
    /// # Errors
    /// Returns the log of a guard that ends, or does not listen in time.
    pub async fn try_start(&self) -> Result<Guard, String> {
        let process = TestProcess::start(
            &self.binary,
            &self.failpoints,
            self.behind.clone(),
            "guard",
            self.arguments(),
        )
        .await?;
        let launch = Self { init: None, failpoints: Failpoints::default(), ..self.clone() };
        Ok(Guard { process, launch })
    }

    /// Starts a guard that must not come up, and returns its output.
    ///
    /// # Panics
    /// If the binary cannot be started.
    pub async fn expect_start_failure(&self) -> Output {
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

    /// Copies the store into another folder, and returns the launch of a guard there.
    ///
    /// # Panics
    /// If the store cannot be copied.
    #[must_use]
    pub fn copy(&self) -> Self {
        let home = Arc::new(scratch::temp_dir());
        let store = home.path().join("guard.redb");
        fs::copy(self.store(), &store).expect("a copy");
        let file = self.file.clone().with("/store/redb", store.display().to_string());
        Self { file, home, ..self.clone() }
    }
}

impl Guard {
    /// Stops the guard in order. Returns its launch, for a start on the same store and without failpoints.
    ///
    /// # Panics
    /// If the guard does not end, or not with success.
    pub async fn stop(self) -> GuardLaunch {
        self.signal(Signal::TERM);
        let status = self.exit().await;
        assert!(status.success(), "{status}:\n{}", self.log());
        self.launch.clone()
    }

    /// Kills the guard. Returns its launch, for a start on the same store and without failpoints.
    pub async fn kill(self) -> GuardLaunch {
        self.signal(Signal::KILL);
        self.exit().await;
        self.launch.clone()
    }

    /// Waits until no key is in quarantine. Polls, because the guard sends no event.
    pub async fn wait_ready(&self) {
        self.process.wait_ready().await;
        self.wait_gauge("fencegate_guard_keys_in_quarantine", 0.0).await;
    }

    pub fn launch(&self) -> &GuardLaunch {
        &self.launch
    }

    /// Waits until this epoch is announced for a key. Polls the guard's watermarks, because the guard sends no
    /// event.
    pub async fn wait_watermark(&self, key: &str, epoch: u64) {
        let path = format!("/api/v1/keys/{key}");
        let reached = async {
            loop {
                let told = self.admin_json(&path).await;
                let number = told["write"].as_str().and_then(|token| FencingToken::parse(token).ok());
                if number.is_some_and(|token| token.number() >= epoch) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        wait_until(&format!("{key} to be marked with {epoch}"), reached, || self.log()).await;
    }

    /// The number of requests that got this decision.
    pub async fn decision_count(&self, decision: &str) -> f64 {
        let label = format!("decision=\"{decision}\"");
        self.metrics().await.sum("fencegate_guard_decisions_total", &[&label])
    }

    /// Waits until this number of requests have got this decision. Polls the metrics, because the guard sends no
    /// event.
    pub async fn wait_decisions(&self, decision: &str, count: f64) {
        let reached = async {
            while self.decision_count(decision).await < count {
                tokio::time::sleep(METRICS_POLL).await;
            }
        };
        wait_until(&format!("{count} decisions `{decision}`"), reached, || self.log()).await;
    }

    /// The JSON response of the admin listener.
    ///
    /// # Panics
    /// If the response is not JSON.
    pub async fn admin_json(&self, path: &str) -> Value {
        let answer = self.admin(path).await;
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {answer:?}"))
    }
}

impl Deref for Guard {
    type Target = TestProcess;

    fn deref(&self) -> &TestProcess {
        &self.process
    }
}
