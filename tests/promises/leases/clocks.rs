//! Kleppmann's story with clocks that go wrong: the boot clock of the gateway that holds a lease decides when the
//! lease is over, and no wall clock does.

use std::time::Duration;

use fencegate_tests::{
    client::FencingOutcome,
    gateway::{Gateway, GatewayLaunch},
    leases::{ClientLease, LeaseTokens, json_body},
    site::TestSite,
    stepped_clock::SteppedClock,
};
use serde_json::json;
use tokio::time::sleep;

use super::pay;

/// Two gateways, each with its own clock.
struct SteppedClockGateways {
    site: TestSite,
    _tokens: LeaseTokens,
    gateways: [Gateway; 2],
    clocks: [SteppedClock; 2],
}

impl SteppedClockGateways {
    async fn fresh() -> Self {
        let site = TestSite::fresh().await.with_comparison();
        let tokens = LeaseTokens::default();
        let clocks = [SteppedClock::start(), SteppedClock::start()];
        let start = async |name: &str, clock: &SteppedClock| {
            let gateway = GatewayLaunch::new(&tokens.policy(&site, name)).with_clock(clock).start().await;
            gateway.wait_ready().await;
            gateway
        };
        let (one, other) = tokio::join!(start("gw-1", &clocks[0]), start("gw-2", &clocks[1]));
        Self { site, _tokens: tokens, gateways: [one, other], clocks }
    }

    /// Asserts that both gateways refuse a request under the lease, and that the service receives nothing.
    async fn assert_refused(&self, lease: &ClientLease) {
        let before = self.site.origin.count("/pay/7");
        for gateway in &self.gateways {
            let late = gateway.send(&lease.with_lease(pay())).await;
            assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"), "{late:?}");
            assert_eq!(late.outcome(), Some(FencingOutcome::NotDispatched));
        }
        assert_eq!(self.site.origin.count("/pay/7"), before, "the service has seen it");
    }

    /// Asserts that the next client gets the key, and that its write is served.
    async fn assert_next_writes(&self, gateway: usize, first: &ClientLease) {
        let gateway = &self.gateways[gateway];
        let second = ClientLease::acquire_exclusive(gateway, "account/7").await;
        assert!(second.token() > first.token());
        assert_eq!(gateway.send(&second.with_lease(pay())).await.status, 200);
    }
}

/// Steps of the wall clock make no lease longer or shorter.
#[tokio::test]
async fn wall_clock_steps_leave_ttl_unchanged() {
    let story = SteppedClockGateways::fresh().await;
    let [one, other] = &story.gateways;
    let ttl = Duration::from_millis(1500);
    let first = ClientLease::acquire(one, json!({"keys": ["account/7"], "ttl_ms": 1500})).await;
    for (seconds, back) in [(3600, -3600), (-3600, 3600), (86_400 * 400, 0)] {
        story.clocks[0].set_wall(seconds);
        story.clocks[1].set_wall(back);
        for gateway in [one, other] {
            let renewed = first.renew(gateway).await;
            let held_for = json_body(&renewed)["held_for_ms"].as_u64().expect("a number");
            assert!(renewed.status == 200 && (1..=1500).contains(&held_for), "{renewed:?}");
        }
        assert_eq!(other.send(&first.with_lease(pay())).await.status, 200);
    }
    // The client does not renew the lease. Both wall clocks are set back by a day, which must not prolong it.
    story.clocks[0].set_wall(-86_400);
    story.clocks[1].set_wall(-86_400);
    sleep(ttl).await;
    story.assert_refused(&first).await;
    story.assert_next_writes(1, &first).await;
    story.assert_refused(&first).await;
}

/// A lease is over at once when the machine of its gateway has slept past its TTL.
#[tokio::test]
async fn machine_sleep_past_ttl_ends_lease() {
    let story = SteppedClockGateways::fresh().await;
    let first =
        ClientLease::acquire(&story.gateways[0], json!({"keys": ["account/7"], "ttl_ms": 10_000})).await;
    assert_eq!(story.gateways[0].send(&first.with_lease(pay())).await.status, 200);
    let before = story.site.origin.count("/pay/7");
    story.clocks[0].add_sleep(Duration::from_secs(60));
    for gateway in &story.gateways {
        let late = gateway.send(&first.with_lease(pay())).await;
        assert!(matches!(late.status, 412 | 503), "{late:?}");
        assert_eq!(late.outcome(), Some(FencingOutcome::NotDispatched));
    }
    assert_eq!(story.site.origin.count("/pay/7"), before, "the service has seen it");
    story.assert_next_writes(1, &first).await;
    story.gateways[0].wait_ready().await;
    story.assert_refused(&first).await;
}
