//! With an ensemble of three servers, tenures survive every accident that their session survives, and no key is ever held
//! twice.
//!
//! The leader is killed, a follower is frozen, and the majority is away. Servers that are restarted in turn make no
//! gateway treat another one as incompatible.

use std::time::Duration;

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    ensemble::{Ensemble, SERVERS},
    gateway::Gateway,
    held_request::HeldRequest,
    history::History,
    load::{LoadPlan, PAUSE, RunningLoad},
    origin::OriginLog,
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

/// A session timeout that is longer than an election and the return of a server, also on a busy machine.
const SESSION: &str = "20s";

/// The number of sessions of each gateway.
const SESSIONS: usize = 2;

struct GatewayPair {
    site: TestSite,
    one: Gateway,
    two: Gateway,
}

impl GatewayPair {
    /// Two gateways at these servers, whose policies are changed in the same way.
    async fn new(
        ensemble: &Ensemble,
        servers: &[usize],
        session: &str,
        change: impl Fn(TestPolicy) -> TestPolicy,
    ) -> Self {
        let site = TestSite::at(ensemble.address(0)).await;
        let addresses: Vec<_> = servers.iter().map(|server| ensemble.address(*server).to_string()).collect();
        let policy = |name| -> TestPolicy {
            let policy = site
                .policy(name)
                .with("/zookeeper/servers", json!(addresses))
                .with("/zookeeper/session_timeout", session)
                .with("/zookeeper/sessions", SESSIONS)
                .with("/routes/0/fence/wait", "60s")
                .with("/upstreams/ledger/response_timeout", "60s");
            change(policy)
        };
        let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
        Self { site, one, two }
    }

    async fn tree(&self, ensemble: &Ensemble, server: usize) -> ZnodeTree {
        ZnodeTree::connect(ensemble.address(server), &self.site.root).await
    }

    async fn wait_both_ready(&self) {
        self.one.wait_ready().await;
        self.two.wait_ready().await;
    }
}

const ALL_SERVERS: [usize; SERVERS] = [0, 1, 2];

/// A fault of the servers while a request is in flight and another gateway waits for its key.
#[derive(Debug, Clone, Copy)]
enum EnsembleFault {
    LeaderKilled,
    FollowerFrozen,
    MajorityLost,
}

impl EnsembleFault {
    /// The session timeout of the gateways.
    fn session(self) -> &'static str {
        match self {
            Self::LeaderKilled | Self::MajorityLost => SESSION,
            // A frozen follower causes no election. A session leaves the silent server after two fifths of the timeout,
            // and may choose it once more.
            Self::FollowerFrozen => "15s",
        }
    }
}

/// The number of sessions at one server.
async fn session_count(ensemble: &Ensemble, server: usize) -> usize {
    ensemble.ask(server, "cons").await.matches("sid=0x").count()
}

