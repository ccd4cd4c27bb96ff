//! An operation happens at most once, and whoever asks again gets the same answer, or is told that nobody knows.

use std::time::{Duration, Instant};

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    guard::{Guard, GuardFixture, StampedRequest, assert_refused, operation_reference},
    held_request::HeldRequest,
    origin::{Act, OriginReply},
};
use serde_json::{Value, json};

fn created() -> OriginReply {
    let reply = OriginReply::with_body(b"{\"id\": 7}\0\xff".as_slice()).status(201);
    let reply = reply.field("Content-Type", "application/json").field("Location", "/payments/7");
    reply.field("ETag", "\"e\"").field("Cache-Control", "no-store").field("Set-Cookie", "a=b")
}

fn assert_replayed(again: &ClientResponse, first: &ClientResponse) {
    assert_eq!(again.outcome(), Some(FencingOutcome::Replayed), "{again:?}");
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    for name in ["content-type", "location", "etag", "cache-control"] {
        assert_eq!(again.field(name), first.field(name), "{name}");
    }
}

fn assert_unknown(answer: &ClientResponse) {
    assert_refused(answer, "outcome-unknown");
    assert_eq!((answer.status, answer.outcome()), (409, Some(FencingOutcome::Unknown)));
}

async fn resolve(guard: &Guard, operation: &str, outcome: &str) -> ClientResponse {
    let ask = TestRequest::post(&format!("/api/v1/operations/{operation}/resolve"))
        .field("Content-Type", "application/json")
        .body(json!({"outcome": outcome, "force": outcome == "not-done"}).to_string());
    ask.send_to(guard.admin).await.expect("answered")
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_raises_nothing() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    beside.origin.script("/pay", [Act::now(created())]);
    let first = guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    assert_eq!(
        (first.status, first.outcome(), first.field("set-cookie")),
        (201, Some(FencingOutcome::Done), Some("a=b"))
    );
    let again = guard.send(&StampedRequest::new("a", 50).once(1).post("/pay")).await;
    assert_replayed(&again, &first);
    assert_eq!(again.field("set-cookie"), None);
    assert_replayed(&guard.send(&StampedRequest::new("a", 15).once(1).post("/pay")).await, &first);
    assert_eq!(
        guard.send(&StampedRequest::new("a", 40).post("/next")).await.status,
        200,
        "a replay raised the mark"
    );

    let guard = guard.kill().await.start().await;
    assert_replayed(&guard.send(&StampedRequest::new("a", 60).once(1).post("/pay")).await, &first);
    assert_eq!(beside.origin.count("/pay"), 1);
}

#[tokio::test]
async fn another_request_under_the_same_name_is_refused() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await.status, 200);
    for other in
        [StampedRequest::new("a", 30).once(1).with_fingerprint(9), StampedRequest::new("b", 30).once(1)]
    {
        let answer = guard.send(&other.post("/pay")).await;
        assert_refused(&answer, "idempotency-mismatch");
        assert_eq!(answer.status, 422);
    }
    assert_eq!(beside.origin.count("/pay"), 1);
}

#[tokio::test]
async fn a_repeat_waits_for_the_running_one_or_is_told_that_it_runs() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "500ms").start().await;
    let HeldRequest { request: first, latch, .. } =
        beside.origin.hold_request(&guard, StampedRequest::new("a", 20).once(1).post("/pay")).await;
    let early = guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await;
    assert_refused(&early, "in-progress");
    assert_eq!((early.status, early.field("retry-after")), (409, Some("1")));

    let waiting: Vec<_> =
        (0..4).map(|n| guard.begin(StampedRequest::new("a", 40 + n).once(1).post("/pay"))).collect();
    latch.release();
    let first = first.answer().await;
    for waiting in waiting {
        assert_replayed(&waiting.answer().await, &first);
    }
    assert_eq!(beside.origin.count("/pay"), 1);
}

#[tokio::test]
async fn an_answer_that_says_nothing_for_certain_is_told_as_unknown_for_ever() {
    let beside = GuardFixture::new().await;
    let guard =
        beside.launch().await.with("/settle", "100ms").with("/journal/final", json!([501])).start().await;
    let failing = |status| Act::now(OriginReply::with_body("no").status(status));
    beside.origin.script("/a", [failing(500)]);
    beside.origin.script("/b", [failing(501)]);
    beside.origin.script("/c", [failing(404)]);
    beside.origin.script("/d", [Act::Reset]);
    for (key, operation, again) in [("a", 1, None), ("b", 2, Some(501)), ("c", 3, Some(404)), ("d", 4, None)]
    {
        let path = format!("/{key}");
        let first = guard.send(&StampedRequest::new(key, 20).once(operation).post(&path)).await;
        for epoch in [30, 40] {
            let repeat = guard.send(&StampedRequest::new(key, epoch).once(operation).post(&path)).await;
            match again {
                Some(_) => assert_replayed(&repeat, &first),
                None => assert_unknown(&repeat),
            }
        }
        assert_eq!(beside.origin.count(&path), 1, "{path}");
    }
    let told = guard.admin_json("/api/v1/operations").await;
    let open: Vec<_> = told["operations"].as_array().expect("a list").iter().collect();
    let expected = json!({
        "reference": operation_reference(4), "kind": "operation", "keys": ["d"], "method": "POST",
        "target": "/d", "idempotency_key": "\"op-4\"", "token": StampedRequest::new("d", 20).token().to_string(),
    });
    let of_reset = open.iter().find(|open| open["reference"] == expected["reference"]).expect("listed");
    for (member, value) in expected.as_object().expect("an object") {
        assert_eq!(&of_reset[member], value);
    }
    assert!(of_reset["closes_key_for_ms"].as_u64().expect("in doubt") > 1000);
    assert_eq!(open.len(), 2, "{open:?}");
}

