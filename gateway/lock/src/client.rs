//! The locks of this crate for any program: connects to an ensemble, and grants locks with a token and a session
//! deadline.
//!
//! ```no_run
//! use fencegate_lock::client::{ConnectOptions, LockClient};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = LockClient::connect(ConnectOptions::new("zk-1:2181,zk-2:2181,zk-3:2181", "/billing", "billing-1")).await?;
//! let held = client.lock("invoice/42").wait(Duration::from_secs(5)).await?;
//! println!("under {}", held.token());
//! // Ask before each effect. Send the token with each effect, so that the receiver can refuse an older one.
//! assert!(held.is_held());
//! held.release();
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A client needs a tokio runtime with time; its sessions run on a thread of their own. Have a subscriber of `tracing`
//! with [`fencegate_zookeeper::session::negotiated_timeout::negotiated_timeout_layer`] in the process, as the examples do. A reconnect may shorten the
//! session timeout, and only this layer observes that; without it a session that loses its connection is given up.

mod connect_options;
mod error;
mod lock_guard;
mod validate_names;

use std::{
    future::{Future, IntoFuture},
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    thread,
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    permits::PermitCount,
    plan::{CachedHoldLimits, LockLocation, LockMode, LockReusePolicy},
};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    display::error_chain,
    randomness::SystemRandomness,
    registry::MetricRegistry,
};
use fencegate_zookeeper::{
    limits::SEQUENCE_LIMIT,
    metrics::SessionMetrics,
    session::{
        active_session::SessionState, instrumented::InstrumentedZk, local_member::LocalMember,
        log_dedup::LogDedup, member::NO_PLAN, servers::ZkServers, settings::SessionSettings,
    },
    state::HighestEpochTracker,
};
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    task::LocalSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

pub use fencegate_policies::token::FencingToken;

use self::validate_names::{parse_exclusive_node, parse_keys};
pub use self::{connect_options::ConnectOptions, error::LockClientError, lock_guard::LockGuard};
use crate::manager::{
    lock_manager::{LockManager, create_lock_manager},
    lock_request::{LockRequest, LockWaitPlace},
    session_worker::SessionWorker,
};

/// The lock client of one process for one installation. Share it in an `Arc`.
///
/// Dropping it starts the shutdown that [`LockClient::close`] waits for.
pub struct LockClient {
    lock_manager: LockManager,
    clock: SharedClock,
    /// The name of the process, shown to operators in listings of held locks.
    name: Arc<str>,
    root: String,
    families: MetricRegistry,
    stop: CancellationToken,
    /// Closed when the thread of the sessions has ended.
    ended: watch::Receiver<()>,
}

