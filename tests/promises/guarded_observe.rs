//! A route under `enforce: observe` stops no request: one that it would have refused goes out without a token, and its
//! answer reports the reason.

use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    gateway::Gateway,
    guarded::GuardedSite,
    policy::TestPolicy,
    site::TestSite,
};

fn observing_policy(policy: TestPolicy) -> TestPolicy {
    policy.with("/routes/0/fence/enforce", "observe").with("/routes/0/fence/wait", "200ms")
}

#[track_caller]
fn assert_observed(answer: &ClientResponse, reason: &str) {
    let outcome = answer.field("fencing-outcome").unwrap_or_default();
    let noted = outcome.split(';').any(|part| part.trim() == format!("observe={reason}"));
    assert!(answer.status == 200 && outcome.starts_with("done") && noted, "{answer:?}");
}

/// A request whose key is locked elsewhere passes without a token, and is reported.
#[tokio::test]
async fn locked_request_passes_and_is_reported() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(async { Gateway::start(&site.policy("gw-1")).await }, async {
        Gateway::start(&observing_policy(site.policy("gw-2"))).await
    },);
    let alone = two.send(&TestRequest::post("/pay/7")).await;
    assert!(alone.field("fencing-outcome").is_some_and(|outcome| !outcome.contains("observe")), "{alone:?}");
    let first = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let second = two.send(&TestRequest::post("/pay/7").field("Fencing-Token", "forged")).await;
    assert_observed(&second, "locked");
    assert_eq!(second.field("fencing-token"), None);
    first.finish().await;
    let log = site.origin.log();
    let tokens: Vec<bool> = log.requests_for("/pay/7").map(|record| record.token().is_some()).collect();
    assert_eq!(tokens, [true, true, false]);
}

/// A request that its client no longer waits for is not sent without a lock either: the client may have sent it to
/// another gateway since.
#[tokio::test]
async fn abandoned_request_is_not_sent() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(async { Gateway::start(&site.policy("gw-1")).await }, async {
        let patient = observing_policy(site.policy("gw-2")).with("/routes/0/fence/wait", "20s");
        Gateway::start(&patient).await
    },);
    let first = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let second = two.begin(TestRequest::post("/pay/7"));
    two.wait_gauge("fencegate_lock_waiters", 1.0).await;
    second.hang_up();
    two.wait_gauge("fencegate_lock_waiters", 0.0).await;
    first.finish().await;
    // A later request runs after the place where the abandoned request would have been sent.
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// A request without a key passes without a token, and is reported.
#[tokio::test]
async fn request_without_key_passes() {
    let site = TestSite::fresh().await;
    let policy = observing_policy(site.policy("gw-1")).with("/routes/0/fence/key", "account/{query.account}");
    let gateway = Gateway::start(&policy).await;
    assert_observed(&gateway.send(&TestRequest::post("/pay/7")).await, "key-missing");
    let keyed = gateway.send(&TestRequest::post("/pay/7?account=7")).await;
    assert_eq!(keyed.field("fencing-outcome").map(|outcome| outcome.contains("observe")), Some(false));
    assert!(site.origin.log().records[0].token().is_none());
    assert!(site.origin.log().records[1].token().is_some());
}

/// A request without a lock passes behind a guard with `missing: observe`, and is reported. An installation begins like
/// that: the gateway and the guard both only observe.
#[tokio::test]
async fn observing_guard_passes_missing_token() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.launch().await.with("/missing", "observe").start().await;
    let (one, two) =
        tokio::join!(async { Gateway::start(&guarded.policy("gw-1", &[guard.public])).await }, async {
            Gateway::start(&observing_policy(guarded.policy("gw-2", &[guard.public]))).await
        },);
    let first = guarded.site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    assert_observed(&two.send(&TestRequest::post("/pay/7")).await, "locked");
    assert_eq!(guard.decision_count("bypass").await, 1.0);
    assert_eq!(first.finish().await.status, 200);
    let own = two.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(
        own.field("fencing-outcome").map(|outcome| outcome.contains("observe")),
        Some(false),
        "{own:?}"
    );
}
