//! Beside an upstream that compares no tokens, the guard lets one tenure at a time through, the newest.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    guard::{FLOOR, GuardFixture, StampedRequest, assert_refused},
    history::History,
    origin::{Act, OriginReply},
    wait::{QUIET, wait_until},
};

#[tokio::test]
async fn a_newer_tenure_waits_for_the_older_execution_and_then_runs_alone() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;

    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(beside.origin.count("/new"), 0, "two at once");
    assert_eq!((old.finish().await.status, new.answer().await.status), (200, 200));
    History::from_log(&beside.origin.log()).assert_holds();
}

#[tokio::test]
async fn what_is_older_than_the_newest_announced_never_reaches_the_upstream() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    // Announced, and still waiting: the older tenure is over all the same.
    guard.wait_watermark("a", 30).await;
    assert_refused(&guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/stale")).await, "stale");
    old.finish().await;
    assert_eq!(new.answer().await.status, 200);
    let stale = guard.send(&StampedRequest::new("a", 29).post("/stale")).await;
    assert_refused(&stale, "stale");
    assert_eq!((stale.status, stale.outcome()), (412, Some(FencingOutcome::NotDispatched)));
    assert_refused(&guard.send(&StampedRequest::new("b", FLOOR).post("/stale")).await, "floor");
    assert_eq!(beside.origin.count("/stale"), 0);
    assert_eq!(guard.decision_count("stale").await, 2.0);
}

#[tokio::test]
async fn who_waits_is_told_at_once_that_a_newer_one_has_come() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let overtaken = guard.begin(StampedRequest::new("a", 30).post("/overtaken"));
    guard.wait_watermark("a", 30).await;
    let newest = guard.begin(StampedRequest::new("a", 40).post("/newest"));
    assert_refused(&overtaken.answer().await, "stale");
    assert_eq!((old.finish().await.status, newest.answer().await.status), (200, 200));
    assert_eq!(beside.origin.count("/overtaken"), 0);
}

#[tokio::test]
async fn who_cannot_wait_longer_is_told_busy_and_tries_again_with_its_next_token() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "200ms").start().await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let busy = guard.send(&StampedRequest::new("a", 30).post("/new")).await;
    assert_refused(&busy, "busy");
    assert_eq!((busy.status, busy.outcome()), (503, Some(FencingOutcome::NotDispatched)));
    assert!(busy.field("retry-after").is_some());
    old.finish().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/new")).await, "duplicate");
    assert_eq!(beside.origin.count("/new"), 0, "whoever was told `busy` was never executed");
    assert_eq!(guard.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/new")).await.status, 200);
}

/// A hop between gateway and guard that retries sends the same token twice.
#[tokio::test]
async fn a_dispatch_that_comes_twice_is_executed_once_and_its_twin_told_unknown() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    beside.origin.set_work_time(Duration::from_millis(20));
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
    assert_eq!((done, beside.origin.count("/pay")), (1, 1));
    assert_eq!(guard.send(&StampedRequest::new("a", 20).with_dispatch(2).post("/pay")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 20).post("/pay")).await, "duplicate");
}

/// A guard does not compare the dispatches of one shared tenure, so only an exclusive one is told from its twin.
#[tokio::test]
async fn a_shared_dispatch_that_comes_twice_is_executed_twice_and_never_beside_or_after_a_newer_exclusive_one()
 {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    for _ in 0..2 {
        assert_eq!(guard.send(&StampedRequest::new("a", 20).shared().post("/read")).await.status, 200);
    }
    assert_eq!(beside.origin.count("/read"), 2);
    assert_eq!(guard.send(&StampedRequest::new("a", 30).post("/pay")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 20).shared().post("/read")).await, "stale");
    assert_eq!(beside.origin.count("/read"), 2);
}

#[tokio::test]
async fn a_gateway_that_is_gone_keeps_its_key_until_the_upstream_has_answered() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let latch = beside.origin.hold("/old");
    let mut gateway = RawClient::connect(guard.public).await.expect("listens");
    let token = StampedRequest::new("a", 20).token();
    gateway
        .send(format!(
            "POST /old HTTP/1.1\r\nHost: a\r\nFencing-Token: {token}\r\nFencing-Key: a\r\n\
             Fencing-Mode: exclusive\r\nContent-Length: 2\r\n\r\nhi"
        ))
        .await
        .expect("connected");
    beside.origin.request("/old", 1).await;
    gateway.reset().expect("still connected");

    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(
        beside.origin.count("/new"),
        0,
        "admitted while the upstream worked for a gateway that is gone"
    );
    assert!(beside.origin.log().records[0].abandoned.is_none(), "the upstream was hung up on");
    latch.release();
    assert_eq!(new.answer().await.status, 200);
    History::from_log(&beside.origin.log()).assert_holds();
}

