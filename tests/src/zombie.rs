//! Two gateways before an upstream that compares tokens, under load, one of which has slept through its session: what
//! dashboards, alerts and the page are shown.

use std::time::Duration;

use fencegate_testkit::child::Signal;
use serde_json::json;

use crate::{
    client::{ClientResponse, TestRequest},
    gateway::{Gateway, GatewayLaunch, PendingRequest},
    history::ATTEMPT,
    load::{AttemptResult, LoadPlan, RunningLoad},
    origin::Latch,
    policy::TestPolicy,
    site::TestSite,
};

/// All of it runs until it is dropped or stopped.
pub struct ZombieFixture {
    pub site: TestSite,
    /// Slept until its session was over, woke, and had what it still wrote refused as stale.
    pub sleeper: Gateway,
    pub other: Gateway,
    /// Held by `other` until let go.
    held: Option<(PendingRequest, Latch)>,
    /// Wait for it, at both.
    waiting: Vec<PendingRequest>,
    load: RunningLoad,
}

/// Longer than a session, with time for the next holder.
const SLEEP: Duration = Duration::from_millis(4500);

/// Held for as long as the test looks.
pub const HELD: &str = "/pay/held";

/// What a hostile client might call its account.
pub const HOSTILE: &str = "/pay/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E\"'";

impl ZombieFixture {
    /// # Panics
    /// If the accident does not happen as it has to.
    pub async fn start() -> Self {
        Self::start_with(|policy| policy).await
    }

    /// With what `more` makes of the gateways' policies.
    ///
    /// # Panics
    /// If the accident does not happen as it has to.
    pub async fn start_with(more: impl Fn(TestPolicy) -> TestPolicy) -> Self {
        let site = TestSite::fresh().await.with_comparison();
        site.origin.set_work_time(Duration::from_millis(4));
        let policy = |name: &str| {
            let hold = json!({"mode": "cached", "linger": "2s", "max_local": 16, "max_hold": "50ms"});
            let policy = site.policy(name).with("/defaults/hold", hold).with("/routes/0/fence/wait", "120s");
            // Held requests stay held for as long as the test looks.
            more(policy.with("/upstreams/ledger/response_timeout", "120s"))
        };
        let sleeps = format!("1*sleep({})", SLEEP.as_millis());
        let sleeper =
            GatewayLaunch::new(&policy("gw-1")).failpoint("after_proof_check", &sleeps).start().await;
        let other = GatewayLaunch::new(&policy("gw-2")).start().await;
        tokio::join!(sleeper.wait_ready(), other.wait_ready());
        run_accident(&site, &sleeper, &other).await;

        let latch = site.origin.hold(HELD);
        let holder = other.begin(TestRequest::post(HELD));
        site.origin.wait_for_request(HELD, 1).await;
        let waiting = vec![
            sleeper.begin(TestRequest::post(HELD)),
            sleeper.begin(TestRequest::post(HELD)),
            other.begin(TestRequest::post(HELD)),
        ];
        let plan = LoadPlan {
            gateways: vec![sleeper.public, other.public],
            paths: (0..4).map(|key| format!("/pay/hot-{key}")).collect(),
            clients: 12,
            requests: 100_000,
            // They go on for as long as a browser looks, and few requests show the same keys as many.
            pause: Duration::from_millis(200),
        };
        let load = RunningLoad::start("live", &plan);
        for gateway in [&sleeper, &other] {
            gateway.send(&TestRequest::post(HOSTILE).field(ATTEMPT, "hostile")).await;
        }
        Self { site, sleeper, other, held: Some((holder, latch)), waiting, load }
    }

    /// Ends the load and everything that waits, and returns the answers to clients.
    ///
    /// # Panics
    /// If a waiting client is not served.
    pub async fn stop(mut self) -> Vec<AttemptResult> {
        let told = self.load.stop().await;
        if let Some((holder, latch)) = self.held.take() {
            latch.release();
            self.waiting.push(holder);
        }
        for request in self.waiting {
            assert_eq!(request.answer().await.status, 200);
        }
        told
    }
}

/// The sleeping gateway is paused between its check and its write until its session is over and another one has the
/// key.
async fn run_accident(site: &TestSite, sleeper: &Gateway, other: &Gateway) {
    let late = sleeper.begin(TestRequest::post("/pay/accident"));
    sleeper.wait_at_failpoint("after_proof_check").await;
    sleeper.signal(Signal::STOP);
    let newer = other.send(&TestRequest::post("/pay/accident")).await;
    assert_eq!(newer.status, 200, "{newer:?}");
    sleeper.signal(Signal::CONT);
    let answer: ClientResponse = late.answer().await;
    assert_eq!(answer.status, 412, "{answer:?}");
    assert_eq!(site.origin.log().records.iter().filter(|record| record.stale).count(), 1);
    sleeper.wait_ready().await;
}
