//! Locks for a program of one's own: connects to an ensemble, and gives out locks with a token and a proof.
//!
//! ```no_run
//! use fencegate_lock::client::{Client, Options};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(Options::of("zk-1:2181,zk-2:2181,zk-3:2181", "/billing", "billing-1")).await?;
//! let held = client.lock("invoice/42").wait(Duration::from_secs(5)).await?;
//! println!("under {}", held.token());
//! // Before each effect: does it still hold? With each effect: the token, so that an older one is refused.
//! assert!(held.holds());
//! held.release();
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! All of it needs a tokio runtime with time; the sessions have a thread of their own. Have a subscriber of
//! `tracing` with [`crate::session::granted::layer`] in the process, as the examples do: without it a session that loses its
//! connection is not kept over the reconnect, because nobody hears for how long the server keeps it from then on.

mod error;
mod held_lock;
mod named;
mod options;
mod session_thread;

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    permits::Permits,
    plan::{Caching, Hold, LockSite, Mode},
};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    families::Families,
    randomness::SystemRandomness,
    said::causes,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

pub use fencegate_policies::token::Token;

pub use self::{error::Error, held_lock::Held, options::Options};
use self::{
    named::{parsed, shared_node},
    session_thread::start_sessions,
};
use crate::{
    bounds::SEQUENCE_LIMIT,
    metrics::SessionMetrics,
    session::{
        complaints::Complaints,
        live::View,
        nameplate::{NO_PLAN, Nameplate},
        servers::Servers,
        settings::Settings,
    },
    state::Memory,
    tenures::{
        keeper::{Keeper, keeper},
        wish::{Waits, Wish},
    },
};

/// The locks of one installation, as one process takes them. Share it in an `Arc`.
///
/// Dropping it begins what [`Client::close`] waits for.
pub struct Client {
    keeper: Keeper,
    clock: SharedClock,
    /// For whoever looks at what is held.
    name: Arc<str>,
    root: String,
    families: Families,
    stop: CancellationToken,
    /// Closed when the thread of the sessions has ended.
    ended: watch::Receiver<()>,
}

