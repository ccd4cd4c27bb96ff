//! A service that took Curator's lock itself moves behind gateways, in the five steps of the runbook: under load nothing is refused,
//! nothing overlaps, and no operation is done twice, wherever the fleet is at that moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    history::History,
    load::{AttemptResult, Load, LoadPlan},
    origin::OriginLog,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

use super::{
    super::migrate_key::{by_account, turns},
    foreign::JavaService,
};

/// What the fence of the route says from the second step on. With the first one the service has learnt to leave its lock alone.
fn fences(locks: &str) -> [Value; 4] {
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

/// Each operation is asked for by two clients, about at the same time.
fn asked_for_twice(path: &str) -> TestRequest {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let operation = ASKED.fetch_add(1, Ordering::Relaxed) / 2;
    TestRequest::post(path).field(OPERATION, &format!("operation-{operation}"))
}

const OPERATION: &str = "idempotency-key";

/// Asserts that each operation was done once. A repeat may be told that the operation is done or at work.
fn assert_done_once(site: &TestSite, told: &[AttemptResult]) {
    let mut repeats = BTreeMap::<String, usize>::new();
    for told in told {
        let answer = told.answer.as_ref().expect("an answer");
        if answer.status != 200 {
            assert!(["already-done", "in-progress"].contains(&&*answer.reason()), "{}: {answer:?}", told.id);
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

/// A gateway before the service, at one of the steps.
fn behind(site: &TestSite, service: &JavaService, (name, fence): (&str, &Value)) -> TestPolicy {
    site.policy(name)
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", service.address)]))
        .with("/routes/0/fence", fence.clone())
}

/// The keys that requests came under.
fn taken(log: &OriginLog) -> BTreeSet<String> {
    log.records.iter().filter_map(|record| record.key()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_service_that_took_curators_lock_moves_behind_gateways_under_load() {
    let site = TestSite::fresh().await;
    let locks = format!("/moving{}/locks", site.root);
    let service = JavaService::start(&site, &locks, "service").await;
    let step = |name: &str, fence: &Value| behind(&site, &service, (name, fence));
    let fences = fences(&locks);
    let (one, two) = Gateway::start_both(&step("gw-1", &fences[0]), &step("gw-2", &fences[0])).await;
    let load = Load::start("through", &LoadPlan::payments(&[&one, &two], 3, 6, 100_000));
    // Jobs that have always called the service itself.
    let direct = LoadPlan { gateways: vec![service.address], ..LoadPlan::payments(&[&one], 3, 3, 100_000) };
    let mut direct = Some(Load::start("direct", &direct));
    let served = async || site.origin.request("/pay/0", site.origin.count("/pay/0") + 10).await;
    served().await;
    let mut told = Vec::new();
    for (number, fence) in fences.iter().enumerate().skip(1) {
        // Before the gateways stop taking Curator's lock, direct callers of the service have to stop.
        if number == 3 {
            told.extend(direct.take().expect("begun").stop().await);
        }
        for (gateway, name) in [(&one, "gw-1"), (&two, "gw-2")] {
            turns(gateway, &step(name, fence)).await;
            served().await;
        }
    }
    told.extend(load.stop().await);
    for told in &told {
        let answer = told.answer.as_ref().expect("an answer");
        assert_eq!(answer.status, 200, "{}: {answer:?}", told.id);
    }
    let log = site.origin.log();
    let keys = taken(&log);
    for seen in ["own/0", "order/0", "order/0, orders/0", "orders/0"] {
        assert!(keys.contains(seen), "not exercised: {seen} of {keys:?}");
    }
    by_account(History::from_log(&log)).with(&told).assert_holds();
}

/// Starts at the step where the gateways have the lock. While the service still takes the lock, the gateways record
/// no operations.
#[tokio::test]
async fn no_operation_is_done_twice_while_the_lock_moves_from_curators_to_the_gateways() {
    let site = TestSite::fresh().await;
    let locks = format!("/moving{}/locks", site.root);
    let service = JavaService::start(&site, &locks, "service").await;
    let step = |name: &str, fence: &Value| {
        behind(&site, &service, (name, fence)).with("/routes/0/fence/once", json!({"store": "zookeeper"}))
    };
    let fences = fences(&locks);
    let (one, two) = Gateway::start_both(&step("gw-1", &fences[1]), &step("gw-2", &fences[1])).await;
    let paying =
        LoadPlan { paths: vec!["/pay/7".into()], ..LoadPlan::payments(&[&one, &two], 1, 6, 100_000) };
    let load = Load::start_with(asked_for_twice, "twice", &paying);
    let served = async || site.origin.request("/pay/7", site.origin.count("/pay/7") + 10).await;
    served().await;
    for fence in &fences[2..] {
        for (gateway, name) in [(&one, "gw-1"), (&two, "gw-2")] {
            turns(gateway, &step(name, fence)).await;
            served().await;
        }
    }
    let told = load.stop().await;
    assert_done_once(&site, &told);
    let log = site.origin.log();
    let keys = taken(&log);
    assert_eq!(keys.len(), 3, "not exercised: {keys:?}");
    by_account(History::from_log(&log)).assert_holds();
}
