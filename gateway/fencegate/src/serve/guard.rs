//! Starts a guard, waits for the signal, and leaves so that the next one knows what this one knew.

use std::{io, rc::Rc, sync::Arc, thread};

use fencegate_guard::{
    Guard, Rules,
    open::{NotOpened, Opened},
    store::{Identity, NotDurable, Redb, Store, StoreError},
    ticket::{BadFile, Verifier},
};
use fencegate_http::{
    buffered::Budget,
    listen::certificates::Certificates,
    network::{Network, Tcp},
    share::Shares,
    upstream::{fleet::Fleets, health},
};
use fencegate_policies::plan::{self, UpstreamId};
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    randomness::{Guid, SystemRandomness},
    said::Brief,
    shown,
    shown::Names,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    notify::Manager,
    process::{self, Signals, Trouble, Wanted, bind_admin, left_behind},
    worker::{Bench, Shared, Staffed},
};
use crate::{
    access::Tellers,
    admin::{self, Csrf},
    edition::Edition,
    front::{Arrived, Role},
    metrics::Metrics,
    stack,
    step::Serve,
    steps::{
        check::Checking,
        claim::{Bypass, Claiming},
        hop::HopName,
    },
    ticket_keys::{BadUrl, Pace, Remote},
    trust::Guards,
};

/// What `fencegate guard` is told beside its file.
#[derive(Debug, Clone)]
pub struct Options {
    /// Make the store.
    pub init: Option<Init>,
    pub workers: usize,
}

/// Where a new store begins; `fencegate era show` prints both.
#[derive(Debug, Clone)]
pub struct Init {
    /// No token up to here passes.
    pub floor: u64,
    /// The installation whose tokens are compared.
    pub ensemble: String,
}

