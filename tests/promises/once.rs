//! What a client names with an `Idempotency-Key` happens at most once, through whichever gateway it is asked for.

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::Guard,
    guarded::{GuardedSite, with_short_times},
    held_request::HeldRequest,
    history::{ATTEMPT, History},
    origin::{Act, OriginReply},
    wait::QUIET,
};
use serde_json::{Value, json};

struct GuardedPair {
    guarded: GuardedSite,
    guard: Guard,
    one: Gateway,
    two: Gateway,
}

impl GuardedPair {
    async fn fresh() -> Self {
        Self::with(json!({"store": "guard"})).await
    }

    async fn with(once: Value) -> Self {
        let guarded = GuardedSite::fresh().await;
        let guard = with_short_times(guarded.launch().await).start().await;
        let start = |name| {
            let policy = guarded.policy(name, &[guard.public]).with("/routes/0/fence/once", once.clone());
            async move { Gateway::start(&policy).await }
        };
        let (one, two) = tokio::join!(start("gw-1"), start("gw-2"));
        Self { guarded, guard, one, two }
    }

    fn executions(&self) -> usize {
        let history = History::from_log(&self.guarded.site.origin.log());
        history.assert_holds();
        history.executions.len()
    }
}

fn ask(name: &str) -> TestRequest {
    TestRequest::post("/pay/7").field("Idempotency-Key", name).body("ten cents")
}

#[track_caller]
fn assert_outcome(answer: &ClientResponse, status: u16, outcome: FencingOutcome) {
    assert_eq!((answer.status, answer.outcome()), (status, Some(outcome)), "{answer:?}");
}

#[tokio::test]
async fn a_repeat_through_the_other_gateway_gets_the_first_answer_byte_by_byte() {
    let it = GuardedPair::fresh().await;
    let receipt = OriginReply::with_body("receipt \u{20ac} 1\r\n\0")
        .status(201)
        .field("Content-Type", "text/plain; charset=utf-8")
        .field("Location", "/receipts/1")
        .field("ETag", "\"r1\"");
    it.guarded.site.origin.script("/pay/7", [Act::now(receipt)]);
    let first = it.one.send(&ask("\"op-1\"").field(ATTEMPT, "a")).await;
    assert_outcome(&first, 201, FencingOutcome::Done);
    // With and without quotes it is the same name.
    for (gateway, name) in [(&it.two, "\"op-1\""), (&it.one, "op-1"), (&it.two, "op-1")] {
        let again = gateway.send(&ask(name).field(ATTEMPT, "b")).await;
        assert_outcome(&again, 201, FencingOutcome::Replayed);
        assert_eq!(
            again.field("fencing-outcome").and_then(|value| value.split(';').next()),
            Some("replayed")
        );
        assert_eq!(again.body, first.body);
        for name in ["content-type", "location", "etag", "content-length"] {
            assert_eq!(again.field(name), first.field(name), "{name}");
        }
    }
    assert_eq!(it.executions(), 1);
    assert_outcome(&it.two.send(&ask("\"op-2\"")).await, 200, FencingOutcome::Done);
    assert_eq!(it.executions(), 2);
}

#[tokio::test]
async fn one_name_for_two_payloads_is_a_mistake_and_nothing_is_sent() {
    let it = GuardedPair::fresh().await;
    assert_outcome(&it.one.send(&ask("op-1")).await, 200, FencingOutcome::Done);
    let others = [
        ask("op-1").body("eleven cents"),
        TestRequest::post("/pay/7?currency=eur").field("Idempotency-Key", "op-1").body("ten cents"),
        TestRequest::post("/pay/8").field("Idempotency-Key", "op-1").body("ten cents"),
    ];
    for other in others {
        let answer = it.two.send(&other).await;
        assert_outcome(&answer, 422, FencingOutcome::NotDispatched);
        assert_eq!((answer.reason().as_str(), answer.field("retry-after")), ("idempotency-mismatch", None));
    }
    assert_outcome(&it.two.send(&ask("op-1")).await, 200, FencingOutcome::Replayed);
    assert_eq!(it.executions(), 1);
}

#[tokio::test]
async fn a_request_without_a_name_is_refused_where_one_is_required() {
    let it = GuardedPair::fresh().await;
    let nameless = it.one.send(&TestRequest::post("/pay/7").body("ten cents")).await;
    assert_outcome(&nameless, 400, FencingOutcome::NotDispatched);
    assert_eq!(nameless.reason(), "idempotency-key-required");
    for bad in ["", "\"\"", "\"op", "\"op\"; a=b"] {
        let answer = it.one.send(&ask(bad)).await;
        assert_outcome(&answer, 400, FencingOutcome::NotDispatched);
    }
    let two = ask("op-1").field("Idempotency-Key", "op-2");
    assert_outcome(&it.one.send(&two).await, 400, FencingOutcome::NotDispatched);
    assert_eq!(it.executions(), 0);
}