#[tokio::test]
async fn an_answer_too_large_to_keep_is_replayed_without_its_body() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await;
    let large = vec![b'x'; 3 << 20];
    for (operation, store, body) in [(1, "none", b"ok".to_vec()), (2, "64KiB", large)] {
        let guard = launch.clone().with("/journal/store_body", store).start().await;
        beside.origin.script("/pay", [Act::now(OriginReply::with_body(body.clone()).status(201))]);
        let first = guard.send(&StampedRequest::new("a", 20 + operation).once(operation).post("/pay")).await;
        assert_eq!(first.body, body);
        let again = guard.send(&StampedRequest::new("a", 30).once(operation).post("/pay")).await;
        assert_eq!((again.status, &again.body[..]), (201, &b""[..]));
        assert_eq!(again.field("fencing-outcome"), Some("replayed; body=omitted"));
        guard.stop().await;
    }
    assert_eq!(beside.origin.count("/pay"), 2);
}

#[tokio::test]
async fn a_finished_operation_is_forgotten_in_time_and_an_unknown_one_never() {
    const KEEP: Duration = Duration::from_secs(1);
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "100ms").start().await;
    beside.origin.script("/unknown", [Act::Reset]);
    guard.send(&StampedRequest::new("b", 20).once(2).keep(1).post("/unknown")).await;
    let began = Instant::now();
    let mut epoch = 20;
    while beside.origin.count("/done") < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "kept: {}", guard.log());
        epoch += 1;
        guard.send(&StampedRequest::new("a", epoch).once(1).keep(1).post("/done")).await;
        // Forgetting causes no event. It happens every ten seconds.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() > KEEP);
    assert_unknown(&guard.send(&StampedRequest::new("b", 30).once(2).keep(1).post("/unknown")).await);
    assert_eq!(beside.origin.count("/unknown"), 1);
}

fn probing(beside: &GuardFixture) -> impl Future<Output = Guard> {
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404], "closes": true});
    async move {
        let launch = beside.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
        let launch = launch.with("/max_execution", "1s").with("/send_within", "300ms");
        launch.with("/upstream/response_timeout", "700ms").start().await
    }
}

fn status(status: u16) -> Act {
    Act::now(OriginReply::ok().status(status))
}

#[tokio::test]
async fn an_upstream_that_says_done_is_believed_at_once() {
    let beside = GuardFixture::new().await;
    let guard = probing(&beside).await;
    beside.origin.script("/pay", [Act::Reset]);
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    beside.origin.script("/ops/op-1", [status(500), status(200)]);
    assert_unknown(&guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await);
    for epoch in [31, 32] {
        let done = guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await;
        assert_eq!(
            (done.status, done.reason().as_str(), done.outcome()),
            (409, "already-done", Some(FencingOutcome::Done))
        );
    }
    // The word of the upstream also opens the key.
    assert_eq!(guard.send(&StampedRequest::new("a", 40).post("/next")).await.status, 200);
    assert_eq!((beside.origin.count("/pay"), beside.origin.count("/ops/op-1")), (1, 2));
}

#[tokio::test]
async fn an_upstream_that_says_not_done_is_believed_when_nothing_can_begin_any_more() {
    let beside = GuardFixture::new().await;
    let guard = probing(&beside).await;
    beside.origin.script("/pay", [Act::Reset, Act::now(created())]);
    // The answer to every probe. A fast machine asks more than a thousand times.
    beside.origin.set_default_action(status(404));
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    let last = beside.origin.request("/pay", 1).await.whole.expect("read");
    assert_unknown(&guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await);
    let mut epoch = 30;
    while beside.origin.count("/pay") < 2 {
        assert!(last.elapsed() < Duration::from_secs(20), "{}", guard.log());
        epoch += 1;
        guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await;
    }
    let again = beside.origin.request("/pay", 2).await.arrived;
    assert!(again >= last + Duration::from_millis(980), "believed after {:?}", again - last);
    let replayed = guard.send(&StampedRequest::new("a", epoch + 1).once(1).post("/pay")).await;
    assert_eq!(replayed.outcome(), Some(FencingOutcome::Replayed));
}