/// Why a guard does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum GuardTrouble {
    #[error(transparent)]
    Process(#[from] Trouble),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    NotOpened(#[from] NotOpened),
    #[error("read the ticket keys")]
    Keys(#[from] BadFile),
    #[error("fetch the ticket keys")]
    Jwks(#[from] BadUrl),
    #[error("the store failed, and what it holds is not known: {0}")]
    StoreFailed(#[from] NotDurable),
    #[error("start a thread or runtime")]
    Start(#[from] io::Error),
    #[error("what only memory knew was not written down; the next start takes this for a crash: {0}")]
    NotLeft(String),
}

/// The guard's part of a worker.
#[derive(Clone)]
struct Guarding {
    guard: Arc<Guard>,
    tickets: Option<Arc<Verifier>>,
    bypass: Arc<Bypass>,
}

impl<N: Network> Staffed<N> for Guarding {
    const ROLE: Role = Role::Guard;

    fn stack(shared: &Shared<Self>, bench: Bench<N>) -> impl Serve<Arrived> + use<N> {
        let Bench { edition, parts, pool, forward, .. } = bench;
        let Guarding { guard, tickets, bypass } = shared.role.clone();
        let claiming =
            Claiming { guard: guard.clone(), plan: Rc::new(edition.plan.clone()), tickets, bypass };
        let fleet = edition.fleets.fleet(UpstreamId(0)).clone();
        let checking =
            Checking { guard, running: parts.running.clone(), pool, fleet, budget: shared.budget.clone() };
        stack::guard(parts, claiming, checking, forward)
    }
}

/// Runs until SIGTERM or SIGINT, then drains and writes down what only memory knows. Ends by itself when the store
/// fails: what could not be remembered must not be acted on.
pub fn run(plan: &plan::Guard, options: &Options) -> Result<(), GuardTrouble> {
    shown::keys_are(plan.serving.log.keys);
    let clock: SharedClock = Arc::new(MachineClock);
    let metrics = Metrics::of_guard();
    let budget = Budget::of_this_process(metrics.buffered().clone());
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = Signals::heard_on(&waiting)?;
    let admin = bind_admin(plan.serving.admin.address, false)?;
    let door = process::guarded(&plan.serving.admin, &metrics)?;
    let keys = plan.tickets.as_ref().map(|from| Keys::open(from, &waiting)).transpose()?;
    let (guard, store) = open(plan, options, &clock, &metrics)?;
    let drain = CancellationToken::new();
    let tickets = keys.as_ref().map(|keys| keys.verifier.clone());
    let bypass = Arc::new(Bypass { unfenced: plan.unfenced.clone(), missing: plan.missing });
    let role = Guarding { guard: guard.clone(), tickets, bypass };
    let serving = Arc::new(plan.serving.clone());
    let workers = options.workers.max(1);
    let fleets = Fleets::of(&serving, metrics.endpoints()).map_err(Trouble::UpstreamTls)?;
    health::start(Tcp, &fleets)?;
    let certificates =
        Certificates::open(&serving.listener, metrics.clients()).map_err(Trouble::ListenerTls)?;
    let tellers = Tellers::start(&metrics)?;
    let workers = process::start_workers(Shared {
        tellers: tellers.clone(),
        edition: Edition::first(serving, fleets),
        metrics: metrics.clone(),
        clock,
        hop: HopName::new(Guid::new(&SystemRandomness)),
        guards: Arc::new(Guards::new(Arc::default())),
        shares: Shares::default(),
        budget,
        beside: false,
        workers,
        drain: drain.clone(),
        certificates: certificates.clone(),
        ours: None,
        role,
    })?;
    let end = CancellationToken::new();
    let (seen_drain, asked_to_end) = (drain.clone(), end.clone());
    let seen = admin::guard::Seen {
        guard: guard.clone(),
        metrics: metrics.clone(),
        drain: seen_drain,
        end,
        csrf: Csrf::new(&SystemRandomness),
        names: Names(plan.serving.log.keys),
    };
    admin::listen::start(admin, admin::guard::routes(seen), door, async {})?;
    let manager = Manager::found();
    waiting.block_on(async {
        tokio::select! {
            () = manager.told_when(|| guard.lets_in()) => Ok(()),
            () = stop(&mut signals, certificates.as_deref()) => Ok(()),
            () = asked_to_end.cancelled() => Ok(()),
            failed = guard.store_failed() => Err(GuardTrouble::StoreFailed(failed)),
            // Its failures are those of the store, which are seen above.
            () = guard.tend() => Ok(()),
            () = refresh(keys.as_ref()) => Ok(()),
        }
    })?;
    info!("draining");
    manager.stopping();
    drain.cancel();
    let leaving = guard.clone();
    thread::spawn(move || waiting.block_on(signals.give_up_at_the_second()));
    let left: usize = workers.threads.into_iter().map(|worker| left_behind(worker.join())).sum();
    if left > 0 {
        warn!(left, "guard.left_in_doubt");
    }
    let last = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    last.block_on(leaving.leave()).map_err(|refused| GuardTrouble::NotLeft(refused.to_string()))?;
    tellers.finish();
    if store.join().is_err() {
        error!("the store's thread panicked");
    }
    info!("stopped");
    Ok(())
}

/// A guard reads its file once: marks and journal are kept by what stands in it.
async fn stop(signals: &mut Signals, certificates: Option<&Certificates>) {
    while signals.next_of_all().await == Wanted::Reload {
        warn!("a guard does not read its file again; ticket keys are looked at by themselves");
        if let Some(certificates) = certificates {
            // Told in the log where they cannot be used.
            certificates.reload().ok();
        }
    }
}

fn open(
    plan: &plan::Guard,
    options: &Options,
    clock: &SharedClock,
    metrics: &Metrics,
) -> Result<(Arc<Guard>, thread::JoinHandle<()>), GuardTrouble> {
    let plan::Store::Redb(path) = &plan.store;
    let store: Arc<dyn Store> = Arc::new(match &options.init {
        None => Redb::open(path)?,
        Some(init) => Redb::init(path, &Identity::new(&init.ensemble, &SystemRandomness), init.floor)?,
    });
    let instance = Guid::new(&SystemRandomness).to_string();
    let opened = Guard::open(store, Rules::of(plan), clock.clone(), instance, metrics.guard())?;
    let Opened { guard, remembered, committing } = opened;
    let closed = guard.quarantine();
    let left = closed.map(|closed| closed.until.since(guard.now()));
    info!(
        store = remembered.identity.store,
        ensemble = remembered.identity.ensemble,
        keys = remembered.marks.len(),
        floor = remembered.floor,
        new = options.init.is_some(),
        clean = options.init.is_none().then_some(remembered.clean_stop.is_some()),
        quarantine = left.map(|left| display(Brief(left))),
        closed = closed.map(|closed| display(closed.scope)),
        "guard.opened"
    );
    Ok((guard, committing))
}

/// What tickets are verified with, and where its keys come from.
struct Keys {
    verifier: Arc<Verifier>,
    /// `None` where they stand in a file.
    remote: Option<Remote>,
}

impl Keys {
    fn open(from: &plan::Verification, runtime: &tokio::runtime::Runtime) -> Result<Self, GuardTrouble> {
        let of_file = |verifier| Self { verifier: Arc::new(verifier), remote: None };
        Ok(match from {
            plan::Verification::PublicKeys(path) => of_file(Verifier::from_jwks_file(path)?),
            plan::Verification::Secret(path) => of_file(Verifier::from_secret_file(path)?),
            plan::Verification::Jwks(url) => {
                let remote = Remote::new(url, Pace::default())?;
                // Without keys every ticket is refused: better that than not to start while the gateways do.
                if let Err(error) = runtime.block_on(remote.fetch()) {
                    warn!(%error, "no ticket keys yet");
                }
                Self { verifier: remote.verifier().clone(), remote: Some(remote) }
            }
        })
    }

    async fn refresh(&self) {
        if let Some(remote) = &self.remote {
            remote.refresh().await;
        }
    }
}

async fn refresh(keys: Option<&Keys>) {
    if let Some(keys) = keys {
        keys.refresh().await;
    }
    std::future::pending().await
}
