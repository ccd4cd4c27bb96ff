//! Requests never work on a resource under its old and its new key at once, and a locked request never overlaps with
//! an unlocked one.

use std::time::Duration;

use fencegate_testkit::{child::Signal, wait::QUIET};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    history::{ATTEMPT, History},
    load::{LoadPlan, RunningLoad},
    origin::Origin,
    site::TestSite,
    unlocked_request::UnlockedRequest,
};
use serde_json::{Value, json};

/// Requests before and after a change of the key template never overlap on a resource: they have different locks, so
/// the later request has to wait for the earlier one.
#[tokio::test]
async fn old_and_new_key_never_overlap() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let old = site.origin.hold_request(&gateway, TestRequest::post("/pay/7").field(ATTEMPT, "old")).await;
    gateway.rewrite(
        &site
            .policy("gw-1")
            .with("/routes/0/fence/key", "konto/{path.account}")
            .with("/routes/0/fence/wait", "1s"),
    );
    assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    let refused: ClientResponse = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((refused.status, refused.outcome()), (423, Some(FencingOutcome::NotDispatched)));
    let new = gateway.begin(TestRequest::post("/pay/7").field(ATTEMPT, "new"));
    assert_eq!(gateway.send(&TestRequest::get("/other")).await.status, 200, "unfenced requests do not wait");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
    assert_eq!(old.finish().await.status, 200);
    assert_eq!(new.answer().await.status, 200);
    let log = site.origin.log();
    let keys: Vec<_> = log.requests_for("/pay/7").filter_map(|record| record.key()).collect();
    assert_eq!(keys, ["account/7", "konto/7"]);
    by_account(History::from_log(&log)).assert_holds();
}

/// Reloads before and after the change of the key make no difference: a request under the old key is waited for.
#[tokio::test]
async fn unrelated_reloads_hide_no_old_key() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let old = site.origin.hold_request(&gateway, TestRequest::post("/pay/7").field(ATTEMPT, "old")).await;
    let policy = |key: &str, queue: usize| {
        let policy = site.policy("gw-1").with("/routes/0/fence/key", key);
        policy.with("/routes/0/fence/queue", queue)
    };
    for policy in [
        policy("account/{path.account}", 41),
        policy("konto/{path.account}", 41),
        policy("konto/{path.account}", 42),
    ] {
        gateway.rewrite(&policy);
        assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    }
    let new = gateway.begin(TestRequest::post("/pay/7").field(ATTEMPT, "new"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "worked on under both keys");
    assert_eq!(old.finish().await.status, 200);
    assert_eq!(new.answer().await.status, 200);
    by_account(History::from_log(&site.origin.log())).assert_holds();
}

/// A route that was removed and came back at another service waits for requests that began before.
///
/// A request of the first plan may still work on the account. This holds although the route now leads to another
/// service, names the account there in another way, and was missing in a plan in between.
#[tokio::test]
async fn moved_route_waits_for_earlier_request() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let elsewhere = Origin::start();
    let old = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let without = policy.without_route("pay");
    let back = without
        .clone()
        .with("/upstreams/treasury/endpoints", json!([format!("http://{}", elsewhere.open_listener("gw-1"))]))
        .with("/upstreams/treasury/fencing", "upstream")
        .with_route(json!({
            "name": "charge", "upstream": "treasury", "match": {"methods": ["POST"], "path": "/pay/{account}"},
            "fence": {"key": "konto/{path.account}", "wait": "5s"},
        }));
    for policy in [&without, &back] {
        gateway.rewrite(policy);
        assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    }
    let new = gateway.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(elsewhere.count("/pay/7"), 0, "worked on under both keys");
    assert_eq!(old.finish().await.status, 200);
    assert_eq!(new.answer().await.status, 200);
    assert_eq!(elsewhere.count("/pay/7"), 1);
}

