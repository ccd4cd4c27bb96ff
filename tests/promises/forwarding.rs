//! Requests for a key that a peer keeps are forwarded to that peer: one tenure serves them all, and nothing is lost,
//! invented or executed twice on the way.
//!
//! One tenure serves three gateways. Answers pass unchanged, and waits, refusals and hang-ups are passed on. Nothing
//! is executed twice when the holder is killed, gone or frozen, or derives another key. Without forwarding the same
//! load moves the key from gateway to gateway.

use std::time::Duration;

use fencegate_policies::token::FencingToken;
use fencegate_testkit::{
    child::Signal,
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    held_request::HeldRequest,
    history::History,
    load::RunningLoad,
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
    zookeeper::ZnodeTree,
};
use serde_json::json;

use super::cached::{assert_all_done, plan};

/// A `linger` so long that a key stays at its holder during a test.
const KEPT: &str = "60s";

/// A gateway that peers can reach, and that releases a key only for another waiter.
fn policy_with_peer(site: &TestSite, name: &str) -> TestPolicy {
    let peer = json!({"address": "127.0.0.1:0", "advertise": "127.0.0.1:1"});
    site.policy(name).with_linger(KEPT).with("/peer", peer)
}

/// The policy of [`policy_with_peer`] for a gateway that also forwards requests to the holder of their key.
pub(super) fn forwarding_policy(site: &TestSite, name: &str) -> TestPolicy {
    policy_with_peer(site, name).with("/routes/0/fence/forward", "holder")
}

pub(super) async fn start_two_forwarding(site: &TestSite) -> (Gateway, Gateway) {
    let one = forwarding_policy(site, "gw-1");
    let two = forwarding_policy(site, "gw-2");
    let gateways = Gateway::start_both(&one, &two).await;
    tokio::join!(gateways.0.wait_ready(), gateways.1.wait_ready());
    gateways
}

/// Makes this gateway the holder of the key of `/pay/7`.
pub(super) async fn make_holder(gateway: &Gateway) {
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// Holds a request that `other` receives and `holder` executes, and returns its path. `request` makes a request for a
/// path; `holder` executes one for the same account first.
///
/// On a busy machine `other` may not reach its peer within a second, and then executes the request itself. Another
/// account is tried then, because these tests are not about that.
///
/// # Panics
/// Panics if no request is forwarded for any of five accounts.
pub(super) async fn hold_forwarded(
    site: &TestSite,
    holder: &Gateway,
    other: &Gateway,
    request: impl Fn(&str) -> TestRequest,
) -> (String, HeldRequest) {
    for account in 7..12 {
        let path = format!("/pay/{account}");
        let answer = holder.send(&request(&path)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let executed = site.origin.wait_for_request(&path, 1).await;
        let held = site.origin.hold_request(other, request(&path)).await;
        if held.record.gateway == executed.gateway {
            return (path, held);
        }
        drop(held.finish().await);
    }
    panic!("not exercised: no request was forwarded");
}

/// The number of lock nodes that the key has had, from the counter of the server.
async fn lock_node_count(tree: &ZnodeTree) -> u32 {
    let locks = tree.locks().await;
    let [held] = locks.as_slice() else { panic!("one holder: {locks:?}") };
    held[held.len() - 10..].parse::<u32>().expect("a number") + 1
}

/// A hot key at three gateways is served under one grant, with at most 20 lock nodes for 720 requests.
#[tokio::test]
async fn hot_key_needs_one_grant() {
    const CLIENTS: usize = 12;
    const EACH: usize = 60;
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(1));
    let third = forwarding_policy(&site, "gw-3");
    let ((one, two), three) = tokio::join!(start_two_forwarding(&site), Gateway::start(&third));
    three.wait_ready().await;
    make_holder(&one).await;

    let results = RunningLoad::start("load", &plan(&[&one, &two, &three], CLIENTS, EACH)).end().await;

    assert_all_done(&results);
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert_eq!(history.executions.len(), CLIENTS * EACH + 1);
    let tokens: Vec<FencingToken> = history.executions.iter().map(|execution| execution.token).collect();
    assert!(tokens.iter().all(|token| token.same_grant(tokens[0])), "one tenure");
    assert!(history.executions.iter().all(|execution| execution.gateway == "gw-1"));
    let nodes = lock_node_count(&site.tree().await).await;
    assert!(nodes <= 20, "{nodes} lock nodes");
}

#[tokio::test]
async fn simultaneous_gateways_settle_on_one_holder() {
    const CLIENTS: usize = 12;
    const EACH: usize = 60;
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(1));
    let (one, two) = start_two_forwarding(&site).await;

    let results = RunningLoad::start("load", &plan(&[&one, &two], CLIENTS, EACH)).end().await;

    assert_all_done(&results);
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    let mut line: Vec<_> = history.executions.iter().collect();
    line.sort_by_key(|execution| execution.began);
    let late = &line[line.len() / 2..];
    assert!(
        late.iter().all(|one| one.token.same_grant(late[0].token)),
        "{} hand-overs",
        history.hand_overs()
    );
}