impl LockClient {
    /// Connects, and returns when locks can be granted. Waits for that at most for one session timeout.
    ///
    /// # Errors
    /// Returns [`LockClientError::Options`], [`LockClientError::Unavailable`], [`LockClientError::NotInitialised`] or
    /// [`LockClientError::RolledBack`].
    ///
    /// # Cancellation
    /// Dropping the future closes the sessions that were opened.
    pub async fn connect(options: ConnectOptions) -> Result<Self, LockClientError> {
        let patience = options.session_timeout;
        let client = Self::start(&options)?;
        let late = Instant::now() + patience;
        loop {
            let reason = match client.lock_manager.session_state() {
                _ if client.lock_manager.is_ready() => return Ok(client),
                SessionState::NotInitialised(reason) => {
                    return Err(LockClientError::NotInitialised(reason.to_string()));
                }
                SessionState::RolledBack(reason) => {
                    return Err(LockClientError::RolledBack(reason.to_string()));
                }
                SessionState::NoSession(reason) => reason,
                SessionState::Active { .. } => "the session is not proven yet".into(),
            };
            if Instant::now() >= late || client.ended.has_changed().is_err() {
                return Err(LockClientError::Unavailable(reason.to_string()));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Begins to connect, and returns at once. Until there is a session, every lock is refused with
    /// [`LockClientError::Unavailable`].
    ///
    /// # Errors
    /// Returns [`LockClientError::Options`] if the options are invalid.
    pub fn start(options: &ConnectOptions) -> Result<Self, LockClientError> {
        let policy = options.to_policy().map_err(LockClientError::Options)?;
        let clock: SharedClock = Arc::new(MachineClock);
        let families = MetricRegistry::new();
        let metrics = SessionMetrics::register(&families);
        let history = match &options.state_dir {
            Some(folder) => {
                let counted = metrics.clone();
                let opened = HighestEpochTracker::open(folder, &SystemRandomness, move || {
                    counted.record_state_write_failure()
                });
                opened.map_err(|error| LockClientError::Options(format!("{}: {error}", folder.display())))?
            }
            None => Arc::default(),
        };
        let (manager, workers) = create_lock_manager(clock.clone(), options.sessions);
        let log_dedup = Arc::<LogDedup>::default();
        let member = LocalMember::new(NO_PLAN);
        let settings = (0..workers.len()).map(|number| SessionSettings {
            policy: policy.clone(),
            gateway: options.name.clone(),
            member: member.clone(),
            init: options.init,
            sequence_limit: SEQUENCE_LIMIT,
            token_history: history.clone(),
            clock: clock.clone(),
            randomness: Arc::new(SystemRandomness),
            metrics: metrics.for_session(number),
            log_dedup: log_dedup.clone(),
        });
        let servers = ZkServers::from_policy(&policy).and_then(|servers| servers.with_file_watch(&metrics));
        let servers = servers.map_err(|bad| {
            LockClientError::Options(format!("cannot use the files for ZooKeeper: {}", error_chain(&bad)))
        })?;
        let stop = CancellationToken::new();
        let ended =
            start_sessions(workers.into_iter().zip(settings).collect(), &servers, stop.clone(), history)
                .map_err(|error| {
                    LockClientError::Options(format!("cannot start the thread of the sessions: {error}"))
                })?;
        let name = options.name.as_str().into();
        let root = options.root.clone();
        Ok(Self { lock_manager: manager, clock, name, root, families, stop, ended })
    }

    /// Requests a key exclusively: while the lock is held, nobody else reads or writes under the key.
    pub fn lock(&self, key: &str) -> LockBuilder<'_> {
        self.builder([key], LockMode::Exclusive)
    }

    /// The same as [`LockClient::lock`], for keys that other callers lock with [`LockClient::read`].
    pub fn write(&self, key: &str) -> LockBuilder<'_> {
        self.lock(key)
    }

    /// Requests a key shared with other readers. A reader does not overtake a waiting writer.
    pub fn read(&self, key: &str) -> LockBuilder<'_> {
        self.builder([key], LockMode::Shared)
    }

    /// Requests several keys at once, 64 at most, each exclusively: all or none. One transaction creates all lock
    /// nodes, so two such sets never wait for each other. The keys share one token.
    pub fn lock_all<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> LockBuilder<'_> {
        self.builder(keys, LockMode::Exclusive)
    }

    fn builder<'k>(&self, keys: impl IntoIterator<Item = &'k str>, mode: LockMode) -> LockBuilder<'_> {
        let hold = LockReusePolicy::Strict;
        let wait = Duration::ZERO;
        let site = Ok(LockLocation::Native);
        LockBuilder { client: self, keys: parse_keys(keys), mode, hold, wait, site, delay: None }
    }

    /// Whether a lock of any key could be granted now.
    pub fn is_ready(&self) -> bool {
        self.lock_manager.is_ready()
    }

    /// The metrics, in the text format of Prometheus.
    pub fn metrics(&self) -> Vec<u8> {
        self.families.encode()
    }

    /// Releases the cached nodes and closes the sessions, so that waiting processes get the locks at once. Release all
    /// locks before. A session with a lock that is not released is left to its timeout, and so are its lock nodes.
    /// [`LockGuard::is_held`] is false from this call on.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing: the client closes all the same.
    pub async fn close(&self) {
        self.stop.cancel();
        while self.ended.clone().changed().await.is_ok() {}
    }
}

impl Drop for LockClient {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How often [`LockClient::connect`] checks whether there is a session.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A lock request: await it to send it.
///
/// # Errors
/// Returns any error but [`LockClientError::Options`]. If the connection is lost, the call waits for it until the
/// session deadline; after that it is refused at once.
///
/// # Cancellation
/// Dropping the future takes the request out of the queue; a lock node that exists is removed.
#[must_use = "nothing is asked for until it is awaited"]
pub struct LockBuilder<'c> {
    client: &'c LockClient,
    keys: Result<Vec<ResourceKey>, LockClientError>,
    mode: LockMode,
    hold: LockReusePolicy,
    wait: Duration,
    site: Result<LockLocation, LockClientError>,
    delay: Option<Duration>,
}

