//! Two gateways with different key templates start, stop, reload and lose their sessions at any moment. They must
//! never both serve at the same time.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate_lock::manager::lock_manager::{LockManager, create_lock_manager};
use fencegate_metrics::AllMetricFamilies;
use fencegate_peers::plan_compat::{PlanCompatRegistry, RouteCompatCache, RouteCompatibility};
use fencegate_policies::{
    file::load,
    plan::{self, RouteId},
};
use fencegate_tests::memory::{self, SeededRng, SimEnsemble, UndeliveredRequestFate, Wire};
use fencegate_zookeeper::{
    session::{local_member::LocalMember, settings::SessionSettings},
    state::HighestEpochTracker,
};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    faulty_client::{clock, key},
    run, simulated_time,
};

const T: Duration = Duration::from_secs(2);
const ACCIDENTS: Duration = Duration::from_secs(20);
const SESSIONS: usize = 2;
/// Keys that are spread over all sessions of a gateway: the session is chosen by the hash of the key.
const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn gateway(template: &str) -> plan::GatewayPlan {
    let policy = fencegate_tests::policy::TestPolicy::new(
        "gw",
        ([127, 0, 0, 1], 1).into(),
        crate::plan::ROOT,
        ([127, 0, 0, 1], 1).into(),
    );
    let policy = policy.with("/routes/0/fence/key", format!("{template}/{{path.account}}"));
    load(&policy.to_string()).plan.expect("sound")
}

/// One gateway process.
struct SimGatewayProcess {
    keeper: LockManager,
    agreement: Arc<PlanCompatRegistry>,
    nameplate: LocalMember,
    wire: Rc<Wire>,
    /// The template in force, and the result of the comparison with other gateways' plans under it.
    now: RefCell<(&'static str, RouteCompatCache)>,
    stop: CancellationToken,
    desks: Vec<JoinHandle<()>>,
}

impl SimGatewayProcess {
    fn start(ensemble: &SimEnsemble, name: &str, template: &'static str, dice: &SeededRng) -> Self {
        let plan = gateway(template);
        let metrics = AllMetricFamilies::for_gateway(&plan);
        let agreement = PlanCompatRegistry::new(&plan, metrics.clone());
        let publication = PlanCompatRegistry::publication(&plan);
        let nameplate = LocalMember::new(plan.fingerprint).with_publication(
            plan.fingerprint,
            publication,
            agreement.clone(),
        );
        let clock = clock();
        let wire = ensemble.wire();
        let stop = CancellationToken::new();
        let (keeper, desks) = create_lock_manager(clock.clone(), SESSIONS);
        let memory = Arc::<HighestEpochTracker>::default();
        let mut policy = plan.zookeeper.clone();
        policy.session_timeout = T;
        let run = |(number, desk): (usize, fencegate_lock::manager::session_worker::SessionWorker)| {
            let settings = SessionSettings {
                policy: policy.clone(),
                gateway: name.to_owned(),
                member: nameplate.clone(),
                init: true,
                log_dedup: Arc::default(),
                sequence_limit: fencegate_zookeeper::limits::SEQUENCE_LIMIT,
                token_history: memory.clone(),
                clock: clock.clone(),
                randomness: Arc::new(SeededRng::new(dice.next())),
                metrics: metrics.session(number),
            };
            spawn_local(desk.run(ensemble.client(&wire, T), Rc::new(settings), stop.clone()))
        };
        let desks = desks.into_iter().enumerate().map(run).collect();
        let now = RefCell::new((template, agreement.route_compat_cache(&plan.serving)));
        Self { keeper, agreement, nameplate, wire, now, stop, desks }
    }

    /// Reloads at once: the process never has a request in flight that the reload would wait for.
    fn reload(&self, template: &'static str) {
        let plan = gateway(template);
        self.agreement.apply_mixed_plan_policy(&plan);
        self.now.replace((template, self.agreement.route_compat_cache(&plan.serving)));
        self.nameplate.publish(PlanCompatRegistry::publication(&plan));
    }

