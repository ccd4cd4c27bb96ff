//! At level `delay` the holder after one that was killed, frozen or cut short begins only when the requests of that
//! earlier holder are over. An orderly hand-over costs no delay.
//!
//! The delay also passes while no request waits. The record of the holder is shown to operators, and it is removed
//! when no request wants the key any more.

use std::time::{Duration, Instant};

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    held_request::HeldRequest,
    history::History,
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use tokio::time::{sleep, sleep_until};

const SESSION: Duration = Duration::from_secs(2);
const DELAY: Duration = Duration::from_secs(4);
/// The work time of a request. It exceeds a session and fits within the delay: without the delay two executions would
/// overlap.
const EXECUTION: Duration = Duration::from_millis(3300);
const SLACK: Duration = Duration::from_millis(500);

fn delay_policy(site: &TestSite, name: &str) -> TestPolicy {
    let millis = |duration: Duration| format!("{}ms", duration.as_millis());
    site.policy(name)
        .with("/upstreams/ledger/fencing", "delay")
        .with("/upstreams/ledger/delay", millis(DELAY))
        .with("/upstreams/ledger/response_timeout", millis(DELAY))
        .with("/routes/0/fence/wait", "30s")
}

/// The policy of [`delay_policy`] in an installation of its own for each account, so that several pairs of gateways can
/// run at once: the gateways of one installation also look at the records of each other's keys.
fn own_delay_policy(site: &TestSite, name: &str, account: u32) -> TestPolicy {
    let root = format!("{}-{account}", site.root);
    delay_policy(site, &format!("{name}-{account}")).with("/zookeeper/root", root)
}

async fn start_pair(site: &TestSite, hold: fn(TestPolicy) -> TestPolicy) -> (Gateway, Gateway) {
    let one = hold(delay_policy(site, "gw-1"));
    let two = hold(delay_policy(site, "gw-2"));
    tokio::join!(Gateway::start(&one), Gateway::start(&two))
}

const HOLDS: [fn(TestPolicy) -> TestPolicy; 2] = [|policy| policy, TestPolicy::with_cached_hold];

/// Kills a gateway while it holds the account, and asserts that the next holder waits for session timeout and delay.
async fn assert_killed_holder_delays_next(site: &TestSite, hold: fn(TestPolicy) -> TestPolicy, account: u32) {
    let policies = ["holder", "next"].map(|name| hold(own_delay_policy(site, name, account)));
    let (one, two) = Gateway::start_both(&policies[0], &policies[1]).await;
    let path = format!("/pay/{account}");
    let HeldRequest { request: lost, latch, record } =
        site.origin.hold_request(&one, TestRequest::post(&path)).await;
    let next = two.begin(TestRequest::post(&path));
    one.signal(Signal::KILL);
    let killed = Instant::now();
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    sleep_until((record.arrived + EXECUTION).into()).await;
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    let second = site.origin.wait_for_request(&path, 2).await;
    let gap = second.arrived - killed;
    assert!(gap >= SESSION + DELAY - SLACK, "began after {gap:?}");
    assert!(gap <= SESSION + DELAY + SLACK * 4, "began only after {gap:?}");
    // The delay was waited for once; a second request does not wait again.
    let began = Instant::now();
    assert_eq!(two.send(&TestRequest::post(&path)).await.status, 200);
    assert!(began.elapsed() < DELAY, "took {:?}", began.elapsed());
    two.wait_series("fencegate_delays_total", &["result=\"sat-out\""], 1.0).await;
}

/// After a killed holder the next one begins when session timeout and delay are over, and the delay is waited for
/// once.
#[tokio::test]
async fn killed_holder_delays_next_holder() {
    let site = TestSite::fresh().await;
    tokio::join!(
        assert_killed_holder_delays_next(&site, HOLDS[0], 7),
        assert_killed_holder_delays_next(&site, HOLDS[1], 8)
    );
    History::from_log(&site.origin.log()).assert_holds();
}

/// An orderly hand-over costs no delay and leaves nothing in ZooKeeper; neither does the drain of a gateway cost one.
#[tokio::test]
async fn orderly_hand_over_costs_no_delay() {
    for hold in HOLDS {
        let site = TestSite::fresh().await;
        let (one, two) = start_pair(&site, hold).await;
        let began = Instant::now();
        for round in 0..10 {
            for gateway in [&one, &two] {
                let answer = gateway.send(&TestRequest::post("/pay/7")).await;
                assert_eq!(answer.status, 200, "round {round}: {answer:?}");
            }
        }
        assert!(began.elapsed() < DELAY, "took {:?}", began.elapsed());
        wait_no_parent_left(&site.tree().await).await;
        // A gateway that stops in order costs no delay either.
        assert_eq!(one.send(&TestRequest::post("/pay/7")).await.status, 200);
        one.signal(Signal::TERM);
        assert_eq!(one.exit().await.code(), Some(0));
        let began = Instant::now();
        assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
        assert!(began.elapsed() < DELAY / 2, "took {:?}", began.elapsed());
        History::from_log(&site.origin.log()).assert_holds();
    }
}

