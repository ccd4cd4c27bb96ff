//! With an ensemble of three servers, tenures survive every accident that their session survives, and no key is ever held
//! twice.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    ensemble::{Ensemble, SERVERS},
    gateway::{Gateway, PendingRequest},
    held_request::HeldRequest,
    history::History,
    load::{LoadPlan, PAUSE, RunningLoad},
    origin::{Latch, RequestRecord},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};

/// Longer than an election and the return of a server, on a busy machine as well.
const SESSION: &str = "20s";

struct GatewayPair {
    ensemble: Ensemble,
    site: TestSite,
    one: Gateway,
    two: Gateway,
}

impl GatewayPair {
    async fn new(hold: &Value, session: &str) -> Self {
        let ensemble = Ensemble::start().await;
        let site = TestSite::at(ensemble.address(0)).await;
        let policy = |name| -> TestPolicy {
            site.policy(name)
                .with("/zookeeper/servers", json!(ensemble.addresses()))
                .with("/zookeeper/session_timeout", session)
                .with("/zookeeper/sessions", 2)
                .with("/defaults/hold", hold.clone())
                .with("/routes/0/fence/wait", "60s")
                .with("/upstreams/ledger/response_timeout", "60s")
        };
        let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
        Self { ensemble, site, one, two }
    }

    async fn tree(&self, server: usize) -> ZnodeTree {
        ZnodeTree::connect(self.ensemble.address(server), &self.site.root).await
    }

    async fn wait_both_ready(&self) {
        self.one.wait_ready().await;
        self.two.wait_ready().await;
    }

    async fn hold_request(&self) -> (PendingRequest, RequestRecord, Latch) {
        let HeldRequest { request, record, latch } =
            self.site.origin.hold_request(&self.one, TestRequest::post("/pay/7")).await;
        (request, record, latch)
    }
}

/// What happens to the servers while a request is in flight and another gateway waits for its key.
#[derive(Debug, Clone, Copy)]
enum EnsembleFault {
    LeaderKilled,
    FollowerFrozen,
    MajorityLost,
}

async fn assert_request_survives(fault: EnsembleFault) {
    let mut pair = GatewayPair::new(&json!({"mode": "cached", "linger": "60s"}), SESSION).await;
    // The tree is read at a server that is never killed, so that reading needs no reconnect.
    let survivor = pair.ensemble.follower().await;
    let tree = pair.tree(survivor).await;
    assert_eq!(pair.one.send(&TestRequest::post("/pay/7")).await.status, 200);
    let (pending, record, latch) = pair.hold_request().await;
    let waiting = pair.two.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;
    let members = tree.members().await;
    let locks = tree.locks().await;

    let leader = pair.ensemble.leader().await;
    let other = (0..SERVERS).find(|n| *n != leader && *n != survivor).expect("one of three");
    match fault {
        EnsembleFault::LeaderKilled => pair.ensemble.kill(leader),
        EnsembleFault::FollowerFrozen => pair.ensemble.freeze(other),
        EnsembleFault::MajorityLost => {
            pair.ensemble.kill(leader);
            pair.ensemble.kill(other);
            pair.one.wait_unready().await;
            let refused = pair.one.send(&TestRequest::post("/pay/8").field("Prefer", "wait=0")).await;
            assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{refused:?}");
            pair.ensemble.launch(leader);
            pair.ensemble.launch(other);
        }
    }
    if !matches!(fault, EnsembleFault::FollowerFrozen) {
        pair.ensemble.wait_serving().await;
    }
    pair.wait_both_ready().await;
    // The servers agree again: a write succeeds, and the server has all earlier writes.
    assert_eq!(pair.two.send(&TestRequest::post("/pay/9")).await.status, 200, "{fault:?}");
    let tree = pair.tree(survivor).await;
    assert_eq!(tree.members().await, members, "{fault:?}: the sessions live on");
    let kept = tree.locks().await;
    assert!(locks.iter().all(|lock| kept.contains(lock)), "{fault:?}: {locks:?}, then {kept:?}");
    assert_eq!(pair.site.origin.count("/pay/7"), 2, "{fault:?}: nobody else began");

    latch.release();
    let answer = pending.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{fault:?}");
    assert_eq!(answer.token(), Some(record.expect_token()), "{fault:?}");
    assert_eq!(record.expect_token().dispatch(), 2, "the tenure of before");
    let next = waiting.answer().await;
    assert_eq!(next.status, 200, "{fault:?}: {next:?}");
    assert!(next.token() > answer.token(), "{fault:?}");
    History::from_log(&pair.site.origin.log()).assert_holds();
    if let EnsembleFault::FollowerFrozen = fault {
        pair.ensemble.thaw(other);
    }
}

/// No grant is lost and no waiter overtakes when the leader of the ensemble is killed.
#[tokio::test]
async fn grant_survives_leader_kill() {
    assert_request_survives(EnsembleFault::LeaderKilled).await;
}

