//! One simulation: two gateways, a guard, the upstream, clients and a ZooKeeper, and the accidents of a schedule.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_guard::store::{Identity, Redb};
use fencegate_lock::state::Memory;
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use fencegate_tests::memory::{Dice, Direction, Ensemble, Settings, Underway, Wire};
use futures_util::future::join_all;
use tokio::{
    sync::mpsc,
    task::spawn_local,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::info;

use super::{
    asking::Clients,
    gateway_process::{self, GatewayStart, Order},
    guard_process::{self, Disk, GuardStart},
    network::{Cables, Host},
    places::{CLIENTS, CLOCK_ERROR, GATEWAYS, GUARD, Naming, RESPONSE_TIMEOUT, Secrets, T, UPSTREAM},
    process::Process,
    schedule::{Ask, Event, Schedule, Trouble, WayToUpstream, What, Who},
    simulated_clock,
    upstream::Upstream,
    verdict::{Found, exercised, verdict},
};

pub(super) struct World {
    ensemble: Ensemble,
    cables: Cables,
    gateways: [GatewayPlace; 2],
    guard: GuardPlace,
    upstream: Rc<Upstream>,
    clients: Rc<Clients>,
    folder: PathBuf,
    secrets: Rc<Secrets>,
    clock: SharedClock,
}

/// The place of one gateway, whose processes follow each other.
struct GatewayPlace {
    wire: Rc<Wire>,
    running: RefCell<Option<(Process, mpsc::UnboundedSender<Order>)>>,
    naming: Cell<Naming>,
}

/// The place of the guard, and its store.
struct GuardPlace {
    running: RefCell<Option<(Process, mpsc::UnboundedSender<()>)>>,
    store: RefCell<Rc<Path>>,
    disk: Rc<Disk>,
    lets_in: Rc<Cell<bool>>,
}

/// The result of a schedule.
pub(super) struct Outcome {
    pub(super) wrong: Vec<String>,
    /// The number of times that each thing was answered to clients, or done.
    pub(super) seen: BTreeMap<String, u64>,
}

/// Plays a schedule. `folder` is an empty folder that nobody else uses.
pub(super) async fn play(schedule: &Schedule, seed: u64, folder: PathBuf) -> Outcome {
    let world = Rc::new(World::new(seed, folder, schedule.way));
    world.opens().await;
    let began = Instant::now();
    let events: Vec<_> = schedule
        .events
        .iter()
        .cloned()
        .enumerate()
        .map(|(number, event)| {
            let world = world.clone();
            spawn_local(async move {
                let Event { at, what } = event;
                sleep_until(began + at).await;
                if !matches!(what, What::Asks(_)) {
                    info!("{what}");
                }
                world.happens(number, what).await;
            })
        })
        .collect();
    for ended in join_all(events).await {
        ended.expect("no panic");
    }
    info!("calm");
    let mut wrong = world.calm().await;
    let Found { wrong: found, outside } =
        verdict(schedule.mild, schedule.way, &world.upstream, &world.clients);
    wrong.extend(found);
    let mut seen = world.clients.seen();
    let (executions, tenures) = exercised(&world.upstream);
    let counts = [
        ("executions", executions),
        ("tenures", tenures),
        ("outside", outside),
        ("refused by the filter", world.upstream.refused()),
    ];
    seen.extend(counts.map(|(what, often)| (what.to_owned(), often)));
    Outcome { wrong, seen }
}

impl World {
    fn new(seed: u64, folder: PathBuf, way: WayToUpstream) -> Self {
        let dice = Dice::seeded(seed);
        let ensemble = Ensemble::start(Settings {
            latency: Duration::ZERO..Duration::from_millis(2),
            seed: dice.next(),
            ..Settings::default()
        });
        let cables = Cables::laid(dice.next());
        let place = |_| GatewayPlace {
            wire: ensemble.wire(),
            running: RefCell::default(),
            naming: Cell::new(Naming::Account),
        };
        let guard = GuardPlace {
            running: RefCell::default(),
            store: RefCell::new(folder.join("guard.redb").into()),
            disk: Disk::new(dice.next()),
            lets_in: Rc::default(),
        };
        if way != WayToUpstream::Direct {
            cables.relays_to(UPSTREAM);
        }
        let clock = simulated_clock::since_boot(Duration::from_secs(1000));
        let ahead = dice.within(&(Duration::ZERO..CLOCK_ERROR * 2));
        let filter_clock = simulated_clock::other_machine(clock.clone(), ahead, CLOCK_ERROR);
        Self {
            upstream: Upstream::open(&cables.host(UPSTREAM), way, filter_clock),
            clients: Clients::at(cables.host(CLIENTS)),
            gateways: [0, 1].map(place),
            guard,
            clock,
            ensemble,
            cables,
            secrets: Rc::new(Secrets::written(&folder)),
            folder,
        }
    }

    /// Waits until requests can be served. The guard must know the installation first, whose tokens it compares.
    async fn opens(&self) {
        let memories = [0, 1].map(|number| self.starts_gateway(number));
        let ensemble = loop {
            match memories.iter().find_map(|memory| memory.installation()) {
                Some(installation) => break installation.uuid.clone(),
                None => sleep(T / 20).await,
            }
        };
        let store = self.guard.store.borrow().clone();
        drop(Redb::init(&store, &Identity::new(&ensemble, &SystemRandomness), 0).expect("an empty folder"));
        self.starts_guard();
        while !self.guard.lets_in.get() {
            sleep(T / 20).await;
        }
        info!("storm");
    }

    fn host(&self, who: Who) -> Host {
        self.cables.host(match who {
            Who::Gateway(number) => GATEWAYS[number],
            Who::Guard => GUARD,
            Who::Upstream => UPSTREAM,
        })
    }

    fn starts_gateway(&self, number: usize) -> Arc<Memory> {
        let place = &self.gateways[number];
        let (orders, heard) = mpsc::unbounded_channel();
        let memory = Arc::<Memory>::default();
        let start = GatewayStart {
            number,
            naming: place.naming.get(),
            host: self.host(Who::Gateway(number)),
            zookeeper: self.ensemble.client(&place.wire, T),
            clock: self.clock.clone(),
            folder: self.folder.clone(),
            secrets: self.secrets.clone(),
            memory: memory.clone(),
            orders: heard,
        };
        let name = ["gw-0", "gw-1"][number];
        let process = Process::start(name, gateway_process::run(start));
        place.running.replace(Some((process, orders)));
        memory
    }

    fn starts_guard(&self) {
        let (orders, heard) = mpsc::unbounded_channel();
        let start = GuardStart {
            store: self.guard.store.borrow().clone(),
            secrets: self.secrets.clone(),
            host: self.host(Who::Guard),
            clock: self.clock.clone(),
            disk: self.guard.disk.clone(),
            orders: heard,
            lets_in: self.guard.lets_in.clone(),
        };
        let process = Process::start("guard", guard_process::run(start));
        self.guard.running.replace(Some((process, orders)));
    }

    async fn happens(&self, number: usize, what: What) {
        match what {
            What::Asks(ask) => self.clients.ask(number, &ask).await,
            What::Freezes(Who::Upstream, time) => self.upstream.stands_still(time).await,
            What::Freezes(who, time) => self.freezes(who, time).await,
            What::HostSleeps(time) => {
                tokio::join!(self.freezes(Who::Guard, time), self.upstream.stands_still(time));
            }
            What::Dies(who, time) => {
                if self.dies(who) {
                    sleep(time).await;
                    self.starts(who);
                }
            }
            What::Restarts(who) => self.restarts(who).await,
            What::Blocked { from, to, time } => {
                self.cables.distances().block(self.host(from).address(), self.host(to).address(), time);
            }
            What::Breaks(one, other) => {
                self.cables.reset(self.host(one).address(), self.host(other).address())
            }
            What::Slow(most) => self.cables.distances().slow(most),
            What::DiskStalls(time) => self.guard.disk.stall(time),
            What::ZooKeeper(gateway, trouble) => strikes(&self.gateways[gateway].wire, trouble).await,
            What::Rekeys(gateway) => {
                let place = &self.gateways[gateway];
                place.naming.set(place.naming.get().other());
                if let Some((_, orders)) = &*place.running.borrow() {
                    orders.send(Order::Reload(place.naming.get())).ok();
                }
            }
        }
    }

    /// Applies `does` to the process at this place. Returns whether there was one.
    fn with(&self, who: Who, does: impl FnOnce(&Process)) -> bool {
        match who {
            Who::Gateway(number) => self.gateways[number].running.borrow().as_ref().map(|(it, _)| does(it)),
            Who::Guard => self.guard.running.borrow().as_ref().map(|(it, _)| does(it)),
            Who::Upstream => None,
        }
        .is_some()
    }

    async fn freezes(&self, who: Who, time: Duration) {
        if self.with(who, Process::freeze) {
            sleep(time).await;
            // Another process may have taken its place; that one is awake.
            self.with(who, Process::thaw);
        }
    }

    /// Returns whether a process was there.
    fn dies(&self, who: Who) -> bool {
        let address = self.host(who).address();
        let died = match who {
            Who::Gateway(number) => self.gateways[number].running.take().map(drop).is_some(),
            Who::Guard => self.guard.running.take().map(drop).is_some(),
            Who::Upstream => false,
        };
        if died {
            self.cables.leave(address);
        }
        if died && who == Who::Guard {
            self.guard.store_is_copied();
        }
        died
    }

    fn starts(&self, who: Who) {
        match who {
            Who::Gateway(number) => drop(self.starts_gateway(number)),
            Who::Guard => self.starts_guard(),
            Who::Upstream => {}
        }
    }

    /// Stops the process in order. If it does not end, it is killed.
    async fn restarts(&self, who: Who) {
        let running = match who {
            Who::Gateway(number) => self.gateways[number].running.take().map(|(process, orders)| {
                orders.send(Order::End).ok();
                process
            }),
            Who::Guard => self.guard.running.take().map(|(process, _orders)| process),
            Who::Upstream => None,
        };
        let Some(process) = running else { return };
        let ended = async {
            while !process.is_over() {
                sleep(T / 40).await;
            }
        };
        let in_order = timeout(T * 4, ended).await.is_ok();
        info!(in_order, "{who} has ended");
        self.cables.leave(self.host(who).address());
        if who == Who::Guard {
            // A guard that has ended also keeps its file open until our own process ends.
            self.guard.store_is_copied();
        }
        drop(process);
        self.starts(who);
    }

    /// After everything is mended, requests must be served again, and nothing may be left at work.
    async fn calm(&self) -> Vec<String> {
        for place in &self.gateways {
            place.wire.delay(Duration::ZERO..Duration::from_millis(1));
            place.wire.flow();
            place.wire.reconnect();
        }
        self.cables.distances().slow(Duration::ZERO);
        let mut wrong = Vec::new();
        // The two gateways may have different key templates until both have reloaded.
        if self.gateways[0].naming.get() != self.gateways[1].naming.get() {
            self.happens(0, What::Rekeys(1)).await;
        }
        sleep(RESPONSE_TIMEOUT + T * 2).await;
        if !self.upstream.rests() {
            wrong.push("the upstream is still at work".to_owned());
        }
        for (number, path) in ["/pay/a", "/strict/b", "/move/a/c", "/bare/a", "/look/a"].iter().enumerate() {
            for gateway in 0..2 {
                let works = Duration::from_millis(10);
                let ask = Ask::plain(gateway, (*path).to_owned(), works);
                let number = 1000 + number * 2 + gateway;
                self.clients.ask(number, &ask).await;
                let told = self.clients.told().pop().expect("just told");
                if told.status != Some(200) {
                    wrong.push(format!("in the calm gateway {gateway} answers {told:?}"));
                }
            }
        }
        wrong.extend(self.clients.endless().into_iter().map(|ask| format!("does not end: {ask}")));
        wrong
    }
}

impl GuardPlace {
    /// Copies the store file in its present state for the next process, because a killed process still has the old
    /// file open.
    fn store_is_copied(&self) {
        let before = self.store.borrow().clone();
        let next: Rc<Path> = before.with_extension("again.redb").into();
        std::fs::copy(&before, &next).expect("a folder of ours");
        self.store.replace(next);
    }
}

async fn strikes(wire: &Wire, trouble: Trouble) {
    match trouble {
        Trouble::Cut(time) => {
            wire.disconnect(Underway::Arrives);
            sleep(time).await;
            wire.reconnect();
        }
        Trouble::Silent(time) => {
            wire.stall(Direction::Both);
            sleep(time).await;
            wire.flow();
        }
        Trouble::LosesRequest => wire.lose_next_request(),
        Trouble::LosesReply => wire.lose_next_reply(),
        Trouble::Blinks => wire.blink(Underway::Lost),
        Trouble::Slow(most) => wire.delay(Duration::ZERO..most),
        Trouble::Swaps => {
            wire.swap_on_reconnect();
            wire.blink(Underway::Arrives);
        }
    }
}
