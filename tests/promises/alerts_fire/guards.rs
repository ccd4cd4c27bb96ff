//! Alerts for accidents of a guard with a store of its own, and for its refusals.

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    alert_watch::AlertWatch,
    client::TestRequest,
    guard::{FLOOR, GuardFixture, GuardLaunch, StampedRequest, assert_refused, operation_reference},
    guarded::with_short_times,
    ledger::Ledger,
    origin::OriginAction,
    runbook::RunbookWalk,
    small_disk::SmallDisk,
};
use serde_json::json;

/// An execution stays in doubt for seconds only, but long enough for the rules to fire.
async fn launch(fixture: &GuardFixture) -> GuardLaunch {
    with_short_times(fixture.launch().await).with("/max_execution", "4s").with_fixed_admin_port()
}

/// A request without a token fires `FencegateGuardBypass`; a token of the far future fires `FencegateForgedToken`.
#[tokio::test]
async fn bypass_and_forged_token_fire() {
    let watch = AlertWatch::shared().await;
    let fixture = GuardFixture::new().await;
    let here = watch.installation("stranger");
    let guard = launch(&fixture).await.start().await;
    here.set_targets(&[guard.admin]).await;
    assert_eq!(guard.send(&TestRequest::post("/x")).await.status, 403);
    let far = StampedRequest::new("a", FLOOR + (1 << 49)).post("/x");
    assert_refused(&guard.send(&far).await, "token-future");
    let bypass = here.wait_firing("FencegateGuardBypass").await;
    let forged = here.wait_firing("FencegateForgedToken").await;
    here.wait_resolved(&bypass).await;
    here.wait_resolved(&forged).await;
}

/// `FencegateInDoubt` and `FencegateOperationUnknown` fire after a broken exchange; an operator resolves the
/// operation.
#[tokio::test]
async fn broken_exchange_fires() {
    let watch = AlertWatch::shared().await;
    let fixture = GuardFixture::new().await;
    let here = watch.installation("doubt");
    let guard = launch(&fixture).await.start().await;
    here.set_targets(&[guard.admin]).await;
    fixture.origin.script("/pay", [OriginAction::Reset]);
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    let doubt = here.wait_firing("FencegateInDoubt").await;
    let unknown = here.wait_firing("FencegateOperationUnknown").await;
    here.wait_resolved(&doubt).await;
    // The operation waits for an operator, who follows the runbook section to its end.
    assert_eq!(here.wait_firing("FencegateOperationUnknown").await.annotations, unknown.annotations);
    let walk = RunbookWalk::for_alert(&unknown).skip("fencegate once");
    let walk = walk.skip("fencegate guard resolve REF --as not-done").with("REF", operation_reference(1));
    walk.with("/etc/fencegate/guard.yaml", guard.launch().path().display()).follow().await;
    here.wait_resolved(&unknown).await;
}

/// `FencegateEndpointSilent` fires while the service stands still with a request.
#[tokio::test]
async fn silent_endpoint_fires() {
    let watch = AlertWatch::shared().await;
    let service = Ledger::start_with(&["--compare", "off"]).await;
    let here = watch.installation("silent");
    let health = json!({"path": "/live", "interval": "1s", "timeout": "500ms"});
    let launch =
        GuardLaunch::for_upstream(service.address).init_with_floor(FLOOR).await.with_fixed_admin_port();
    let launch = with_short_times(launch).with("/upstream/health", health);
    let guard = launch.start().await;
    here.set_targets(&[guard.admin]).await;
    service.signal(Signal::STOP);
    let body = r#"{"operation": "a", "amount": 1}"#;
    let request =
        TestRequest::post("/v1/accounts/a/debit").field("content-type", "application/json").body(body);
    assert_eq!(guard.send(&StampedRequest::new("a", 20).apply_to(request)).await.status, 504);
    let silent = here.wait_firing("FencegateEndpointSilent").await;
    service.signal(Signal::CONT);
    here.wait_resolved(&silent).await;
}

/// `FencegateGuardDiskFull` fires while the disk of the store is nearly full and the guard still serves.
#[tokio::test]
async fn nearly_full_disk_fires() {
    let watch = AlertWatch::shared().await;
    let fixture = GuardFixture::new().await;
    let here = watch.installation("disk");
    let launch = launch(&fixture).await;
    let disk = SmallDisk::mount_below(&launch, 32 << 20);
    let guard = launch.start().await;
    here.set_targets(&[guard.admin]).await;
    let free = guard.metrics().await.sum("fencegate_guard_store_disk_free_bytes", &[]) as usize;
    disk.fill(free - (1 << 20));
    let firing = here.wait_firing("FencegateGuardDiskFull").await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/x")).await.status, 200, "there is room yet");
    disk.free_space();
    here.wait_resolved(&firing).await;
    guard.stop().await;
}