/// No grant is lost and no waiter overtakes when a follower of the ensemble freezes.
#[tokio::test]
async fn grant_survives_frozen_follower() {
    assert_request_survives(EnsembleFault::FollowerFrozen).await;
}

/// No grant is lost when the ensemble has no majority for less than the session timeout.
#[tokio::test]
async fn grant_survives_short_quorum_loss() {
    assert_request_survives(EnsembleFault::MajorityLost).await;
}

/// Sessions of 2 s: some of them end during the accidents, and still no key may be held twice.
async fn run_accidents_under_load(hold: Value) {
    let mut pair = GatewayPair::new(&hold, "2s").await;
    pair.site.origin.set_work_time(Duration::from_millis(4));
    let plan = LoadPlan {
        gateways: vec![pair.one.public, pair.two.public],
        paths: (0..3).map(|key| format!("/pay/{key}")).collect(),
        clients: 8,
        requests: 20_000,
        pause: PAUSE,
    };
    let load = RunningLoad::start("load", &plan);
    wait_both_serving(&pair).await;

    let leader = pair.ensemble.leader().await;
    pair.ensemble.kill(leader);
    wait_both_serving(&pair).await;
    pair.ensemble.launch(leader);
    pair.ensemble.wait_serving().await;

    let follower = pair.ensemble.follower().await;
    pair.ensemble.freeze(follower);
    wait_both_serving(&pair).await;
    pair.ensemble.thaw(follower);
    pair.ensemble.wait_serving().await;

    let leader = pair.ensemble.leader().await;
    let follower = pair.ensemble.follower().await;
    pair.ensemble.kill(leader);
    pair.ensemble.kill(follower);
    pair.one.wait_unready().await;
    pair.two.wait_unready().await;
    pair.ensemble.launch(leader);
    pair.ensemble.launch(follower);
    pair.ensemble.wait_serving().await;
    pair.wait_both_ready().await;
    wait_both_serving(&pair).await;

    let results = load.assert_promises(&pair.site.origin, 20).await;
    for result in &results {
        let status = result.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{result:?}");
    }
    let tree = pair.tree(0).await;
    tree.assert_no_locks().await;
}

/// Waits until both gateways have had further requests at the origin.
async fn wait_both_serving(pair: &GatewayPair) {
    let from = pair.site.origin.log().records.len();
    for gateway in ["gw-1", "gw-2"] {
        let more = |log: &fencegate_tests::origin::OriginLog| {
            let new = log.records.iter().skip(from);
            (new.filter(|record| record.gateway == gateway).count() >= 30).then_some(())
        };
        pair.site.origin.wait_for(&format!("more through {gateway}"), more).await;
    }
}

/// With cached grants no key is held twice while servers of the ensemble are killed, frozen and restarted.
#[tokio::test]
async fn cached_grants_exclude_during_server_faults() {
    run_accidents_under_load(json!({"mode": "cached"})).await;
}

/// With strict grants no key is held twice while servers of the ensemble are killed, frozen and restarted.
#[tokio::test]
async fn strict_grants_exclude_during_server_faults() {
    run_accidents_under_load(json!({"mode": "strict"})).await;
}

/// A rolling restart of ZooKeeper makes requests wait at most. No gateway mistakes a session that reconnects for a gateway
/// with an incompatible plan.
#[tokio::test]
async fn rolling_restart_keeps_plans_compatible() {
    let mut pair = GatewayPair::new(&json!({"mode": "strict"}), SESSION).await;
    let (stop, stopped) = watch::channel(false);
    let callers: Vec<_> = (0..6)
        .map(|n| {
            let address = [pair.one.public, pair.two.public][n % 2];
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let mut reasons = Vec::new();
                while !*stopped.borrow() {
                    let answer = TestRequest::post(&format!("/pay/{}", n / 2))
                        .send_to(address)
                        .await
                        .expect("an answer");
                    reasons.push(if answer.status == 200 { String::new() } else { answer.reason() });
                    sleep(PAUSE).await;
                }
                reasons
            })
        })
        .collect();
    for server in 0..SERVERS {
        pair.ensemble.kill(server);
        pair.ensemble.launch(server);
        pair.ensemble.wait_serving().await;
        pair.wait_both_ready().await;
    }
    stop.send_replace(true);
    let mut reasons = Vec::new();
    for caller in callers {
        reasons.extend(caller.await.expect("no panic"));
    }
    let served = reasons.iter().filter(|reason| reason.is_empty()).count();
    assert!(served > 100, "not exercised: {served} of {} were served", reasons.len());
    let mismatches = reasons.iter().filter(|reason| *reason == "config-mismatch").count();
    assert_eq!(mismatches, 0, "of {} requests", reasons.len());
    for gateway in [&pair.one, &pair.two] {
        assert!(!gateway.log().contains("FG0550"), "{}", gateway.log());
    }
}
