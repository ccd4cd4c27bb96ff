//! A client library with faults of its own, beside those of the wire. It may report a wrong state of the connection,
//! answer at once, or give an answer that differs from what the server did.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate::metrics::Metrics;
use fencegate_lock::{
    session::{
        link::{Connect, ConnectionState, Created, Failed, Fault, Kind, Link, Seen, Step},
        nameplate::Nameplate,
        settings::Settings,
    },
    state::Memory,
    tenures::{
        keeper::{Keeper, Refused, keeper},
        tenure::Tenure,
        wish::{Waits, Wish},
    },
};
use fencegate_policies::{
    key::{KeyTemplate, ResourceKey},
    plan::{Hold, LockSite, Mode},
};
use fencegate_process::clock::{Boot, Clock, SharedClock};
use fencegate_tests::memory::{Dice, Ensemble, Session, Wire};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::plan::{ROOT, plan};

/// Whether this is the write by which a gateway shows that its session lives.
pub(crate) fn is_heartbeat(asked: Asked<'_>) -> bool {
    let of_a_member = |step: &Step<'_>| matches!(step, Step::Set { path, .. } if path.contains("/members/"));
    matches!(asked, Asked::Commit { steps } if steps.iter().any(of_a_member))
}

/// A request to a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    Create { path: &'a str, kind: Kind },
    Data { path: &'a str },
    Commit { steps: &'a [Step<'a>] },
    Delete { path: &'a str },
    Children { path: &'a str },
    ChildrenOf { paths: &'a [&'a str] },
    Other { path: &'a str },
}

impl<'a> Asked<'a> {
    /// The path of the request; for a transaction, the path of its first step; for several reads, the first path.
    pub(crate) fn path(self) -> &'a str {
        match self {
            Self::Create { path, .. }
            | Self::Data { path }
            | Self::Delete { path }
            | Self::Children { path }
            | Self::Other { path } => path,
            Self::ChildrenOf { paths } => paths.first().copied().unwrap_or_default(),
            Self::Commit { steps } => match steps {
                [
                    Step::Check { path, .. }
                    | Step::Create { path, .. }
                    | Step::Set { path, .. }
                    | Step::Delete { path, .. },
                    ..,
                ] => path,
                [] => "",
            },
        }
    }
}

/// The treatment of a request.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Passes,
    /// The request is not sent, and fails at once with this fault.
    Refused(Fault),
    /// The transaction is not sent, and fails at once at this step.
    RefusedAt(usize, Fault),
    /// The request is done, and its answer is replaced by this fault.
    Done(Fault),
}

