//! A service that took Curator's lock itself moves behind gateways in the five steps of the runbook. Under load nothing is
//! refused, nothing overlaps, and no operation is executed twice, whichever step each gateway has reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    history::History,
    load::{AttemptResult, LoadPlan, RunningLoad},
    origin::OriginLog,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

use super::{
    super::migrate_key::{by_account, reload_safely},
    foreign::JavaService,
};

/// The `fence` of the route in the second to the fifth step. The first step makes the service skip its own lock when a
/// gateway holds it.
fn fence_steps(locks: &str) -> [Value; 4] {
    let curators = json!({
        "key": "order/{path.account}", "layout": "curator-mutex", "lock_path": format!("{locks}/{{path.account}}"),
    });
    let with = |key: Value| {
        let mut fence = json!({"wait": "20s", "queue": 50});
        fence.as_object_mut().expect("an object").extend(key.as_object().expect("an object").clone());
        fence
    };
    [
        json!("none"),
        with(curators.clone()),
        with(json!({"key": "orders/{path.account}", "migrate_from": curators})),
        with(json!({"key": "orders/{path.account}"})),
    ]
}

/// A request whose operation the next or the previous call requests too: two clients send it at about the same time.
fn request_sent_twice(path: &str) -> TestRequest {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let operation = ASKED.fetch_add(1, Ordering::Relaxed) / 2;
    TestRequest::post(path).field(OPERATION, &format!("operation-{operation}"))
}

const OPERATION: &str = "idempotency-key";

/// Asserts that each operation was executed once. A repeat may be refused because the operation is done or in progress.
fn assert_done_once(site: &TestSite, results: &[AttemptResult]) {
    let mut repeats = BTreeMap::<String, usize>::new();
    for result in results {
        let answer = result.answer.as_ref().expect("an answer");
        if answer.status != 200 {
            assert!(
                ["already-done", "in-progress"].contains(&&*answer.reason()),
                "{}: {answer:?}",
                result.id
            );
            *repeats.entry(answer.reason()).or_default() += 1;
        }
    }
    assert!(repeats.values().sum::<usize>() > 10, "not exercised: {repeats:?}");
    let mut done = BTreeMap::<String, usize>::new();
    for operation in site.origin.log().records.iter().filter_map(|record| record.request.field(OPERATION)) {
        *done.entry(operation.to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = done.iter().filter(|(_, times)| **times != 1).collect();
    assert!(done.len() > 10 && twice.is_empty(), "done twice: {twice:?}");
}

/// The policy of a gateway before the service, at one of the steps.
fn policy_of_step(site: &TestSite, service: &JavaService, name: &str, fence: &Value) -> TestPolicy {
    site.policy(name)
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", service.address)]))
        .with("/routes/0/fence", fence.clone())
}

/// The keys of all requests at the origin.
fn requested_keys(log: &OriginLog) -> BTreeSet<String> {
    log.records.iter().filter_map(|record| record.key()).map(str::to_owned).collect()
}

/// A service that took Curator's lock moves behind gateways step by step: nothing is refused, and nothing overlaps.
#[tokio::test]
async fn service_moves_behind_gateways_under_load() {
    let site = TestSite::fresh().await;
    let locks = format!("/moving{}/locks", site.root);
    let service = JavaService::start(&site, &locks, "service").await;
    let step = |name: &str, fence: &Value| policy_of_step(&site, &service, name, fence);
    let fences = fence_steps(&locks);
    let (one, two) = Gateway::start_both(&step("gw-1", &fences[0]), &step("gw-2", &fences[0])).await;
    let load = RunningLoad::start("through", &LoadPlan::payments(&[&one, &two], 3, 6, 100_000));
    // Jobs call the service directly, without a gateway, as they did before the move.
    let direct = LoadPlan { gateways: vec![service.address], ..LoadPlan::payments(&[&one], 3, 3, 100_000) };
    let mut direct = Some(RunningLoad::start("direct", &direct));
    let served = async || site.origin.wait_for_request("/pay/0", site.origin.count("/pay/0") + 10).await;
    served().await;
    let mut results = Vec::new();
    for (number, fence) in fences.iter().enumerate().skip(1) {
        // Before the gateways stop taking Curator's lock, direct callers of the service have to stop.
        if number == 3 {
            results.extend(direct.take().expect("begun").stop().await);
        }
        for (gateway, name) in [(&one, "gw-1"), (&two, "gw-2")] {
            reload_safely(gateway, &step(name, fence)).await;
            served().await;
        }
    }
    results.extend(load.stop().await);
    for result in &results {
        let answer = result.answer.as_ref().expect("an answer");
        assert_eq!(answer.status, 200, "{}: {answer:?}", result.id);
    }
    let log = site.origin.log();
    let keys = requested_keys(&log);
    for seen in ["own/0", "order/0", "order/0, orders/0", "orders/0"] {
        assert!(keys.contains(seen), "not exercised: {seen} of {keys:?}");
    }
    by_account(History::from_log(&log)).with_results(&results).assert_holds();
}

/// No operation is executed twice while the gateways move from Curator's lock to their own. The test starts at the step
/// where the gateways have the lock: while the service still takes the lock, the gateways record no operations.
#[tokio::test]
async fn operations_execute_once_during_lock_move() {
    let site = TestSite::fresh().await;
    let locks = format!("/moving{}/locks", site.root);
    let service = JavaService::start(&site, &locks, "service").await;
    let step = |name: &str, fence: &Value| {
        policy_of_step(&site, &service, name, fence)
            .with("/routes/0/fence/once", json!({"store": "zookeeper"}))
    };
    let fences = fence_steps(&locks);
    let (one, two) = Gateway::start_both(&step("gw-1", &fences[1]), &step("gw-2", &fences[1])).await;
    let paying =
        LoadPlan { paths: vec!["/pay/7".into()], ..LoadPlan::payments(&[&one, &two], 1, 6, 100_000) };
    let load = RunningLoad::start_with(request_sent_twice, "twice", &paying);
    let served = async || site.origin.wait_for_request("/pay/7", site.origin.count("/pay/7") + 10).await;
    served().await;
    for fence in &fences[2..] {
        for (gateway, name) in [(&one, "gw-1"), (&two, "gw-2")] {
            reload_safely(gateway, &step(name, fence)).await;
            served().await;
        }
    }
    let results = load.stop().await;
    assert_done_once(&site, &results);
    let log = site.origin.log();
    let keys = requested_keys(&log);
    assert_eq!(keys.len(), 3, "not exercised: {keys:?}");
    by_account(History::from_log(&log)).assert_holds();
}
