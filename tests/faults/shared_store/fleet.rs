//! Two gateways before two guards with one store, and clients that send requests without end.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::FencingOutcome,
    gateway::Gateway,
    guard::{Guard, GuardLaunch},
    guarded::GuardedSite,
    history::History,
    load::{AttemptResult, LoadPlan, RunningLoad},
    shared_database::SharedDatabase,
};
use tokio::time::sleep;

/// The minimum duration of the load.
const MINUTE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 24;
const KEYS: usize = 12;
/// The number of extra keys that have no dispatch in flight when a guard dies.
const RESTING: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardNumber {
    One,
    Two,
}

pub(super) struct GuardFleet {
    guarded: GuardedSite,
    _sharing: Vec<SharedDatabase>,
    guards: [Guard; 2],
    launches: [GuardLaunch; 2],
    gateways: [Gateway; 2],
    load: RunningLoad,
    /// The results of the loads on the extra keys, which have ended.
    told: Vec<AttemptResult>,
    since: Instant,
}

impl GuardFleet {
    /// Starts guards, gateways and load. `of_two`: the database URL of the second guard, if it differs from `url`.
    pub(super) async fn start(url: &str, of_two: Option<&str>) -> Self {
        let guarded = GuardedSite::fresh().await;
        let sharing = SharedDatabase::new(url);
        let [one, two] = guarded.launch_pair(&sharing).await;
        let other = SharedDatabase::new(of_two.unwrap_or(url));
        let two = two.with("/store/postgres/url_file", other.url_file().display().to_string());
        let guards = [one.start().await, two.start().await];
        let doors = [guards[0].public, guards[1].public];
        let there = [doors[1], doors[0]];
        let (first, second) =
            tokio::join!(guarded.gateway_through("first", &doors), guarded.gateway_through("second", &there));
        let plan = LoadPlan {
            gateways: vec![first.public, second.public],
            paths: (0..KEYS).map(|n| format!("/pay/{n}")).collect(),
            clients: CLIENTS,
            requests: 1_000_000,
            pause: Duration::from_millis(20),
        };
        let load = RunningLoad::start("load", &plan);
        let sharing = vec![sharing, other];
        let gateways = [first, second];
        Self {
            guarded,
            _sharing: sharing,
            guards,
            launches: [one, two],
            gateways,
            load,
            told: Vec::new(),
            since: Instant::now(),
        }
    }

    pub(super) fn guard(&self, which: GuardNumber) -> &Guard {
        &self.guards[which as usize]
    }

    pub(super) async fn restart(&mut self, which: GuardNumber) {
        self.guards[which as usize] = self.launches[which as usize].start().await;
    }

    /// Starts guards that have ended, as a supervisor does. Returns when both guards are ready.
    pub(super) async fn wait_all_running(&mut self) {
        for which in [GuardNumber::One, GuardNumber::Two] {
            let ready = async {
                loop {
                    match self.guards[which as usize].wait_ready_or_ended().await {
                        Some(true) => return,
                        Some(false) => self.restart(which).await,
                        None => sleep(Duration::from_millis(50)).await,
                    }
                }
            };
            wait_until("a guard to be ready", ready, || "").await;
        }
    }

    fn execution_count(&self) -> usize {
        self.guarded.site.origin.log().records.len()
    }

    /// Waits until a request that was sent after the call is executed.
    pub(super) async fn wait_progress(&self, limit: Duration) {
        let began = Instant::now();
        let before = self.execution_count();
        // Each client has one request in flight, so at most `CLIENTS` of the next executions were requested before the
        // accident.
        while self.execution_count() <= before + CLIENTS {
            assert!(began.elapsed() < limit, "nothing is served for {:?}", began.elapsed());
            sleep(Duration::from_millis(20)).await;
        }
        println!("goes on after {:?}", began.elapsed());
    }

    /// Uses some new keys once, so that nothing is in flight on them afterwards.
    pub(super) async fn touch_new_keys(&mut self) -> Vec<String> {
        let keys: Vec<_> = (0..RESTING).map(|n| format!("/pay/rests-{}-{n}", self.told.len())).collect();
        let served = self.send_requests(&keys, 1).await;
        assert!(served.iter().all(is_served), "{served:?}");
        keys
    }

    /// Sends two requests for each key. The first may reach a process that has just died. The second must succeed in
    /// time.
    pub(super) async fn wait_serving(&mut self, limit: Duration, keys: &[String]) {
        let began = Instant::now();
        let told = self.send_requests(keys, 2).await;
        println!("what rested is served after {:?}", began.elapsed());
        let served = told.iter().skip(1).step_by(2).all(is_served);
        assert!(served && began.elapsed() < limit, "{:?}: {told:?}", began.elapsed());
    }

    async fn send_requests(&mut self, keys: &[String], requests: usize) -> Vec<AttemptResult> {
        let gateways = self.gateways.iter().map(|gateway| gateway.public).collect();
        let plan =
            LoadPlan { gateways, paths: keys.into(), clients: keys.len(), requests, pause: Duration::ZERO };
        let told = RunningLoad::start(&format!("rests-{}", self.told.len()), &plan).end().await;
        self.told.extend(told.clone());
        told
    }

    pub(super) async fn is_closed_after_rollback(&self) -> bool {
        for guard in &self.guards {
            if guard.metrics().await.sum("fencegate_guard_store_rolled_back", &[]) > 0.0 {
                return true;
            }
        }
        false
    }

    /// Judges the run after its minute. `least`: the number of executions below which the run shows nothing.
    pub(super) async fn assert_result(self, least: usize) {
        sleep(MINUTE.saturating_sub(self.since.elapsed())).await;
        let mut told = self.load.stop().await;
        told.extend(self.told);
        let mut history = History::from_log(&self.guarded.site.origin.log());
        let all = told.len();
        let done = told.iter().filter(|told| is_served(told)).count();
        told.iter().for_each(|told| history.record_answer(told.id.clone(), told.answer.as_ref().ok()));
        println!(
            "{all} asked, {done} done, {} executed, {} tenures",
            history.executions.len(),
            history.tenures()
        );
        history.assert_holds();
        assert!(history.executions.len() >= least, "{} executions show nothing", history.executions.len());
        assert!(done * 2 > history.executions.len(), "{done} of {} were told", history.executions.len());
        assert!(history.tenures() > least / 20, "{}", history.tenures());
    }
}

fn is_served(told: &AttemptResult) -> bool {
    told.answer.as_ref().is_ok_and(|answer| answer.outcome() == Some(FencingOutcome::Done))
}
