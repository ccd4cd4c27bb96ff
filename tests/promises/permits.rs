//! A key with permits has at most as many holders at once as it has permits, and each permit has watermarks of its
//! own.
//!
//! A key with three permits is used through gateways that are killed in turn, behind a guard and before a service
//! that compares. At most three requests are at work at once, and often there are three. Each permit has a key of its
//! own at the service, and no token is stale. The next request waits. Gateways with another number of permits are
//! refused.

use std::{collections::BTreeSet, time::Duration};

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    crowd::{RestartLoad, max_concurrent},
    effort::effort,
    gateway::Gateway,
    guarded::GuardedSite,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::Value;

const PERMITS: usize = 3;

/// A load that is short enough for this suite. The fault tests send ten thousand requests.
fn storm() -> RestartLoad {
    RestartLoad { accounts: 3, clients: 18, rounds: effort(2, 3), requests: effort(250, 400) }
}

fn with_permits(policy: TestPolicy) -> TestPolicy {
    policy.with("/routes/0/fence/permits", PERMITS).with("/routes/0/fence/queue", 200)
}

/// As many requests run at once as there are permits, each under a key of its own; the next one waits.
#[tokio::test]
async fn permits_limit_concurrent_requests() {
    let site = TestSite::fresh().await;
    let (one, two) =
        Gateway::start_both(&with_permits(site.policy("gw-1")), &with_permits(site.policy("gw-2"))).await;
    let mut held = Vec::new();
    for count in 0..PERMITS {
        held.push(site.origin.hold_request([&one, &two][count % 2], TestRequest::post("/pay/7")).await);
    }
    let keys: BTreeSet<_> = held.iter().map(|held| held.record.key().expect("fenced").to_owned()).collect();
    let wanted = ["account/7#0", "account/7#1", "account/7#2"].map(str::to_owned);
    assert_eq!(keys, wanted.into());

    let refused = two.send(&TestRequest::post("/pay/7").field("Prefer", "wait=0")).await;
    assert_eq!((refused.status, refused.outcome()), (423, Some(FencingOutcome::NotDispatched)));
    let next = two.begin(TestRequest::post("/pay/7"));
    let tree = site.tree().await;
    // Four requests are in the queue. Three of them also have the node of a permit.
    tree.wait_locks("four in line", |locks| locks.len() == PERMITS * 2 + 1).await;
    let shown: Value =
        serde_json::from_slice(&one.admin("/api/v1/locks/account%2F7").await.body).expect("JSON");
    let line = shown["line"].as_array().expect("a line");
    let permits: Vec<_> =
        line.iter().map(|node| (node["holds"].as_bool(), node["permit"].as_u64())).collect();
    assert_eq!(
        permits.iter().filter(|(holds, permit)| *holds == Some(true) && permit.is_some()).count(),
        PERMITS
    );
    assert_eq!(permits.last(), Some(&(Some(false), None)));
    assert_eq!(site.origin.count("/pay/7"), PERMITS, "one more than there may be");

    for held in held {
        assert_eq!(held.finish().await.status, 200);
    }
    assert_eq!(next.answer().await.status, 200);
    tree.assert_no_locks().await;
}

/// Gateways with different numbers of permits do not serve a key beside each other.
#[tokio::test]
async fn different_permit_counts_are_incompatible() {
    let site = TestSite::fresh().await;
    let one = Gateway::start(&with_permits(site.policy("gw-1"))).await;
    let two = Gateway::start(&with_permits(site.policy("gw-2")).with("/routes/0/fence/permits", 4)).await;
    assert_eq!(one.send(&TestRequest::post("/pay/7")).await.status, 200);
    let refused = two.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "config-mismatch"));
}

/// Behind a guard never more requests work than there are permits, and none is stale, while gateways are killed.
#[tokio::test]
async fn guarded_permits_hold_under_kills() {
    let guarded = GuardedSite::fresh().await;
    guarded.site.origin.set_work_time(Duration::from_millis(5));
    let guard = guarded.guard().await;
    let crowd =
        storm().run(&guarded.site.origin, |name| with_permits(guarded.policy(name, &[guard.public]))).await;
    crowd.history.assert_holds();
    assert_eq!(max_concurrent(&crowd.history), PERMITS);
}

/// Before a service that compares tokens never more requests work than there are permits while gateways are killed.
#[tokio::test]
async fn comparing_service_permits_hold_under_kills() {
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(5));
    let crowd = storm()
        .run(&site.origin, |name| with_permits(site.policy(name)).with("/routes/0/fence/wait", "15s"))
        .await;
    crowd.history.assert_holds();
    assert_eq!(max_concurrent(&crowd.history), PERMITS);
    assert!(crowd.told.iter().any(|told| told.answer.is_err()), "not exercised: nobody lost an answer");
}
