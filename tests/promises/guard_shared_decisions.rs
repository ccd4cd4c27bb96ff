//! Guards that share a store decide as a single guard would: the same random requests get the same answers from the
//! register in memory and from two guards on one PostgreSQL.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{
    DispatchName, InFlightDispatch, PostgresAdmissionOutcome, PostgresStore,
};
use fencegate_guard_store::{
    admission::{AdmissionTable, AdmitDecision, DispatchEnd, DispatchId, PresentedDispatch},
    error::DispatchRefusedError,
    store::{CleanShutdownState, RecoveredActiveKeys, RecoveredState, StoreIdentity},
};
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::clock::{BootInstant, Clock, ManualClock};
use fencegate_tests::shared_store::{FLOOR, SharedStore, TERMS};

/// The register in memory, the two guards on one PostgreSQL, and the requests in flight and waiting at both.
pub(crate) struct AdmissionComparisonFixture {
    register: AdmissionTable,
    clock: Arc<ManualClock>,
    guards: [PostgresStore; 2],
    running: Vec<RunningDispatch>,
    waiting: Vec<WaitingClaim>,
    told: Vec<String>,
    random: SmallRng,
}

/// A dispatch in flight on both sides.
struct RunningDispatch {
    claim: PresentedDispatch,
    id: DispatchId,
    guard: usize,
    dispatch: InFlightDispatch,
}

struct WaitingClaim {
    claim: PresentedDispatch,
    guard: usize,
    name: DispatchName,
}

/// A generator that gives the same numbers for the same seed.
pub(crate) struct SmallRng(u64);

impl SmallRng {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.next(many) == 0
    }
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

fn key(name: &str) -> ResourceKey {
    ResourceKey::parse(name).expect("a key")
}

/// The memory of a guard that was stopped in order with an empty store.
fn empty_recovered_state() -> RecoveredState {
    RecoveredState {
        identity: StoreIdentity { format: 1, store: "s".into(), ensemble: "e".into() },
        floor: FLOOR,
        era: 0,
        time: 0,
        max_execution: None,
        marks: HashMap::new(),
        at_work: RecoveredActiveKeys::Keys(Vec::new()),
        clean_stop: Some(CleanShutdownState::default()),
    }
}

/// A random claim with a token near the highest one.
pub(crate) fn claim(random: &mut SmallRng, highest: u64) -> PresentedDispatch {
    let mut keys: Vec<_> = KEYS.into_iter().filter(|_| random.one_in(3)).map(key).collect();
    if keys.is_empty() {
        keys.push(key(KEYS[random.next(4) as usize]));
    }
    let mode = if random.one_in(3) { LockMode::Shared } else { LockMode::Exclusive };
    let mut era = random.one_in(3).then(|| random.next(2));
    let mut epoch = (highest + random.next(4)).saturating_sub(random.next(6));
    match random.next(40) {
        0 => epoch = highest + (1 << 49),
        1 => {
            epoch = highest + (1 << 49);
            era = Some(random.next(4));
        }
        2 => epoch = random.next(FLOOR + 2),
        _ => {}
    }
    let token = FencingToken::new(epoch, random.next(2) as u32, 1 + random.next(3) as u32);
    PresentedDispatch { keys: keys.into(), token: token.expect("below 2^63"), mode, era, parent: None }
}

