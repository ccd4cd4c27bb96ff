//! For random requests to every example policy, as written and at other levels, the gateway does exactly what `explain`
//! reports.

use std::collections::BTreeSet;

use fencegate_guard::identity::{ANNOUNCEMENT, GuardIdentityResponse};
use fencegate_policies::{file, plan};
use fencegate_testkit::scratch;
use fencegate_tests::{
    gateway::Gateway,
    guarded::{GuardedSite, run_operator},
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

use super::{
    INVENTORY, MINIMAL, PAYMENTS,
    compare::{compare, compare_line},
    run_explain, send_bytes,
    spelled::{HOST, SmallRng, SpelledRequest},
};

const TENANTS: &str = include_str!("../../../policies/examples/multi-tenant.yaml");

/// An example as it is written, with the addresses of this test. At level `guard` the recording upstream announces itself
/// as a guard, so that it records what the gateway sends.
fn localized_example(example: &str, level: Option<&str>, site: &TestSite, key: &str) -> TestPolicy {
    let mut policy = TestPolicy::from_yaml(example)
        .with("/name", "gw-1")
        .with("/listeners/public/address", "127.0.0.1:0")
        .with("/admin", json!({"address": "127.0.0.1:0"}))
        .with("/zookeeper/servers", json!([site.zookeeper.to_string()]))
        .with("/zookeeper/root", site.root.as_str())
        .with("/zookeeper/session_timeout", "4s")
        .with("/zookeeper/tick", "200ms")
        .with("/zookeeper/safety_margin", Value::Null)
        .with("/state_dir", Value::Null)
        .with("/log", json!({"access": "stdout"}));
    if example.contains("signing_key_file") {
        policy = policy.with("/tickets/signing_key_file", key);
    }
    if example.contains("advertise") {
        policy = policy.with("/peer", json!({"address": "127.0.0.1:0", "advertise": "127.0.0.1:9910"}));
    }
    for upstream in names(example) {
        let place = |field: &str| format!("/upstreams/{upstream}/{field}");
        let endpoint = format!("http://{}", site.origin.open_listener("gw-1"));
        policy = policy.with(&place("endpoints"), json!([endpoint]));
        if let Some(level) = level {
            policy = policy.with(&place("fencing"), level).with(&place("direct"), Value::Null);
            policy = policy.with(&place("response_timeout"), Value::Null);
        }
    }
    if level.is_some() && example.contains("once:") {
        policy = policy.with("/routes/0/fence/once/store", Value::Null);
    }
    policy
}

/// The names of the upstreams of an example.
fn names(example: &str) -> Vec<String> {
    let plan = file::load(example).plan.expect("the examples are sound");
    plan.serving.upstreams.iter().map(|upstream| upstream.name.to_string()).collect()
}

/// Sets the announcement with which the recording upstream identifies itself as a guard to gateways.
fn announce(guarded: &GuardedSite) {
    let announcement = GuardIdentityResponse {
        format: 1,
        store: "recorded".into(),
        shared: None,
        instance: "recorder".into(),
        ensemble: guarded.ensemble.clone(),
        floor: 0,
        highest: 0,
        settle: 1000,
        max_execution: 1000,
        observes: false,
        up: None,
    };
    let body = serde_json::to_vec(&announcement).expect("plain fields");
    let reply = OriginReply::with_body(body).field("content-type", "application/json");
    guarded.site.origin.script(ANNOUNCEMENT, std::iter::repeat_n(OriginAction::now(reply), 2000));
}

/// The results of all requests to an example.
struct AgreementCounts {
    sent: usize,
    fenced: usize,
    /// The number of requests whose explanation was compared with a line of the access log.
    written: usize,
}

const ROLLS: usize = 200;

async fn assert_explain_agrees(
    example: &str,
    level: Option<&str>,
    paths: &[&str],
    seed: u64,
) -> AgreementCounts {
    let guarded = GuardedSite::fresh().await;
    announce(&guarded);
    let site = &guarded.site;
    let home = scratch::temp_dir();
    let key = home.path().join("key.json").display().to_string();
    run_operator(&["keys", "new", &key]).await;
    let policy = localized_example(example, level, site, &key);
    let loaded = file::load(&policy.to_string());
    let plan: plan::GatewayPlan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let gateway = Gateway::start(&policy).await;
    let tree = site.tree().await;
    let followed = tree.follow_locks().await;
    let mut rng = SmallRng(seed);
    let mut counts = AgreementCounts { sent: 0, fenced: 0, written: 0 };
    let mut explanations = Vec::new();
    let mut locks = BTreeSet::new();
    for number in 0..ROLLS {
        let spelled = SpelledRequest::roll(&mut rng, number, paths);
        let explanation = run_explain(&plan, &spelled.ask(HOST));
        let response = send_bytes(&gateway, spelled.bytes(HOST), !spelled.line.starts_with("HEAD ")).await;
        let record = {
            let log = site.origin.log();
            let number = number.to_string();
            let mut records = log.records.iter().rev();
            records.find(|record| record.request.field("x-number") == Some(&number)).cloned()
        };
        compare(&explanation, &spelled, &response, record.as_ref());
        counts.sent += usize::from(explanation.sent.is_some());
        if let (Some(lock), Some(_)) = (&explanation.lock, &explanation.sent) {
            counts.fenced += 1;
            locks.extend(lock.keys.iter().map(|held| held.path.clone()));
        }
        explanations.push(explanation);
    }
    // The parent of a lock is removed with its last node, so the locks were recorded while they existed.
    let made = followed.stop().await;
    let missing: Vec<&String> = locks.iter().filter(|lock| !made.contains(*lock)).collect();
    assert!(missing.is_empty(), "never locked: {missing:?} of {made:?}");
    for line in gateway.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let number = line["request_id"].as_str().and_then(|id| id.strip_prefix("r-")?.parse::<usize>().ok());
        if let Some(explanation) = number.and_then(|number| explanations.get(number)) {
            compare_line(explanation, &line);
            counts.written += 1;
        }
    }
    counts
}

