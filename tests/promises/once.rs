//! An operation that a client names with an `Idempotency-Key` is executed at most once, through whichever gateway the
//! client sends it.
//!
//! A repeat gets the first answer again.

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::Guard,
    guarded::{GuardedSite, with_short_times},
    held_request::HeldRequest,
    history::{ATTEMPT, History},
    origin::{OriginAction, OriginReply},
};
use serde_json::{Value, json};

struct GuardedGatewayPair {
    guarded: GuardedSite,
    guard: Guard,
    one: Gateway,
    two: Gateway,
}

impl GuardedGatewayPair {
    async fn fresh() -> Self {
        Self::with_once(json!({"store": "guard"})).await
    }

    async fn with_once(once: Value) -> Self {
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

/// A repeat through the other gateway gets the first response byte for byte, as `replayed`.
#[tokio::test]
async fn repeat_replays_response_byte_for_byte() {
    let it = GuardedGatewayPair::fresh().await;
    let receipt = OriginReply::with_body("receipt \u{20ac} 1\r\n\0")
        .status(201)
        .field("Content-Type", "text/plain; charset=utf-8")
        .field("Location", "/receipts/1")
        .field("ETag", "\"r1\"");
    it.guarded.site.origin.script("/pay/7", [OriginAction::now(receipt)]);
    let first = it.one.send(&ask("\"op-1\"").field(ATTEMPT, "a")).await;
    assert_outcome(&first, 201, FencingOutcome::Done);
    // The name is the same with and without quotes.
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

/// An `Idempotency-Key` that comes again with another payload gets 422, and nothing is sent.
#[tokio::test]
async fn reused_key_with_other_payload_refused() {
    let it = GuardedGatewayPair::fresh().await;
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

/// Where an `Idempotency-Key` is required, a request without one, with two or with a malformed one is refused.
#[tokio::test]
async fn missing_or_malformed_key_is_refused() {
    let it = GuardedGatewayPair::fresh().await;
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

/// Two principals may use one `Idempotency-Key`; each has its own operation.
#[tokio::test]
async fn same_key_is_separate_per_principal() {
    let it = GuardedGatewayPair::with_once(json!({"store": "guard", "principal": "{header.x-shop}"})).await;
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

/// A repeat while the first request is at work waits for its response.
///
/// The client hangs up and repeats its request through the other gateway while the first request runs.
#[tokio::test]
async fn repeat_waits_for_first_in_flight() {
    let it = GuardedGatewayPair::fresh().await;
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

/// An operation whose outcome is unknown is reported as unknown and never executed again.
#[tokio::test]
async fn unknown_outcome_is_never_repeated() {
    let it = GuardedGatewayPair::fresh().await;
    for (n, act) in [
        OriginAction::Reset,
        OriginAction::CloseInHead,
        OriginAction::CloseInBody(OriginReply::with_body("half of it")),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/pay/{n}");
        let name = format!("op-{n}");
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
async fn server_error_is_not_retried() {
    let it = GuardedGatewayPair::fresh().await;
    it.guarded.site.origin.script("/pay/7", [OriginAction::now(OriginReply::with_body("sorry").status(500))]);
    let failed = it.one.send(&ask("op-1")).await;
    assert_outcome(&failed, 500, FencingOutcome::Done);
    let again = it.two.send(&ask("op-1")).await;
    assert_outcome(&again, 409, FencingOutcome::Unknown);
    assert_eq!(again.reason(), "outcome-unknown");
    it.guarded
        .site
        .origin
        .script("/pay/7", [OriginAction::now(OriginReply::with_body("no funds").status(402))]);
    assert_outcome(&it.one.send(&ask("op-2")).await, 402, FencingOutcome::Done);
    assert_outcome(&it.two.send(&ask("op-2")).await, 402, FencingOutcome::Replayed);
    assert_eq!(it.executions(), 2);
}

/// A recorded response is replayed after the guard and its gateway were killed.
#[tokio::test]
async fn replay_survives_guard_and_gateway_death() {
    let it = GuardedGatewayPair::fresh().await;
    let first = it.one.send(&ask("op-1")).await;
    assert_outcome(&first, 200, FencingOutcome::Done);
    it.one.signal(fencegate_testkit::child::Signal::KILL);
    let _guard = it.guard.kill().await.start().await;
    // The guard admits no new request yet, and replays a known answer.
    let again = it.two.send(&ask("op-1")).await;
    assert_outcome(&again, 200, FencingOutcome::Replayed);
    assert_eq!((again.body, it.guarded.site.origin.count("/pay/7")), (first.body, 1));
}

/// A replay under a newer token does not make the guard look rolled back.
///
/// A replay raises no watermark, because the guard has not admitted its token.
#[tokio::test]
async fn newer_replay_token_signals_no_rollback() {
    let it = GuardedGatewayPair::fresh().await;
    assert_outcome(&it.one.send(&ask("op-1")).await, 200, FencingOutcome::Done);
    assert_outcome(&it.two.send(&ask("op-1")).await, 200, FencingOutcome::Replayed);
    let _guard = it.guard.stop().await.start().await;
    let answer = it.two.send(&ask("op-1")).await;
    assert_outcome(&answer, 200, FencingOutcome::Replayed);
    assert_outcome(&it.two.send(&ask("op-2")).await, 200, FencingOutcome::Done);
    assert_eq!(it.guarded.site.origin.count("/pay/7"), 2);
}