/// Without forwarding the same load makes the key change its holder again and again.
#[tokio::test]
async fn load_without_forwarding_alternates_holders() {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(1));
    let (one, two) =
        Gateway::start_both(&policy_with_peer(&site, "gw-1"), &policy_with_peer(&site, "gw-2")).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    make_holder(&one).await;

    let results = RunningLoad::start("load", &plan(&[&one, &two], 12, 60)).end().await;

    assert_all_done(&results);
    let history = History::from_log(&site.origin.log()).with_results(&results);
    history.assert_holds();
    assert!(history.hand_overs() >= 4, "{} hand-overs", history.hand_overs());
}

/// The answer to a forwarded request has the holder's token and outcome, and the body and trailers of the upstream.
#[tokio::test]
async fn forwarded_answer_returns_complete() {
    let site = TestSite::fresh().await;
    let (one, two) = start_two_forwarding(&site).await;
    make_holder(&one).await;
    let held = site.origin.wait_for_request("/pay/7", 1).await.expect_token();
    let large: Vec<u8> = (0..3 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
    for body in [b"ok".to_vec(), large] {
        let reply = OriginReply::with_body(body.clone()).status(201).field("X-From", "ledger");
        site.origin.script(
            "/pay/7",
            [OriginAction::now(reply.clone()), OriginAction::now(reply.trailer("X-Sum", "9"))],
        );
        for trailers in [false, true] {
            let request = TestRequest::post("/pay/7").field("TE", "trailers").body(vec![b'x'; 100_000]);
            let answer = two.send(&request).await;
            assert_eq!((answer.status, answer.field("x-from")), (201, Some("ledger")));
            assert_eq!(answer.outcome(), Some(FencingOutcome::Done));
            assert!(answer.body == body, "{} bytes of {}", answer.body.len(), body.len());
            assert_eq!(answer.trailers.contains_key("x-sum"), trailers);
            let record = site.origin.log().requests_for("/pay/7").last().cloned().expect("executed");
            assert_eq!(answer.token(), record.token());
            assert_eq!(record.gateway, "gw-1");
            assert!(record.expect_token().same_grant(held));
            assert_eq!(record.request.body.len(), 100_000);
        }
    }
}

/// The wait of a request is forwarded to the holder, and a refusal of the holder is passed on to the client.
#[tokio::test]
async fn wait_and_refusals_are_forwarded() {
    let site = TestSite::fresh().await;
    let one = Gateway::start(&forwarding_policy(&site, "gw-1").with("/routes/0/fence/queue", 1)).await;
    let two = Gateway::start(&forwarding_policy(&site, "gw-2")).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    let (path, working) = hold_forwarded(&site, &one, &two, TestRequest::post).await;

    let at_once = two.send(&TestRequest::post(&path).field("Prefer", "wait=0")).await;
    assert_eq!((at_once.status, at_once.reason().as_str()), (423, "locked"));
    let later = two.send(&TestRequest::post(&path).field("Prefer", "wait=1")).await;
    assert_eq!((later.status, later.reason().as_str()), (423, "locked"));
    assert!(later.took() >= Duration::from_millis(900) && later.took() < Duration::from_secs(4), "{later:?}");
    assert_eq!(later.outcome(), Some(FencingOutcome::NotDispatched));

    let waiting = two.begin(TestRequest::post(&path));
    one.wait_gauge("fencegate_lock_waiters", 1.0).await;
    let crowded = two.send(&TestRequest::post(&path)).await;
    assert_eq!((crowded.status, crowded.reason().as_str()), (429, "queue-full"));
    assert_eq!(working.finish().await.status, 200);
    assert_eq!(waiting.answer().await.status, 200);
    assert_eq!(site.origin.count(&path), 3);
}

/// A forwarded request that waits at the holder is cancelled when its client hangs up.
#[tokio::test]
async fn hangup_cancels_forwarded_waiter() {
    let site = TestSite::fresh().await;
    let (one, two) = start_two_forwarding(&site).await;
    make_holder(&one).await;
    let working = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let waiting = two.begin(TestRequest::post("/pay/7"));
    one.wait_gauge("fencegate_lock_waiters", 1.0).await;

    waiting.hang_up();

    one.wait_gauge("fencegate_lock_waiters", 0.0).await;
    assert_eq!(working.finish().await.status, 200);
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 3, "it was executed");
}