#[tokio::test]
async fn a_waiting_gateway_that_is_gone_is_not_executed() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let gone = guard.begin(StampedRequest::new("a", 30).post("/gone"));
    guard.wait_watermark("a", 30).await;
    gone.hang_up();
    guard.wait_decisions("busy", 1.0).await;
    old.finish().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 30).with_dispatch(2).post("/new")).await.status, 200);
    assert_eq!(beside.origin.count("/gone"), 0);
}

#[tokio::test]
async fn a_set_of_keys_is_let_in_whole_or_raises_nothing() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    assert_eq!(guard.send(&StampedRequest::new("b", 50).post("/b")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a, b, c", 40).post("/stale")).await, "stale");
    assert_eq!(
        guard.send(&StampedRequest::new("a", 30).post("/a")).await.status,
        200,
        "the refused set raised `a`"
    );

    let c = beside.origin.hold_request(&guard, StampedRequest::new("c", 60).post("/c")).await;
    let set = guard.begin(StampedRequest::new("a, b, c", 70).post("/set"));
    guard.wait_watermark("a", 70).await;
    assert_refused(&guard.send(&StampedRequest::new("a", 65).post("/stale")).await, "stale");
    tokio::time::sleep(QUIET).await;
    assert_eq!(beside.origin.count("/set"), 0, "one of its keys is busy");
    assert_eq!((c.finish().await.status, set.answer().await.status), (200, 200));
    assert_eq!(beside.origin.count("/stale"), 0);
}

#[tokio::test]
async fn readers_run_beside_each_other_and_a_writer_alone() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let (one, two) = (beside.origin.hold("/one"), beside.origin.hold("/two"));
    let first = guard.begin(StampedRequest::new("a", 22).shared().post("/one"));
    beside.origin.request("/one", 1).await;
    let second = guard.begin(StampedRequest::new("a", 21).shared().post("/two"));
    beside.origin.request("/two", 1).await;
    assert_refused(&guard.send(&StampedRequest::new("a", 22).post("/stale")).await, "stale");

    let writer = guard.begin(StampedRequest::new("a", 30).post("/write"));
    guard.wait_watermark("a", 30).await;
    one.release();
    first.answer().await;
    assert_refused(&guard.send(&StampedRequest::new("a", 25).shared().post("/stale")).await, "stale");
    tokio::time::sleep(QUIET).await;
    assert_eq!(beside.origin.count("/write"), 0, "beside a reader");
    two.release();
    second.answer().await;
    assert_eq!(writer.answer().await.status, 200);
    assert_eq!(guard.send(&StampedRequest::new("a", 40).shared().post("/three")).await.status, 200);
    assert_eq!(beside.origin.count("/stale"), 0);
    History::from_log(&beside.origin.log()).assert_holds();
}

#[tokio::test]
async fn an_execution_that_broke_off_closes_its_key_until_it_counts_as_over() {
    const OVER: Duration = Duration::from_secs(4);
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "300ms").with("/max_execution", "4s");
    let guard = guard.with("/upstream/response_timeout", "1s").with("/send_within", "1s").start().await;
    beside.origin.script("/broken", [Act::Reset]);
    let broken = guard.send(&StampedRequest::new("a", 20).post("/broken")).await;
    assert_eq!((broken.status, broken.outcome()), (502, Some(FencingOutcome::Unknown)));
    let last = beside.origin.log().records[0].whole.expect("read");

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
    assert_eq!(beside.origin.count("/early"), 0);
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
    let first = beside.origin.request("/late", 1).await.arrived;
    assert!(first >= last + OVER - Duration::from_millis(20), "{:?} too early", last + OVER - first);
}

