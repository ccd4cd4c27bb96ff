//! A holder that was paused past the end of its session writes nothing, or its older token is refused.
//!
//! A holder that slept through its session, or was cut off until its end, writes not one byte. If it slept between
//! the check and the write, its older token is refused. Both are tested under load as well.

use std::time::{Duration, Instant};

use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, PendingRequest},
    load::{LoadPlan, RunningLoad},
    policy::TestPolicy,
    site::TestSite,
    zookeeper_proxy::ZooKeeperProxy,
};

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause of a gateway: long enough for its session to expire and for the next holder to begin.
const PAUSE: Duration = Duration::from_millis(3500);

/// The way in which a gateway loses its session without noticing.
#[derive(Debug, Clone, Copy)]
enum PauseFault {
    /// The whole process is stopped, as by a frozen machine or long swapping.
    Stopped,
    /// Only ZooKeeper is unreachable. Threads and clocks run.
    CutOff,
}

/// Pauses a holder before it checks its proof, and asserts that it notices the loss of its session afterwards.
async fn assert_pause_noticed(accident: PauseFault) {
    let site = TestSite::fresh().await;
    let relay = FaultProxy::start(site.zookeeper);
    let policy = site.policy("victim").with_zookeeper(relay.address);
    let victim = site.gateway_paused_at(&policy, "before_upstream_write", PAUSE).await;
    let next = site.gateway("next").await;

    let asked = victim.begin(TestRequest::post("/pay/7"));
    victim.wait_at_failpoint("before_upstream_write").await;
    match accident {
        PauseFault::Stopped => victim.signal(Signal::STOP),
        PauseFault::CutOff => drop(relay),
    }
    // ZooKeeper has granted the lock to another gateway, so any later write of the victim would overlap.
    let successor = site.origin.hold_request(&next, TestRequest::post("/pay/7")).await;
    victim.signal(Signal::CONT);
    let answer = asked.answer().await;

    assert_eq!((answer.status, answer.reason().as_str()), (503, "suspended"), "{accident:?}");
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(answer.field("retry-after").is_some());
    assert_eq!(successor.finish().await.status, 200);
    let written: Vec<_> =
        site.origin.log().pieces.iter().filter(|piece| piece.gateway == "victim").cloned().collect();
    assert!(written.is_empty(), "{accident:?}: written under a lost lock: {written:?}");
}

#[tokio::test]
async fn holder_stopped_before_check_writes_nothing() {
    assert_pause_noticed(PauseFault::Stopped).await;
}

/// A holder that is cut off from ZooKeeper before its check writes not one byte.
#[tokio::test]
async fn holder_disconnected_before_check_writes_nothing() {
    assert_pause_noticed(PauseFault::CutOff).await;
}

/// A write of a holder that was stopped after its check is refused by its token.
///
/// No check closes the gap between the check and the write. An upstream that compares tokens closes it.
#[tokio::test]
async fn late_write_is_refused_by_token() {
    let site = TestSite::fresh().await.with_comparison();
    let victim = site.gateway_paused_at(&site.policy("victim"), "after_proof_check", PAUSE).await;
    let next = site.gateway("next").await;

    let asked = victim.begin(TestRequest::post("/pay/7"));
    victim.wait_at_failpoint("after_proof_check").await;
    victim.signal(Signal::STOP);
    // ZooKeeper has granted the lock to another gateway, so any later write of the victim would overlap.
    let successor = site.origin.hold_request(&next, TestRequest::post("/pay/7")).await;
    let newer = successor.record.expect_token();
    assert_eq!(successor.finish().await.status, 200);
    victim.signal(Signal::CONT);
    let answer = asked.answer().await;

    let late = site.origin.wait_for_request("/pay/7", 2).await;
    assert_eq!(late.gateway, "victim");
    assert!(late.expect_token() < newer && late.stale, "{late:?}");
    assert_eq!((answer.status, answer.field("fencing-refusal")), (412, None), "passed on, without our field");
    assert_eq!(
        answer.field("fencing-outcome").map(|value| value.starts_with("done; proof=lost")),
        Some(true)
    );
}

