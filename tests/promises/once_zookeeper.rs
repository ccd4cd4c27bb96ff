//! Without a guard an operation is sent at most once: ZooKeeper remembers it, and no gateway sends again what may have
//! been sent.
//!
//! This holds also when a gateway is killed, when a lock is lost before the request is sent, and when an answer of
//! ZooKeeper is lost, with or without its session. An operation that was not sent may run later. Unknown operations
//! stay until an operator decides.

mod admission;
mod operation;

use std::time::Duration;

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    ensemble::free_address,
    gateway::{Gateway, PolicyFile, command},
    held_request::HeldRequest,
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use futures_util::future::join_all;
use serde_json::Value;
use zookeeper_client::{Acls, Client, CreateMode};

use self::operation::{
    already_done_refusal, names_in_one_shard, pay, policy, remembered_operations, shard_of,
    status_and_reason, unknown_refusal,
};

async fn run_operator_verb(policy: &TestPolicy, arguments: &[&str]) -> (Option<i32>, String) {
    let file = PolicyFile::new(&policy);
    let all = [&["once"], arguments, &["-c", &file]].concat();
    let output = command(&all).await.expect("started");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// An operation that was done is not done again through any gateway; another payload or a missing key is refused.
#[tokio::test]
async fn done_operation_never_repeats() {
    let site = TestSite::fresh().await;
    let a = policy(&site, "gw-1");
    let b = policy(&site, "gw-2");
    let (one, two) = Gateway::start_both(&a, &b).await;
    let first = one.send(&pay("a")).await;
    assert_eq!((first.status, first.outcome()), (200, Some(FencingOutcome::Done)));
    for gateway in [&one, &two, &one] {
        let repeat = gateway.send(&pay("a")).await;
        assert_eq!(
            (status_and_reason(&repeat), repeat.outcome()),
            (already_done_refusal(), Some(FencingOutcome::Done))
        );
    }
    let other = two.send(&pay("a").body("{\"other\": 1}")).await;
    assert_eq!(status_and_reason(&other), (422, "idempotency-mismatch".into()));
    assert_eq!(
        status_and_reason(&one.send(&TestRequest::post("/pay/7")).await),
        (400, "idempotency-key-required".into())
    );
    assert_eq!(site.origin.count("/pay/7"), 1);
    let sent = site.origin.wait_for_request("/pay/7", 1).await;
    assert!(!sent.request.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("fencing-operation")));
    assert_eq!(two.send(&pay("b")).await.status, 200);
}