#[tokio::test]
async fn two_principals_may_use_one_name() {
    let it = GuardedPair::with(json!({"store": "guard", "principal": "{header.x-shop}"})).await;
    let of = |shop: &str| ask("op-1").field("X-Shop", shop);
    assert_outcome(&it.one.send(&of("blue")).await, 200, FencingOutcome::Done);
    assert_outcome(&it.two.send(&of("red")).await, 200, FencingOutcome::Done);
    assert_outcome(&it.two.send(&of("blue")).await, 200, FencingOutcome::Replayed);
    assert_outcome(&it.one.send(&of("red")).await, 200, FencingOutcome::Replayed);
    let nobodys = it.one.send(&ask("op-1")).await;
    assert_eq!(
        (nobodys.status, nobodys.outcome()),
        (400, Some(FencingOutcome::NotDispatched)),
        "{nobodys:?}"
    );
    assert_eq!(it.executions(), 2);
}

/// The client hangs up and asks elsewhere while the first is at work.
#[tokio::test]
async fn a_repeat_while_the_first_is_at_work_waits_for_its_answer() {
    let it = GuardedPair::fresh().await;
    let HeldRequest { request: first, latch, .. } =
        it.guarded.site.origin.hold_request(&it.one, ask("op-1")).await;
    first.hang_up();
    let second = it.two.begin(ask("op-1"));
    tokio::time::sleep(QUIET).await;
    assert!(!second.is_over());
    latch.release();
    assert_outcome(&second.answer().await, 200, FencingOutcome::Replayed);
    assert_eq!(it.executions(), 1);
}

#[tokio::test]
async fn what_nobody_saw_the_end_of_is_told_as_unknown_and_never_done_again() {
    let it = GuardedPair::fresh().await;
    for (n, act) in [Act::Reset, Act::CloseInHead, Act::CloseInBody(OriginReply::with_body("half of it"))]
        .into_iter()
        .enumerate()
    {
        let (path, name) = (format!("/pay/{n}"), format!("op-{n}"));
        it.guarded.site.origin.script(&path, [act]);
        let ask = TestRequest::post(&path).field("Idempotency-Key", &name);
        let broken = it.one.send(&ask).await;
        assert_outcome(&broken, 502, FencingOutcome::Unknown);
        for gateway in [&it.two, &it.one] {
            let again = gateway.send(&ask).await;
            assert_outcome(&again, 409, FencingOutcome::Unknown);
            assert_eq!((again.reason().as_str(), again.field("retry-after")), ("outcome-unknown", None));
            let problem: Value = serde_json::from_slice(&again.body).expect("JSON");
            assert_eq!(problem["operation_ref"].as_str().map(str::len), Some(16), "{problem}");
        }
    }
    assert_eq!(it.executions(), 3);
}

/// An error of the service leaves the outcome open. The error is passed on, and the name stays taken.
#[tokio::test]
async fn an_error_of_the_service_is_passed_on_and_not_tried_again() {
    let it = GuardedPair::fresh().await;
    it.guarded.site.origin.script("/pay/7", [Act::now(OriginReply::with_body("sorry").status(500))]);
    let failed = it.one.send(&ask("op-1")).await;
    assert_outcome(&failed, 500, FencingOutcome::Done);
    let again = it.two.send(&ask("op-1")).await;
    assert_outcome(&again, 409, FencingOutcome::Unknown);
    assert_eq!(again.reason(), "outcome-unknown");
    it.guarded.site.origin.script("/pay/7", [Act::now(OriginReply::with_body("no funds").status(402))]);
    assert_outcome(&it.one.send(&ask("op-2")).await, 402, FencingOutcome::Done);
    assert_outcome(&it.two.send(&ask("op-2")).await, 402, FencingOutcome::Replayed);
    assert_eq!(it.executions(), 2);
}

#[tokio::test]
async fn what_was_done_is_replayed_after_the_guard_and_the_gateways_have_died() {
    let it = GuardedPair::fresh().await;
    let first = it.one.send(&ask("op-1")).await;
    assert_outcome(&first, 200, FencingOutcome::Done);
    it.one.signal(fencegate::demo::child::Signal::KILL);
    let _guard = it.guard.kill().await.start().await;
    // The guard admits no new request yet, and replays a known answer.
    let again = it.two.send(&ask("op-1")).await;
    assert_outcome(&again, 200, FencingOutcome::Replayed);
    assert_eq!((again.body, it.guarded.site.origin.count("/pay/7")), (first.body, 1));
}

/// A replay raises no mark, because the guard has never let its token in.
#[tokio::test]
async fn a_replay_under_a_newer_token_does_not_make_the_guard_look_rolled_back() {
    let it = GuardedPair::fresh().await;
    assert_outcome(&it.one.send(&ask("op-1")).await, 200, FencingOutcome::Done);
    assert_outcome(&it.two.send(&ask("op-1")).await, 200, FencingOutcome::Replayed);
    let _guard = it.guard.stop().await.start().await;
    let answer = it.two.send(&ask("op-1")).await;
    assert_outcome(&answer, 200, FencingOutcome::Replayed);
    assert_outcome(&it.two.send(&ask("op-2")).await, 200, FencingOutcome::Done);
    assert_eq!(it.guarded.site.origin.count("/pay/7"), 2);
}
