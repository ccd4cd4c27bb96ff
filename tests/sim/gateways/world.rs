//! One simulation: a few gateways, a few keys, requests all the time, accidents for a while, and calm at the end.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use fencegate_policies::key::ResourceKey;
use fencegate_tests::memory::{EnsembleSettings, SeededRng, SimEnsemble, Wire};
use tokio::{
    task::spawn_local,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::info;

use super::{
    gateway::{
        AcquireError, ClockSpeed, GatewaySettings, GrantGuard, HoldMode, LEAST_WAIT, LockMode, LockWaitPlace,
        SimGateway, SimRequest, T, WorkerHandle, is_lock, key,
    },
    judge::{LockJudge, StormKind},
};

pub(super) struct SimWorld {
    pub(super) storm: StormKind,
    pub(super) ensemble: SimEnsemble,
    pub(super) gateways: Vec<GatewaySlot>,
    pub(super) dice: SeededRng,
    keys: Vec<ResourceKey>,
    scale: GatewaySettings,
    pub(super) judge: LockJudge,
}

/// One gateway of the installation. Its process is replaced by another one at a restart.
pub(super) struct GatewaySlot {
    pub(super) wire: Rc<Wire>,
    process: RefCell<Rc<SimGateway>>,
    /// The time until which the upstream of this gateway does not answer.
    hangs: Cell<Instant>,
}

const CALLERS: usize = 4;
/// The maximum number of times that a request is forwarded.
const TRIES: u32 = 3;
/// The interval in which the judge looks for violations, in addition to every event.
const LOOK: Duration = Duration::from_millis(25);

impl SimWorld {
    pub(super) fn new(storm: StormKind, clocks: ClockSpeed, seed: u64) -> Self {
        let dice = SeededRng::new(seed);
        let ensemble = SimEnsemble::start(EnsembleSettings {
            latency: Duration::ZERO..Duration::from_millis(2),
            containers: Duration::from_secs(1),
            seed: dice.next(),
            ..EnsembleSettings::default()
        });
        let scale = GatewaySettings { clocks, sessions: 1 + dice.index(2) };
        let place = |_| {
            let wire = ensemble.wire();
            let process = Rc::new(SimGateway::start(&ensemble, &wire, scale, &dice));
            GatewaySlot { wire, process: RefCell::new(process), hangs: Cell::new(Instant::now()) }
        };
        let gateways = (0..2 + dice.below(2)).map(place).collect();
        let keys = ["a", "b", "c"].map(key).into();
        let judge = LockJudge::new(storm);
        Self { storm, ensemble, gateways, dice, keys, scale, judge }
    }

    /// Sends requests and restarts gateways until `end`, while `accidents` runs. Then it checks the state after the
    /// storm.
    pub(super) async fn run(self: Rc<Self>, end: Instant, accidents: impl Future<Output = ()> + 'static) {
        let calling: Vec<_> = (0..self.gateways.len() * CALLERS)
            .map(|number| spawn_local(self.clone().call(number, end)))
            .collect();
        let storm = spawn_local(accidents);
        let restarting = spawn_local(self.clone().restart(end));
        while !storm.is_finished() || !restarting.is_finished() {
            sleep(LOOK).await;
            self.judge.check();
        }
        for caller in calling {
            if timeout(T * 20, caller).await.is_err() {
                self.judge.report("a request does not end".to_owned());
            }
        }
        self.check_after_storm().await;
    }

    /// The violations.
    pub(super) fn verdict(self) -> Vec<String> {
        self.judge.verdict()
    }

    /// One client: it sends one request after the other, always to the same gateway.
    async fn call(self: Rc<Self>, number: usize, end: Instant) {
        let at = number % self.gateways.len();
        let mut asked = 0;
        while Instant::now() < end {
            asked += 1;
            self.request(&format!("gateway {at}, request {number}/{asked}"), &self.gateways[at]).await;
        }
    }

    /// Plays one request, from asking for its lock to the release.
    async fn request(&self, who: &str, place: &GatewaySlot) {
        let want = self.random_request();
        let began = Instant::now();
        let gone = match self.dice.below(5) {
            0 => self.dice.within(&(Duration::ZERO..T)),
            _ => Duration::MAX,
        };
        let acquired = timeout(gone, self.acquire(who, place, &want)).await;
        // A forwarded request may wait for ZooKeeper at three steps: here, at the holder, and here again.
        let longest = match want.keeping {
            HoldMode::SentOn => want.wait + LEAST_WAIT * 3,
            _ => want.wait.max(LEAST_WAIT),
        };
        if began.elapsed() > longest + Duration::from_millis(1) {
            self.judge.report(format!("{who} waited {:?} for {want:?}", began.elapsed()));
        }
        match acquired {
            Ok(Ok((place, door, tenure))) => self.work(who, place, &door, &want, tenure).await,
            Ok(Err(refused)) => {
                info!("{who} refused: {refused}");
                sleep(self.dice.within(&(Duration::ZERO..T / 10))).await;
            }
            Err(_) => info!("{who} gone"),
        }
    }

    /// Takes the lock here, or at the gateway that holds the key. Returns the gateway that granted it.
    async fn acquire<'a>(
        &'a self,
        who: &str,
        here: &'a GatewaySlot,
        want: &SimRequest,
    ) -> Result<(&'a GatewaySlot, WorkerHandle, GrantGuard), AcquireError> {
        let began = Instant::now();
        let here_door = here.gateway().worker_handle();
        let mut tries = if want.keeping == HoldMode::SentOn { TRIES } else { 0 };
        let left = || SimRequest { wait: want.wait.saturating_sub(began.elapsed()), ..want.clone() };
        loop {
            let waits =
                if tries > 0 && is_forwardable(want) { LockWaitPlace::Anywhere } else { LockWaitPlace::Here };
            let way = match here_door.acquire(&left(), waits).await {
                Err(AcquireError::Elsewhere(way)) => way,
                other => return other.map(|tenure| (here, here_door, tenure)),
            };
            info!("{who} is sent on");
            let there = self.gateways.iter().find(|place| place.gateway().is_target_of(&way));
            let answer = match there {
                // The request goes on with the rest of its wait, at the lock manager of this process: if the process
                // is replaced, its successor does not have the request.
                Some(place) => {
                    let door = place.gateway().worker_handle();
                    door.acquire(&left(), LockWaitPlace::AtHolder).await.map(|tenure| (place, door, tenure))
                }
                None => Err(AcquireError::NotHolder),
            };
            match answer {
                Err(AcquireError::NotHolder) => {
                    here_door.forget(&want.keys[0], &way);
                    tries = if left().wait.is_zero() { 0 } else { tries - 1 };
                }
                answer => return answer,
            }
        }
    }

    /// Sends dispatches under a tenure while it allows them, and releases the lock.
    async fn work(
        &self,
        who: &str,
        place: &GatewaySlot,
        door: &WorkerHandle,
        want: &SimRequest,
        tenure: GrantGuard,
    ) {
        let mut number = None;
        while let Some((token, permission)) = door.dispatch(&tenure) {
            let permit = tenure.permit();
            let number = number.get_or_insert_with(|| self.judge.enter(who, want, permit, &permission));
            if !permission.holds() {
                info!("{who}, number {number}, has lost its lock");
                break;
            }
            self.judge.record_dispatch(who, want, permit, token);
            let longest = if self.dice.below(10) == 0 { T * 2 } else { T / 40 };
            sleep(self.dice.within(&(Duration::ZERO..longest))).await;
            sleep_until(place.hangs.get()).await;
            if self.dice.below(3) > 0 {
                break;
            }
        }
        if let Some(number) = number {
            self.judge.leave(number);
        }
        if self.dice.below(10) > 0 {
            tenure.mark_upstream_settled();
        }
    }

    fn random_request(&self) -> SimRequest {
        let dice = &self.dice;
        if dice.below(5) == 0 {
            return SimRequest {
                wait: *dice.one_of(&[Duration::ZERO, T / 2, T * 2, T * 6]),
                ..node_request()
            };
        }
        if dice.below(5) == 0 {
            let wait = *dice.one_of(&[Duration::ZERO, T / 2, T * 2, T * 6]);
            // Some requests take the key without permits or with another number of permits, which must exclude the
            // others.
            let keeping = match dice.below(16) {
                0 => HoldMode::Permits(3),
                1 => HoldMode::Strict,
                2 => HoldMode::Cached,
                _ => HoldMode::Permits(PERMITS),
            };
            return SimRequest { wait, keeping, ..permit_request() };
        }
        let first = dice.index(3);
        let others = 1 + dice.index(2);
        let mut keys = vec![self.keys[first].clone()];
        if dice.below(4) == 0 {
            keys.push(self.keys[(first + others) % 3].clone());
            keys.sort_unstable();
        }
        SimRequest {
            keys,
            mode: if dice.below(3) == 0 { LockMode::Shared } else { LockMode::Exclusive },
            keeping: *dice.one_of(&[HoldMode::Strict, HoldMode::Cached, HoldMode::SentOn, HoldMode::SentOn]),
            wait: *dice.one_of(&[Duration::ZERO, T / 2, T * 2, T * 6]),
        }
    }

    /// Stops a gateway now and then, and starts another one in its place.
    async fn restart(self: Rc<Self>, end: Instant) {
        loop {
            sleep(self.dice.within(&(T / 2..T * 4))).await;
            if Instant::now() >= end {
                return;
            }
            let at = self.dice.index(self.gateways.len());
            info!("restart of gateway {at}");
            self.stop(at).await;
            let place = &self.gateways[at];
            let anew = SimGateway::start(&self.ensemble, &place.wire, self.scale, &self.dice);
            place.process.replace(Rc::new(anew));
        }
    }

    async fn stop(&self, at: usize) {
        if !self.gateways[at].gateway().stop().await {
            self.judge.report(format!("gateway {at} does not stop"));
        }
    }

    /// After the storm every lock can be taken, and no lock node is left.
    async fn check_after_storm(&self) {
        sleep(T * 3).await;
        for at in 0..self.gateways.len() {
            let alone = |key: &ResourceKey, keeping| SimRequest {
                keys: vec![key.clone()],
                keeping,
                ..node_request()
            };
            let both = |key| [alone(key, HoldMode::Strict), alone(key, HoldMode::Cached)];
            for want in self.keys.iter().flat_map(both).chain([node_request(), permit_request()]) {
                match self.gateways[at].gateway().worker_handle().acquire(&want, LockWaitPlace::Here).await {
                    Ok(tenure) => tenure.mark_upstream_settled(),
                    Err(refused) => {
                        self.judge.report(format!("gateway {at} in the calm: {want:?}: {refused}"))
                    }
                }
            }
        }
        // Cached tenures linger for a quarter of a second, so wait until they have ended.
        sleep(T / 2).await;
        let mut left = self.ensemble.paths();
        left.retain(|path| is_lock(path));
        if !left.is_empty() {
            self.judge.report(format!("left behind: {left:?}"));
        }
        for at in 0..self.gateways.len() {
            if self.gateways[at].gateway().key_count() > 0 {
                self.judge.report(format!("gateway {at} remembers keys that nobody wants"));
            }
            self.stop(at).await;
        }
        if !self.ensemble.sessions().is_empty() {
            self.judge.report("sessions are left open".to_owned());
        }
    }
}

/// A request for the node that gateways share with programs.
fn node_request() -> SimRequest {
    SimRequest { keys: vec![key("d")], mode: LockMode::Exclusive, keeping: HoldMode::OneNode, wait: T * 2 }
}

/// A request for a key with permits.
fn permit_request() -> SimRequest {
    SimRequest { keys: vec![key("e")], keeping: HoldMode::Permits(PERMITS), ..node_request() }
}

const PERMITS: u16 = 2;

/// False for a request for several keys or for a shared lock, which is never forwarded.
fn is_forwardable(want: &SimRequest) -> bool {
    want.keys.len() == 1 && want.mode == LockMode::Exclusive
}

impl GatewaySlot {
    pub(super) fn hang_upstream(&self, duration: Duration) {
        self.hangs.set(Instant::now() + duration);
    }

    fn gateway(&self) -> Rc<SimGateway> {
        self.process.borrow().clone()
    }
}