/// A client error ends an operation; a server error leaves its outcome unknown.
#[tokio::test]
async fn client_error_final_server_error_unknown() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1")).await;
    let answers = [404, 500].map(|status| OriginAction::now(OriginReply::ok().status(status)));
    site.origin.script("/pay/7", answers);
    assert_eq!(gateway.send(&pay("a")).await.status, 404);
    assert_eq!(status_and_reason(&gateway.send(&pay("a")).await), (404, "already-refused".into()));
    assert_eq!(gateway.send(&pay("b")).await.status, 500);
    assert_eq!(status_and_reason(&gateway.send(&pay("b")).await), unknown_refusal());
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// An operation that a killed gateway had sent stays unknown until an operator resolves it.
#[tokio::test]
async fn killed_gateway_leaves_operation_unknown() {
    let site = TestSite::fresh().await;
    let a = policy(&site, "gw-1");
    let b = policy(&site, "gw-2");
    let (one, two) = Gateway::start_both(&a, &b).await;
    let HeldRequest { request: lost, latch, .. } = site.origin.hold_request(&one, pay("a")).await;
    let (code, said) = run_operator_verb(&b, &["list"]).await;
    assert!(code == Some(0) && said.contains("may be running"), "{said}");
    one.signal(Signal::KILL);
    lost.result().await.expect_err("killed");

    let repeat = two.send(&pay("a")).await;
    assert_eq!(
        (status_and_reason(&repeat), repeat.outcome()),
        (unknown_refusal(), Some(FencingOutcome::Unknown))
    );
    let problem: Value = serde_json::from_slice(&repeat.body).expect("JSON");
    let reference = problem["operation_ref"].as_str().expect("a reference").to_owned();
    latch.release();
    assert_eq!(status_and_reason(&two.send(&pay("a")).await), unknown_refusal());
    assert_eq!(site.origin.count("/pay/7"), 1);

    let (code, said) = run_operator_verb(&b, &["list"]).await;
    assert_eq!(code, Some(0), "{said}");
    for word in [&reference, "POST /pay/7", "Idempotency-Key: a", "account/7", "--as not-done"] {
        assert!(said.contains(word), "`{word}` is missing:\n{said}");
    }
    let (code, said) = run_operator_verb(&b, &["resolve", "0000000000000000", "--as", "done"]).await;
    assert!(code == Some(1) && said.contains("once list"), "{said}");
    // The service may have answered before it began the operation, so `not-done` needs `--force`.
    let (code, said) = run_operator_verb(&b, &["resolve", &reference, "--as", "not-done"]).await;
    assert!(code == Some(1) && said.contains("may still be begun") && said.contains("--force"), "{said}");
    let (code, said) = run_operator_verb(&b, &["resolve", &reference, "--as", "not-done", "--force"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(two.send(&pay("a")).await.status, 200);
    assert_eq!(status_and_reason(&two.send(&pay("a")).await), already_done_refusal());
    assert_eq!(site.origin.count("/pay/7"), 2);
}

#[tokio::test]
async fn operator_resolves_operation_as_done() {
    let site = TestSite::fresh().await;
    let policy = policy(&site, "gw-1");
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [OriginAction::Reset]);
    assert_eq!(gateway.send(&pay("a")).await.status, 502);
    let repeat = gateway.send(&pay("a")).await;
    let problem: Value = serde_json::from_slice(&repeat.body).expect("JSON");
    let reference = problem["operation_ref"].as_str().expect("a reference");
    let (code, said) = run_operator_verb(&policy, &["resolve", reference, "--as", "done"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(status_and_reason(&gateway.send(&pay("a")).await), already_done_refusal());
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// An operation that never reached the upstream may be sent again through any gateway.
#[tokio::test]
async fn unsent_operation_may_be_retried() {
    let site = TestSite::fresh().await;
    let nobody = free_address();
    let unreachable = format!("http://{nobody}");
    let cut_off = policy(&site, "gw-1").with("/upstreams/ledger/endpoints/0", unreachable);
    let good = policy(&site, "gw-2");
    let (one, two) = Gateway::start_both(&cut_off, &good).await;
    for _ in 0..3 {
        assert_eq!(status_and_reason(&one.send(&pay("a")).await), (502, "upstream-connect".into()));
    }
    assert_eq!(two.send(&pay("a")).await.status, 200);
    assert_eq!(status_and_reason(&one.send(&pay("a")).await), already_done_refusal());
    assert_eq!(site.origin.count("/pay/7"), 1);
}

#[tokio::test]
async fn concurrent_repeats_execute_once() {
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(20));
    let cached = |name| policy(&site, name).with_cached_hold();
    let (one, two) = Gateway::start_both(&cached("gw-1"), &policy(&site, "gw-2")).await;
    for round in 0..5 {
        let name = format!("op-{round}");
        let asked = (0..12).map(|n| [&one, &two][n % 2].begin(pay(&name)).answer());
        let answers = join_all(asked).await;
        let done = answers.iter().filter(|answer| answer.status == 200).count();
        let repeated =
            answers.iter().filter(|answer| answer.status == 409).map(status_and_reason).collect::<Vec<_>>();
        assert_eq!((done, repeated.len()), (1, 11), "{answers:?}");
        assert!(repeated.iter().all(|told| *told == already_done_refusal()), "{repeated:?}");
        assert_eq!(site.origin.count("/pay/7"), round + 1);
    }
}

/// A gateway that resumes records the outcome under its next session.
///
/// The gateway was frozen past the end of its session while the upstream worked, and gets the answer afterwards.
#[tokio::test]
async fn resumed_gateway_records_outcome() {
    let site = TestSite::fresh().await;
    let a = policy(&site, "gw-1");
    let b = policy(&site, "gw-2");
    let (one, two) = Gateway::start_both(&a, &b).await;
    let slow = site.origin.hold_request(&one, pay("a")).await;
    one.signal(Signal::STOP);
    assert_eq!(status_and_reason(&two.send(&pay("a")).await), unknown_refusal());
    one.signal(Signal::CONT);
    let answer = slow.finish().await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    let known = async {
        while status_and_reason(&two.send(&pay("a")).await) != already_done_refusal() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("the outcome to be known", known, || one.log()).await;
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// A finished operation is forgotten after `keep`; one with an unknown outcome never is.
#[tokio::test]
async fn finished_operations_expire_unknown_never() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let policy = policy(&site, "gw-1").with("/routes/0/fence/once/keep", "1s");
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    site.origin.script("/pay/7", [OriginAction::Reset]);
    assert_eq!(gateway.send(&pay("b")).await.status, 502);
    let state = |record: &Value| record["state"]["is"].as_str().map(str::to_owned);
    let forgotten = async {
        while remembered_operations(&tree).await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    wait_until("one to be forgotten", forgotten, || gateway.log()).await;
    let left = remembered_operations(&tree).await;
    assert_eq!(left.iter().map(state).collect::<Vec<_>>(), [Some("admitted".into())]);
    assert_eq!(gateway.send(&pay("a")).await.status, 200);
    assert_eq!(status_and_reason(&gateway.send(&pay("b")).await), unknown_refusal());
}

/// At the limit of operations a new one gets `operations-full`, and repeats are still answered.
#[tokio::test]
async fn operations_in_zookeeper_are_limited() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy(&site, "gw-1")).await;
    let [first, second] = names_in_one_shard();
    let client = Client::connect(&site.zookeeper.to_string()).await.expect("ZooKeeper serves");
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let shelf = format!("{}/ops/{:02x}", site.root, shard_of(&first));
    client.mkdir(&shelf, &persistent).await.expect("made");
    let path = |n| format!("{shelf}/other-{n}");
    for n in 0..400 {
        client.create(&path(n), b"{}", &persistent).await.expect("made");
    }
    // At its first request the gateway counts the existing operations.
    assert_eq!(gateway.send(&pay(&first)).await.status, 200);
    assert_eq!(status_and_reason(&gateway.send(&pay(&second)).await), (503, "operations-full".into()));
    assert_eq!(status_and_reason(&gateway.send(&pay(&first)).await), already_done_refusal());
    for n in 0..100 {
        client.delete(&path(n), None).await.expect("deleted");
    }
    assert_eq!(gateway.send(&pay(&second)).await.status, 200);
}
