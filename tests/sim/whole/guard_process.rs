//! A whole guard as a process of the simulation, on a store that outlives it.

use std::{cell::Cell, path::Path, rc::Rc, sync::Arc, time::Duration};

use fencegate_config::process_context::ProcessContext;
use fencegate_guard::{Guard, GuardConfig, open::UnstartedGuard};
use fencegate_guard_store::store::{CommitLoopState, RedbStore};
use fencegate_http::network::listen_addr::ListenAddr;
use fencegate_metrics::AllMetricFamilies;
use fencegate_process::{
    clock::SharedClock,
    randomness::{Guid, SystemRandomness},
};
use fencegate_serve::{guard_process, worker};
use fencegate_tests::memory::SeededRng;
use fencegate_ticket::TicketVerifier;
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_local,
    time::{Instant, sleep, sleep_until},
};

use super::{
    addresses::{self, GUARD, PORT, SecretFiles},
    network::SimHost,
};

/// The inputs of a guard process.
pub(super) struct GuardStartOptions {
    pub(super) store: Rc<Path>,
    pub(super) secrets: Rc<SecretFiles>,
    pub(super) host: SimHost,
    pub(super) clock: SharedClock,
    pub(super) disk: Rc<SimDisk>,
    /// Closing this channel stops the guard, as SIGTERM does.
    pub(super) orders: mpsc::UnboundedReceiver<()>,
    /// Set again and again while the guard runs: whether it admits requests.
    pub(super) lets_in: Rc<Cell<bool>>,
}

/// A disk, which takes time to write.
pub(super) struct SimDisk {
    dice: SeededRng,
    stalls: Cell<Instant>,
}

impl SimDisk {
    pub(super) fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self { dice: SeededRng::new(seed), stalls: Cell::new(Instant::now()) })
    }

    /// Delays all writes until this time has passed.
    pub(super) fn stall(&self, time: Duration) {
        self.stalls.set(Instant::now() + time);
    }

    async fn wait_written(&self) {
        sleep(self.dice.within(&(Duration::ZERO..Duration::from_millis(6)))).await;
        sleep_until(self.stalls.get()).await;
    }
}

/// Runs a guard until it is asked to end.
pub(super) async fn run(start: GuardStartOptions) {
    let GuardStartOptions { store, secrets, host, clock, disk, mut orders, lets_in } = start;
    let plan = addresses::guard(&store, &secrets);
    let base = ProcessContext::new(clock, AllMetricFamilies::for_guard());
    let redb = Arc::new(RedbStore::open(&store).expect("a sound store"));
    let instance = Guid::new(&SystemRandomness).to_string();
    let rules = GuardConfig::from_plan(&plan);
    let metrics = base.metrics.guard();
    let still =
        Guard::open_unstarted(redb, rules, base.clock.clone(), instance, metrics).expect("a sound store");
    let UnstartedGuard { guard, commits, .. } = still;
    let committing = spawn_local(async move {
        loop {
            commits.wait_for_changes().await;
            disk.wait_written().await;
            if commits.commit_pending() == CommitLoopState::Never {
                return;
            }
        }
    });
    let tended = guard.clone();
    spawn_local(async move { tended.run_background().await });
    let watched = guard.clone();
    spawn_local(async move {
        loop {
            lets_in.set(watched.is_admitting() && watched.quarantine().is_none());
            sleep(Duration::from_millis(50)).await;
        }
    });

    let verifier = Arc::new(TicketVerifier::from_secret_file(&secrets.tickets()).expect("a secret"));
    let shared = guard_process::build_worker_context(&plan, &base, guard.clone(), Some(verifier), 1)
        .expect("it needs no other file");
    let (_turns, told) = mpsc::unbounded_channel();
    let (listening, listens) = oneshot::channel();
    let place = ListenAddr::Tcp((GUARD, PORT).into());
    let worker = spawn_local(worker::run(host, place, shared, told, listening));
    listens.await.expect("it runs").unwrap_or_else(|deaf| panic!("{deaf:?}"));

    while orders.recv().await.is_some() {}
    base.drain.cancel();
    worker.await.expect("no panic");
    guard.shut_down_cleanly().await.expect("the store works");
    committing.await.expect("no panic");
}