/// A peer that derives another key for a forwarded request returns it, and the first gateway serves it.
#[tokio::test]
async fn peer_with_other_key_returns_request() {
    let site = TestSite::fresh().await;
    let other = forwarding_policy(&site, "gw-1")
        .with("/routes/0/fence/key", "other/{path.account}")
        .with_route(json!({
            "name": "hold",
            "upstream": "ledger",
            "match": {"methods": ["POST"], "path": "/hold/{account}"},
            "fence": {"key": "account/{path.account}", "forward": "holder"},
        }));
    let let_be = |policy: TestPolicy| policy.with("/allow_mixed", true);
    let one = Gateway::start(&let_be(other)).await;
    let two = Gateway::start(&let_be(forwarding_policy(&site, "gw-2"))).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    assert_eq!(one.send(&TestRequest::post("/hold/7")).await.status, 200);

    let answer = two.send(&TestRequest::post("/pay/7")).await;

    assert_eq!(answer.status, 200);
    let record = site.origin.wait_for_request("/pay/7", 1).await;
    assert_eq!((record.gateway.as_str(), record.key()), ("gw-2", Some("account/7")));
    two.wait_series_at_least("fencegate_forwarded_total", &["result=\"back\""], 1.0).await;
}

#[tokio::test]
async fn operation_executes_once_across_gateways() {
    let site = TestSite::fresh().await;
    let once =
        |name| forwarding_policy(&site, name).with("/routes/0/fence/once", json!({"store": "zookeeper"}));
    let (one, two) = Gateway::start_both(&once("gw-1"), &once("gw-2")).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    let pay = |name: &str| TestRequest::post("/pay/7").field("Idempotency-Key", name).body("{}");
    assert_eq!(one.send(&pay("before")).await.status, 200);

    assert_eq!(two.send(&pay("one")).await.status, 200);
    for gateway in [&one, &two] {
        let again = gateway.send(&pay("one")).await;
        assert_eq!((again.status, again.reason().as_str()), (409, "already-done"));
    }
    assert_eq!(site.origin.count("/pay/7"), 2);
    assert!(site.origin.log().requests_for("/pay/7").all(|record| record.gateway == "gw-1"));
}

/// A client has one share at the holder, whichever gateway receives its requests.
#[tokio::test]
async fn client_share_spans_gateways() {
    let site = TestSite::fresh().await;
    let one = Gateway::start(&forwarding_policy(&site, "gw-1").with("/routes/0/fence/client_share", 1)).await;
    let two = Gateway::start(&forwarding_policy(&site, "gw-2")).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    let (path, working) = hold_forwarded(&site, &one, &two, TestRequest::post).await;

    for gateway in [&one, &two] {
        let answer = gateway.send(&TestRequest::post(&path)).await;
        assert_eq!((answer.status, answer.reason().as_str()), (429, "client-limit"));
    }
    let other = super::clients_share::send_from("127.0.0.2", &two, TestRequest::post(&path));
    one.wait_gauge("fencegate_lock_waiters", 1.0).await;
    assert_eq!(working.finish().await.status, 200);
    assert_eq!(other.await.expect("no panic").status, 200);
}

/// When the holder is killed during a forwarded request, its outcome is unknown, and nothing is executed twice.
#[tokio::test]
async fn killed_holder_leaves_unknown_outcome() {
    let site = TestSite::fresh().await;
    let (one, two) = start_two_forwarding(&site).await;
    let first = |path: &str| TestRequest::post(path).field("x-attempt", "first");
    let (path, HeldRequest { request: pending, latch, record }) =
        hold_forwarded(&site, &one, &two, first).await;
    let executed = record.expect_token();

    one.signal(Signal::KILL);

    let answer = pending.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::Unknown));
    assert!(answer.field("retry-after").is_none());
    latch.release();
    let next = two.send(&TestRequest::post(&path).field("x-attempt", "second")).await;
    assert_eq!(next.status, 200);
    assert!(next.token().expect("stamped") > executed);
    assert_eq!(site.origin.count(&path), 3, "each was executed once");
    assert_eq!(site.origin.wait_for_request(&path, 3).await.gateway, "gw-2");
}

/// When the holder has ended, a request is not forwarded: it queues at its own gateway and gets a larger token.
#[tokio::test]
async fn request_queues_locally_after_holder_exit() {
    let site = TestSite::fresh().await;
    let (one, two) = start_two_forwarding(&site).await;
    make_holder(&one).await;
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(
        site.origin.wait_for_request("/pay/7", 2).await.gateway,
        "gw-1",
        "not exercised: it was not sent on"
    );

    one.signal(Signal::KILL);
    one.exit().await;

    let answer = two.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let record = site.origin.wait_for_request("/pay/7", 3).await;
    assert_eq!(record.gateway, "gw-2");
    assert!(record.expect_token() > site.origin.wait_for_request("/pay/7", 2).await.expect_token());
}

