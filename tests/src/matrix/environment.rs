//! The environment of one run: three ZooKeeper servers, gateways, guards, a recording service, and clients.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::{PATIENCE, wait_until};
use tokio::time::sleep;

use super::{
    clients::ClientPool,
    gateway_node::GatewayNode,
    lease_work::lease_request,
    level::TestedFencingLevel,
    post_checks::{find_leftovers, read_watermarks},
    run_log::{AccidentTime, ClientAttempt, RunLog, attempt_id},
    service_relay::ServiceRelay,
    setup::{CaseSetup, ForwardMode},
    topology::{self, RunContext, RunResources},
    workload::WorkloadKind,
};
use crate::{
    ensemble::Ensemble,
    guard::{Guard, GuardLaunch},
    guarded::GuardedSite,
    leases::ClientLease,
    memory::rng::SeededRng,
    namespaces::NetworkNamespaces,
    origin::{ATTEMPT, OriginLog, RequestRecord},
    site::TestSite,
    zookeeper::ZnodeTree,
};

pub struct RunEnvironment {
    pub ensemble: Ensemble,
    /// The network namespaces of the gateways, if each has one.
    pub namespaces: Option<NetworkNamespaces>,
    pub guarded: GuardedSite,
    pub level: TestedFencingLevel,
    pub apparatus: CaseSetup,
    pub stations: Vec<GatewayNode>,
    /// The guards; empty at levels other than `guard`.
    pub guards: Vec<Guard>,
    /// The listeners of the service that have a proxy in front of them.
    pub relayed: Vec<ServiceRelay>,
    pub clients: ClientPool,
    pub dice: SeededRng,
    /// The number of executions in flight at the accident, or of other things that it concerned.
    pub hit: usize,
    /// Values that must live as long as the run.
    pub kept: RunResources,
    /// The number of stale requests that guards refused which have ended since.
    stale: usize,
}

/// The record of a run, before it is judged.
pub struct RunResult {
    pub chronicle: RunLog,
    pub stale: usize,
    pub hit: usize,
}

/// The time for which clients go on after all keys are served again.
const CALM: Duration = Duration::from_millis(1500);

impl RunEnvironment {
    /// Sets up a run. Returns when clients send requests, and each gateway has served some of them.
    pub async fn open(
        apparatus: CaseSetup,
        level: TestedFencingLevel,
        seed: u64,
        ensemble: Ensemble,
        namespaces: Option<NetworkNamespaces>,
    ) -> Self {
        let dice = SeededRng::new(seed);
        let mut kept = RunResources::new();
        let site = TestSite::at(ensemble.address(0)).await.with_accounts(level.rule());
        let guarded = GuardedSite::new(site).await;
        let tickets = topology::tickets(&apparatus, &mut kept).await;
        let place = RunContext { guarded: &guarded, ensemble: &ensemble, namespaces: namespaces.as_ref() };
        let mut relayed = Vec::new();
        let guards =
            topology::guards(&apparatus, level, &place, tickets.as_ref(), &mut relayed, &mut kept).await;
        let mut stations = Vec::new();
        for number in 0..apparatus.gateways {
            let station = topology::create_gateway_node(
                &apparatus,
                level,
                &place,
                &guards,
                tickets.as_ref(),
                number,
                &mut relayed,
            );
            stations.push(station.await);
        }
        place.enter_namespaces(&mut stations, &mut kept);
        topology::enable_leases(apparatus.errand, &mut stations, &mut kept);
        let spoken = topology::client_protocol(apparatus.speech, &mut stations, &mut kept);
        for station in &mut stations {
            let launch = station.launch();
            station.start(launch).await;
        }
        let gateways = stations.iter().map(|station| (station.name.clone(), station.address)).collect();
        let clients = ClientPool::start(gateways, spoken, apparatus.errand, &dice);
        let lab = Self {
            ensemble,
            namespaces,
            guarded,
            level,
            apparatus,
            stations,
            guards,
            relayed,
            clients,
            dice,
            hit: 0,
            kept,
            stale: 0,
        };
        lab.wait_all_serving(15).await;
        lab
    }

    /// Waits until each gateway has served this number of further requests.
    pub async fn wait_all_serving(&self, more: usize) {
        let origin = &self.guarded.site.origin;
        let so_far = origin.log().records.len();
        let through = |log: &OriginLog, name: &str| {
            let records = log.records[so_far..].iter();
            records.filter(|record| is_through(record, name) && record.effect.is_some()).count()
        };
        let served = |log: &OriginLog| {
            let all = self.stations.iter().all(|station| through(log, &station.name) >= more);
            all.then_some(())
        };
        origin.wait_for("all gateways to serve", served).await;
    }

    /// A random one of the paths that clients request.
    pub fn some_path(&self) -> String {
        self.dice.one_of(&self.apparatus.errand.paths()).clone()
    }

    /// Sends a request through this gateway that takes `work`. Returns its record when the service executes it.
    pub async fn wait_at_work(&self, gateway: usize, work: Duration) -> RequestRecord {
        let path = self.some_path();
        let id = match self.apparatus.errand {
            WorkloadKind::PayUnderLeases => {
                let lease = self.lease(gateway, &path).await;
                self.clients.send_with_lease(&lease, gateway, &path, work)
            }
            _ => self.clients.send(gateway, &path, work),
        };
        let begun = |log: &OriginLog| {
            let found =
                log.records.iter().rev().find(|record| record.request.field(ATTEMPT) == Some(id.as_str()));
            found.filter(|record| record.effect.is_some()).cloned()
        };
        self.guarded.site.origin.wait_for("a long execution", begun).await
    }

