//! A cached grant passes a hot key from request to request inside a gateway without a call to ZooKeeper, and starves
//! neither peers nor other requests of its own gateway.
//!
//! A hot key costs less than one write to ZooKeeper for ten requests. Contending gateways take turns within the
//! bound. The tests also cover linger, `max_tenure`, unknown outcomes, and strict requests and sets while a grant is
//! cached.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fencegate_policies::token::FencingToken;
use fencegate_tests::{
    client::{FencingOutcome, Http1Client, TestRequest},
    gateway::Gateway,
    history::{Execution, History},
    load::{AttemptResult, LoadPlan, RunningLoad},
    origin::OriginAction,
    policy::TestPolicy,
    site::TestSite,
    zookeeper::{OwnZooKeeper, ZnodeTree, last_zxid},
    zookeeper_proxy::ZooKeeperProxy,
};
use serde_json::{Value, json};

/// A `linger` that is longer than a test, so that no tenure ends because its key is idle.
const KEPT: &str = "60s";

pub(super) fn with_cached_rules(policy: TestPolicy, rules: Value) -> TestPolicy {
    let rules = rules.as_object().expect("a mapping").clone();
    let hold = rules.into_iter().chain([("mode".to_owned(), json!("cached"))]).collect();
    policy.with("/defaults/hold", Value::Object(hold))
}

/// A gateway that releases a key only for another request or gateway.
pub(super) async fn start_keeping(site: &TestSite, name: &str) -> Gateway {
    Gateway::start(&with_cached_rules(site.policy(name), json!({"linger": KEPT}))).await
}

pub(super) fn plan(gateways: &[&Gateway], clients: usize, requests: usize) -> LoadPlan {
    LoadPlan {
        gateways: gateways.iter().map(|gateway| gateway.public).collect(),
        paths: vec!["/pay/7".to_owned()],
        clients,
        requests,
        pause: Duration::ZERO,
    }
}

pub(super) fn assert_all_done(results: &[AttemptResult]) {
    for result in results {
        let status = result.answer.as_ref().map(|answer| answer.status);
        assert_eq!(status, Ok(200), "{}: {:?}", result.id, result.answer);
    }
}

/// The executions in the order in which they began, split where the lock node changes.
fn split_by_tenure(history: &History) -> Vec<Vec<&Execution>> {
    let mut line: Vec<_> = history.executions.iter().collect();
    line.sort_by_key(|execution| execution.began);
    let tenures = line.chunk_by(|one, next| one.token.same_grant(next.token));
    tenures.map(<[&Execution]>::to_vec).collect()
}

/// The number of all writes to ZooKeeper, and the number of writes by heartbeats alone.
async fn write_counts(zookeeper: &OwnZooKeeper, tree: &ZnodeTree) -> (u64, u64) {
    // Heartbeats are read first. A heartbeat between the two readings then counts as another write, which is the safe
    // error.
    let mut beats = 0;
    for member in tree.members().await {
        beats += tree.version(&member).await;
    }
    (last_zxid(zookeeper.server.address()).await, beats)
}

/// A hot key that no other gateway wants costs at most one ZooKeeper write for ten requests, besides heartbeats.
#[tokio::test]
async fn hot_key_costs_few_zookeeper_writes() {
    const CLIENTS: usize = 16;
    const EACH: usize = 60;
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let gateway = Gateway::start(&with_cached_rules(site.policy("gw-1"), json!({}))).await;
    let tree = site.tree().await;

    let (all, beats) = write_counts(&zookeeper, &tree).await;
    let results = RunningLoad::start("load", &plan(&[&gateway], CLIENTS, EACH)).end().await;
    let (all_then, beats_then) = write_counts(&zookeeper, &tree).await;

    assert_all_done(&results);
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert_eq!(history.executions.len(), CLIENTS * EACH);
    assert!(beats_then > beats, "not exercised: no heartbeat");
    let writes = (all_then - all) - (beats_then - beats);
    assert!(writes * 10 <= (CLIENTS * EACH) as u64, "{writes} writes for {} requests", CLIENTS * EACH);
}

