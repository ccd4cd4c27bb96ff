//! Readers of a key overlap each other and never a writer. No request overtakes a waiting one.
//!
//! The readers use two gateways. Two watermarks refuse late readers and late writers, and let a reader pass that is
//! older than another reader.

use std::time::Duration;

use fencegate_policies::token::FencingToken;
use fencegate_testkit::{child::Signal, wait::QUIET};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    history::{Execution, History},
    load::{LoadPlan, RunningLoad},
    origin::AccessMode,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

/// The pause of a gateway: long enough for its session to expire and for the next holder to begin.
const PAUSE: Duration = Duration::from_millis(3500);

/// A policy in which GET reads `/stock/{sku}` under a shared lock, and POST writes it under an exclusive one.
fn policy(site: &TestSite, name: &str, hold: Value) -> TestPolicy {
    let route = json!({
        "name": "stock",
        "upstream": "ledger",
        "match": {"path": "/stock/{sku}"},
        "fence": {"key": "sku/{path.sku}", "mode": "by-method", "hold": hold},
    });
    site.policy(name).with("/routes/1", route)
}

fn cached_hold() -> Value {
    json!({"mode": "cached", "linger": "60s"})
}

fn strict_hold() -> Value {
    json!({"mode": "strict"})
}

fn overlap(one: &Execution, other: &Execution) -> bool {
    let ends_after = |one: &Execution, begin| one.ended.is_none_or(|end| end > begin);
    ends_after(one, other.began) && ends_after(other, one.began)
}

async fn run_readers_and_writers(hold: Value) {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(4));
    let (one, two) =
        Gateway::start_both(&policy(&site, "gw-1", hold.clone()), &policy(&site, "gw-2", hold)).await;
    let plan = |clients, requests| LoadPlan {
        gateways: vec![one.public, two.public],
        paths: vec!["/stock/lamp".to_owned()],
        clients,
        requests,
        pause: Duration::from_millis(2),
    };
    let readers = RunningLoad::start_with(TestRequest::get, "reader", &plan(8, 40));
    let writers = RunningLoad::start("writer", &plan(2, 40));
    let mut told = readers.end().await;
    let written = writers.end().await;
    told.extend(written);

    let history = History::from_log(&site.origin.log()).with_results(&told);
    history.assert_holds();
    for told in &told {
        assert_eq!(told.answer.as_ref().map(|answer| answer.status), Ok(200), "{told:?}");
    }
    assert_eq!(history.executions.len(), 400);
    assert!(history.hand_overs() >= 10, "not exercised: {} hand-overs", history.hand_overs());
    let readers: Vec<_> = history.executions.iter().filter(|one| one.access == AccessMode::Shared).collect();
    let beside =
        |one: &&&Execution| readers.iter().any(|other| other.gateway != one.gateway && overlap(one, other));
    let together = readers.iter().filter(beside).count();
    assert!(together >= 10, "not exercised: {together} readers beside one of the other gateway");
}

/// Readers at two gateways with cached grants overlap readers and never writers.
#[tokio::test]
async fn cached_readers_overlap_only_readers() {
    run_readers_and_writers(cached_hold()).await;
}

/// Readers at two gateways with strict grants overlap readers and never writers.
#[tokio::test]
async fn strict_readers_overlap_only_readers() {
    run_readers_and_writers(strict_hold()).await;
}

/// Asserts that a reader waits behind an earlier writer, although it could hold the key together with the reader in
/// flight.
async fn assert_writer_not_overtaken(hold: Value, elsewhere: bool) {
    let site = TestSite::fresh().await;
    let (one, two) =
        Gateway::start_both(&policy(&site, "gw-1", hold.clone()), &policy(&site, "gw-2", hold)).await;
    let tree = site.tree().await;
    let reading =
        site.origin.hold_request(&one, TestRequest::get("/stock/lamp").field("x-attempt", "reader 1")).await;

    let behind = if elsewhere { &two } else { &one };
    let writing = behind.begin(TestRequest::post("/stock/lamp").field("x-attempt", "writer"));
    behind.wait_gauge("fencegate_lock_waiters", 1.0).await;
    if elsewhere {
        tree.wait_locks("a reader and a writer", |locks| locks.len() == 2).await;
    }
    // A writer that waits behind a reader of its own gateway has no node yet. The other gateway cannot know that
    // writer.
    let mut late = vec![one.begin(TestRequest::get("/stock/lamp").field("x-attempt", "reader 2"))];
    if elsewhere {
        late.push(two.begin(TestRequest::get("/stock/lamp").field("x-attempt", "reader 3")));
    }
    tokio::time::sleep(QUIET).await;
    let begun = |site: &TestSite| -> Vec<String> {
        let log = site.origin.log();
        log.records.iter().filter_map(|record| record.request.field("x-attempt")).map(str::to_owned).collect()
    };
    // When the writer waits at another gateway, the holder may let its own readers in for `max_hold`.
    let others = begun(&site).into_iter().filter(|name| !elsewhere || name != "reader 2");
    assert_eq!(others.collect::<Vec<_>>(), ["reader 1"]);
    assert_eq!(reading.finish().await.status, 200);
    assert_eq!(writing.answer().await.status, 200);
    for late in late {
        assert_eq!(late.answer().await.status, 200);
    }
    History::from_log(&site.origin.log()).assert_holds();
    let order = begun(&site);
    let place = |name: &str| order.iter().position(|one| one == name).expect("all were served");
    let last = if elsewhere { "reader 3" } else { "reader 2" };
    assert!(place("writer") < place(last), "{order:?}");
}

