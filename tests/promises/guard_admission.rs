//! The guard keeps exclusion for an upstream that compares no tokens: on each key it admits one exclusive tenure at a
//! time, and none that is older than the newest.
//!
//! The tests cover settled tenures, the second comparison, doubts, duplicates, sets, and shared mode.

use std::time::Duration;

use fencegate_testkit::wait::{QUIET, wait_until};
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    guard::{FLOOR, GuardFixture, StampedRequest, assert_refused},
    history::History,
    origin::{OriginAction, OriginReply},
};

/// A newer grant waits for the execution of the older one, and then runs alone.
#[tokio::test]
async fn newer_grant_waits_for_older_execution() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;

    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(fixture.origin.count("/new"), 0, "two at once");
    assert_eq!((old.finish().await.status, new.answer().await.status), (200, 200));
    History::from_log(&fixture.origin.log()).assert_holds();
}

/// A token that is older than the newest announced one, or not above the floor, never reaches the upstream.
#[tokio::test]
async fn stale_token_never_reaches_upstream() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    // The newer token is announced and still waits. The older tenure is over all the same.
    guard.wait_watermark("a", 30).await;
    assert_refused(&guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/stale")).await, "stale");
    old.finish().await;
    assert_eq!(new.answer().await.status, 200);
    let stale = guard.send(&StampedRequest::new("a", 29).post("/stale")).await;
    assert_refused(&stale, "stale");
    assert_eq!((stale.status, stale.outcome()), (412, Some(FencingOutcome::NotDispatched)));
    assert_refused(&guard.send(&StampedRequest::new("b", FLOOR).post("/stale")).await, "floor");
    assert_eq!(fixture.origin.count("/stale"), 0);
    assert_eq!(guard.decision_count("stale").await, 2.0);
}

/// A waiting dispatch is refused as stale as soon as a newer token is announced.
#[tokio::test]
async fn newer_announcement_refuses_waiter_at_once() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let overtaken = guard.begin(StampedRequest::new("a", 30).post("/overtaken"));
    guard.wait_watermark("a", 30).await;
    let newest = guard.begin(StampedRequest::new("a", 40).post("/newest"));
    assert_refused(&overtaken.answer().await, "stale");
    assert_eq!((old.finish().await.status, newest.answer().await.status), (200, 200));
    assert_eq!(fixture.origin.count("/overtaken"), 0);
}

/// A dispatch that waits for longer than `settle` is refused as `busy`, and may be repeated with its next dispatch
/// number.
#[tokio::test]
async fn busy_waiter_repeats_with_next_token() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "200ms").start().await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let busy = guard.send(&StampedRequest::new("a", 30).post("/new")).await;
    assert_refused(&busy, "busy");
    assert_eq!((busy.status, busy.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    assert!(busy.field("retry-after").is_some());
    old.finish().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/new")).await, "duplicate");
    assert_eq!(fixture.origin.count("/new"), 0, "whoever was told `busy` was never executed");
    assert_eq!(guard.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/new")).await.status, 200);
}

/// A dispatch that arrives several times, as from a hop between gateway and guard that retries, is executed once; each
/// other copy is refused with an unknown outcome.
#[tokio::test]
async fn duplicate_exclusive_dispatch_executes_once() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    fixture.origin.set_work_time(Duration::from_millis(20));
    let twins: Vec<_> = (0..8).map(|_| guard.begin(StampedRequest::new("a", 20).post("/pay"))).collect();
    let mut done = 0;
    for twin in twins {
        let answer = twin.answer().await;
        if answer.status == 200 {
            done += 1;
        } else {
            assert_refused(&answer, "duplicate");
            assert_eq!((answer.status, answer.outcome()), (412, Some(FencingOutcome::Unknown)));
            assert!(answer.field("retry-after").is_none());
        }
    }
    assert_eq!((done, fixture.origin.count("/pay")), (1, 1));
    assert_eq!(guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/pay")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 20).post("/pay")).await, "duplicate");
}

/// A shared dispatch that arrives twice is executed twice, because a guard does not compare the dispatches of one shared
/// tenure. It is refused once a newer exclusive tenure has run.
#[tokio::test]
async fn duplicate_shared_dispatch_runs_until_stale() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    for _ in 0..2 {
        assert_eq!(guard.send(&StampedRequest::new("a", 20).shared().post("/read")).await.status, 200);
    }
    assert_eq!(fixture.origin.count("/read"), 2);
    assert_eq!(guard.send(&StampedRequest::new("a", 30).post("/pay")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 20).shared().post("/read")).await, "stale");
    assert_eq!(fixture.origin.count("/read"), 2);
}

