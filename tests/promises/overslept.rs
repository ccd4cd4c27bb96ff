//! A grant that is cached between requests is not used once its session could be over.

use std::time::{Duration, Instant};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    client::TestRequest,
    gateway::Gateway,
    history::History,
    load::{LoadPlan, RunningLoad},
    policy::TestPolicy,
    site::TestSite,
    zookeeper_proxy::ZooKeeperProxy,
};

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

fn keeping_policy(site: &TestSite, name: &str) -> TestPolicy {
    site.policy(name).with_linger("60s")
}

/// The way in which a gateway loses its session without noticing.
#[derive(Debug, Clone, Copy)]
enum PauseFault {
    Stopped,
    CutOff,
}

/// Asserts that a gateway with a warm key, which needs no answer of ZooKeeper to serve a request, writes nothing after
/// it has lost its session.
async fn assert_warm_key_lost_after(accident: PauseFault) {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let policy = keeping_policy(&site, "victim").with_zookeeper(link.address());
    let next = keeping_policy(&site, "next");
    let (victim, next) = Gateway::start_both(&policy, &next).await;
    assert_eq!(victim.send(&TestRequest::post("/pay/7")).await.status, 200);
    let old = site.origin.wait_for_request("/pay/7", 1).await.expect_token();

    let before = Instant::now();
    match accident {
        PauseFault::Stopped => victim.signal(Signal::STOP),
        PauseFault::CutOff => link.cut(),
    }
    let taken = site.origin.hold_request(&next, TestRequest::post("/pay/7")).await;
    let newer = taken.record.expect_token();
    // A stopped gateway reads these requests only after it is resumed.
    let asked: Vec<_> =
        (0..8).map(|_| victim.begin(TestRequest::post("/pay/7").field("Prefer", "wait=1"))).collect();
    victim.signal(Signal::CONT);

    for asked in asked {
        let answer = asked.answer().await;
        assert!(matches!(answer.status, 423 | 503), "{accident:?}: {answer:?}");
    }
    let written = site.origin.log().bytes_since("victim", before);
    assert!(written.is_empty(), "{accident:?}: {}", String::from_utf8_lossy(&written));
    assert_eq!(taken.finish().await.status, 200);

    link.mend();
    victim.wait_ready().await;
    let answer = victim.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(answer.status, 200, "serves again by itself");
    assert!(old < newer && Some(newer) < answer.token(), "{old} {newer} {answer:?}");
    History::from_log(&site.origin.log()).assert_holds();
}

/// A gateway that was stopped past the end of its session writes not one byte under a cached grant.
#[tokio::test]
async fn stopped_gateway_never_uses_cached_grant() {
    assert_warm_key_lost_after(PauseFault::Stopped).await;
}

/// A gateway that is cut off from ZooKeeper writes not one byte under a cached grant.
#[tokio::test]
async fn disconnected_gateway_never_uses_cached_grant() {
    assert_warm_key_lost_after(PauseFault::CutOff).await;
}

/// Pauses of a gateway that holds hot keys break no promise.
///
/// Every request in the queue of a key is checked, not only the first one.
#[tokio::test]
async fn pauses_with_hot_keys_stay_safe() {
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(5));
    let (victim, next) =
        Gateway::start_both(&keeping_policy(&site, "victim"), &keeping_policy(&site, "next")).await;
    let plan = LoadPlan::payments(&[&victim, &next], 2, 8, 5000);
    let load = RunningLoad::start("load", &plan);
    for _ in 0..2 {
        site.origin.wait_more("victim", 30).await;
        victim.signal(Signal::STOP);
        // Every key that the victim holds is blocked until its session has expired.
        tokio::time::sleep(SESSION_TIMEOUT).await;
        site.origin.wait_more("next", 60).await;
        victim.signal(Signal::CONT);
    }
    site.origin.wait_more("victim", 30).await;
    load.assert_promises(&site.origin, 4).await;
}
