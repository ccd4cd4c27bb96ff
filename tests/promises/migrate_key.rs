//! A key template changes in an installation that serves: under load no request is refused, no two requests of one
//! resource overlap, and no operation that was done is done again.
//!
//! The template moves through two gateways by `migrate_from`. Without it, gateways with the old and with the new
//! template do not serve at the same time.

use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    history::History,
    load::{LoadPlan, RunningLoad},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

const OLD: &str = "account/{path.account}";
const NEW: &str = "konto/{path.account}";

/// The three policies of a migration, in the order in which all gateways take them over.
fn stages(policy: &TestPolicy) -> [TestPolicy; 3] {
    let keyed = |key: &str| policy.clone().with("/routes/0/fence/key", key);
    [keyed(OLD), keyed(NEW).with("/routes/0/fence/migrate_from", OLD), keyed(NEW)]
}

pub(super) async fn reload_safely(gateway: &Gateway, policy: &TestPolicy) {
    gateway.rewrite(policy);
    let (code, report) = gateway.reload(&["--dry-run", "--fleet"]).await;
    assert_eq!((code, &report["fleet"]["safe"]), (Some(0), &json!(true)), "{report}");
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
}

/// Replaces the key of each execution by its account, because the key depends on the plan under which it ran.
pub(super) fn by_account(mut history: History) -> History {
    for execution in &mut history.executions {
        execution.key = execution.key.split('/').next_back().unwrap_or_default().to_owned();
    }
    history
}

/// While a key template moves under load, nothing is refused and no two requests of one resource overlap.
#[tokio::test]
async fn key_migrates_under_load_without_overlap() {
    let site = TestSite::fresh().await;
    let [one, two] = ["gw-1", "gw-2"].map(|name| stages(&site.policy(name).with_cached_hold()));
    let (first, second) = Gateway::start_both(&one[0], &two[0]).await;
    let load = RunningLoad::start("migration", &LoadPlan::payments(&[&first, &second], 3, 6, 100_000));
    let served = async || site.origin.wait_for_request("/pay/0", site.origin.count("/pay/0") + 10).await;
    served().await;
    for stage in 1..3 {
        for (gateway, stages) in [(&first, &one), (&second, &two)] {
            reload_safely(gateway, &stages[stage]).await;
            served().await;
        }
    }
    let told = load.stop().await;
    for told in &told {
        let answer = told.answer.as_ref().expect("an answer");
        assert_eq!(answer.status, 200, "{}: {answer:?}", told.id);
    }
    let log = site.origin.log();
    let keys: std::collections::BTreeSet<String> =
        log.records.iter().filter_map(|record| record.key()).map(|key| key.replace('0', "N")).collect();
    for seen in ["account/N", "account/N, konto/N", "konto/N"] {
        assert!(keys.contains(seen), "not exercised: {seen} of {keys:?}");
    }
    by_account(History::from_log(&log)).with_results(&told).assert_holds();
}

/// A plan with the old key and a plan with the new key do not serve beside each other.
///
/// The old and the new plan have no key in common. The plan with both keys has one in common with each of them.
#[tokio::test]
async fn old_and_new_plans_are_incompatible() {
    let site = TestSite::fresh().await;
    let [old, both, new] = stages(&site.policy("gw-1"));
    let first = Gateway::start(&old).await;
    let named = |policy: &TestPolicy| policy.clone().with("/name", "gw-2");
    let second = Gateway::start(&named(&new)).await;
    let pays = async |gateway: &Gateway| gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(pays(&second).await.reason(), "config-mismatch");
    second.rewrite(&named(&both));
    assert_eq!(second.reload(&[]).await.0, Some(0));
    let served = pays(&second).await;
    assert_eq!(served.status, 200, "{served:?}");
    // The common old key excludes the other gateway, which does not know the new key.
    let held = site.origin.hold_request(&first, TestRequest::post("/pay/7")).await;
    let waiting = second.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(fencegate_testkit::wait::QUIET).await;
    assert!(!waiting.is_over(), "both work on it");
    assert_eq!(held.finish().await.status, 200);
    assert_eq!(waiting.answer().await.status, 200);
}

/// An operation that was done under the old key is not done again during the migration.
///
/// The repeat names the same operation, although it has another key.
#[tokio::test]
async fn operation_done_once_across_key_migration() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({"store": "zookeeper"}));
    let [old, both, new] = stages(&policy);
    let gateway = Gateway::start(&old).await;
    let pay = |name: &str| TestRequest::post("/pay/7").field("idempotency-key", name);
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    reload_safely(&gateway, &both).await;
    assert_eq!(gateway.send(&pay("a")).await.reason(), "already-done");
    assert_eq!(gateway.send(&pay("b")).await.status, 200);
    reload_safely(&gateway, &new).await;
    assert_eq!(gateway.send(&pay("b")).await.reason(), "already-done");
    // No gateway has recorded this operation under both keys. It is still not executed again.
    assert_eq!(gateway.send(&pay("a")).await.reason(), "idempotency-mismatch");
    assert_eq!(site.origin.count("/pay/7"), 2);
}