/// The key of a gateway that has disconnected stays taken until the upstream has answered.
#[tokio::test]
async fn disconnected_gateway_keeps_key_until_answer() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let latch = fixture.origin.hold("/old");
    let mut gateway = RawClient::connect(guard.public).await.expect("listens");
    let token = StampedRequest::new("a", 20).token();
    gateway
        .send(format!(
            "POST /old HTTP/1.1\r\nHost: a\r\nFencing-Token: {token}\r\nFencing-Key: a\r\n\
             Fencing-Mode: exclusive\r\nContent-Length: 2\r\n\r\nhi"
        ))
        .await
        .expect("connected");
    fixture.origin.wait_for_request("/old", 1).await;
    gateway.reset().expect("still connected");

    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(
        fixture.origin.count("/new"),
        0,
        "admitted while the upstream worked for a gateway that is gone"
    );
    assert!(fixture.origin.log().records[0].abandoned.is_none(), "the upstream was hung up on");
    latch.release();
    assert_eq!(new.answer().await.status, 200);
    History::from_log(&fixture.origin.log()).assert_holds();
}

#[tokio::test]
async fn disconnected_waiter_is_not_executed() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let gone = guard.begin(StampedRequest::new("a", 30).post("/gone"));
    guard.wait_watermark("a", 30).await;
    gone.hang_up();
    guard.wait_decisions("busy", 1.0).await;
    old.finish().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/new")).await.status, 200);
    assert_eq!(fixture.origin.count("/gone"), 0);
}

/// A set of keys is admitted as a whole, and a set that is refused raises no watermark.
#[tokio::test]
async fn key_set_is_admitted_as_whole() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    assert_eq!(guard.send(&StampedRequest::new("b", 50).post("/b")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a, b, c", 40).post("/stale")).await, "stale");
    assert_eq!(
        guard.send(&StampedRequest::new("a", 30).post("/a")).await.status,
        200,
        "the refused set raised `a`"
    );

    let c = fixture.origin.hold_request(&guard, StampedRequest::new("c", 60).post("/c")).await;
    let set = guard.begin(StampedRequest::new("a, b, c", 70).post("/set"));
    guard.wait_watermark("a", 70).await;
    assert_refused(&guard.send(&StampedRequest::new("a", 65).post("/stale")).await, "stale");
    tokio::time::sleep(QUIET).await;
    assert_eq!(fixture.origin.count("/set"), 0, "one of its keys is busy");
    assert_eq!((c.finish().await.status, set.answer().await.status), (200, 200));
    assert_eq!(fixture.origin.count("/stale"), 0);
}

/// Shared dispatches run beside each other, and an exclusive one runs alone.
#[tokio::test]
async fn readers_run_together_writer_alone() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let one = fixture.origin.hold("/one");
    let two = fixture.origin.hold("/two");
    let first = guard.begin(StampedRequest::new("a", 22).shared().post("/one"));
    fixture.origin.wait_for_request("/one", 1).await;
    let second = guard.begin(StampedRequest::new("a", 21).shared().post("/two"));
    fixture.origin.wait_for_request("/two", 1).await;
    assert_refused(&guard.send(&StampedRequest::new("a", 22).post("/stale")).await, "stale");

    let writer = guard.begin(StampedRequest::new("a", 30).post("/write"));
    guard.wait_watermark("a", 30).await;
    one.release();
    first.answer().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 25).shared().post("/stale")).await, "stale");
    tokio::time::sleep(QUIET).await;
    assert_eq!(fixture.origin.count("/write"), 0, "beside a reader");
    two.release();
    second.answer().await;
    assert_eq!(writer.answer().await.status, 200);
    assert_eq!(guard.send(&StampedRequest::new("a", 40).shared().post("/three")).await.status, 200);
    assert_eq!(fixture.origin.count("/stale"), 0);
    History::from_log(&fixture.origin.log()).assert_holds();
}

/// An execution that broke off keeps its key in doubt until `max_execution` has passed.
#[tokio::test]
async fn broken_execution_closes_key_until_over() {
    const OVER: Duration = Duration::from_secs(4);
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "300ms").with("/max_execution", "4s");
    let guard = guard.with("/upstream/response_timeout", "1s").with("/send_within", "1s").start().await;
    fixture.origin.script("/broken", [OriginAction::Reset]);
    let broken = guard.send(&StampedRequest::new("a", 20).post("/broken")).await;
    assert_eq!((broken.status, broken.outcome()), (502, Some(FencingOutcome::Unknown)));
    let last = fixture.origin.log().records[0].whole.expect("read");

    for doubtful in [
        StampedRequest::new("a", 20).with_dispatch(2),
        StampedRequest::new("a", 30),
        StampedRequest::new("a", 31).shared(),
    ] {
        let answer = guard.send(&doubtful.post("/early")).await;
        assert_refused(&answer, "in-doubt");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(answer.took() < OVER / 2, "not worth waiting for: {:?}", answer.took());
    }
    assert_eq!(guard.metrics().await.sum("fencegate_guard_in_doubt", &[]), 1.0);
    assert_eq!(fixture.origin.count("/early"), 0);
    let admitted = async {
        for g in 1.. {
            let answer = guard.send(&StampedRequest::new("a", 40).with_dispatch(g).post("/late")).await;
            if answer.status == 200 {
                return;
            }
            assert_refused(&answer, "in-doubt");
        }
    };
    wait_until("the doubt to be over", admitted, || guard.log()).await;
    let first = fixture.origin.wait_for_request("/late", 1).await.arrived;
    assert!(first >= last + OVER - Duration::from_millis(20), "{:?} too early", last + OVER - first);
}