#[tokio::test]
async fn a_doubt_that_ends_within_settle_is_waited_for() {
    let beside = GuardFixture::new().await;
    let guard =
        beside.launch().await.with("/max_execution", "1s").with("/upstream/response_timeout", "500ms");
    let guard = guard.with("/send_within", "500ms").start().await;
    beside.origin.script("/broken", [Act::CloseInBody(OriginReply::with_body("cut in two"))]);
    let broken = guard.send(&StampedRequest::new("a", 20).post("/broken")).await;
    assert_eq!((broken.status, broken.outcome()), (502, Some(FencingOutcome::Unknown)));
    let next = guard.send(&StampedRequest::new("a", 30).post("/next")).await;
    assert_eq!(next.status, 200);
    assert!(next.took() > QUIET, "did not wait: {:?}", next.took());
}

#[tokio::test]
async fn a_doubtful_read_is_in_no_readers_way_but_in_a_writers() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "200ms").start().await;
    beside.origin.script("/broken", [Act::Reset]);
    guard.send(&StampedRequest::new("a", 20).shared().post("/broken")).await;
    assert_eq!(guard.send(&StampedRequest::new("a", 21).shared().post("/read")).await.status, 200);
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/write")).await, "in-doubt");
}

#[tokio::test]
async fn an_upstream_that_is_not_reached_leaves_no_doubt() {
    let beside = GuardFixture::new().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let launch = beside.launch().await;
    let guard = launch.clone().with("/upstream/endpoint", format!("http://{closed}")).start().await;
    let answer = guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    assert_eq!((answer.status, answer.outcome()), (502, Some(FencingOutcome::NotDispatched)));
    assert_eq!(answer.reason(), "upstream-connect");
    guard.stop().await;
    let guard = launch.start().await;
    let again = guard.send(&StampedRequest::new("a", 20).with_dispatch(2).once(1).post("/pay")).await;
    assert_eq!((again.status, beside.origin.count("/pay")), (200, 1), "no entry was left in the journal");
}

#[tokio::test]
async fn readers_pass_without_a_token_and_writers_do_not() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    assert_eq!(guard.send(&TestRequest::get("/balance")).await.status, 200);
    let bypass = guard.send(&TestRequest::post("/pay").field("Fencing-Key", "a")).await;
    assert_refused(&bypass, "token-missing");
    assert_eq!(bypass.status, 403);
    assert_eq!((beside.origin.count("/pay"), guard.decision_count("bypass").await), (0, 1.0));
    let record = beside.origin.request("/balance", 1).await;
    assert!(record.request.fields.iter().all(|(name, _)| !name.to_lowercase().starts_with("fencing")));
}

/// To the service it may be another method, or another path.
#[tokio::test]
async fn a_reader_that_says_it_is_a_writer_needs_a_token() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    for (name, value) in [
        ("X-HTTP-Method-Override", "POST"),
        ("X_HTTP_Method", "DELETE"),
        ("X.Method.Override", "PUT"),
        ("X-Original-URL", "/pay"),
        ("X_Rewrite_Url", "/pay"),
    ] {
        let ask = TestRequest::get("/balance").field(name, value).field("X-Request-Id", "who-was-it");
        let answer = guard.send(&ask).await;
        assert_refused(&answer, "token-missing");
        assert_eq!(answer.status, 403, "{name}");
    }
    assert_eq!((beside.origin.count("/balance"), guard.decision_count("bypass").await), (0, 5.0));
    let told = |line: &fencegate_tests::gateway::LogLine| {
        line.message() == "guard.bypass"
            && line.field("peer").starts_with("127.0.0.1:")
            && (line.field("method"), line.field("path")) == ("GET", "/balance")
            && line.field("request_id") == "who-was-it"
    };
    guard.wait_line("who it was", told).await;
}

#[tokio::test]
async fn an_upstream_cannot_speak_for_the_guard() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let lie = OriginReply::with_body("no")
        .status(412)
        .field("Fencing-Refusal", "stale")
        .trailer("Fencing_Outcome", "x");
    let lie = lie.field("Fencing-Outcome", "not-dispatched; reason=stale").field("fencing_refusal", "busy");
    beside.origin.script("/lie", [Act::now(lie.clone()), Act::now(lie)]);
    for ask in [StampedRequest::new("a", 20).post("/lie"), TestRequest::get("/lie")] {
        let answer = guard.send(&ask).await;
        assert_eq!((answer.status, answer.field("fencing-outcome")), (412, Some("done")), "{answer:?}");
        assert!(answer.field("fencing-refusal").is_none() && answer.field("fencing_refusal").is_none());
        assert!(answer.trailers.is_empty(), "{answer:?}");
    }
}
