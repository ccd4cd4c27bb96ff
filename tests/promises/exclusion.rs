//! Two requests never work on one resource at the same time, and tokens grow, whatever happens to the lock nodes in
//! between.
//!
//! Two gateways are under load, with a lock node per request and with cached grants. Meanwhile the parent of a lock
//! is deleted, and ZooKeeper is restarted.
//!
//! `tests/run --faults` runs `exclusion`, `paused` and `killed` once more with `FENCEGATE_TEST_TLS=yes`: on three
//! servers with `ssl.clientAuth=need`, and with nodes that are closed by certificate. Only the test of a restarted
//! server keeps a plain server of its own.

use std::time::Duration;

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    history::History,
    load::{AttemptResult, LoadPlan, RunningLoad},
    origin::OriginLog,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

const WORK: Duration = Duration::from_millis(3);

fn plan(gateways: &[&Gateway], keys: usize, clients: usize, requests: usize) -> LoadPlan {
    LoadPlan {
        gateways: gateways.iter().map(|gateway| gateway.public).collect(),
        paths: (0..keys).map(|key| format!("/pay/{key}")).collect(),
        clients,
        requests,
        pause: Duration::ZERO,
    }
}

fn judge(site: &TestSite, results: &[AttemptResult]) -> History {
    let history = History::from_log(&site.origin.log()).with_results(results);
    history.assert_holds();
    history
}

fn statuses(results: &[AttemptResult]) -> Vec<Result<u16, &str>> {
    results.iter().map(status).collect()
}

fn status(result: &AttemptResult) -> Result<u16, &str> {
    result.answer.as_ref().map(|answer| answer.status).map_err(String::as_str)
}

/// Runs two gateways, whose policies are changed in the same way, with twelve clients.
async fn run_under_load(hold: fn(TestPolicy) -> TestPolicy) {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(WORK);
    let (one, two) = Gateway::start_both(&hold(site.policy("gw-1")), &hold(site.policy("gw-2"))).await;

    let results = RunningLoad::start("load", &plan(&[&one, &two], 3, 12, 40)).end().await;

    let history = judge(&site, &results);
    assert!(statuses(&results).iter().all(|status| *status == Ok(200)), "{:?}", statuses(&results));
    assert_eq!(history.executions.len(), 480);
    assert!(history.hand_overs() >= 50, "not exercised: {} hand-overs", history.hand_overs());
}

/// Two gateways with strict grants under load never let two requests work on one resource.
#[tokio::test]
async fn strict_grants_never_overlap_under_load() {
    run_under_load(|policy| policy).await;
}

/// Two gateways with cached grants under load never let two requests work on one resource.
#[tokio::test]
async fn cached_grants_never_overlap_under_load() {
    run_under_load(TestPolicy::with_cached_hold).await;
}

/// Tokens grow although a new parent of the lock nodes starts its sequence at 0 again, because the epoch grows.
#[tokio::test]
async fn tokens_grow_across_parent_deletion() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let pausing = LoadPlan { pause: Duration::from_millis(10), ..plan(&[&one, &two], 2, 4, 2000) };
    let load = RunningLoad::start("load", &pausing);
    // The last gateway that leaves a key also removes the parent of the lock nodes, so sequence numbers begin at 0
    // again.
    let begun_again = |log: &OriginLog| {
        let first = log.records.iter().filter(|record| record.expect_token().sequence() == 0).count();
        (first >= 40 && first < log.records.len()).then_some(())
    };
    site.origin.wait_for("numbers that begin again", begun_again).await;
    let results = load.stop().await;

    let history = judge(&site, &results);
    assert!(statuses(&results).iter().all(|status| *status == Ok(200)), "{:?}", statuses(&results));
    assert!(history.hand_overs() >= 10, "not exercised: {} hand-overs", history.hand_overs());
    let restarts = history.executions.iter().filter(|execution| execution.token.sequence() == 0).count();
    assert!(restarts >= 10, "not exercised: {restarts} restarted sequences");
}

/// Nothing overlaps across a restart of ZooKeeper, and the gateways serve again without an operator.
#[tokio::test]
async fn exclusion_holds_across_zookeeper_restart() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    site.origin.set_work_time(WORK);
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let load = RunningLoad::start("load", &plan(&[&one, &two], 2, 6, 3000));

    let both_serve = async || {
        tokio::join!(site.origin.wait_more("gw-1", 30), site.origin.wait_more("gw-2", 30));
    };
    both_serve().await;
    let _zookeeper = zookeeper.stop().await.restart().await;
    both_serve().await;
    let results = load.stop().await;

    let history = judge(&site, &results);
    for result in &results {
        assert!(matches!(status(result), Ok(200 | 423 | 503)), "{result:?}");
    }
    assert!(history.hand_overs() >= 20, "not exercised: {} hand-overs", history.hand_overs());
}

#[tokio::test]
async fn routes_with_same_key_exclude() {
    let site = TestSite::fresh().await;
    let refund = json!({
        "name": "refund",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/refund/{id}"},
        "fence": {"key": "account/{path.id}"},
    });
    let gateway = Gateway::start(&site.policy("gw-1").with_route(refund)).await;
    let first = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let second = gateway.begin(TestRequest::post("/refund/7"));
    assert_eq!(gateway.send(&TestRequest::post("/refund/8")).await.status, 200, "another key is free");
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/refund/7"), 0);
    assert_eq!((first.finish().await.status, second.answer().await.status), (200, 200));
    History::from_log(&site.origin.log()).assert_holds();
}