/// The request may be in a queue, or in a process that stands still, and arrive after the answer.
#[tokio::test]
async fn a_no_of_an_upstream_that_does_not_close_the_name_decides_nothing() {
    let beside = GuardFixture::new().await;
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404]});
    let launch = beside.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
    let launch = launch.with("/max_execution", "1s").with("/send_within", "300ms");
    let guard = launch.with("/upstream/response_timeout", "700ms").start().await;
    beside.origin.script("/pay", [Act::Reset]);
    beside.origin.set_default_action(status(404));
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    let last = beside.origin.request("/pay", 1).await.whole.expect("read");
    // Longer than anything can run, by the times of the guard. Whole seconds are counted.
    while last.elapsed() < Duration::from_millis(3500) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_unknown(&guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await);
    assert_eq!(beside.origin.count("/pay"), 1);
    assert_eq!(guard.send(&StampedRequest::new("a", 31).post("/next")).await.status, 404, "the key is open");
}

/// The instance beside it may know nothing of what the first one is about to do.
#[tokio::test]
async fn an_upstream_is_asked_where_the_request_went_and_told_up_to_which_token_it_has_to_close_the_name() {
    let beside = GuardFixture::new().await;
    let doors = ["one", "two", "three"].map(|name| format!("http://{}", beside.origin.door(name)));
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404], "closes": true});
    let launch = beside.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
    let launch = launch.with("/upstream/endpoint", Value::Null).with("/upstream/endpoints", json!(doors));
    let guard = launch.start().await;
    beside.origin.script("/pay", [Act::Reset]);
    beside.origin.set_default_action(status(404));
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    for epoch in 30..36 {
        assert_unknown(&guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await);
    }
    let log = beside.origin.log();
    let went = &log.on("/pay").next().expect("it was sent").gateway;
    let asked: Vec<_> = log.on("/ops/op-1").collect();
    assert!(asked.len() >= 6, "{}", asked.len());
    for one in asked {
        assert_eq!(
            (&one.gateway, one.token()),
            (went, Some(StampedRequest::new("a", 20).token())),
            "{one:?}"
        );
    }
}

#[tokio::test]
async fn an_operator_can_say_what_came_of_it() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "100ms").start().await;
    for (key, operation) in [("a", 1), ("b", 2), ("c", 3)] {
        let path = format!("/{key}");
        beside.origin.script(&path, [Act::Reset]);
        guard.send(&StampedRequest::new(key, 20).once(operation).post(&path)).await;
    }
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/next")).await, "in-doubt");
    assert_eq!(resolve(&guard, &operation_reference(1), "done").await.status, 200);
    assert_eq!(resolve(&guard, &operation_reference(2), "not-done").await.status, 200);
    assert_eq!(resolve(&guard, &operation_reference(9), "done").await.status, 404);
    assert_eq!(resolve(&guard, &operation_reference(3), "perhaps").await.status, 400);

    let told = guard.send(&StampedRequest::new("a", 31).once(1).post("/a")).await;
    assert_eq!((told.status, told.reason().as_str()), (409, "already-done"));
    assert_eq!(
        guard.send(&StampedRequest::new("a", 32).post("/next")).await.status,
        200,
        "the key is open again"
    );
    let guard = guard.stop().await.start().await;
    assert_eq!(guard.send(&StampedRequest::new("b", 31).once(2).post("/b")).await.status, 200);
    assert_unknown(&guard.send(&StampedRequest::new("c", 31).once(3).post("/c")).await);
    let counts = ["/a", "/b", "/c"].map(|path| beside.origin.count(path));
    assert_eq!(counts, [1, 2, 1]);

    let forget = |operation| {
        TestRequest::post(&format!("/api/v1/operations/{}/forget", operation_reference(operation)))
    };
    assert_eq!(
        forget(3).send_to(guard.admin).await.expect("answered").status,
        404,
        "unknown is never forgotten"
    );
    assert_eq!(forget(2).send_to(guard.admin).await.expect("answered").status, 200);
    assert_eq!(
        guard.send(&StampedRequest::new("b", 40).once(2).post("/b")).await.outcome(),
        Some(FencingOutcome::Done)
    );
}

/// An execution that is no operation has a name as well: its token.
#[tokio::test]
async fn an_operator_can_open_a_key_that_a_doubt_has_closed() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "100ms").start().await;
    beside.origin.script("/a", [Act::Reset]);
    guard.send(&StampedRequest::new("a, b", 20).post("/a")).await;
    let told = guard.admin_json("/api/v1/operations").await;
    let token = StampedRequest::new("a", 20).token().to_string();
    assert_eq!(told["operations"][0]["reference"], token.as_str());
    assert_eq!(told["operations"][0]["kind"], "execution");
    assert_refused(&guard.send(&StampedRequest::new("b", 30).post("/next")).await, "in-doubt");
    assert_eq!(resolve(&guard, &token, "done").await.status, 200);
    assert_eq!(resolve(&guard, &token, "done").await.status, 404);
    assert_eq!(guard.send(&StampedRequest::new("b", 31).post("/next")).await.status, 200);
}