/// A route that only observes does not refuse a request that waited in vain for requests of the last plan.
///
/// Such a route refuses nothing. A gateway that stops still takes no new request.
#[tokio::test]
async fn observing_route_passes_after_wait() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/timeouts/drain", "4s");
    let gateway = Gateway::start(&policy).await;
    let old = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    gateway.rewrite(
        &policy
            .with("/routes/0/fence/key", "konto/{path.account}")
            .with("/routes/0/fence/wait", "1m")
            .with("/routes/0/fence/enforce", "observe"),
    );
    assert_eq!(gateway.reload(&[]).await.1["result"], "applied");
    let passed = gateway.send(&TestRequest::post("/pay/7").field("prefer", "wait=1")).await;
    assert_eq!((passed.status, passed.outcome()), (200, Some(FencingOutcome::Done)));
    assert!(
        passed.field("fencing-outcome").is_some_and(|text| text.contains("observe=locked")),
        "{passed:?}"
    );
    assert_eq!(site.origin.wait_for_request("/pay/7", 2).await.token(), None, "nobody holds the key for it");

    let waits = gateway.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    gateway.signal(Signal::TERM);
    let told = waits.answer().await;
    assert_eq!((told.status, told.reason().as_str()), (503, "draining"));
    assert_eq!(old.finish().await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// When a route no longer only observes, a request waits for those that passed without a lock.
///
/// Requests without a lock may overlap with each other. A request after the change may overlap with none.
#[tokio::test]
async fn enforced_route_waits_for_unlocked_request() {
    let site = TestSite::fresh().await;
    let UnlockedRequest { gateway, fencing, request: unlocked, latch } =
        site.hold_unlocked_request(site.policy("gw-1")).await;
    gateway.rewrite(&fencing);
    assert_eq!(gateway.reload(&[]).await.1["difference"]["rekeyed"], json!(["pay"]));
    let first = gateway.begin(TestRequest::post("/pay").field("x-account", "7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay"), 1, "it began beside one without a lock");
    latch.release();
    assert_eq!(unlocked.answer().await.status, 200);
    assert_eq!(first.answer().await.status, 200);
}

/// Replaces the key of each execution by its account, because the key depends on the plan under which it ran.
fn by_account(mut history: History) -> History {
    for execution in &mut history.executions {
        execution.key = execution.key.split('/').next_back().unwrap_or_default().to_owned();
    }
    history
}

/// Under load no reload fails a request or lets two keys of one resource overlap.
#[tokio::test]
async fn reloads_under_load_fail_no_request() {
    let site = TestSite::fresh().await;
    // The session timeout is long enough that a busy machine ends no session. A new session would yield to the plan
    // that the last one has published.
    let site_policy = site.policy("gw-1").with("/zookeeper/session_timeout", "8s");
    let policy = |round: usize| {
        let prefix = if round % 3 == 1 { "konto" } else { "account" };
        let key = if round % 5 == 4 { Value::Null } else { json!(format!("{prefix}/{{path.account}}")) };
        site_policy
            .clone()
            .with_cached_hold()
            .with("/routes/0/fence/key", key)
            .with("/routes/0/fence/queue", 40 + round)
    };
    let gateway = Gateway::start(&policy(0)).await;
    let plan = LoadPlan::payments(&[&gateway], 4, 8, 100_000);
    let load = RunningLoad::start("reload", &plan);
    for round in 1..20 {
        site.origin.wait_for_request("/pay/0", site.origin.count("/pay/0") + 5).await;
        gateway.rewrite(&policy(round));
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!(code, Some(if round % 5 == 4 { 78 } else { 0 }), "{report}");
    }
    let told = load.stop().await;
    assert!(told.len() > 200, "not exercised: {} requests", told.len());
    for told in &told {
        let answer = told.answer.as_ref().expect("an answer");
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
    }
    let history = by_account(History::from_log(&site.origin.log()).with_results(&told));
    assert!(history.executions.len() >= told.len());
    history.assert_holds();
}
