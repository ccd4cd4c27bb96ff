//! One simulation: two gateways, a guard, the upstream, clients and a ZooKeeper, and the accidents of a schedule.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_guard_store::store::{RedbStore, StoreIdentity};
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use fencegate_tests::memory::{
    EnsembleSettings, SeededRng, SimEnsemble, UndeliveredRequestFate, Wire, WireDirection,
};
use fencegate_zookeeper::state::HighestEpochTracker;
use futures_util::future::join_all;
use tokio::{
    sync::mpsc,
    task::spawn_local,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::info;

use super::{
    addresses::{
        CLIENTS, CLOCK_ERROR, GATEWAYS, GUARD, KeyNaming, RESPONSE_TIMEOUT, SecretFiles, T, UPSTREAM,
    },
    clients::SimClients,
    gateway_process::{self, GatewayStartOptions, OperatorCommand},
    guard_process::{self, GuardStartOptions, SimDisk},
    network::{SimHost, SimNetwork},
    process::SimProcess,
    schedule::{ClientRequest, EventKind, NetworkFault, ProcessId, Schedule, ScheduledEvent, UpstreamPath},
    simulated_clock,
    upstream::SimUpstream,
    verdict::{HistoryFindings, exercised_counts, judge},
};

pub(super) struct SimWorld {
    ensemble: SimEnsemble,
    cables: SimNetwork,
    gateways: [GatewaySlot; 2],
    guard: GuardSlot,
    upstream: Rc<SimUpstream>,
    clients: Rc<SimClients>,
    folder: PathBuf,
    secrets: Rc<SecretFiles>,
    clock: SharedClock,
}

/// One gateway of the installation. Its process is replaced by another one at a restart.
struct GatewaySlot {
    wire: Rc<Wire>,
    running: RefCell<Option<(SimProcess, mpsc::UnboundedSender<OperatorCommand>)>>,
    naming: Cell<KeyNaming>,
}

/// The guard of the installation, and its store.
struct GuardSlot {
    running: RefCell<Option<(SimProcess, mpsc::UnboundedSender<()>)>>,
    store: RefCell<Rc<Path>>,
    disk: Rc<SimDisk>,
    lets_in: Rc<Cell<bool>>,
}

/// The result of a schedule.
pub(super) struct ScheduleResult {
    pub(super) wrong: Vec<String>,
    /// The number of events of each kind: outcomes that clients got, and executions.
    pub(super) seen: BTreeMap<String, u64>,
}

/// Plays a schedule. `folder` is an empty folder that no other run uses.
pub(super) async fn play(schedule: &Schedule, seed: u64, folder: PathBuf) -> ScheduleResult {
    let world = Rc::new(SimWorld::new(seed, folder, schedule.way));
    world.wait_serving().await;
    let began = Instant::now();
    let events: Vec<_> = schedule
        .events
        .iter()
        .cloned()
        .enumerate()
        .map(|(number, event)| {
            let world = world.clone();
            spawn_local(async move {
                let ScheduledEvent { at, what } = event;
                sleep_until(began + at).await;
                if !matches!(what, EventKind::Asks(_)) {
                    info!("{what}");
                }
                world.run_event(number, what).await;
            })
        })
        .collect();
    for ended in join_all(events).await {
        ended.expect("no panic");
    }
    info!("calm");
    let mut wrong = world.check_after_repair().await;
    let HistoryFindings { wrong: found, outside } =
        judge(schedule.mild, schedule.way, &world.upstream, &world.clients);
    wrong.extend(found);
    let mut seen = world.clients.answer_counts();
    let (executions, tenures) = exercised_counts(&world.upstream);
    let counts = [
        ("executions", executions),
        ("tenures", tenures),
        ("outside", outside),
        ("refused by the filter", world.upstream.refused_count()),
    ];
    seen.extend(counts.map(|(what, often)| (what.to_owned(), often)));
    ScheduleResult { wrong, seen }
}

impl SimWorld {
    fn new(seed: u64, folder: PathBuf, way: UpstreamPath) -> Self {
        let dice = SeededRng::new(seed);
        let ensemble = SimEnsemble::start(EnsembleSettings {
            latency: Duration::ZERO..Duration::from_millis(2),
            seed: dice.next(),
            ..EnsembleSettings::default()
        });
        let cables = SimNetwork::new(dice.next());
        let place = |_| GatewaySlot {
            wire: ensemble.wire(),
            running: RefCell::default(),
            naming: Cell::new(KeyNaming::Account),
        };
        let guard = GuardSlot {
            running: RefCell::default(),
            store: RefCell::new(folder.join("guard.redb").into()),
            disk: SimDisk::new(dice.next()),
            lets_in: Rc::default(),
        };
        if way != UpstreamPath::Direct {
            cables.set_relay(UPSTREAM);
        }
        let clock = simulated_clock::since_boot(Duration::from_secs(1000));
        let ahead = dice.within(&(Duration::ZERO..CLOCK_ERROR * 2));
        let filter_clock = simulated_clock::other_machine(clock.clone(), ahead, CLOCK_ERROR);
        Self {
            upstream: SimUpstream::start(&cables.host(UPSTREAM), way, filter_clock),
            clients: SimClients::new(cables.host(CLIENTS)),
            gateways: [0, 1].map(place),
            guard,
            clock,
            ensemble,
            cables,
            secrets: Rc::new(SecretFiles::create(&folder)),
            folder,
        }
    }

    /// Starts gateways and guard, and waits until requests can be served. The guard's store needs the id of the
    /// installation, which a gateway creates first.
    async fn wait_serving(&self) {
        let memories = [0, 1].map(|number| self.start_gateway(number));
        let ensemble = loop {
            match memories.iter().find_map(|memory| memory.installation()) {
                Some(installation) => break installation.uuid.clone(),
                None => sleep(T / 20).await,
            }
        };
        let store = self.guard.store.borrow().clone();
        drop(
            RedbStore::init(&store, &StoreIdentity::new(&ensemble, &SystemRandomness), 0)
                .expect("an empty folder"),
        );
        self.start_guard();
        while !self.guard.lets_in.get() {
            sleep(T / 20).await;
        }
        info!("storm");
    }

    fn host(&self, who: ProcessId) -> SimHost {
        self.cables.host(match who {
            ProcessId::Gateway(number) => GATEWAYS[number],
            ProcessId::Guard => GUARD,
            ProcessId::Upstream => UPSTREAM,
        })
    }

    fn start_gateway(&self, number: usize) -> Arc<HighestEpochTracker> {
        let place = &self.gateways[number];
        let (orders, heard) = mpsc::unbounded_channel();
        let memory = Arc::<HighestEpochTracker>::default();
        let start = GatewayStartOptions {
            number,
            naming: place.naming.get(),
            host: self.host(ProcessId::Gateway(number)),
            zookeeper: self.ensemble.client(&place.wire, T),
            clock: self.clock.clone(),
            folder: self.folder.clone(),
            secrets: self.secrets.clone(),
            token_history: memory.clone(),
            orders: heard,
        };
        let name = ["gw-0", "gw-1"][number];
        let process = SimProcess::start(name, gateway_process::run(start));
        place.running.replace(Some((process, orders)));
        memory
    }

    fn start_guard(&self) {
        let (orders, heard) = mpsc::unbounded_channel();
        let start = GuardStartOptions {
            store: self.guard.store.borrow().clone(),
            secrets: self.secrets.clone(),
            host: self.host(ProcessId::Guard),
            clock: self.clock.clone(),
            disk: self.guard.disk.clone(),
            orders: heard,
            lets_in: self.guard.lets_in.clone(),
        };
        let process = SimProcess::start("guard", guard_process::run(start));
        self.guard.running.replace(Some((process, orders)));
    }

    async fn run_event(&self, number: usize, what: EventKind) {
        match what {
            EventKind::Asks(ask) => self.clients.perform(number, &ask).await,
            EventKind::Freezes(ProcessId::Upstream, time) => self.upstream.stall(time).await,
            EventKind::Freezes(who, time) => self.freeze_for(who, time).await,
            EventKind::HostSleeps(time) => {
                tokio::join!(self.freeze_for(ProcessId::Guard, time), self.upstream.stall(time));
            }
            EventKind::Dies(who, time) => {
                if self.kill(who) {
                    sleep(time).await;
                    self.start(who);
                }
            }
            EventKind::Restarts(who) => self.restart(who).await,
            EventKind::Blocked { from, to, time } => {
                self.cables.delays().delay_all(self.host(from).address(), self.host(to).address(), time);
            }
            EventKind::Breaks(one, other) => {
                self.cables.reset(self.host(one).address(), self.host(other).address())
            }
            EventKind::Slow(most) => self.cables.delays().set_max_delay(most),
            EventKind::DiskStalls(time) => self.guard.disk.stall(time),
            EventKind::ZooKeeper(gateway, trouble) => {
                apply_fault(&self.gateways[gateway].wire, trouble).await
            }
            EventKind::Rekeys(gateway) => {
                let place = &self.gateways[gateway];
                place.naming.set(place.naming.get().other());
                if let Some((_, orders)) = &*place.running.borrow() {
                    orders.send(OperatorCommand::Reload(place.naming.get())).ok();
                }
            }
        }
    }

    /// Applies `does` to this process. Returns false if it does not run.
    fn with_process(&self, who: ProcessId, does: impl FnOnce(&SimProcess)) -> bool {
        match who {
            ProcessId::Gateway(number) => {
                self.gateways[number].running.borrow().as_ref().map(|(it, _)| does(it))
            }
            ProcessId::Guard => self.guard.running.borrow().as_ref().map(|(it, _)| does(it)),
            ProcessId::Upstream => None,
        }
        .is_some()
    }

    async fn freeze_for(&self, who: ProcessId, time: Duration) {
        if self.with_process(who, SimProcess::freeze) {
            sleep(time).await;
            // If another process has replaced it, thawing changes nothing.
            self.with_process(who, SimProcess::thaw);
        }
    }

    /// Kills a process. Returns false if it did not run.
    fn kill(&self, who: ProcessId) -> bool {
        let address = self.host(who).address();
        let died = match who {
            ProcessId::Gateway(number) => self.gateways[number].running.take().map(drop).is_some(),
            ProcessId::Guard => self.guard.running.take().map(drop).is_some(),
            ProcessId::Upstream => false,
        };
        if died {
            self.cables.remove_host(address);
        }
        if died && who == ProcessId::Guard {
            self.guard.copy_store();
        }
        died
    }

    fn start(&self, who: ProcessId) {
        match who {
            ProcessId::Gateway(number) => drop(self.start_gateway(number)),
            ProcessId::Guard => self.start_guard(),
            ProcessId::Upstream => {}
        }
    }

    /// Stops a process in order, or kills it if it does not end, and starts another one.
    async fn restart(&self, who: ProcessId) {
        let running = match who {
            ProcessId::Gateway(number) => self.gateways[number].running.take().map(|(process, orders)| {
                orders.send(OperatorCommand::End).ok();
                process
            }),
            ProcessId::Guard => self.guard.running.take().map(|(process, _orders)| process),
            ProcessId::Upstream => None,
        };
        let Some(process) = running else { return };
        let ended = async {
            while !process.is_over() {
                sleep(T / 40).await;
            }
        };
        let in_order = timeout(T * 4, ended).await.is_ok();
        info!(in_order, "{who} has ended");
        self.cables.remove_host(self.host(who).address());
        if who == ProcessId::Guard {
            // A guard that has ended in order keeps its store file open, too, until the process of the test ends.
            self.guard.copy_store();
        }
        drop(process);
        self.start(who);
    }

    /// Repairs everything, and returns violations: requests that are not served again, or that are still in flight.
    async fn check_after_repair(&self) -> Vec<String> {
        for place in &self.gateways {
            place.wire.delay(Duration::ZERO..Duration::from_millis(1));
            place.wire.resume();
            place.wire.reconnect();
        }
        self.cables.delays().set_max_delay(Duration::ZERO);
        let mut wrong = Vec::new();
        // The two gateways may have different key templates, which exclude each other, so reload one of them.
        if self.gateways[0].naming.get() != self.gateways[1].naming.get() {
            self.run_event(0, EventKind::Rekeys(1)).await;
        }
        sleep(RESPONSE_TIMEOUT + T * 2).await;
        if !self.upstream.is_idle() {
            wrong.push("the upstream is still at work".to_owned());
        }
        for (number, path) in ["/pay/a", "/strict/b", "/move/a/c", "/bare/a", "/look/a"].iter().enumerate() {
            for gateway in 0..2 {
                let works = Duration::from_millis(10);
                let ask = ClientRequest::plain(gateway, (*path).to_owned(), works);
                let number = 1000 + number * 2 + gateway;
                self.clients.perform(number, &ask).await;
                let told = self.clients.answers().pop().expect("just told");
                if told.status != Some(200) {
                    wrong.push(format!("in the calm gateway {gateway} answers {told:?}"));
                }
            }
        }
        wrong.extend(self.clients.unfinished().into_iter().map(|ask| format!("does not end: {ask}")));
        wrong
    }
}

impl GuardSlot {
    /// Copies the store file in its present state for the next process: the process before still has the old file
    /// open.
    fn copy_store(&self) {
        let before = self.store.borrow().clone();
        let next: Rc<Path> = before.with_extension("again.redb").into();
        std::fs::copy(&before, &next).expect("a folder of ours");
        self.store.replace(next);
    }
}

async fn apply_fault(wire: &Wire, trouble: NetworkFault) {
    match trouble {
        NetworkFault::Cut(time) => {
            wire.disconnect(UndeliveredRequestFate::Arrives);
            sleep(time).await;
            wire.reconnect();
        }
        NetworkFault::Silent(time) => {
            wire.stall(WireDirection::Both);
            sleep(time).await;
            wire.resume();
        }
        NetworkFault::LosesRequest => wire.lose_next_request(),
        NetworkFault::LosesReply => wire.lose_next_reply(),
        NetworkFault::Blinks => wire.break_and_reconnect(UndeliveredRequestFate::Lost),
        NetworkFault::Slow(most) => wire.delay(Duration::ZERO..most),
        NetworkFault::Swaps => {
            wire.swap_on_reconnect();
            wire.break_and_reconnect(UndeliveredRequestFate::Arrives);
        }
    }
}