/// Asserts that the random requests were varied enough for a comparison.
fn assert_varied(counts: &AgreementCounts) {
    let AgreementCounts { sent, fenced, written } = *counts;
    assert!((20..=190).contains(&sent), "{sent} of {ROLLS} were sent: the dice prove little");
    assert!(fenced >= 5, "{fenced} of {ROLLS} took a lock: the dice prove little");
    assert!(written >= 40, "{written} of {ROLLS} were found in the access log: the dice prove little");
}

const PAYMENT_PATHS: [&str; 6] =
    ["/v1/orders/{}/capture", "/v1/orders/{}/capture", "/v1/payouts", "/v1/{}/{2}", "/{}", "*"];
const STOCK_PATHS: [&str; 8] = [
    "/warehouses/{}/skus/{2}/reservations",
    "/warehouses/{}/skus/{2}/count",
    "/warehouses/{}/skus/{2}",
    "/transfers",
    "/transfers",
    "/warehouses/{}/recount",
    "/warehouses/{}/{2}",
    "http://b.shops.example/warehouses/{}/skus/1",
];

/// For random requests to `payments.yaml` before a guard, the gateway does what `explain` reports.
#[tokio::test]
async fn payments_with_guard_match_explanation() {
    assert_varied(&assert_explain_agrees(PAYMENTS, None, &PAYMENT_PATHS, 1).await);
}

/// For random requests to `payments.yaml` at level `upstream`, the gateway does what `explain` reports.
#[tokio::test]
async fn payments_without_guard_match_explanation() {
    assert_varied(&assert_explain_agrees(PAYMENTS, Some("upstream"), &PAYMENT_PATHS, 11).await);
}

/// For random requests to `inventory.yaml` as written and at levels `none` and `guard`, the gateway does what
/// `explain` reports.
#[tokio::test]
async fn inventory_matches_explanation_at_every_level() {
    for (seed, level) in [None, Some("none"), Some("guard")].into_iter().enumerate() {
        assert_varied(&assert_explain_agrees(INVENTORY, level, &STOCK_PATHS, 20 + seed as u64).await);
    }
}

/// For random requests to `minimal.yaml` the gateway does what `explain` reports.
#[tokio::test]
async fn minimal_policy_matches_explanation() {
    assert_varied(
        &assert_explain_agrees(MINIMAL, None, &["/orders/{}", "/orders/{}", "/orders/{}", "/{}//"], 3).await,
    );
}

/// For random requests to `multi-tenant.yaml` the gateway does what `explain` reports.
#[tokio::test]
async fn multi_tenant_policy_matches_explanation() {
    let paths = ["/orders/{}", "/orders/{}", "/orders", "/{}/{2}", "/orders/{}/"];
    assert_varied(&assert_explain_agrees(TENANTS, None, &paths, 4).await);
}