impl Client {
    /// Connects, and returns when locks can be had. For that it waits as long as a session lasts.
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::Unavailable`], [`Error::NotInitialised`] and [`Error::RolledBack`].
    ///
    /// # Cancellation
    /// Dropping the future closes what was opened.
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let patience = options.session_timeout;
        let client = Self::start(&options)?;
        let late = Instant::now() + patience;
        loop {
            let why = match client.keeper.view() {
                _ if client.keeper.is_ready() => return Ok(client),
                View::Unmade(why) => return Err(Error::NotInitialised(why.to_string())),
                View::RolledBack(why) => return Err(Error::RolledBack(why.to_string())),
                View::Away(why) => why,
                View::Live { .. } => "the session is not proven yet".into(),
            };
            if Instant::now() >= late || client.ended.has_changed().is_err() {
                return Err(Error::Unavailable(why.to_string()));
            }
            sleep(LOOK).await;
        }
    }

    /// Begins to connect. Until there is a session, whoever asks for a lock is told [`Error::Unavailable`].
    ///
    /// # Errors
    /// [`Error::Options`]
    pub fn start(options: &Options) -> Result<Self, Error> {
        let policy = options.policy().map_err(Error::Options)?;
        let clock: SharedClock = Arc::new(MachineClock);
        let families = Families::new();
        let metrics = SessionMetrics::register(&families);
        let memory = match &options.state_dir {
            Some(folder) => {
                let counted = metrics.clone();
                let opened = Memory::open(folder, &SystemRandomness, move || counted.state_failed());
                opened.map_err(|error| Error::Options(format!("{}: {error}", folder.display())))?
            }
            None => Arc::default(),
        };
        let (keeper, desks) = keeper(clock.clone(), options.sessions);
        let complaints = Arc::<Complaints>::default();
        let member = Nameplate::of(NO_PLAN);
        let settings = (0..desks.len()).map(|number| Settings {
            policy: policy.clone(),
            gateway: options.name.clone(),
            member: member.clone(),
            init: options.init,
            sequence_limit: SEQUENCE_LIMIT,
            memory: memory.clone(),
            clock: clock.clone(),
            randomness: Arc::new(SystemRandomness),
            metrics: metrics.numbered(number),
            complaints: complaints.clone(),
        });
        let servers = Servers::of(&policy).and_then(|servers| servers.followed(&metrics));
        let servers = servers
            .map_err(|bad| Error::Options(format!("use the files for ZooKeeper: {}", causes(&bad))))?;
        let stop = CancellationToken::new();
        let ended = start_sessions(desks.into_iter().zip(settings).collect(), &servers, stop.clone(), memory)
            .map_err(|error| Error::Options(format!("start the thread of the sessions: {error}")))?;
        let (name, root) = (options.name.as_str().into(), options.root.clone());
        Ok(Self { keeper, clock, name, root, families, stop, ended })
    }

    /// Asks for a key alone: nobody else holds it then, to read or to write.
    pub fn lock(&self, key: &str) -> Ask<'_> {
        self.ask([key], Mode::Exclusive)
    }

    /// The same as [`Client::lock`], where others only read.
    pub fn write(&self, key: &str) -> Ask<'_> {
        self.lock(key)
    }

    /// Asks for a key together with others that read it. Who reads does not overtake who waits to write.
    pub fn read(&self, key: &str) -> Ask<'_> {
        self.ask([key], Mode::Shared)
    }

    /// Asks for several keys at once, 16 at most, each alone: all or none, in one transaction, so that no two that ask for
    /// several can wait for each other. They have one token.
    pub fn lock_all<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> Ask<'_> {
        self.ask(keys, Mode::Exclusive)
    }

    fn ask<'k>(&self, keys: impl IntoIterator<Item = &'k str>, mode: Mode) -> Ask<'_> {
        let (hold, wait, site) = (Hold::Strict, Duration::ZERO, Ok(LockSite::Native));
        Ask { client: self, keys: parsed(keys), mode, hold, wait, site, delay: None }
    }

    /// Could a lock of any key be granted now?
    pub fn is_ready(&self) -> bool {
        self.keeper.is_ready()
    }

    /// What is counted, in the text format of Prometheus.
    pub fn metrics(&self) -> Vec<u8> {
        self.families.text()
    }

    /// Gives back what is kept, and closes the sessions: whoever waits elsewhere is next at once. Release what is held
    /// before: a session under which somebody still works is left to its timeout, and so are its locks; what is
    /// held does not hold from here on, see [`Held::holds`].
    ///
    /// # Cancellation
    /// Dropping the future changes nothing: it closes all the same.
    pub async fn close(&self) {
        self.stop.cancel();
        while self.ended.clone().changed().await.is_ok() {}
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How often a client that connects looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// A lock that is asked for: await it.
///
/// # Errors
/// All but [`Error::Options`]. While the connection is away for less than the proof lasts, it waits for it to come back;
/// beyond that it is refused at once.
///
/// # Cancellation
/// Dropping the future gives up the place in line; a node that exists is removed.
#[must_use = "nothing is asked for until it is awaited"]
pub struct Ask<'c> {
    client: &'c Client,
    keys: Result<Vec<ResourceKey>, Error>,
    mode: Mode,
    hold: Hold,
    wait: Duration,
    site: Result<LockSite, Error>,
    delay: Option<Duration>,
}

impl Ask<'_> {
    /// For how long it waits for another holder; not at all, unless said. ZooKeeper's answer is waited for a second at
    /// least.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Keeps the node for the next one of this process that asks for the key, who gets it without a word to ZooKeeper, with
    /// a larger token all the same; until somebody elsewhere wants it, or nobody here has asked for 250 ms. Of several keys at
    /// once none is kept.
    pub fn cached(self) -> Self {
        self.kept(Caching::default())
    }

    /// The same, with bounds of one's own.
    pub fn kept(self, rules: Caching) -> Self {
        Self { hold: Hold::Cached(rules), ..self }
    }

    /// The lock is the one ephemeral node at `path`, which programs that know nothing of us make as well: whoever makes it
    /// holds. For one key that is asked for alone, and nothing is kept. All who ask for the key have to say the same.
    pub fn exclusive_node(self, path: &str) -> Self {
        let site = shared_node(path, &self.client.root);
        Self { site, ..self }
    }

    /// The lock lies where a policy has it, [`fencegate_policies::plan::Fence::site_of`], for a key that is asked for alone.
    pub fn at(self, site: LockSite) -> Self {
        Self { site: Ok(site), ..self }
    }

    /// What is sent under it may go on for so long after its holder: whoever comes after one that left without a word waits
    /// for that. For a key that is asked for alone; all who ask for it have to say the same.
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay), ..self }
    }

    /// Up to `count` hold the key at once, in all processes: 2 to 1000, and all who ask for the key have to say the same. Each
    /// of them has a permit, see [`Held::permit`]. For one key that is asked for alone and to write, and nothing is kept.
    pub fn permits(self, count: u16) -> Self {
        let site = Permits::new(count).map(|permits| LockSite::Semaphore { permits });
        let most = Permits::MOST;
        Self {
            site: site.ok_or_else(|| Error::Key(format!("{count} permits: there may be 2 to {most}"))),
            ..self
        }
    }

    /// Where the lock of each key lies, in their order; nothing where every one is native.
    fn sites(&self) -> Result<Vec<LockSite>, Error> {
        match self.site.clone()? {
            LockSite::Native => Ok(Vec::new()),
            LockSite::Foreign { layout, .. }
                if self.hold != Hold::Strict || (!layout.shares() && self.mode != Mode::Exclusive) =>
            {
                Err(Error::Key("a node that is shared with other programs is neither read nor kept".into()))
            }
            LockSite::Semaphore { .. }
                if self.hold != Hold::Strict || self.mode != Mode::Exclusive || self.delay.is_some() =>
            {
                Err(Error::Key("a permit is neither read nor kept, and has no delay".into()))
            }
            _ if self.keys.as_ref().is_ok_and(|keys| keys.len() > 1) => {
                Err(Error::Key("a node that others make as well is asked for alone".into()))
            }
            site => Ok(vec![site]),
        }
    }
}

impl<'c> IntoFuture for Ask<'c> {
    type Output = Result<Held, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        let sites = self.sites();
        let Self { client, keys, mode, hold, wait, delay, .. } = self;
        Box::pin(async move {
            let (keys, sites) = (keys?, sites?);
            let wish = Wish {
                keys: &keys,
                sites: &sites,
                mode,
                hold,
                wait,
                queue: usize::MAX,
                waits: Waits::Here,
                delay,
                route: &client.name,
            };
            let tenure = match client.keeper.at_once(wish) {
                Some(tenure) => tenure,
                None => client.keeper.acquire(wish).await?,
            };
            Held::of(tenure, &client.clock).ok_or_else(|| Error::Unavailable("no token".into()))
        })
    }
}