type Rule = Box<dyn FnMut(Asked<'_>) -> Fate>;

/// The faults of the library, for all of its sessions.
#[derive(Clone)]
pub(crate) struct Doctor(Rc<Ills>);

struct Ills {
    rule: RefCell<Rule>,
    /// The newest session, and its wire.
    latest: RefCell<Option<(i64, Rc<Wire>)>>,
    /// The task of this session has ended silently. The session claims to be connected, and every operation fails at
    /// once with this fault.
    gone: RefCell<Option<(i64, Fault)>>,
    /// The number of operations that were asked of that session since.
    asked: Cell<u32>,
}

/// After so many answers at once, simulated time goes on. So a busy loop is counted, and the simulation ends.
const AT_ONCE: u32 = 10_000;

impl Doctor {
    pub(crate) fn new() -> Self {
        Self(Rc::new(Ills {
            rule: RefCell::new(Box::new(|_| Fate::Passes)),
            latest: RefCell::default(),
            gone: RefCell::default(),
            asked: Cell::new(0),
        }))
    }

    pub(crate) fn rules(&self, rule: impl FnMut(Asked<'_>) -> Fate + 'static) {
        *self.0.rule.borrow_mut() = Box::new(rule);
    }

    /// The wire of the session made last.
    pub(crate) fn wire(&self) -> Rc<Wire> {
        self.0.latest.borrow().as_ref().expect("a session").1.clone()
    }

    /// From here on the newest session answers every request with this fault. It sends nothing to the server either,
    /// and so the server ends it after its timeout.
    pub(crate) fn end_task(&self, answers: Fault) {
        let latest = self.0.latest.borrow().as_ref().expect("a session").0;
        self.0.gone.replace(Some((latest, answers)));
    }

    /// Operations that were asked of a session whose task had ended.
    pub(crate) fn asked_in_vain(&self) -> u32 {
        self.0.asked.get()
    }

    fn gone(&self, session: i64) -> Option<Fault> {
        self.0.gone.borrow().as_ref().filter(|(gone, _)| *gone == session).map(|(_, answers)| answers.clone())
    }
}

pub(crate) struct Library {
    pub(crate) ensemble: Ensemble,
    pub(crate) timeout: Duration,
    pub(crate) doctor: Doctor,
}

pub(crate) struct Handle {
    session: Session,
    doctor: Doctor,
}

impl Connect for Library {
    type Link = Handle;

    async fn connect(&self) -> Result<Handle, Fault> {
        let wire = self.ensemble.wire();
        let session = self.ensemble.client(&wire, self.timeout).connect().await?;
        self.doctor.0.latest.replace(Some((session.id(), wire)));
        Ok(Handle { session, doctor: self.doctor.clone() })
    }
}

impl Handle {
    /// `Some`: the request is done, and its answer is replaced by this fault.
    async fn asks(&self, asked: Asked<'_>) -> Result<Option<Fault>, Fault> {
        self.commits(asked).await.map_err(|failed| failed.fault)
    }

    /// The same for a transaction.
    async fn commits(&self, asked: Asked<'_>) -> Result<Option<Fault>, Failed> {
        if let Some(answer) = self.doctor.gone(self.session.id()) {
            let ills = &self.doctor.0;
            ills.asked.set(ills.asked.get() + 1);
            if ills.asked.get().is_multiple_of(AT_ONCE) {
                sleep(Duration::from_secs(1)).await;
            }
            return Err(Failed { step: None, fault: answer });
        }
        let fate = (self.doctor.0.rule.borrow_mut())(asked);
        match fate {
            Fate::Passes => Ok(None),
            Fate::Refused(fault) => Err(Failed { step: None, fault }),
            Fate::RefusedAt(step, fault) => Err(Failed { step: Some(step), fault }),
            Fate::Done(fault) => Ok(Some(fault)),
        }
    }
}

fn told<T, E>(answer: Result<T, E>, instead: Option<E>) -> Result<T, E> {
    match instead {
        Some(fault) => Err(fault),
        None => answer,
    }
}

impl Link for Handle {
    type Watch = <Session as Link>::Watch;

    fn id(&self) -> i64 {
        self.session.id()
    }
    fn timeout(&self) -> Duration {
        self.session.timeout()
    }
    fn granted(&self) -> Option<Duration> {
        self.session.granted()
    }
    fn state(&self) -> ConnectionState {
        match self.doctor.gone(self.session.id()) {
            Some(_) => ConnectionState::Connected,
            None => self.session.state(),
        }
    }
    fn reconnects(&self) -> u64 {
        self.session.reconnects()
    }
    async fn state_changed(&self) {
        self.session.state_changed().await;
        if self.doctor.gone(self.session.id()).is_some() {
            std::future::pending().await
        }
    }
    async fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Kind) -> Result<Created, Fault> {
        let instead = self.asks(Asked::Create { path, kind }).await?;
        told(self.session.create(path, data, kind).await, instead)
    }
    async fn create_like(&self, path: &str, above: &str, kind: Kind) -> Result<(), Fault> {
        let instead = self.asks(Asked::Create { path, kind }).await?;
        told(self.session.create_like(path, above, kind).await, instead)
    }
    async fn delete(&self, path: &str) -> Result<(), Fault> {
        let instead = self.asks(Asked::Delete { path }).await?;
        told(self.session.delete(path).await, instead)
    }
    async fn children(&self, path: &str) -> Result<Vec<String>, Fault> {
        let instead = self.asks(Asked::Children { path }).await?;
        told(self.session.children(path).await, instead)
    }
    async fn children_of(&self, paths: &[&str]) -> Result<Vec<Option<Vec<String>>>, Fault> {
        let instead = self.asks(Asked::ChildrenOf { paths }).await?;
        told(self.session.children_of(paths).await, instead)
    }
    async fn seen(&self, path: &str) -> Result<Option<Seen>, Fault> {
        let instead = self.asks(Asked::Other { path }).await?;
        told(self.session.seen(path).await, instead)
    }
    async fn data(&self, path: &str) -> Result<(Vec<u8>, Seen), Fault> {
        let instead = self.asks(Asked::Data { path }).await?;
        told(self.session.data(path).await, instead)
    }
    async fn watch(&self, path: &str) -> Result<Self::Watch, Fault> {
        let instead = self.asks(Asked::Other { path }).await?;
        told(self.session.watch(path).await, instead)
    }
    async fn watch_children(&self, path: &str) -> Result<(Vec<String>, Self::Watch), Fault> {
        let instead = self.asks(Asked::Other { path }).await?;
        told(self.session.watch_children(path).await, instead)
    }
    async fn sync(&self, path: &str) -> Result<(), Fault> {
        let instead = self.asks(Asked::Other { path }).await?;
        told(self.session.sync(path).await, instead)
    }
    async fn commit(&self, steps: &[Step<'_>]) -> Result<Vec<Option<String>>, Failed> {
        let failed = |fault| Failed { step: None, fault };
        let instead = self.commits(Asked::Commit { steps }).await?;
        told(self.session.commit(steps).await, instead.map(failed))
    }
    async fn ephemerals(&self, path: &str) -> Result<Vec<String>, Fault> {
        let instead = self.asks(Asked::Other { path }).await?;
        told(self.session.ephemerals(path).await, instead)
    }
    async fn close(self) {
        self.session.close().await;
    }
}

#[derive(Debug)]
struct Simulated(Instant);

impl Clock for Simulated {
    fn now(&self) -> Boot {
        Boot::from_nanos(0) + Duration::from_secs(1000) + self.0.elapsed()
    }
}

pub(crate) fn clock() -> SharedClock {
    Arc::new(Simulated(Instant::now()))
}

const SEED: u64 = 7;

pub(crate) fn settings(clock: SharedClock, session_timeout: Duration) -> Settings {
    let plan = plan("gw", ([127, 0, 0, 1], 1).into(), session_timeout);
    Settings {
        policy: plan.zookeeper.clone(),
        gateway: "gw".to_owned(),
        member: Nameplate::of(plan.fingerprint),
        init: true,
        complaints: Arc::default(),
        sequence_limit: fencegate_lock::bounds::SEQUENCE_LIMIT,
        memory: Arc::<Memory>::default(),
        clock,
        randomness: Arc::new(Dice::seeded(SEED)),
        metrics: Metrics::of_gateway(&plan).session(0),
    }
}

/// The lock side of a gateway with one session, over this library.
pub(crate) struct Locks {
    pub(crate) keeper: Keeper,
    pub(crate) clock: SharedClock,
    stop: CancellationToken,
    desk: JoinHandle<()>,
    timeout: Duration,
}

impl Locks {
    /// Returns when there is a session.
    pub(crate) async fn over(library: Library) -> Self {
        Self::numbered_to(library, fencegate_lock::bounds::SEQUENCE_LIMIT).await
    }

    /// Lock nodes with numbers above `sequence_limit` never hold.
    pub(crate) async fn numbered_to(library: Library, sequence_limit: u32) -> Self {
        let (clock, timeout, stop) = (clock(), library.timeout, CancellationToken::new());
        let (keeper, desks) = keeper(clock.clone(), 1);
        let desk = desks.into_iter().next().expect("one session");
        // Two gateways draw different names for their attempts.
        let seed = SEED + library.ensemble.sessions().len() as u64;
        let randomness = Arc::new(Dice::seeded(seed));
        let settings = Rc::new(Settings { randomness, sequence_limit, ..settings(clock.clone(), timeout) });
        let desk = spawn_local(desk.run(library, settings, stop.clone()));
        while !keeper.is_ready() {
            sleep(timeout / 10).await;
        }
        Self { keeper, clock, stop, desk, timeout }
    }

    pub(crate) async fn acquire(&self, names: &[&str], hold: Hold) -> Result<Tenure, Refused> {
        self.acquire_at(names, &[], hold).await
    }

    /// `sites`: the place of the lock of each key. Empty if all locks are native.
    pub(crate) async fn acquire_at(
        &self,
        names: &[&str],
        sites: &[LockSite],
        hold: Hold,
    ) -> Result<Tenure, Refused> {
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        // No request may wait behind a strict one, because the rest of an earlier request would refuse the next one.
        let queue = if hold == Hold::Strict { 0 } else { 100 };
        let (keys, mode, wait, waits) = (&keys, Mode::Exclusive, self.timeout * 10, Waits::Here);
        let (delay, route) = (None, &"sim".into());
        self.keeper.acquire(Wish { keys, sites, mode, hold, wait, queue, waits, delay, route }).await
    }

    /// As for a service where nobody compares tokens: a dispatch may go on for `delay`.
    pub(crate) async fn delayed(
        &self,
        names: &[&str],
        hold: Hold,
        wait: Duration,
        delay: Option<Duration>,
    ) -> Result<Tenure, Refused> {
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        let (keys, sites, mode, waits, route) = (&keys, &[], Mode::Exclusive, Waits::Here, &"sim".into());
        self.keeper.acquire(Wish { keys, sites, mode, hold, wait, queue: 100, waits, delay, route }).await
    }

    /// Returns when all tasks have ended.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(self.timeout * 10, self.desk).await.expect("it ends").expect("no panic");
    }
}

pub(crate) fn key(name: &str) -> ResourceKey {
    KeyTemplate::parse(name).expect("a literal").expand(&()).expect("short")
}

/// The parent of the lock nodes of the key with this name.
pub(crate) fn parent(name: &str) -> String {
    let key = key(name);
    format!("{ROOT}/locks/{:02x}/{}", key.shard(), key.lock_segment())
}