/// Polls, because a server sends no event when a session comes to it.
async fn wait_session_count(ensemble: &Ensemble, server: usize, count: usize) {
    let come = async {
        while session_count(ensemble, server).await < count {
            sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until(&format!("{count} sessions at server {server}"), come, || "fewer").await;
}

/// A request in flight and one that waits for its key survive the fault. All servers serve again when this returns.
async fn assert_request_survives(ensemble: &mut Ensemble, fault: EnsembleFault) {
    println!("{fault:?}");
    let leader = ensemble.leader().await;
    let followers: Vec<_> = ALL_SERVERS.into_iter().filter(|server| *server != leader).collect();
    let servers = match fault {
        EnsembleFault::LeaderKilled | EnsembleFault::MajorityLost => ALL_SERVERS.to_vec(),
        // The gateways use the two followers only, so the follower that freezes has at least half of all sessions.
        EnsembleFault::FollowerFrozen => followers.clone(),
    };
    let pair =
        GatewayPair::new(ensemble, &servers, fault.session(), |policy| policy.with_linger("60s")).await;
    let counts = [session_count(ensemble, followers[0]).await, session_count(ensemble, followers[1]).await];
    let busier = usize::from(counts[1] > counts[0]);
    let other = followers[busier];
    let survivor = followers[1 - busier];
    // The tree is read at a server that is never killed, so that reading needs no reconnect.
    let tree = pair.tree(ensemble, survivor).await;
    assert_eq!(pair.one.send(&TestRequest::post("/pay/7")).await.status, 200);
    let HeldRequest { request: pending, record, latch } =
        pair.site.origin.hold_request(&pair.one, TestRequest::post("/pay/7")).await;
    let waiting = pair.two.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;
    let members = tree.members().await;
    let locks = tree.locks().await;

    match fault {
        EnsembleFault::LeaderKilled => ensemble.kill(leader),
        EnsembleFault::FollowerFrozen => {
            assert!(counts[busier] > 0, "not exercised: no session is at a follower");
            ensemble.freeze(other);
            // The survivor then has all sessions of both gateways, and the session of `tree`.
            wait_session_count(ensemble, survivor, 2 * SESSIONS + 1).await;
        }
        EnsembleFault::MajorityLost => {
            ensemble.kill(leader);
            ensemble.kill(other);
            pair.one.wait_unready().await;
            let refused = pair.one.send(&TestRequest::post("/pay/8").field("Prefer", "wait=0")).await;
            assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{refused:?}");
            ensemble.launch(leader);
            ensemble.launch(other);
        }
    }
    if !matches!(fault, EnsembleFault::FollowerFrozen) {
        ensemble.wait_serving().await;
    }
    pair.wait_both_ready().await;
    // The servers agree again: a write succeeds, and the server has all earlier writes.
    assert_eq!(pair.two.send(&TestRequest::post("/pay/9")).await.status, 200, "{fault:?}");
    let tree = pair.tree(ensemble, survivor).await;
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
    match fault {
        EnsembleFault::LeaderKilled => ensemble.launch(leader),
        EnsembleFault::FollowerFrozen => ensemble.thaw(other),
        EnsembleFault::MajorityLost => {}
    }
    ensemble.wait_serving().await;
}

/// A rolling restart of ZooKeeper makes requests wait at most. No gateway mistakes a session that reconnects for a gateway
/// with an incompatible plan.
async fn assert_restart_keeps_plans_compatible(ensemble: &mut Ensemble) {
    let pair = GatewayPair::new(ensemble, &ALL_SERVERS, SESSION, |policy| policy).await;
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
    for server in ALL_SERVERS {
        ensemble.kill(server);
        ensemble.launch(server);
        ensemble.wait_serving().await;
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

/// No grant is lost and no waiter overtakes when the leader of the ensemble is killed, when there is no majority for
/// less than the session timeout, and when a follower freezes. No gateway mistakes a peer for one with an incompatible
/// plan when the servers are restarted in turn.
#[tokio::test]
async fn grants_and_plans_survive_server_faults() {
    let mut ensemble = Ensemble::start().await;
    for fault in [EnsembleFault::LeaderKilled, EnsembleFault::MajorityLost, EnsembleFault::FollowerFrozen] {
        assert_request_survives(&mut ensemble, fault).await;
    }
    assert_restart_keeps_plans_compatible(&mut ensemble).await;
}

/// The first words of the paths of two routes: grants of the first are strict, and those of the second are cached.
const ROUTES: [&str; 2] = ["pay", "kept"];

fn with_cached_route(policy: TestPolicy) -> TestPolicy {
    policy.with_route(json!({
        "name": "kept",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/kept/{account}"},
        "fence": {"key": "kept/{path.account}", "wait": "60s", "queue": 50, "hold": {"mode": "cached"}},
    }))
}

/// With strict and with cached grants no key is held twice while servers of the ensemble are killed, frozen and restarted.
///
/// Sessions last 2 s, so that some of them end during the faults.
#[tokio::test]
async fn grants_exclude_during_server_faults() {
    let mut ensemble = Ensemble::start().await;
    let pair = GatewayPair::new(&ensemble, &ALL_SERVERS, "2s", with_cached_route).await;
    pair.site.origin.set_work_time(Duration::from_millis(4));
    let loads = ROUTES.map(|route| {
        let paths = (0..3).map(|key| format!("/{route}/{key}")).collect();
        let plan = LoadPlan { paths, ..LoadPlan::payments(&[&pair.one, &pair.two], 3, 8, 20_000) };
        RunningLoad::start(route, &plan)
    });
    wait_both_serving(&pair).await;

    let leader = ensemble.leader().await;
    ensemble.kill(leader);
    wait_both_serving(&pair).await;
    ensemble.launch(leader);
    ensemble.wait_serving().await;

    let follower = ensemble.follower().await;
    ensemble.freeze(follower);
    wait_both_serving(&pair).await;
    ensemble.thaw(follower);
    ensemble.wait_serving().await;

    let leader = ensemble.leader().await;
    let follower = ensemble.follower().await;
    ensemble.kill(leader);
    ensemble.kill(follower);
    pair.one.wait_unready().await;
    pair.two.wait_unready().await;
    ensemble.launch(leader);
    ensemble.launch(follower);
    ensemble.wait_serving().await;
    pair.wait_both_ready().await;
    wait_both_serving(&pair).await;

    let mut results = Vec::new();
    for load in loads {
        results.extend(load.stop().await);
    }
    for result in &results {
        let status = result.answer.as_ref().map(|answer| answer.status);
        assert!(matches!(status, Ok(200 | 423 | 503)), "{result:?}");
    }
    let history = History::from_log(&pair.site.origin.log()).with_results(&results);
    history.assert_holds();
    for keys in ["account/", "kept/"] {
        let hand_overs = history.of_keys(keys).hand_overs();
        assert!(hand_overs >= 20, "not exercised: {hand_overs} hand-overs of {keys}");
    }
    let tree = pair.tree(&ensemble, 0).await;
    tree.assert_no_locks().await;
}

/// Waits until both gateways have had further requests of each route at the origin.
async fn wait_both_serving(pair: &GatewayPair) {
    let from = pair.site.origin.log().records.len();
    for gateway in ["gw-1", "gw-2"] {
        for route in ROUTES {
            let more = |log: &OriginLog| {
                let is_of = |path: &str| path.strip_prefix('/').is_some_and(|path| path.starts_with(route));
                let new = log.records.iter().skip(from);
                let served = new.filter(|record| record.gateway == gateway && is_of(record.path()));
                (served.count() >= 30).then_some(())
            };
            pair.site.origin.wait_for(&format!("more of {route} through {gateway}"), more).await;
        }
    }
}
