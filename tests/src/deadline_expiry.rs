//! Schedules in which a gateway's session deadline passes while its session lives on and the upstream still
//! executes.
//!
//! No service compares tokens here, so only the gateway keeps two executions of a key apart.
//!
//! The gateway is paused, is cut off for a short time, or connects slowly.

use std::time::{Duration, Instant};

use fencegate_testkit::child::Signal;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch, LogLine},
    history::{History, Violation},
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
    zookeeper_proxy::ZooKeeperProxy,
};

/// The session timeout. With ticks of 200 ms the safety margin is 1.5 s and the heartbeat interval 1 s, so the
/// session deadline is 4.5 s after a heartbeat.
const SESSION: Duration = Duration::from_secs(6);

/// The result of one round.
#[derive(Debug)]
pub struct ExpiryRound {
    pub violations: Vec<Violation>,
    /// True if the round reached the intended moment, the victim's session lived on, and the last execution came
    /// from the next holder.
    pub exercised: bool,
}

fn policy(site: &TestSite, name: &str, response_timeout: Duration) -> TestPolicy {
    site.policy(name)
        .with("/zookeeper/session_timeout", format!("{}ms", SESSION.as_millis()))
        .with("/upstreams/ledger/fencing", "none")
        .with("/upstreams/ledger/response_timeout", format!("{}ms", response_timeout.as_millis()))
        .with("/routes/0/fence/wait", "20s")
}

/// Pauses the holder for longer than its session deadline and for less than its session timeout.
pub async fn run_pause_round() -> ExpiryRound {
    const EXECUTION: Duration = Duration::from_millis(5600);
    let site = TestSite::fresh().await;
    let ours = |name| policy(&site, name, EXECUTION + Duration::from_millis(400));
    let victim_policy = ours("victim");
    let next_policy = ours("next");
    let (victim, next) = tokio::join!(Gateway::start(&victim_policy), Gateway::start(&next_policy));
    site.origin.script("/pay/7", [OriginAction::Answer(EXECUTION, OriginReply::ok())]);
    let given_up = victim.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 1).await;
    let newer = next.begin(TestRequest::post("/pay/7"));

    victim.signal(Signal::STOP);
    sleep(Duration::from_millis(4700)).await;
    victim.signal(Signal::CONT);
    let given_up = given_up.answer().await;
    let newer = newer.answer().await;
    assert_eq!(newer.status, 200, "{newer:?}");
    judge_round(&site, &victim, given_up.outcome() == Some(FencingOutcome::Unknown))
}

/// Cuts the holder off from ZooKeeper for longer than its session deadline and for less than its session timeout. It
/// sends a request late in that time.
pub async fn run_short_cut_round() -> ExpiryRound {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let ours = |name| policy(&site, name, Duration::from_secs(3));
    let kept = json!({"mode": "cached", "linger": "60s"});
    let victim_policy = ours("victim").with_zookeeper(link.address()).with("/defaults/hold", kept);
    let next_policy = ours("next");
    let (victim, next) = tokio::join!(Gateway::start(&victim_policy), Gateway::start(&next_policy));
    assert_eq!(victim.send(&TestRequest::post("/pay/7")).await.status, 200);

    let cut = Instant::now();
    link.lose_all();
    sleep(Duration::from_millis(3200)).await;
    site.origin.script("/pay/7", [OriginAction::Answer(Duration::from_secs(2), OriginReply::ok())]);
    let given_up = victim.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 2).await;
    let newer = next.begin(TestRequest::post("/pay/7"));
    sleep(Duration::from_millis(4600).saturating_sub(cut.elapsed())).await;
    link.cut();
    link.mend();
    let given_up = given_up.answer().await;
    let newer = newer.answer().await;
    assert_eq!(newer.status, 200, "{newer:?}");
    judge_round(&site, &victim, given_up.outcome() == Some(FencingOutcome::Unknown))
}

/// Makes connecting take nearly as long as the session deadline lasts. A lock that is granted then must not be given
/// up at once.
pub async fn run_reconnect_round() -> ExpiryRound {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let ours = |name| policy(&site, name, Duration::from_secs(2));
    let next = Gateway::start(&ours("next")).await;
    site.origin.script("/pay/7", [OriginAction::Answer(Duration::from_millis(1200), OriginReply::ok())]);
    link.lose_all();
    let began = Instant::now();
    let victim = GatewayLaunch::new(&ours("victim").with_zookeeper(link.address())).start().await;
    sleep(Duration::from_millis(3900).saturating_sub(began.elapsed())).await;
    link.cut();
    link.mend();
    victim.wait_line("that it has a session", |line: &LogLine| line.message() == "session.established").await;
    let connected = began.elapsed();
    victim.wait_ready().await;
    let first = victim.begin(TestRequest::post("/pay/7"));
    site.origin.wait_for_request("/pay/7", 1).await;
    let newer = next.send(&TestRequest::post("/pay/7")).await;
    let first = first.answer().await;
    assert_eq!(newer.status, 200, "{newer:?}");
    let late = Duration::from_millis(3500)..Duration::from_millis(4500);
    let round = judge_round(&site, &victim, late.contains(&connected));
    if round.violations.is_empty() {
        assert_eq!(
            first.outcome(),
            Some(FencingOutcome::Done),
            "granted under a proof about to end: {first:?}"
        );
    }
    round
}

fn judge_round(site: &TestSite, victim: &Gateway, reached: bool) -> ExpiryRound {
    let log = site.origin.log();
    let lived = !victim.log().contains("session.ended");
    let newer = log.requests_for("/pay/7").last().is_some_and(|last| last.gateway == "next");
    ExpiryRound { violations: History::from_log(&log).violations(), exercised: reached && lived && newer }
}