/// After a frozen holder the next one begins when the delay is over, and the frozen holder reports an unknown
/// outcome.
#[tokio::test]
async fn frozen_holder_delays_next_holder() {
    let site = TestSite::fresh().await;
    let (one, two) = start_pair(&site, HOLDS[1]).await;
    site.origin.script("/pay/7", [OriginAction::Answer(EXECUTION, OriginReply::ok())]);
    let frozen = one.begin(TestRequest::post("/pay/7"));
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    one.signal(Signal::STOP);
    let next = two.begin(TestRequest::post("/pay/7"));
    assert_eq!(next.answer().await.status, 200);
    let gap = site.origin.wait_for_request("/pay/7", 2).await.arrived - record.arrived;
    assert!(gap >= SESSION + DELAY - SLACK * 2, "began after {gap:?}");
    one.signal(Signal::CONT);
    assert_eq!(
        frozen.answer().await.outcome(),
        Some(FencingOutcome::Unknown),
        "its proof ended before the answer"
    );
    History::from_log(&site.origin.log()).assert_holds();
}

/// Kills a gateway while it holds the account, and asserts that a request through the next gateway is served after the
/// delay, although no request waits for longer than 300 ms.
async fn assert_short_waits_outlast_delay(site: &TestSite, hold: fn(TestPolicy) -> TestPolicy, account: u32) {
    let holder = own_delay_policy(site, "holder", account);
    let impatient = own_delay_policy(site, "impatient", account).with("/routes/0/fence/wait", "300ms");
    let (one, next) = Gateway::start_both(&holder, &hold(impatient)).await;
    let path = format!("/pay/{account}");
    let HeldRequest { request: lost, latch, .. } =
        site.origin.hold_request(&one, TestRequest::post(&path)).await;
    one.signal(Signal::KILL);
    let killed = Instant::now();
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    latch.release();
    let mut delayed = Vec::new();
    let done = loop {
        let answer = next.send(&TestRequest::post(&path)).await;
        if answer.status == 200 {
            break answer;
        }
        match &*answer.reason() {
            "delayed" => delayed.push((killed.elapsed(), answer)),
            // `locked`: the request has waited behind the lock node of the dead holder, or behind another request that
            // waits for the end of the delay. `lock-service`: ZooKeeper has not answered within these 300 ms.
            "locked" | "lock-service" => {}
            other => panic!("{other}: {answer:?}"),
        }
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(done.status, 200, "{done:?}");
    let gap = killed.elapsed();
    assert!(gap >= SESSION + DELAY - SLACK && gap < SESSION + DELAY + SLACK * 6, "after {gap:?}");
    let (at, first) = delayed.first().expect("some were refused");
    assert_eq!((first.status, first.outcome()), (423, Some(FencingOutcome::NotDispatched)));
    let rest: u64 = retry_after(first);
    let ends = *at + Duration::from_secs(rest);
    assert!(ends >= gap - SLACK * 4, "asked to come after {rest} s at {at:?}, and it ended after {gap:?}");
}

/// No single request waits as long as the delay, and still a later request runs when the delay is over.
#[tokio::test]
async fn delay_longer_than_waits_still_ends() {
    let site = TestSite::fresh().await;
    tokio::join!(
        assert_short_waits_outlast_delay(&site, HOLDS[0], 7),
        assert_short_waits_outlast_delay(&site, HOLDS[1], 8)
    );
}

fn retry_after(answer: &ClientResponse) -> u64 {
    answer.field("retry-after").expect("when to come again").parse().expect("seconds")
}

/// A drain that ends before its requests writes no `clean` record, so the next holder waits for the delay.
#[tokio::test]
async fn interrupted_drain_delays_next_holder() {
    let site = TestSite::fresh().await;
    let policy = delay_policy(&site, "gw-1").with("/listeners/public/timeouts/drain", "300ms");
    let two = delay_policy(&site, "gw-2");
    let (one, two) = tokio::join!(Gateway::start(&policy), Gateway::start(&two));
    let HeldRequest { request: lost, latch, record } =
        site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let next = two.begin(TestRequest::post("/pay/7"));
    one.signal(Signal::TERM);
    assert_eq!(one.exit().await.code(), Some(1), "not a clean end");
    let exited = Instant::now();
    drop(lost.result().await);
    sleep_until((record.arrived + EXECUTION).into()).await;
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    let gap = site.origin.wait_for_request("/pay/7", 2).await.arrived - exited;
    assert!(gap >= DELAY - SLACK, "began after {gap:?}");
    History::from_log(&site.origin.log()).assert_holds();
}

/// The record of a killed holder is shown by the admin API, and removed when no request wants its key.
#[tokio::test]
async fn record_of_killed_holder_is_removed() {
    let site = TestSite::fresh().await;
    let (one, two) = start_pair(&site, HOLDS[0]).await;
    let tree = site.tree().await;
    let HeldRequest { request: lost, latch, .. } =
        site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let shown = two.admin("/api/v1/locks/account%2F7").await;
    let shown: serde_json::Value = serde_json::from_slice(&shown.body).expect("JSON");
    assert_eq!(shown["record"]["state"], "held", "{shown}");
    one.signal(Signal::KILL);
    drop(lost.result().await);
    latch.release();
    assert!(!parents(&tree).await.is_empty(), "its record stays");
    wait_no_parent_left(&tree).await;
    two.wait_series_at_least("fencegate_delay_leftovers_total", &["result=\"removed\""], 1.0).await;
    let began = Instant::now();
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert!(began.elapsed() < DELAY / 2, "took {:?}", began.elapsed());
    History::from_log(&site.origin.log()).assert_holds();
}

/// The parents of the lock nodes of all keys.
async fn parents(tree: &ZnodeTree) -> Vec<String> {
    let mut paths = tree.paths().await;
    paths.retain(|path| path.starts_with("/locks/") && path.matches('/').count() == 3);
    paths
}

async fn wait_no_parent_left(tree: &ZnodeTree) {
    let gone = async {
        while !parents(tree).await.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("nothing to be left of the key", gone, || "its parent").await;
}