/// A dispatch waits for a doubt that ends within `settle`.
#[tokio::test]
async fn doubt_within_settle_is_awaited() {
    let fixture = GuardFixture::new().await;
    let guard =
        fixture.launch().await.with("/max_execution", "1s").with("/upstream/response_timeout", "500ms");
    let guard = guard.with("/send_within", "500ms").start().await;
    fixture.origin.script("/broken", [OriginAction::CloseInBody(OriginReply::with_body("cut in two"))]);
    let broken = guard.send(&StampedRequest::new("a", 20).post("/broken")).await;
    assert_eq!((broken.status, broken.outcome()), (502, Some(FencingOutcome::Unknown)));
    let next = guard.send(&StampedRequest::new("a", 30).post("/next")).await;
    assert_eq!(next.status, 200);
    assert!(next.took() > QUIET, "did not wait: {:?}", next.took());
}

/// A shared dispatch in doubt closes its key to exclusive dispatches, and not to shared ones.
#[tokio::test]
async fn doubtful_read_blocks_writers_only() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "200ms").start().await;
    fixture.origin.script("/broken", [OriginAction::Reset]);
    guard.send(&StampedRequest::new("a", 20).shared().post("/broken")).await;
    assert_eq!(guard.send(&StampedRequest::new("a", 21).shared().post("/read")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/write")).await, "in-doubt");
}

/// A request to an upstream that cannot be reached leaves no doubt and no entry in the journal.
#[tokio::test]
async fn unreachable_upstream_leaves_no_doubt() {
    let fixture = GuardFixture::new().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let launch = fixture.launch().await;
    let guard = launch.clone().with("/upstream/endpoint", format!("http://{closed}")).start().await;
    let answer = guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    assert_eq!((answer.status, answer.outcome()), (502, Some(FencingOutcome::NotDispatched)));
    assert_eq!(answer.reason(), "upstream-connect");
    guard.stop().await;
    let guard = launch.start().await;
    let again = guard.send(&StampedRequest::new("a", 20).with_dispatch(2).once(1).post("/pay")).await;
    assert_eq!((again.status, fixture.origin.count("/pay")), (200, 1), "no entry was left in the journal");
}

/// A GET passes without a token, and a POST without one is refused as a bypass.
#[tokio::test]
async fn write_without_token_is_refused() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    assert_eq!(guard.send(&TestRequest::get("/balance")).await.status, 200);
    let bypass = guard.send(&TestRequest::post("/pay").field("Fencing-Key", "a")).await;
    assert_refused(&bypass, "token-missing");
    assert_eq!(bypass.status, 403);
    assert_eq!((fixture.origin.count("/pay"), guard.decision_count("bypass").await), (0, 1.0));
    let record = fixture.origin.wait_for_request("/balance", 1).await;
    assert!(record.request.fields.iter().all(|(name, _)| !name.to_lowercase().starts_with("fencing")));
}

/// A GET with a field that overrides its method or path needs a token, because the service may take it for a write.
#[tokio::test]
async fn method_override_on_read_needs_token() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    for (name, value) in [
        ("X-HTTP-Method-Override", "POST"),
        ("X_HTTP_Method", "DELETE"),
        ("X.Method.Override", "PUT"),
        ("X-Original-URL", "/pay"),
        ("X_Rewrite_Url", "/pay"),
    ] {
        let request = TestRequest::get("/balance").field(name, value).field("X-Request-Id", "who-was-it");
        let answer = guard.send(&request).await;
        assert_refused(&answer, "token-missing");
        assert_eq!(answer.status, 403, "{name}");
    }
    assert_eq!((fixture.origin.count("/balance"), guard.decision_count("bypass").await), (0, 5.0));
    let reported = |line: &fencegate_tests::gateway::LogLine| {
        line.message() == "guard.bypass"
            && line.field("peer").starts_with("127.0.0.1:")
            && (line.field("method"), line.field("path")) == ("GET", "/balance")
            && line.field("request_id") == "who-was-it"
    };
    guard.wait_line("who it was", reported).await;
}

/// The fencing fields in an upstream's answer are removed or replaced by the guard's own.
#[tokio::test]
async fn upstream_cannot_forge_guard_headers() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let lie = OriginReply::with_body("no")
        .status(412)
        .field("Fencing-Refusal", "stale")
        .trailer("Fencing_Outcome", "x");
    let lie = lie.field("Fencing-Outcome", "not-dispatched; reason=stale").field("fencing_refusal", "busy");
    fixture.origin.script("/lie", [OriginAction::now(lie.clone()), OriginAction::now(lie)]);
    for request in [StampedRequest::new("a", 20).post("/lie"), TestRequest::get("/lie")] {
        let answer = guard.send(&request).await;
        assert_eq!((answer.status, answer.field("fencing-outcome")), (412, Some("done")), "{answer:?}");
        assert!(answer.field("fencing-refusal").is_none() && answer.field("fencing_refusal").is_none());
        assert!(answer.trailers.is_empty(), "{answer:?}");
    }
}