    /// A lease of the key of this path from this gateway, over plain HTTP/1.1.
    async fn lease(&self, gateway: usize, path: &str) -> ClientLease {
        let asked = async {
            loop {
                let answer = lease_request(path).send_to(self.stations[gateway].address).await;
                if let Some(granted) = answer.ok().filter(|answer| answer.status == 201) {
                    return ClientLease::from_response(&granted);
                }
            }
        };
        wait_until("a lease", asked, || self.stations[gateway].gateway().log()).await
    }

    /// Counts the requests of this gateway that are executed at this moment as hit by the accident. Returns the
    /// moment.
    pub fn mark_accident(&mut self, gateway: usize) -> Instant {
        let name = self.stations[gateway].name.clone();
        self.mark_accident_of(|record| is_through(record, &name))
    }

    /// As [`Self::mark_accident`], for the requests of all gateways.
    pub fn mark_accident_everywhere(&mut self) -> Instant {
        self.mark_accident_of(|_| true)
    }

    fn mark_accident_of(&mut self, whose: impl Fn(&RequestRecord) -> bool) -> Instant {
        let log = self.guarded.site.origin.log();
        let at_work = |record: &&RequestRecord| record.effect.is_some_and(|effect| effect.ended.is_none());
        let hit = log.records.iter().filter(at_work).filter(|record| whose(record)).count();
        drop(log);
        self.hit += hit;
        Instant::now()
    }

    /// Waits long enough for a session to expire, and for its keys to be granted to others.
    pub async fn wait_sessions_end(&self) {
        sleep(2 * self.apparatus.session).await;
    }

    /// A connection that reads ZooKeeper's nodes.
    pub async fn tree(&self) -> ZnodeTree {
        ZnodeTree::connect_to_any(&self.ensemble.addresses().join(","), &self.guarded.site.root).await
    }

    /// Kills a guard. Returns the launch that starts it again on its store.
    pub async fn kill_guard(&mut self, number: usize) -> GuardLaunch {
        let guard = self.guards.remove(number);
        self.stale += stale_refusals(&guard).await;
        guard.kill().await
    }

    /// Removes a guard that has ended by itself. Returns the launch that starts it again on its store.
    pub fn take_ended_guard(&mut self, number: usize) -> GuardLaunch {
        self.guards.remove(number).launch().clone()
    }

    /// Starts a guard in the place of one that has ended.
    pub async fn start_guard(&mut self, number: usize, launch: &GuardLaunch) {
        let guard = launch.start().await;
        self.guards.insert(number, guard);
    }

    /// Waits until, for each key, a request that was sent after this moment was served, at most for `limit`.
    pub async fn wait_paths_served(&self, from: Instant, limit: Duration) {
        let paths = self.apparatus.errand.paths();
        let served = |asked: &[ClientAttempt]| {
            let again = |path: &String| {
                asked.iter().rev().any(|one| one.path == *path && one.invoked >= from && one.is_done())
            };
            paths.iter().all(again)
        };
        self.clients.wait_until(limit, served).await;
    }

    /// Lets clients go on until each key was served again or the time limit is over, and a little longer. Then ends
    /// everything, and returns the record.
    pub async fn finish(mut self, from: Instant, bound: Duration) -> (RunResult, Ensemble) {
        self.wait_paths_served(from, bound + PATIENCE / 4).await;
        sleep(CALM).await;
        let tree = self.tree().await;
        let Self { clients, guarded, stations, guards, ensemble, apparatus, .. } = self;
        let asked = clients.stop().await;
        let forwards = apparatus.requests == ForwardMode::Forward;
        let leftovers = find_leftovers(&tree, &stations, &guards, forwards).await;
        let rows = guarded.site.origin.rows().await;
        let mut chronicle = RunLog::from_log(&guarded.site.origin.log());
        chronicle.marks = match guards.first() {
            Some(guard) => read_watermarks(guard, rows.keys()).await,
            None => rows.iter().filter_map(|(key, row)| Some((key.clone(), row.newest?))).collect(),
        };
        chronicle.balances = rows.into_iter().map(|(key, row)| (key, row.balance)).collect();
        for guard in &guards {
            self.stale += stale_refusals(guard).await;
        }
        let stale = self.stale + chronicle.stale;
        let struck = Some(AccidentTime { from, bound, paths: apparatus.errand.paths() });
        let chronicle = RunLog { asked, leftovers, struck, forwards, ..chronicle };
        (RunResult { stale, hit: self.hit, chronicle }, ensemble)
    }
}

/// The number of stale requests that a guard has refused.
async fn stale_refusals(guard: &Guard) -> usize {
    // Metrics are floating-point numbers. These counts are small, so formatting them loses nothing.
    let count = guard.decision_count("stale").await;
    format!("{count:.0}").parse().unwrap_or_default()
}

fn is_through(record: &RequestRecord, gateway: &str) -> bool {
    record.request.field(ATTEMPT).is_some_and(|id| attempt_id(id) == gateway)
}