impl AdmissionComparisonFixture {
    async fn new(seed: u64) -> Self {
        let store = SharedStore::new().await;
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(1));
        let register = AdmissionTable::new(&empty_recovered_state(), clock.now(), TERMS.max_execution);
        let mut two = Self::with_store(register, &store, clock, seed).await;
        // A new store admits nothing at first.
        two.advance_time(TERMS.send_within + TERMS.max_execution + Duration::from_secs(1)).await;
        two
    }

    /// Compares a register with a store that holds the same state.
    pub(crate) async fn with_store(
        register: AdmissionTable,
        store: &SharedStore,
        clock: Arc<ManualClock>,
        seed: u64,
    ) -> Self {
        let guards = [store.guard(clock.clone(), "one").await, store.guard(clock.clone(), "other").await];
        let random = SmallRng::seeded(seed);
        Self { register, clock, guards, running: Vec::new(), waiting: Vec::new(), told: Vec::new(), random }
    }

    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    /// Passes time for both sides, in steps so short that no guard counts as dead. After two heartbeats of both guards,
    /// the time is written.
    pub(crate) async fn advance_time(&mut self, time: Duration) {
        let mut left = time;
        while left > Duration::ZERO {
            let step = left.min(Duration::from_secs(2));
            self.clock.advance(step);
            left -= step;
            for guard in self.guards.iter().chain(&self.guards) {
                guard.send_heartbeat().await.expect("the database is there");
            }
        }
        // The keys that were closed at the start are open now.
        self.register.delist_idle_keys(Duration::ZERO, usize::MAX, self.now());
        self.told.push(format!("passed {time:?}"));
    }

    fn claim(&mut self) -> PresentedDispatch {
        let claim = claim(&mut self.random, self.register.highest_epoch());
        if self.running.is_empty() || !self.random.one_in(4) {
            return claim;
        }
        // A claim whose caller is in flight, mostly for the same keys.
        let which = self.random.next(self.running.len() as u64) as usize;
        let caller = self.running[which].claim.clone();
        let later = caller.token.dispatch() + 1 + self.random.next(2) as u32;
        let token =
            FencingToken::new(caller.token.number(), caller.token.sequence(), later).expect("as its caller");
        let keys = if self.random.one_in(4) { claim.keys } else { caller.keys };
        let parent = Some(caller.token);
        PresentedDispatch { keys, token, mode: caller.mode, era: claim.era, parent }
    }

    /// Compares the decisions of both sides on a claim. With `first` the claim is announced; without, it only asks
    /// whether it may run now.
    async fn compare_claim(&mut self, waiting: WaitingClaim, first: bool) {
        let WaitingClaim { claim, guard, name } = &waiting;
        let now = self.now();
        let alone = match first.then(|| self.register.check_and_raise_watermarks(claim, now)) {
            Some(Err(refused)) => Err(refused),
            Some(Ok(_)) | None => self.register.check_and_register(claim, now).map(|(settled, _)| settled),
        };
        let postgres = &self.guards[*guard];
        let shared = match first {
            true => postgres.admit(claim, *name, None).await,
            false => postgres.check_and_register(claim, *name, None).await,
        };
        let shared = shared.expect("the database is there");
        self.told.push(format!(
            "{} {claim:?} at {guard}: {alone:?}, {shared:?}",
            if first { "claim" } else { "settle" }
        ));
        match (alone, shared) {
            (Err(refused), PostgresAdmissionOutcome::Rejected(same)) if refused == same => {}
            (Ok(AdmitDecision::Running(id)), PostgresAdmissionOutcome::Running { dispatch, since }) => {
                assert_eq!(since, now);
                let WaitingClaim { claim, guard, .. } = waiting;
                self.running.push(RunningDispatch { claim, id, guard, dispatch });
            }
            (Ok(AdmitDecision::Wait { doubt, .. }), PostgresAdmissionOutcome::Wait { doubt: same, .. })
                if doubt.map(|until| until.since(now)) == same =>
            {
                self.waiting.push(waiting);
            }
            // The register has only the record that these keys were at work at the end. Neither side admits anything.
            (Err(DispatchRefusedError::Quarantine { .. }), PostgresAdmissionOutcome::Wait { .. }) => {}
            _ => self.panic_with_difference(),
        }
    }

    /// Returns when the guard has done everything that was requested of it before.
    async fn wait_processed(&self, guard: usize) {
        let nobody = FencingToken::new(1, 0, 1).expect("small");
        self.guards[guard].resolve_doubt(&[], nobody).await.expect("the database is there");
    }

    async fn end_dispatch(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let which = self.random.next(self.running.len() as u64) as usize;
        let RunningDispatch { claim, id, guard, dispatch } = self.running.swap_remove(which);
        let until = self.now() + Duration::from_millis(self.random.next(6000));
        let ended = if self.random.one_in(2) { DispatchEnd::Known } else { DispatchEnd::InDoubt { until } };
        self.told.push(format!("end {claim:?} at {guard}: {ended:?}"));
        self.register.end_dispatch(&claim, id, ended, self.now());
        self.guards[guard].end_dispatch(&dispatch, ended);
        self.wait_processed(guard).await;
    }

    async fn resolve_operation(&mut self) {
        let doubts = self.register.open_doubts(self.now());
        let Some(doubt) = doubts.first().cloned() else { return };
        let keys = &doubt.keys[..1 + self.random.next(doubt.keys.len() as u64) as usize];
        let guard = self.random.next(2) as usize;
        let alone = self.register.resolve_doubt(keys, doubt.token, self.now());
        let shared =
            self.guards[guard].resolve_doubt(keys, doubt.token).await.expect("the database is there");
        self.told.push(format!("resolve {keys:?} {}: {alone}, {shared}", doubt.token));
        if alone != shared {
            self.panic_with_difference();
        }
    }

    /// Passes a claim on both sides as a guard under `observe` does.
    async fn pass_under_observe(&mut self) {
        let claim = self.claim();
        // A claim that raises nothing begins a record with the current floor in memory, but not in the database. Such
        // claims are left out.
        if claim.token.number() <= self.register.epoch_floor()
            || claim.token.number() > self.register.highest_epoch() + 5
        {
            return;
        }
        let guard = self.random.next(2) as usize;
        let now = self.now();
        self.register.raise_watermarks(&claim, now);
        let (id, _) = self.register.register_dispatch(&claim, now);
        let name = self.guards[guard].new_dispatch_name();
        let passed = self.guards[guard].admit_unchecked(&claim, name).await.expect("the database is there");
        self.told.push(format!("pass {claim:?} at {guard}: {passed:?}"));
        let PostgresAdmissionOutcome::Running { dispatch, .. } = passed else { self.panic_with_difference() };
        self.running.push(RunningDispatch { claim, id, guard, dispatch });
    }

    async fn forget(&mut self) {
        self.advance_time(TERMS.evict_after * 2).await;
        let mut round = self.register.begin_eviction_pass(self.now() - TERMS.evict_after, usize::MAX);
        while self.register.evict_step(&mut round, 2, self.now()).more {}
        let guard = self.random.next(2) as usize;
        let swept = self.guards[guard].sweep(usize::MAX >> 1).await.expect("the database is there");
        self.told.push(format!("forgot at {guard}: {swept:?}, {} left alone", self.register.len()));
    }

    pub(crate) async fn step(&mut self) {
        match self.random.next(100) {
            0..50 => {
                let claim = self.claim();
                let guard = self.random.next(2) as usize;
                let name = self.guards[guard].new_dispatch_name();
                self.compare_claim(WaitingClaim { claim, guard, name }, true).await;
            }
            50..65 if !self.waiting.is_empty() => {
                let which = self.random.next(self.waiting.len() as u64) as usize;
                let waiting = self.waiting.swap_remove(which);
                self.compare_claim(waiting, false).await;
            }
            65..85 => self.end_dispatch().await,
            85..90 => self.resolve_operation().await,
            90..94 => self.pass_under_observe().await,
            94..99 => {
                let time = Duration::from_millis(1 + self.random.next(1500));
                self.advance_time(time).await;
            }
            _ => self.forget().await,
        }
    }

    pub(crate) async fn compare(&self) {
        for guard in &self.guards {
            assert_eq!(guard.highest_epoch().await.expect("there"), self.register.highest_epoch());
            for name in KEYS {
                let alone = self
                    .register
                    .key_view(&key(name), self.now())
                    .filter(|seen| seen.write.is_some() || seen.read.is_some() || !seen.running.is_empty());
                let shared = guard.key_view(&key(name)).await.expect("there");
                let marks = |seen: &fencegate_guard_store::admission::GuardKeyView| {
                    let mut running: Vec<_> = seen.running.iter().map(|one| (one.token, one.mode)).collect();
                    let mut doubts: Vec<_> =
                        seen.doubts.iter().map(|one| (one.token, one.mode, one.until)).collect();
                    running.sort_by_key(|(token, _)| *token);
                    doubts.sort_by_key(|(token, _, until)| (*token, *until));
                    (seen.write, seen.read, running, doubts)
                };
                let alone = alone.as_ref().map(marks);
                let shared = shared.as_ref().map(marks);
                if alone != shared {
                    println!("{name}: {alone:?}\n{name}: {shared:?}");
                    self.panic_with_difference();
                }
            }
        }
    }

    fn panic_with_difference(&self) -> ! {
        let last = self.told.len().saturating_sub(25);
        panic!("they differ; the last that was asked:\n{}", self.told[last..].join("\n"));
    }
}

/// Two guards on one database decide random requests as the register of a single guard does.
#[tokio::test]
async fn two_guards_decide_as_one() {
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => vec![1, 2, 3, 4],
    };
    for seed in seeds {
        println!("SEED={seed}");
        let mut two = AdmissionComparisonFixture::new(seed).await;
        for _ in 0..250 {
            two.step().await;
        }
        two.advance_time(Duration::from_secs(1)).await;
        two.compare().await;
    }
}