/// A holder paused beyond its session dispatches no forwarded request beside the next holder, and none with an old
/// token.
#[tokio::test]
async fn expired_holder_dispatches_no_forwarded_request() {
    let site = TestSite::fresh().await;
    let (one, two) = start_two_forwarding(&site).await;
    make_holder(&one).await;
    // This gateway forwards no requests: it waits for the end of the stopped session.
    let three = Gateway::start(&policy_with_peer(&site, "gw-3")).await;
    three.wait_ready().await;

    one.signal(Signal::STOP);
    let pending = two.begin(TestRequest::post("/pay/7").field("x-attempt", "sent-on"));
    let taken =
        site.origin.hold_request(&three, TestRequest::post("/pay/7").field("x-attempt", "queued")).await;
    let newer = taken.record.clone();
    assert_eq!(newer.gateway, "gw-3");
    one.signal(Signal::CONT);
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 2, "sent beside the next holder");
    assert_eq!(taken.finish().await.status, 200);

    let answer = wait_until("an answer", pending.result(), || site.origin.log().records.clone()).await;
    let mut history = History::from_log(&site.origin.log());
    history.record_answer("sent-on", answer.as_ref().ok());
    history.assert_holds();
    let executions = history.executions.iter().filter(|one| one.attempt.as_deref() == Some("sent-on"));
    assert!(executions.clone().count() <= 1, "{history:?}");
    assert!(executions.clone().all(|one| one.token > newer.expect_token()), "{history:?}");
}

/// A request forwarded to a frozen holder ends with the holder's session: as unknown, or served by its own gateway.
#[tokio::test]
async fn forwarding_to_frozen_holder_ends() {
    const SESSION: Duration = Duration::from_secs(4);
    let site = TestSite::fresh().await;
    let [first, second] = ["gw-1", "gw-2"].map(|name| {
        let policy = forwarding_policy(&site, name).with("/zookeeper/session_timeout", "4s");
        policy.with("/routes/0/fence/wait", "10s")
    });
    // Each worker has its own connections to the holder. With one worker, all requests use the same ones.
    let (one, two) =
        tokio::join!(Gateway::start(&first), GatewayLaunch::new(&second).with_workers(1).start());
    two.wait_ready().await;
    make_holder(&one).await;
    // These two requests leave kept connections to the holder.
    let both = [(); 2].map(|()| two.begin(TestRequest::post("/pay/7")));
    for pending in both {
        assert_eq!(pending.answer().await.status, 200);
    }
    assert!(site.origin.log().records.iter().all(|record| record.gateway == "gw-1"));
    one.signal(Signal::STOP);
    let frozen = std::time::Instant::now();

    let written = two.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let later = two.begin(TestRequest::post("/pay/7"));
    assert!(!written.is_over() && frozen.elapsed() < SESSION, "not exercised");

    let (written, later) = tokio::join!(written.result(), later.result());
    let written = written.expect("an answer");
    let later = later.expect("an answer");
    assert!(frozen.elapsed() < SESSION + Duration::from_secs(4), "{:?}", frozen.elapsed());
    assert_eq!((written.status, written.reason().as_str()), (502, "outcome-unknown"));
    assert_eq!(written.outcome(), Some(FencingOutcome::Unknown));
    assert_eq!(
        (later.status, later.outcome()),
        (200, Some(FencingOutcome::Done)),
        "sent on over a kept connection"
    );
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    let records = site.origin.log().records.clone();
    assert!(records.iter().rev().take(2).all(|record| record.gateway == "gw-2"), "{records:?}");
    one.signal(Signal::CONT);
    History::from_log(&site.origin.log()).assert_holds();
}

/// After the session of a frozen holder is over, requests are not forwarded to it any more.
#[tokio::test]
async fn frozen_holder_is_skipped_after_expiry() {
    let site = TestSite::fresh().await;
    let (one, two) = start_two_forwarding(&site).await;
    make_holder(&one).await;
    one.signal(Signal::STOP);
    let served = || site.origin.log().records.iter().any(|one| one.gateway == "gw-2");
    let asking = async {
        let mut pending = Vec::new();
        while !served() {
            // The interval is shorter than the time for which a holder that does not answer stays cached.
            pending.push(two.begin(TestRequest::post("/pay/7")));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        pending
    };
    let pending = wait_until("served by the next one", asking, || site.origin.log().records.clone()).await;
    assert!(pending.len() > 5, "not exercised: its session was over at once");
    one.signal(Signal::CONT);
    History::from_log(&site.origin.log()).assert_holds();
}
