//! A gateway that dies with a request in flight blocks its key for the session timeout, and no longer.
//!
//! After `kill -9` with a request in flight the next holder follows within the session timeout, two ticks and half a
//! second. Gateways that are killed under load break no promise.

use std::time::{Duration, Instant};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    held_request::HeldRequest,
    history::History,
    load::{LoadPlan, RunningLoad},
    origin::OriginLog,
    policy::TestPolicy,
    site::TestSite,
};

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);

/// The next holder follows a killed one within the session timeout and two ticks.
#[tokio::test]
async fn next_holder_follows_within_session_timeout() {
    let site = TestSite::alone().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let HeldRequest { request: lost, record: first, latch } =
        site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;

    let next = two.begin(TestRequest::post("/pay/7"));
    let killed = Instant::now();
    one.signal(Signal::KILL);
    assert!(lost.result().await.is_err(), "nobody is left to answer");
    assert_eq!(next.answer().await.status, 200);
    latch.release();

    let second = site.origin.wait_for_request("/pay/7", 2).await;
    let gap = second.arrived - killed;
    assert!(gap <= SESSION_TIMEOUT + 2 * TICK + Duration::from_millis(500), "took {gap:?}");
    // The session held the lock until it expired. Its last heartbeat may have been up to a third of a second old.
    assert!(gap >= SESSION_TIMEOUT - Duration::from_millis(500), "took only {gap:?}");
    assert!(second.expect_token() > first.expect_token());
}

async fn run_kills_under_load(hold: fn(TestPolicy) -> TestPolicy) {
    const ROUNDS: usize = 2;
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(5));
    let survivor = Gateway::start(&hold(site.policy("survivor"))).await;
    let mut results = Vec::new();
    for round in 0..ROUNDS {
        let victim = Gateway::start(&hold(site.policy(&format!("victim-{round}")))).await;
        let plan = LoadPlan::payments(&[&victim, &survivor], 2, 6, 2000);
        let load = RunningLoad::start(&format!("round-{round}"), &plan);
        let so_far = site.origin.log().records.len();
        let working = |log: &OriginLog| {
            let mut begun = log.records.iter().skip(so_far + 50);
            begun.any(|record| record.gateway != "survivor" && record.ended.is_none()).then_some(())
        };
        site.origin.wait_for("a request of the victim in flight", working).await;
        victim.signal(Signal::KILL);
        let killed = site.origin.log().records.len();
        site.origin.wait_for("the survivor to go on", |log| log.records.get(killed + 50).map(drop)).await;
        results.extend(load.stop().await);
    }
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert!(results.iter().any(|result| result.answer.is_err()), "not exercised: nobody lost an answer");
    assert!(history.hand_overs() >= 20, "not exercised: {} hand-overs", history.hand_overs());
}

/// Gateways that are killed under load let no two executions of a key overlap.
#[tokio::test]
async fn killed_gateways_under_load_keep_exclusion() {
    run_kills_under_load(|policy| policy).await;
}

/// Gateways that keep tenures and are killed under load let no two executions of a key overlap.
#[tokio::test]
async fn killed_caching_gateways_keep_exclusion() {
    run_kills_under_load(TestPolicy::with_cached_hold).await;
}