    /// True if a request that arrives now would be sent upstream.
    fn would_serve(&self) -> bool {
        KEYS.iter().any(|name| {
            let key = key(name);
            let standing = |session| self.now.borrow().1.route_compatibility(session, RouteId(0));
            let granted = self
                .keeper
                .session_id_for(&key)
                .is_some_and(|session| standing(session) == RouteCompatibility::Compatible);
            granted && self.is_proven(self.keeper.session_id_for(&key))
        })
    }

    fn is_proven(&self, session: Option<i64>) -> bool {
        let id = session.map(|session| format!("{session:016x}"));
        self.keeper.sessions().iter().any(|status| status.id == id && status.proven_for_ms > 0)
    }

    async fn stop(self) {
        self.stop.cancel();
        for worker in self.desks {
            worker.await.expect("no panic");
        }
    }
}

const TEMPLATES: [&str; 2] = ["account", "konto"];

/// The number of observations of each kind in one schedule.
#[derive(Default)]
struct ServeCounts {
    served: Cell<u32>,
    /// One process served while the other one, with another template, was refused.
    refused: Cell<u32>,
    both: Cell<u32>,
}

async fn play(seed: u64) -> ServeCounts {
    let dice = SeededRng::new(seed);
    let ensemble = SimEnsemble::start(memory::EnsembleSettings {
        latency: Duration::ZERO..Duration::from_millis(30),
        seed,
        ..memory::EnsembleSettings::default()
    });
    let mut places: [Option<SimGatewayProcess>; 2] = [None, None];
    let seen = ServeCounts::default();
    let end = Instant::now() + ACCIDENTS;
    while Instant::now() < end {
        let at = dice.index(2);
        let template = *dice.one_of(&TEMPLATES);
        match (dice.below(5), places[at].take()) {
            (_, None) => {
                places[at] = Some(SimGatewayProcess::start(&ensemble, ["gw-1", "gw-2"][at], template, &dice));
            }
            (0, Some(process)) => process.stop().await,
            (1 | 2, Some(process)) => {
                process.reload(template);
                places[at] = Some(process);
            }
            (3, Some(process)) => {
                process.wire.disconnect(UndeliveredRequestFate::Lost);
                places[at] = Some(process);
            }
            (_, Some(process)) => {
                process.wire.reconnect();
                places[at] = Some(process);
            }
        }
        // The pause is often zero, so that both processes act at the same moment.
        let until = Instant::now() + Duration::from_millis(dice.below(3) * dice.below(900));
        loop {
            if let [Some(one), Some(two)] = &places
                && one.now.borrow().0 != two.now.borrow().0
            {
                let served = [one.would_serve(), two.would_serve()];
                let count = |cell: &Cell<u32>| cell.set(cell.get() + 1);
                match served {
                    [true, true] => count(&seen.both),
                    [false, false] => {}
                    _ => count(&seen.refused),
                }
                if served.contains(&true) {
                    count(&seen.served);
                }
            }
            if Instant::now() >= until {
                break;
            }
            sleep(Duration::from_millis(3)).await;
        }
    }
    for process in places.into_iter().flatten() {
        process.wire.reconnect();
        process.stop().await;
    }
    seen
}

/// Two gateways whose key templates are incompatible never serve at the same time.
#[test]
fn incompatible_gateways_never_serve_together() {
    let first = run::seed("agreement");
    let cases = run::cases(8);
    let mut served = 0;
    let mut refused = 0;
    for seed in (0..u64::from(cases)).map(|number| first.wrapping_add(number)) {
        let seen = simulated_time::run(play(seed));
        assert_eq!(
            seen.both.get(),
            0,
            "both served, at so many looks; FENCEGATE_SEED={seed} FENCEGATE_CASES=1"
        );
        served += seen.served.get();
        refused += seen.refused.get();
    }
    assert!(served > 30 && refused > 30, "not exercised: {served} and {refused} looks");
}
