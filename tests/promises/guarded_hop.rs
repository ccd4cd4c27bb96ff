//! A hop between gateway and guard may repeat what it passes on. Then no refusal means that nothing was executed, and the
//! outcome is reported as unknown.

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, PendingRequest},
    guard::Guard,
    guarded::{GuardedSite, with_short_times},
    history::{ATTEMPT, History},
    http_proxy::{HttpProxy, ProxyFault, ViaMode},
    origin::Latch,
};

struct HopFixture {
    guarded: GuardedSite,
    guard: Guard,
    hop: HttpProxy,
    gateway: Gateway,
}

impl HopFixture {
    async fn new(shows: ViaMode) -> Self {
        let guarded = GuardedSite::fresh().await;
        let guard = with_short_times(guarded.launch().await).start().await;
        let hop = HttpProxy::start(guard.public, shows).await;
        let gateway = Gateway::start(&guarded.policy("gw-1", &[hop.address()])).await;
        Self { guarded, guard, hop, gateway }
    }

    /// A request that the hop has sent once and that the origin is executing.
    async fn begin_with_fault(
        &self,
        trick: impl FnOnce(Latch) -> ProxyFault,
    ) -> (PendingRequest, Latch, Latch) {
        let given_up = Latch::default();
        let held = self.guarded.site.origin.hold("/pay/7");
        self.hop.set_fault(trick(given_up.clone()));
        let pending = self.gateway.begin(TestRequest::post("/pay/7").field(ATTEMPT, "one"));
        self.guarded.site.origin.wait_for_request("/pay/7", 1).await;
        (pending, given_up, held)
    }

    fn history(&self, answer: &ClientResponse) -> History {
        let mut history = History::from_log(&self.guarded.site.origin.log());
        history.record_answer("one", Some(answer));
        history
    }
}

#[track_caller]
fn assert_unknown(answer: &ClientResponse) {
    assert_eq!(answer.reason(), "outcome-unknown", "{answer:?}");
    assert!(matches!(answer.status, 502 | 504), "{answer:?}");
    assert_eq!((answer.outcome(), answer.field("retry-after")), (Some(FencingOutcome::Unknown), None));
}

/// A dispatch that a hop sends twice is executed once, and its outcome is reported as unknown.
#[tokio::test]
async fn repeated_dispatch_executes_once() {
    for shows in [ViaMode::Itself, ViaMode::Nothing] {
        let fixture = HopFixture::new(shows).await;
        let (pending, given_up, held) = fixture.begin_with_fault(ProxyFault::Repeat).await;
        given_up.release();
        let answer = pending.answer().await;
        assert_unknown(&answer);
        held.release();
        let history = fixture.history(&answer);
        assert_eq!(history.executions.len(), 1, "{shows:?}");
        history.assert_holds();
        assert_eq!(fixture.gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "{shows:?}");
        History::from_log(&fixture.guarded.site.origin.log()).assert_holds();
    }
}

/// A copy that arrives after a restart of the guard has an unknown outcome. The guard has lost the dispatch number of the
/// admitted copy, and refuses the second copy. The policy has `direct`, but a hop that shows itself counts more.
#[tokio::test]
async fn copy_after_restart_is_unknown() {
    let fixture = HopFixture::new(ViaMode::Itself).await;
    let (pending, given_up, held) = fixture.begin_with_fault(ProxyFault::Repeat).await;
    let HopFixture { guarded, guard, gateway, .. } = fixture;
    let guard = guard.kill().await.start().await;
    given_up.release();
    let answer = pending.answer().await;
    assert_unknown(&answer);
    gateway.wait_line("the hop", |line| line.message().starts_with("guard.not_direct")).await;
    held.release();
    let mut history = History::from_log(&guarded.site.origin.log());
    history.record_answer("one", Some(&answer));
    assert_eq!(history.executions.len(), 1, "sent once more");
    history.assert_holds();
    guard.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// A hop that shows itself is logged once, and from then on a refusal means an unknown outcome.
#[tokio::test]
async fn visible_hop_makes_refusals_unknown() {
    let fixture = HopFixture::new(ViaMode::Itself).await;
    assert_eq!(fixture.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    fixture.gateway.wait_line("the hop", |line| line.message().starts_with("guard.not_direct")).await;
    assert_eq!(fixture.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(fixture.gateway.log().matches("guard.not_direct").count(), 1);

    let HopFixture { guarded, guard, gateway, .. } = fixture;
    let _guard = guard.kill().await.start().await;
    // The guard refuses in its quarantine. Behind a hop, the outcome "not dispatched" cannot be relied on.
    assert_unknown(&gateway.send(&TestRequest::post("/pay/7")).await);
    assert_eq!(guarded.site.origin.count("/pay/7"), 2);
}

/// Proxies of the clients stand before the gateway, and do not count as hops between gateway and guard.
#[tokio::test]
async fn client_proxies_are_no_hops() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).with_permanent_quarantine().start().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    let request = TestRequest::post("/pay/7").field("Via", "1.1 edge, 1.1 mesh").field("Fencing-Hops", "0");
    assert_eq!(gateway.send(&request).await.status, 200);
    let _guard = guard.kill().await.start().await;
    let answer = gateway.send(&request).await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "quarantine"), "believed");
    assert!(!gateway.log().contains("guard.not_direct"));
}

/// An error of the hop itself is not returned as the answer of the service: the hop answers for the guard, and the
/// execution goes on behind it.
#[tokio::test]
async fn hop_error_is_not_service_answer() {
    for status in [502, 503, 504, 429, 404] {
        let fixture = HopFixture::new(ViaMode::Nothing).await;
        let (pending, given_up, held) =
            fixture.begin_with_fault(|latch| ProxyFault::GiveUp(latch, status)).await;
        given_up.release();
        let answer = pending.answer().await;
        assert_unknown(&answer);
        held.release();
        fixture.guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
        assert_eq!(fixture.gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "after {status}");
        fixture.history(&answer).assert_holds();
    }
}

/// A hop without a guard behind it costs an error, and requests pass again when the guard is back.
#[tokio::test]
async fn hop_without_guard_recovers() {
    let fixture = HopFixture::new(ViaMode::Nothing).await;
    assert_eq!(fixture.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let HopFixture { guarded, guard, gateway, .. } = fixture;
    let launch = guard.stop().await;
    let away = gateway.send(&TestRequest::post("/pay/7")).await;
    match away.outcome() {
        // The request went out on a connection that has met no guard yet.
        Some(FencingOutcome::NotDispatched) => {
            assert_eq!((away.status, away.reason().as_str()), (503, "guard"))
        }
        _ => assert_unknown(&away),
    }
    let _guard = launch.start().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(guarded.site.origin.count("/pay/7"), 2);
}