/// Requests under a warm key are dispatched under one grant without waiting for ZooKeeper.
#[tokio::test]
async fn warm_key_skips_zookeeper() {
    const DELAY: Duration = Duration::from_millis(400);
    const REQUESTS: u32 = 10;
    let site = TestSite::alone().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let policy = site.policy_without_janitor("gw-1").with_zookeeper(link.address());
    let gateway = Gateway::start(&with_cached_rules(policy, json!({"linger": KEPT}))).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    link.delay(DELAY);
    let cold = gateway.send(&TestRequest::post("/pay/8")).await;
    assert!(cold.took() >= DELAY, "the link is not slow: took {:?}", cold.took());

    let mut client = Http1Client::connect(gateway.public).await.expect("listens");
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        assert_eq!(client.send(&TestRequest::post("/pay/7")).await.expect("answered").status, 200);
    }
    assert!(begun.elapsed() < DELAY, "{REQUESTS} warm requests took {:?}", begun.elapsed());
    let log = site.origin.log();
    let tokens: Vec<FencingToken> = log.requests_for("/pay/7").map(|record| record.expect_token()).collect();
    assert!(tokens.iter().all(|token| token.same_grant(tokens[0])), "{tokens:?}");
    assert!(tokens.iter().map(|token| token.dispatch()).eq(1..=REQUESTS + 1), "{tokens:?}");
}

/// Gateways that contend for a hot key take turns, and no request waits longer than the bound of `gateway/lock/DESIGN.md`:
/// rounds x gateways x (`max_hold` + longest request).
#[tokio::test]
async fn contending_gateways_alternate_within_bound() {
    const GATEWAYS: usize = 2;
    const CLIENTS: usize = 16;
    const EACH: usize = 30;
    const MAX_HOLD: Duration = Duration::from_millis(100);
    /// The time that the operations of a hand-over and a busy machine may add to a turn.
    const SLACK: Duration = Duration::from_millis(100);
    let site = TestSite::alone().await;
    site.origin.set_work_time(Duration::from_millis(3));
    let policy = |name| with_cached_rules(site.policy(name), json!({}));
    let first = policy("gw-1");
    let second = policy("gw-2");
    let (one, two) = Gateway::start_both(&first, &second).await;

    let results = RunningLoad::start("load", &plan(&[&one, &two], CLIENTS, EACH)).end().await;

    assert_all_done(&results);
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert!(history.hand_overs() >= 8, "not exercised: {} hand-overs", history.hand_overs());

    let length = |execution: &Execution| execution.ended.expect("done") - execution.began;
    let longest = history.executions.iter().map(length).max().expect("some");
    let turns = split_by_tenure(&history);
    let turn = |turn: &Vec<&Execution>| turn.last().expect("cut").ended.expect("done") - turn[0].began;
    let longest_turn = turns.iter().map(turn).max().expect("some");
    // A turn is counted from the moment when another gateway wants the key. During the very first turn no other
    // gateway wanted the key.
    assert!(longest_turn <= 2 * (MAX_HOLD + longest + SLACK), "a turn took {longest_turn:?}");
    let least = turns.iter().map(Vec::len).rev().skip(1).min().expect("some");
    let rounds = 1 + (CLIENTS / 2).div_ceil(least.max(1));
    let bound = u32::try_from(rounds * GATEWAYS).expect("few") * (MAX_HOLD + longest + SLACK);
    let waited =
        results.iter().map(|result| result.answer.as_ref().expect("all done").took()).max().expect("some");
    assert!(waited <= bound, "waited {waited:?}; {rounds} rounds, {bound:?}");
}

#[tokio::test]
async fn idle_key_is_released_after_linger() {
    const LINGER: Duration = Duration::from_millis(800);
    let site = TestSite::alone().await;
    let gateway =
        Gateway::start(&with_cached_rules(site.policy_without_janitor("gw-1"), json!({"linger": "800ms"})))
            .await;
    let tree = site.tree().await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(tree.locks().await.len(), 1, "given back at once");
    tree.assert_no_locks().await;
    let kept = answer.completed.elapsed();
    assert!(kept >= LINGER - Duration::from_millis(50), "kept only {kept:?}");
    assert!(kept < LINGER + Duration::from_secs(1), "kept {kept:?}");
}

/// A request at another gateway gets the key within a second, whatever the `linger` of the gateway that keeps it.
#[tokio::test]
async fn peer_does_not_wait_for_linger() {
    let site = TestSite::alone().await;
    let (one, two) = tokio::join!(start_keeping(&site, "gw-1"), start_keeping(&site, "gw-2"));
    for gateway in [&one, &two, &one, &two] {
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.took() < Duration::from_secs(1), "took {:?}", answer.took());
    }
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(history.hand_overs(), 3);
}

/// A cached grant ends at `max_tenure` even when no other gateway wants the key.
#[tokio::test]
async fn grant_ends_at_max_tenure() {
    const MAX_TENURE: Duration = Duration::from_millis(400);
    let site = TestSite::alone().await;
    site.origin.set_work_time(Duration::from_millis(3));
    let rules = json!({"max_tenure": "400ms", "linger": "300ms"});
    let gateway = Gateway::start(&with_cached_rules(site.policy("gw-1"), rules)).await;
    let load = RunningLoad::start("load", &plan(&[&gateway], 4, 5000));
    let ended = |log: &fencegate_tests::origin::OriginLog| {
        let numbers: BTreeSet<_> =
            log.requests_for("/pay/7").map(|record| record.expect_token().number()).collect();
        (numbers.len() >= 5).then_some(())
    };
    site.origin.wait_for("five tenures", ended).await;
    let results = load.stop().await;
    assert_all_done(&results);
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    for tenure in split_by_tenure(&history) {
        let span = tenure.last().expect("cut").began - tenure[0].began;
        assert!(span <= MAX_TENURE + Duration::from_millis(100), "used for {span:?}");
    }
}

