//! With three servers, tenures live on through every accident that their session survives, and no key is ever held
//! twice.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    ensemble::{Ensemble, SERVERS},
    gateway::{Gateway, PendingRequest},
    held_request::HeldRequest,
    history::History,
    load::{Load, LoadPlan, PAUSE},
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

    async fn are_ready(&self) {
        self.one.wait_ready().await;
        self.two.wait_ready().await;
    }

    async fn held(&self) -> (PendingRequest, RequestRecord, Latch) {
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

async fn a_request_in_flight_across(accident: EnsembleFault) {
    let mut fleet = GatewayPair::new(&json!({"mode": "cached", "linger": "60s"}), SESSION).await;
    // The tree is read at a server that is never killed, so that reading needs no reconnect.
    let survivor = fleet.ensemble.follower().await;
    let tree = fleet.tree(survivor).await;
    assert_eq!(fleet.one.send(&TestRequest::post("/pay/7")).await.status, 200);
    let (asked, record, latch) = fleet.held().await;
    let waiting = fleet.two.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;
    let (members, locks) = (tree.members().await, tree.locks().await);

    let leader = fleet.ensemble.leader().await;
    let other = (0..SERVERS).find(|n| *n != leader && *n != survivor).expect("one of three");
    match accident {
        EnsembleFault::LeaderKilled => fleet.ensemble.kill(leader),
        EnsembleFault::FollowerFrozen => fleet.ensemble.freeze(other),
        EnsembleFault::MajorityLost => {
            fleet.ensemble.kill(leader);
            fleet.ensemble.kill(other);
            fleet.one.wait_unready().await;
            let refused = fleet.one.send(&TestRequest::post("/pay/8").field("Prefer", "wait=0")).await;
            assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{refused:?}");
            fleet.ensemble.launch(leader);
            fleet.ensemble.launch(other);
        }
    }
    if !matches!(accident, EnsembleFault::FollowerFrozen) {
        fleet.ensemble.wait_serving().await;
    }
    fleet.are_ready().await;
    // The servers agree again: a write succeeds, and the server has all earlier writes.
    assert_eq!(fleet.two.send(&TestRequest::post("/pay/9")).await.status, 200, "{accident:?}");
    let tree = fleet.tree(survivor).await;
    assert_eq!(tree.members().await, members, "{accident:?}: the sessions live on");
    let kept = tree.locks().await;
    assert!(locks.iter().all(|lock| kept.contains(lock)), "{accident:?}: {locks:?}, then {kept:?}");
    assert_eq!(fleet.site.origin.count("/pay/7"), 2, "{accident:?}: nobody else began");

    latch.release();
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{accident:?}");
    assert_eq!(answer.token(), Some(record.expect_token()), "{accident:?}");
    assert_eq!(record.expect_token().dispatch(), 2, "the tenure of before");
    let next = waiting.answer().await;
    assert_eq!(next.status, 200, "{accident:?}: {next:?}");
    assert!(next.token() > answer.token(), "{accident:?}");
    History::from_log(&fleet.site.origin.log()).assert_holds();
    if let EnsembleFault::FollowerFrozen = accident {
        fleet.ensemble.thaw(other);
    }
}

#[tokio::test]
async fn no_tenure_is_lost_when_the_leader_is_killed() {
    a_request_in_flight_across(EnsembleFault::LeaderKilled).await;
}

#[tokio::test]
async fn no_tenure_is_lost_when_a_follower_freezes() {
    a_request_in_flight_across(EnsembleFault::FollowerFrozen).await;
}

#[tokio::test]
async fn no_tenure_is_lost_when_the_majority_is_away_for_less_than_the_session() {
    a_request_in_flight_across(EnsembleFault::MajorityLost).await;
}

/// Sessions of 2 s: some of them end during the accidents, and still no key may be held twice.
async fn accidents_under_load(hold: Value) {
    let mut fleet = GatewayPair::new(&hold, "2s").await;
    fleet.site.origin.set_work_time(Duration::from_millis(4));
    let plan = LoadPlan {
        gateways: vec![fleet.one.public, fleet.two.public],
        paths: (0..3).map(|key| format!("/pay/{key}")).collect(),
        clients: 8,
        requests: 20_000,
        pause: PAUSE,
    };
    let load = Load::start("load", &plan);
    worked(&fleet).await;

    let leader = fleet.ensemble.leader().await;
    fleet.ensemble.kill(leader);
    worked(&fleet).await;
    fleet.ensemble.launch(leader);
    fleet.ensemble.wait_serving().await;

    let follower = fleet.ensemble.follower().await;
    fleet.ensemble.freeze(follower);
    worked(&fleet).await;
    fleet.ensemble.thaw(follower);
    fleet.ensemble.wait_serving().await;

    let (leader, follower) = (fleet.ensemble.leader().await, fleet.ensemble.follower().await);
    fleet.ensemble.kill(leader);
    fleet.ensemble.kill(follower);
    fleet.one.wait_unready().await;
    fleet.two.wait_unready().await;
    fleet.ensemble.launch(leader);
    fleet.ensemble.launch(follower);
    fleet.ensemble.wait_serving().await;
    fleet.are_ready().await;
    worked(&fleet).await;

    let told = load.assert_promises(&fleet.site.origin, 20).await;
    for told in &told {
        let status = told.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{told:?}");
    }
    let tree = fleet.tree(0).await;
    tree.assert_no_locks().await;
}

/// Waits until both gateways have had further requests at the origin.
async fn worked(fleet: &GatewayPair) {
    let from = fleet.site.origin.log().records.len();
    for gateway in ["gw-1", "gw-2"] {
        let more = |log: &fencegate_tests::origin::OriginLog| {
            let new = log.records.iter().skip(from);
            (new.filter(|record| record.gateway == gateway).count() >= 30).then_some(())
        };
        fleet.site.origin.wait_for(&format!("more through {gateway}"), more).await;
    }
}

#[tokio::test]
async fn nothing_is_held_twice_while_servers_die_and_come_back_when_cached() {
    accidents_under_load(json!({"mode": "cached"})).await;
}

#[tokio::test]
async fn nothing_is_held_twice_while_servers_die_and_come_back_when_strict() {
    accidents_under_load(json!({"mode": "strict"})).await;
}

/// What a rolling restart of ZooKeeper costs is a wait. Sessions that reconnect are not taken for gateways with another plan.
#[tokio::test]
async fn servers_restarted_in_turn_make_no_gateway_take_another_for_unlike() {
    let mut fleet = GatewayPair::new(&json!({"mode": "strict"}), SESSION).await;
    let (stop, stopped) = watch::channel(false);
    let callers: Vec<_> = (0..6)
        .map(|n| {
            let (address, stopped) = ([fleet.one.public, fleet.two.public][n % 2], stopped.clone());
            tokio::spawn(async move {
                let mut told = Vec::new();
                while !*stopped.borrow() {
                    let answer = TestRequest::post(&format!("/pay/{}", n / 2))
                        .send_to(address)
                        .await
                        .expect("an answer");
                    told.push(if answer.status == 200 { String::new() } else { answer.reason() });
                    sleep(PAUSE).await;
                }
                told
            })
        })
        .collect();
    for server in 0..SERVERS {
        fleet.ensemble.kill(server);
        fleet.ensemble.launch(server);
        fleet.ensemble.wait_serving().await;
        fleet.are_ready().await;
    }
    stop.send_replace(true);
    let mut told = Vec::new();
    for caller in callers {
        told.extend(caller.await.expect("no panic"));
    }
    let served = told.iter().filter(|reason| reason.is_empty()).count();
    assert!(served > 100, "not exercised: {served} of {} were served", told.len());
    let unlike = told.iter().filter(|reason| *reason == "config-mismatch").count();
    assert_eq!(unlike, 0, "of {} requests", told.len());
    for gateway in [&fleet.one, &fleet.two] {
        assert!(!gateway.log().contains("FG0550"), "{}", gateway.log());
    }
}