/// A reader does not overtake a writer that waits at its own gateway.
#[tokio::test]
async fn reader_queues_behind_local_writer() {
    assert_writer_not_overtaken(cached_hold(), false).await;
}

/// A reader does not overtake a writer that waits at another gateway.
#[tokio::test]
async fn reader_queues_behind_remote_writer() {
    assert_writer_not_overtaken(cached_hold(), true).await;
}

/// A strict reader does not overtake a writer that waits at another gateway.
#[tokio::test]
async fn strict_reader_queues_behind_remote_writer() {
    assert_writer_not_overtaken(strict_hold(), true).await;
}

/// A writer is served although readers follow each other so closely that one is always in flight at some gateway.
#[tokio::test]
async fn continuous_readers_never_starve_writer() {
    let site = TestSite::alone().await;
    site.origin.set_work_time(Duration::from_millis(20));
    let (one, two) =
        Gateway::start_both(&policy(&site, "gw-1", cached_hold()), &policy(&site, "gw-2", cached_hold()))
            .await;
    let plan = LoadPlan {
        gateways: vec![one.public, two.public],
        paths: vec!["/stock/lamp".to_owned()],
        clients: 8,
        requests: 5000,
        pause: Duration::ZERO,
    };
    let load = RunningLoad::start_with(TestRequest::get, "reader", &plan);
    for n in 0..4 {
        let so_far = site.origin.log().records.len();
        site.origin.wait_for("readers at work", |log| log.records.get(so_far + 20).map(drop)).await;
        let gateway = if n % 2 == 0 { &one } else { &two };
        let answer = gateway.send(&TestRequest::post("/stock/lamp")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.took() < Duration::from_secs(2), "took {:?}", answer.took());
    }
    let told = load.stop().await;
    History::from_log(&site.origin.log()).with_results(&told).assert_holds();
}

/// The result of a write whose gateway was stopped past the end of its session before the first byte.
struct LateWrite {
    token: FencingToken,
    status: u16,
    stale: bool,
}

/// Lets another gateway serve `next` between the check of the victim's request and its first byte.
async fn run_late_write(victim: TestRequest, next: TestRequest) -> (LateWrite, FencingToken) {
    let site = TestSite::fresh().await.with_comparison();
    let sleeping =
        site.gateway_paused_at(&policy(&site, "victim", cached_hold()), "after_proof_check", PAUSE).await;
    let other = Gateway::start(&policy(&site, "next", cached_hold())).await;
    let asked = sleeping.begin(victim);
    sleeping.wait_at_failpoint("after_proof_check").await;
    sleeping.signal(Signal::STOP);
    assert_eq!(other.send(&next).await.status, 200);
    let newer = site.origin.wait_for_request("/stock/lamp", 1).await.expect_token();
    sleeping.signal(Signal::CONT);
    let answer = asked.answer().await;
    let record = site.origin.wait_for_request("/stock/lamp", 2).await;
    assert_eq!(record.gateway, "victim");
    (LateWrite { token: record.expect_token(), status: answer.status, stale: record.stale }, newer)
}

/// A late writer is refused by the watermark of a newer reader.
#[tokio::test]
async fn newer_reader_makes_late_writer_stale() {
    let (late, newer) =
        run_late_write(TestRequest::post("/stock/lamp"), TestRequest::get("/stock/lamp")).await;
    assert!(late.token < newer);
    assert_eq!((late.status, late.stale), (412, true));
}

/// A late reader is refused by the watermark of a newer writer.
#[tokio::test]
async fn newer_writer_makes_late_reader_stale() {
    let (late, newer) =
        run_late_write(TestRequest::get("/stock/lamp"), TestRequest::post("/stock/lamp")).await;
    assert!(late.token < newer);
    assert_eq!((late.status, late.stale), (412, true));
}

/// A slow reader is not stale beside a newer reader, because both hold the key together.
#[tokio::test]
async fn newer_reader_keeps_older_reader_valid() {
    let site = TestSite::fresh().await.with_comparison();
    let pause = Duration::from_millis(600);
    let slow =
        site.gateway_paused_at(&policy(&site, "slow", cached_hold()), "after_proof_check", pause).await;
    let other = Gateway::start(&policy(&site, "other", cached_hold())).await;
    let asked = slow.begin(TestRequest::get("/stock/lamp"));
    slow.wait_at_failpoint("after_proof_check").await;
    assert_eq!(other.send(&TestRequest::get("/stock/lamp")).await.status, 200);
    let answer = asked.answer().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));

    let log = site.origin.log();
    let [first, second] = log.records.as_slice() else { panic!("two records: {log:#?}") };
    assert_eq!((first.gateway.as_str(), second.gateway.as_str()), ("other", "slow"), "not exercised");
    assert!(second.expect_token() < first.expect_token() && !second.stale, "{second:?}");
}