/// Sends requests with other lock settings through the gateway that holds their key under a cached grant, in heavy use.
async fn assert_served_beside_cached_tenure(route: Value, request: TestRequest, path: &str) {
    let site = TestSite::alone().await;
    site.origin.set_work_time(Duration::from_millis(3));
    let gateway =
        Gateway::start(&with_cached_rules(site.policy("gw-1"), json!({"linger": KEPT})).with_route(route))
            .await;
    let load = RunningLoad::start("load", &plan(&[&gateway], 8, 5000));
    site.origin.wait_for("a tenure in use", |log| log.records.get(20).map(drop)).await;
    for n in 1..=5 {
        let answer = gateway.send(&request).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
        // Other requests are admitted for `max_hold`. Then this request is the next in the queue.
        assert!(answer.took() < Duration::from_secs(1), "took {:?}", answer.took());
        assert_eq!(site.origin.count(path), n);
        let so_far = site.origin.log().records.len();
        site.origin.wait_for("the tenure in use again", |log| log.records.get(so_far + 10).map(drop)).await;
    }
    let results = load.stop().await;
    assert_all_done(&results);
    // A set is recorded under all of its keys. The check treats them as one resource.
    let mut history = History::from_log(&site.origin.log()).with_results(&results);
    for execution in &mut history.executions {
        execution.key = "account/7".to_owned();
    }
    history.assert_holds();
    // The gateway also gives up a tenure without load at once.
    let answer = gateway.send(&request).await;
    assert_eq!(answer.status, 200);
    assert!(answer.took() < Duration::from_secs(1), "took {:?}", answer.took());
}

/// A strict request is served within a second while its own gateway keeps the key under a cached grant.
#[tokio::test]
async fn cached_grant_yields_to_strict_request() {
    let route = json!({
        "name": "audit",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/audit/{account}"},
        "fence": {"key": "account/{path.account}", "hold": {"mode": "strict"}},
    });
    assert_served_beside_cached_tenure(route, TestRequest::post("/audit/7"), "/audit/7").await;
}

/// A request for several keys is served within a second while its own gateway keeps one of them under a cached grant.
#[tokio::test]
async fn cached_grant_yields_to_multi_key_request() {
    let route = json!({
        "name": "move",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"]},
    });
    assert_served_beside_cached_tenure(route, TestRequest::post("/move/8/7"), "/move/8/7").await;
}

/// The outcome of the first request is unknown, so no further request may use its token.
#[tokio::test]
async fn unknown_outcome_ends_grant() {
    let site = TestSite::fresh().await;
    let gateway = start_keeping(&site, "gw-1").await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let latch = site.origin.hold("/pay/7");
    site.origin.script("/pay/7", [OriginAction::Reset]);
    let held = gateway.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 2).await;
    let waiting: Vec<_> = (0..3).map(|_| gateway.begin(TestRequest::post("/pay/7"))).collect();
    gateway.wait_gauge("fencegate_lock_waiters", 3.0).await;

    latch.release();
    assert_eq!(held.answer().await.outcome(), Some(FencingOutcome::Done));
    let mut outcomes = Vec::new();
    for waiting in waiting {
        outcomes.push(waiting.answer().await.outcome());
    }
    outcomes.sort_by_key(|outcome| *outcome == Some(FencingOutcome::Done));
    assert_eq!(
        outcomes,
        [Some(FencingOutcome::Unknown), Some(FencingOutcome::Done), Some(FencingOutcome::Done)]
    );
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    let tenures: Vec<usize> = split_by_tenure(&history).iter().map(Vec::len).collect();
    assert_eq!(tenures, [3, 2], "the unknown one is the last under its token");
}

/// A cached grant ends when another client of ZooKeeper removes its lock node; the next request gets a new grant.
#[tokio::test]
async fn removed_lock_node_ends_grant() {
    let site = TestSite::fresh().await;
    let gateway = start_keeping(&site, "gw-1").await;
    let tree = site.tree().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let locks = tree.locks().await;
    tree.delete(&locks[0]).await.expect("a stranger may");
    gateway
        .wait_line("what happened", |line| line.message().starts_with("another client removed the lock node"))
        .await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(split_by_tenure(&history).len(), 2);
}
