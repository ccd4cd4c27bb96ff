//! Calls back before a guard, which admits the called request beside its caller.

use std::fs;

use super::*;

async fn gateway(
    guarded: &GuardedSite,
    guard: &fencegate_tests::guard::Guard,
    key: &SigningKeyFile,
) -> Gateway {
    let policy = with_nested_routes(guarded.policy("gw-1", &[guard.public]), key).with_linger("60s");
    let gateway = Gateway::start(&policy).await;
    gateway.wait_ready().await;
    gateway
}

/// A guard admits a call back beside its caller and keeps the key until both are over.
#[tokio::test]
async fn guard_admits_callback_beside_caller() {
    let guarded = GuardedSite::fresh().await;
    let key = SigningKeyFile::new().await;
    let public = key.0.path().join("public.json");
    let printed = run_operator(&["keys", "public", &key.file().display().to_string()]).await;
    fs::write(&public, printed).expect("the folder can be written");
    let launch = guarded.launch().await.with("/tickets", json!({"public_keys_file": public}));
    let guard = launch.start().await;
    let gateway = gateway(&guarded, &guard, &key).await;
    let origin = &guarded.site.origin;
    let outer = origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let inner =
        origin.hold_request(&gateway, with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
    assert!(inner.record.expect_token() > outer.record.expect_token());
    let innermost = gateway.send(&with_ticket_of(TestRequest::post("/call/7"), &inner.record)).await;
    assert_later_dispatch(&inner.record, &innermost);
    let late = outer.record.clone();
    assert_eq!(outer.finish().await.status, 200);
    let answer = gateway.send(&with_ticket_of(TestRequest::post("/call/7"), &late)).await;
    assert_eq!(status_and_reason(&answer), expected_refusal(412, "stale-token"), "{answer:?}");
    let next = gateway.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(origin.count("/pay/7"), 1, "what was called still runs");
    assert_eq!(inner.finish().await.status, 200);
    assert_eq!(next.answer().await.status, 200);
}

/// A guard without `tickets` refuses a call back at once.
#[tokio::test]
async fn guard_without_tickets_refuses_callback() {
    let guarded = GuardedSite::fresh().await;
    let key = SigningKeyFile::new().await;
    let guard = guarded.guard().await;
    let gateway = gateway(&guarded, &guard, &key).await;
    let outer = guarded.site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let answer = gateway.send(&with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
    assert_eq!(status_and_reason(&answer), expected_refusal(409, "deadlock-avoided"), "{answer:?}");
    assert!(answer.took() < Duration::from_secs(3), "{answer:?}");
    assert_eq!(outer.finish().await.status, 200);
}
