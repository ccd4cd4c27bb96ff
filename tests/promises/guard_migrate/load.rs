//! Under constant load, while the guard is stopped or killed, its store is moved and two guards go on with it, no two
//! executions of a key overlap and no operation is done twice.

use std::sync::atomic::{AtomicU64, Ordering};

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    ensemble::free_ports,
    gateway::Gateway,
    guard::{Guard, GuardLaunch},
    guarded::GuardedSite,
    history::{ATTEMPT, History},
    load::{AttemptResult, LoadPlan, PAUSE, RunningLoad},
    migration::StoreMigration,
    shared_database::SharedDatabase,
};
use serde_json::json;

use super::database;

/// Each request is an operation of its own.
fn operation(path: &str) -> TestRequest {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("\"load-{}\"", NEXT.fetch_add(1, Ordering::SeqCst));
    TestRequest::post(path).field("Idempotency-Key", &name).body("ten cents")
}

fn repeated_request(number: usize, attempt: &str) -> TestRequest {
    let request = TestRequest::post("/pay/early").field("Idempotency-Key", &format!("\"early-{number}\""));
    request.body("ten cents").field(ATTEMPT, &format!("{attempt}-{number}"))
}

struct MigrationLoad {
    guarded: GuardedSite,
    sharing: SharedDatabase,
    guard: Guard,
    gateways: [Gateway; 2],
    /// The guard that goes on at the same address, and the guard that joins at another one.
    heirs: [GuardLaunch; 2],
    load: RunningLoad,
}

const EARLY: usize = 5;

impl MigrationLoad {
    async fn start() -> Self {
        let guarded = GuardedSite::fresh().await;
        let sharing = SharedDatabase::new(&database().await.url());
        let alone = guarded.launch().await;
        let file = alone.store().display().to_string();
        let address = |port: u16| format!("127.0.0.1:{port}");
        let ports = free_ports(2);
        let at = |launch: GuardLaunch, port| sharing.guard(launch).with("/listener/address", address(port));
        let heirs = [at(alone.clone(), ports[0]), at(alone.clone(), ports[1])];
        let guard = at(alone, ports[0]).with("/store", json!({ "redb": file })).start().await;
        let addresses = [0, 1].map(|at| address(ports[at]).parse().expect("an address"));
        let policy = |name| {
            let policy = guarded.policy_through(name, &addresses);
            // Sets how often a gateway tries an address again at which no guard has answered.
            let policy = policy.with("/upstreams/ledger/dns", json!({"refresh": "200ms"}));
            // The second guard runs only after the move. A short ejection lets gateways find it soon.
            let policy = policy.with("/upstreams/ledger/eject", json!({"failures": 5, "for": "100ms"}));
            policy.with("/routes/0/fence/once", json!({"store": "guard"}))
        };
        let (one, two) = Gateway::start_both(&policy("first"), &policy("second")).await;
        for number in 0..EARLY {
            let answer = one.send(&repeated_request(number, "early")).await;
            assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
        }
        let plan = LoadPlan {
            gateways: [&one, &two].map(|gateway| gateway.public).into(),
            paths: (0..4).map(|n| format!("/pay/{n}")).collect(),
            clients: 8,
            requests: 100_000,
            pause: PAUSE,
        };
        let load = RunningLoad::start_with(operation, "load", &plan);
        Self { guarded, sharing, guard, gateways: [one, two], heirs, load }
    }

    async fn wait_more_requests(&self, more: usize) {
        let before = self.guarded.site.origin.log().records.len();
        let enough =
            move |log: &fencegate_tests::origin::OriginLog| (log.records.len() > before + more).then_some(());
        self.guarded.site.origin.wait_for("requests that go on", enough).await;
    }

    /// Ends the guard, moves its store, starts both heirs, and returns the answers that the clients got.
    async fn migrate(self, ended: impl AsyncFnOnce(Guard) -> GuardLaunch) -> Vec<AttemptResult> {
        self.wait_more_requests(60).await;
        let Self { guarded, sharing, guard, gateways, heirs, load } = self;
        let alone = ended(guard).await;
        let report = StoreMigration::new(&alone.store(), &heirs[0]).expect_outcome("moved").await;
        println!("moved under load: {report}");
        let [one, two] = heirs;
        let one = one.start().await;
        one.wait_ready().await;
        one.wait_series_at_least("fencegate_guard_decisions_total", &["decision=\"admit"], 60.0).await;
        let two = two.start().await;
        two.wait_series_at_least("fencegate_guard_decisions_total", &["decision=\"admit"], 60.0).await;
        let results = load.stop().await;
        let history = History::from_log(&guarded.site.origin.log()).with_results(&results);
        history.assert_holds();
        assert!(history.tenures() > 30, "{} tenures hand nothing over", history.tenures());
        // Operations that were done before the move are not executed again.
        for gateway in &gateways {
            for number in 0..EARLY {
                let again = gateway.send(&repeated_request(number, "again")).await;
                assert_eq!(
                    (again.status, again.outcome()),
                    (200, Some(FencingOutcome::Replayed)),
                    "{again:?}"
                );
            }
        }
        assert_eq!(guarded.site.origin.count("/pay/early"), EARLY);
        drop(sharing);
        results
    }
}

fn outcome_count(results: &[AttemptResult], outcome: FencingOutcome) -> usize {
    let of = |result: &&AttemptResult| {
        result.answer.as_ref().is_ok_and(|answer| answer.outcome() == Some(outcome))
    };
    results.iter().filter(of).count()
}

/// A guard stopped, moved and joined by another under load loses nothing, and no operation is executed twice.
#[tokio::test]
async fn clean_migration_loses_and_repeats_nothing() {
    let results = MigrationLoad::start().await.migrate(async |guard: Guard| guard.stop().await).await;
    let done = outcome_count(&results, FencingOutcome::Done);
    let not = outcome_count(&results, FencingOutcome::NotDispatched);
    println!("{done} done, {not} not dispatched, {} told", results.len());
    assert!(done > 150 && not > 0, "not exercised: {done} done, {not} refused meanwhile");
}

/// A guard killed, moved and joined by another under load overlaps with nothing that was at work.
#[tokio::test]
async fn killed_migration_overlaps_nothing() {
    let results = MigrationLoad::start().await.migrate(async |guard: Guard| guard.kill().await).await;
    let done = outcome_count(&results, FencingOutcome::Done);
    let not = outcome_count(&results, FencingOutcome::NotDispatched);
    println!("{done} done, {not} not dispatched, {} told", results.len());
    assert!(done > 150 && not > 0, "not exercised: {done} done, {not} refused meanwhile");
}
