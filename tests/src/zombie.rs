//! Two gateways under load, in front of an upstream that compares tokens. One gateway has slept until its session
//! was over. Tests look at the dashboards, the alerts and the status page of this state.

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

/// The running gateways, load and held requests, until the value is dropped or stopped.
pub struct ZombieFixture {
    pub site: TestSite,
    /// The gateway that slept until its session was over. After it woke, the upstream refused its request as stale.
    pub sleeper: Gateway,
    pub other: Gateway,
    /// A request of `other` that its upstream holds until the latch is released.
    held: Option<(PendingRequest, Latch)>,
    /// Requests at both gateways that wait for the key of the held request.
    waiting: Vec<PendingRequest>,
    load: RunningLoad,
}

/// Longer than a session, with time for the next holder.
const SLEEP: Duration = Duration::from_millis(4500);

/// The path of the held request. It is held for as long as the test looks.
pub const HELD: &str = "/pay/held";

/// A path with an account name that a hostile client might use.
pub const HOSTILE: &str = "/pay/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E\"'";

impl ZombieFixture {
    /// Starts the gateways, brings the accident about, and starts the load.
    ///
    /// # Panics
    /// If the accident does not happen as planned.
    pub async fn start() -> Self {
        Self::start_with(|policy| policy).await
    }

    /// Starts like [`Self::start`], with policies that `more` has changed.
    ///
    /// # Panics
    /// If the accident does not happen as planned.
    pub async fn start_with(more: impl Fn(TestPolicy) -> TestPolicy) -> Self {
        let site = TestSite::fresh().await.with_comparison();
        site.origin.set_work_time(Duration::from_millis(4));
        let policy = |name: &str| {
            let hold = json!({"mode": "cached", "linger": "2s", "max_local": 16, "max_hold": "50ms"});
            let policy = site.policy(name).with("/defaults/hold", hold).with("/routes/0/fence/wait", "120s");
            // The timeout is long, so that held requests stay held for as long as the test looks.
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
            // The load goes on for as long as a browser looks, and few requests show the same keys as many.
            pause: Duration::from_millis(200),
        };
        let load = RunningLoad::start("live", &plan);
        for gateway in [&sleeper, &other] {
            gateway.send(&TestRequest::post(HOSTILE).field(ATTEMPT, "hostile")).await;
        }
        Self { site, sleeper, other, held: Some((holder, latch)), waiting, load }
    }

    /// Ends the load, releases the held request, and returns the answers of the load's clients.
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

/// Pauses one gateway between the check of its lock and its write, until its session is over and the other gateway
/// has had the key. The late write must be refused.
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