impl LockBuilder<'_> {
    /// Sets how long to wait for another holder. Default: not at all. Even then the reply of ZooKeeper itself is waited
    /// for, up to a second.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Keeps the lock node for the next caller in this process, which gets the key with a larger token and without a
    /// request to ZooKeeper. The node is released when another process wants the key, or after 250 ms without a caller.
    /// The nodes of a set of keys are not kept.
    pub fn cached(self) -> Self {
        self.cached_with(CachedHoldLimits::default())
    }

    /// Like [`LockBuilder::cached`], with other limits.
    pub(crate) fn cached_with(self, rules: CachedHoldLimits) -> Self {
        Self { hold: LockReusePolicy::Cached(rules), ..self }
    }

    /// Locks by the one ephemeral node at `path`, as programs without a lock library do: the creator of the node holds
    /// the lock. Only for a single key, exclusive, and strict. All callers for the key have to name the same path.
    pub fn exclusive_node(self, path: &str) -> Self {
        let site = parse_exclusive_node(path, &self.client.root);
        Self { site, ..self }
    }

    /// Locks at the site that a policy configures, see [`fencegate_policies::plan::FenceRule::site_of`]. Only for a single
    /// key.
    pub fn at_site(self, site: LockLocation) -> Self {
        Self { site: Ok(site), ..self }
    }

    /// Sets how long a request may still be at work after its holder is gone. If a holder leaves without
    /// [`LockGuard::release`], the next holder waits for `delay` first. Only for a single key; all callers for the key
    /// have to set the same delay.
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay), ..self }
    }

    /// Lets up to `count` holders, 2 to 1000 over all processes, have the key at once. Each has a permit of its own,
    /// see [`LockGuard::permit`]. Only for a single key, exclusive, and strict. All callers for the key have to set the
    /// same count.
    pub fn permits(self, count: u16) -> Self {
        let site = PermitCount::new(count).map(|permits| LockLocation::Semaphore { permits });
        let most = PermitCount::MOST;
        Self {
            site: site
                .ok_or_else(|| LockClientError::Key(format!("{count} permits: there may be 2 to {most}"))),
            ..self
        }
    }

    /// The site of each key's lock, in the order of the keys. An empty list means that all are native.
    fn sites(&self) -> Result<Vec<LockLocation>, LockClientError> {
        match self.site.clone()? {
            LockLocation::Native => Ok(Vec::new()),
            LockLocation::Foreign { layout, .. }
                if self.hold != LockReusePolicy::Strict
                    || (!layout.has_shared_mode() && self.mode != LockMode::Exclusive) =>
            {
                Err(LockClientError::Key(
                    "a node that is shared with other programs is neither read nor kept".into(),
                ))
            }
            LockLocation::Semaphore { .. }
                if self.hold != LockReusePolicy::Strict
                    || self.mode != LockMode::Exclusive
                    || self.delay.is_some() =>
            {
                Err(LockClientError::Key("a permit is neither read nor kept, and has no delay".into()))
            }
            _ if self.keys.as_ref().is_ok_and(|keys| keys.len() > 1) => {
                Err(LockClientError::Key("a node that others make as well is asked for alone".into()))
            }
            site => Ok(vec![site]),
        }
    }
}

impl<'c> IntoFuture for LockBuilder<'c> {
    type Output = Result<LockGuard, LockClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        let sites = self.sites();
        let Self { client, keys, mode, hold, wait, delay, .. } = self;
        Box::pin(async move {
            let keys = keys?;
            let sites = sites?;
            let request = LockRequest {
                keys: &keys,
                sites: &sites,
                mode,
                hold,
                wait,
                queue: usize::MAX,
                waits: LockWaitPlace::Here,
                delay,
                route: &client.name,
            };
            let tenure = match client.lock_manager.try_acquire(request) {
                Some(tenure) => tenure,
                None => client.lock_manager.acquire(request).await?,
            };
            LockGuard::new(tenure, &client.clock)
                .ok_or_else(|| LockClientError::Unavailable("no token".into()))
        })
    }
}

/// Starts a thread for the sessions: long computations in the program must not delay their heartbeats.
fn start_sessions(
    workers: Vec<(SessionWorker, SessionSettings)>,
    servers: &ZkServers,
    stop: CancellationToken,
    history: Arc<HighestEpochTracker>,
) -> io::Result<watch::Receiver<()>> {
    let (alive, ended) = watch::channel(());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let servers = servers.clone();
    thread::Builder::new().name("locks".into()).spawn(move || {
        let _alive = alive;
        let all = workers.into_iter().map(|(worker, settings)| {
            let servers = InstrumentedZk::new(servers.clone(), &settings.metrics);
            worker.run(servers, Rc::new(settings), stop.clone())
        });
        LocalSet::new().block_on(&runtime, join_all(all));
        history.close();
    })?;
    Ok(ended)
}