/// Without failpoints: a gateway is granted locks while it is stopped, and has new requests when it resumes.
#[tokio::test]
async fn paused_waiters_write_nothing_after_grant() {
    const KEYS: usize = 8;
    let site = TestSite::fresh().await;
    let (victim, next) = tokio::join!(site.gateway("victim"), site.gateway("next"));
    let tree = site.tree().await;
    let paths: Vec<String> = (0..KEYS).map(|key| format!("/pay/{key}")).collect();

    let mut firsts = Vec::new();
    for path in &paths {
        firsts.push(site.origin.hold_request(&next, TestRequest::post(path)).await);
    }
    let mut asked: Vec<PendingRequest> =
        paths.iter().map(|path| victim.begin(TestRequest::post(path))).collect();
    tree.wait_locks("a waiter behind each holder", |locks| locks.len() == 2 * KEYS).await;

    victim.signal(Signal::STOP);
    for first in firsts {
        assert_eq!(first.finish().await.status, 200);
    }
    // The victim reads these requests only after it is resumed.
    asked.extend(paths.iter().map(|path| victim.begin(TestRequest::post(path))));
    let mut successors = Vec::new();
    for path in &paths {
        successors.push(site.origin.hold_request(&next, TestRequest::post(path)).await);
    }
    let woken = Instant::now();
    victim.signal(Signal::CONT);

    for asked in asked {
        let answer = asked.answer().await;
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{answer:?}");
        assert!(matches!(answer.status, 423 | 503), "{answer:?}");
    }
    let written = site.origin.log().bytes_since("victim", woken);
    assert!(written.is_empty(), "written after waking: {}", String::from_utf8_lossy(&written));
    for successor in successors {
        assert_eq!(successor.finish().await.status, 200);
    }
    victim.wait_ready().await;
    assert_eq!(victim.send(&TestRequest::post("/pay/7")).await.status, 200, "serves again by itself");
}

async fn run_stops_under_load(hold: fn(TestPolicy) -> TestPolicy) {
    let site = TestSite::fresh().await.with_comparison();
    site.origin.set_work_time(Duration::from_millis(5));
    let (victim, next) = Gateway::start_both(&hold(site.policy("victim")), &hold(site.policy("next"))).await;
    let plan = LoadPlan::payments(&[&victim, &next], 3, 9, 3000);
    let load = RunningLoad::start("load", &plan);
    for _ in 0..2 {
        site.origin.wait_more("victim", 30).await;
        victim.signal(Signal::STOP);
        // Every key whose lock the victim holds is blocked until its session has expired.
        tokio::time::sleep(SESSION_TIMEOUT).await;
        site.origin.wait_more("next", 60).await;
        victim.signal(Signal::CONT);
    }
    site.origin.wait_more("victim", 30).await;
    load.assert_promises(&site.origin, 30).await;
}

/// Stopping a gateway under load breaks no promise.
#[tokio::test]
async fn pauses_under_load_stay_safe() {
    run_stops_under_load(|policy| policy).await;
}

/// Stopping a gateway that caches grants under load breaks no promise.
#[tokio::test]
async fn pauses_with_cached_grants_stay_safe() {
    run_stops_under_load(TestPolicy::with_cached_hold).await;
}

/// A gateway whose ZooKeeper is silent logs no `process.paused`, the line that distinguishes a pause from a network
/// cut.
#[tokio::test]
async fn silent_zookeeper_logs_no_process_pause() {
    let site = TestSite::fresh().await;
    let link = ZooKeeperProxy::start(site.zookeeper).await;
    let policy =
        site.policy("victim").with("/zookeeper/session_timeout", "6s").with_zookeeper(link.address());
    let victim = Gateway::start(&policy).await;
    link.lose_all();
    victim
        .wait_line("that heartbeats are lost", |line| {
            line.message() == "ZooKeeper did not acknowledge a heartbeat"
        })
        .await;
    link.cut();
    link.mend();
    victim.wait_ready().await;
    // Short pauses happen on a busy machine.
    let log = victim.log();
    let long = log.lines().find(|line| line.contains("process.paused") && !line.contains("ms\""));
    assert_eq!(long, None, "a second and longer");
}

/// A pause that costs the session is logged in one line, however many sessions there are, and before the lines about
/// the ends of the sessions.
#[tokio::test]
async fn long_pause_is_told_once() {
    let site = TestSite::fresh().await;
    let policy = site.policy("victim").with("/zookeeper/sessions", 4);
    let victim = Gateway::start(&policy).await;
    victim.signal(Signal::STOP);
    tokio::time::sleep(SESSION_TIMEOUT * 3).await;
    victim.signal(Signal::CONT);
    victim.wait_line("that a session has ended", |line| line.message() == "session.ended").await;
    victim.wait_ready().await;
    // Short pauses happen on a busy machine.
    let told: Vec<_> = victim
        .log()
        .lines()
        .filter(|line| {
            line.contains("session.ended") || line.contains("process.paused") && !line.contains("ms\"")
        })
        .map(str::to_owned)
        .collect();
    let pauses = told.iter().filter(|line| line.contains("process.paused")).count();
    assert!(pauses == 1 && told[0].contains("process.paused"), "{told:#?}");
}
