//! Something between gateway and guard may repeat what it passes on: then no refusal means that nothing was executed.

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
    async fn with(shows: ViaMode) -> Self {
        let guarded = GuardedSite::fresh().await;
        let guard = with_short_times(guarded.launch().await).start().await;
        let hop = HttpProxy::start(guard.public, shows).await;
        let gateway = Gateway::start(&guarded.policy("gw-1", &[hop.address()])).await;
        Self { guarded, guard, hop, gateway }
    }

    /// A request that the hop has sent once and that works at the origin.
    async fn working(&self, trick: impl FnOnce(Latch) -> ProxyFault) -> (PendingRequest, Latch, Latch) {
        let (given_up, held) = (Latch::default(), self.guarded.site.origin.hold("/pay/7"));
        self.hop.set_fault(trick(given_up.clone()));
        let asked = self.gateway.begin(TestRequest::post("/pay/7").field(ATTEMPT, "one"));
        self.guarded.site.origin.request("/pay/7", 1).await;
        (asked, given_up, held)
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

#[tokio::test]
async fn a_dispatch_that_a_hop_sends_twice_is_executed_once_and_told_as_unknown() {
    for shows in [ViaMode::Itself, ViaMode::Nothing] {
        let it = HopFixture::with(shows).await;
        let (asked, given_up, held) = it.working(ProxyFault::Repeat).await;
        given_up.release();
        let answer = asked.answer().await;
        assert_unknown(&answer);
        held.release();
        let history = it.history(&answer);
        assert_eq!(history.executions.len(), 1, "{shows:?}");
        history.assert_holds();
        assert_eq!(it.gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "{shows:?}");
        History::from_log(&it.guarded.site.origin.log()).assert_holds();
    }
}

/// After its restart the guard has forgotten the dispatch number of the admitted copy, and refuses the second copy.
/// The policy says `direct`, but a hop that shows itself counts more.
#[tokio::test]
async fn a_copy_that_comes_after_a_restart_of_the_guard_is_told_as_unknown() {
    let it = HopFixture::with(ViaMode::Itself).await;
    let (asked, given_up, held) = it.working(ProxyFault::Repeat).await;
    let HopFixture { guarded, guard, gateway, .. } = it;
    let guard = guard.kill().await.start().await;
    given_up.release();
    let answer = asked.answer().await;
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

#[tokio::test]
async fn a_hop_that_shows_itself_is_noted_once_and_from_then_on_no_refusal_is_believed() {
    let it = HopFixture::with(ViaMode::Itself).await;
    assert_eq!(it.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    it.gateway.wait_line("the hop", |line| line.message().starts_with("guard.not_direct")).await;
    assert_eq!(it.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(it.gateway.log().matches("guard.not_direct").count(), 1);

    let HopFixture { guarded, guard, gateway, .. } = it;
    let _guard = guard.kill().await.start().await;
    // The guard refuses in its quarantine. Behind a hop, the word "not dispatched" cannot be believed.
    assert_unknown(&gateway.send(&TestRequest::post("/pay/7")).await);
    assert_eq!(guarded.site.origin.count("/pay/7"), 2);
}

/// Clients come through proxies of their own; those stand before the gateway.
#[tokio::test]
async fn proxies_before_the_gateway_do_not_make_the_way_to_the_guard_longer() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).with_permanent_quarantine().start().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    let ask = TestRequest::post("/pay/7").field("Via", "1.1 edge, 1.1 mesh").field("Fencing-Hops", "0");
    assert_eq!(gateway.send(&ask).await.status, 200);
    let _guard = guard.kill().await.start().await;
    let answer = gateway.send(&ask).await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "quarantine"), "believed");
    assert!(!gateway.log().contains("guard.not_direct"));
}

/// The hop answers for the guard, and the execution goes on behind it.
#[tokio::test]
async fn an_error_of_the_hop_itself_is_not_told_as_the_answer_of_the_service() {
    for status in [502, 503, 504, 429, 404] {
        let it = HopFixture::with(ViaMode::Nothing).await;
        let (asked, given_up, held) = it.working(|latch| ProxyFault::GiveUp(latch, status)).await;
        given_up.release();
        let answer = asked.answer().await;
        assert_unknown(&answer);
        held.release();
        it.guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
        assert_eq!(it.gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "after {status}");
        it.history(&answer).assert_holds();
    }
}

#[tokio::test]
async fn a_hop_without_a_guard_behind_it_costs_an_error_and_recovers() {
    let it = HopFixture::with(ViaMode::Nothing).await;
    assert_eq!(it.gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let HopFixture { guarded, guard, gateway, .. } = it;
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
