//! An operation is executed at most once. A repeat gets the first answer, or a refusal while the operation runs or its
//! outcome is unknown.
//!
//! The tests cover replays, mismatches, operations in progress, unknown outcomes, retention, probes, and decisions of
//! operators.

use std::time::{Duration, Instant};

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    guard::{Guard, GuardFixture, StampedRequest, assert_refused, operation_reference},
    held_request::HeldRequest,
    origin::{OriginAction, OriginReply},
};
use serde_json::{Value, json};

fn created_reply() -> OriginReply {
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
    let request = TestRequest::post(&format!("/api/v1/operations/{operation}/resolve"))
        .field("Content-Type", "application/json")
        .body(json!({"outcome": outcome, "force": outcome == "not-done"}).to_string());
    request.send_to(guard.admin).await.expect("answered")
}

/// A repeated operation gets the first answer, also after a kill, and raises no watermark.
#[tokio::test]
async fn repeat_replays_first_answer() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    fixture.origin.script("/pay", [OriginAction::now(created_reply())]);
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
    assert_eq!(fixture.origin.count("/pay"), 1);
}

/// Another request, or another key, under the name of a known operation is refused.
#[tokio::test]
async fn other_request_under_name_is_refused() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    assert_eq!(guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await.status, 200);
    for other in
        [StampedRequest::new("a", 30).once(1).with_fingerprint(9), StampedRequest::new("b", 30).once(1)]
    {
        let answer = guard.send(&other.post("/pay")).await;
        assert_refused(&answer, "idempotency-mismatch");
        assert_eq!(answer.status, 422);
    }
    assert_eq!(fixture.origin.count("/pay"), 1);
}

/// A repeat waits up to `settle` for the running operation, and is refused as `in-progress` after that.
#[tokio::test]
async fn repeat_waits_for_running_operation() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "500ms").start().await;
    let HeldRequest { request: first, latch, .. } =
        fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).once(1).post("/pay")).await;
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
    assert_eq!(fixture.origin.count("/pay"), 1);
}

/// An answer that decides nothing leaves its operation unknown for every repeat; a final answer is replayed.
#[tokio::test]
async fn uncertain_answer_stays_unknown() {
    let fixture = GuardFixture::new().await;
    let guard =
        fixture.launch().await.with("/settle", "100ms").with("/journal/final", json!([501])).start().await;
    let failing = |status| OriginAction::now(OriginReply::with_body("no").status(status));
    fixture.origin.script("/a", [failing(500)]);
    fixture.origin.script("/b", [failing(501)]);
    fixture.origin.script("/c", [failing(404)]);
    fixture.origin.script("/d", [OriginAction::Reset]);
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
        assert_eq!(fixture.origin.count(&path), 1, "{path}");
    }
    let listed = guard.admin_json("/api/v1/operations").await;
    let open: Vec<_> = listed["operations"].as_array().expect("a list").iter().collect();
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

/// An answer that is too large to keep is replayed without its body.
#[tokio::test]
async fn large_answer_replays_without_body() {
    let fixture = GuardFixture::new().await;
    let launch = fixture.launch().await;
    let large = vec![b'x'; 3 << 20];
    for (operation, store, body) in [(1, "none", b"ok".to_vec()), (2, "64KiB", large)] {
        let guard = launch.clone().with("/journal/store_body", store).start().await;
        fixture.origin.script("/pay", [OriginAction::now(OriginReply::with_body(body.clone()).status(201))]);
        let first = guard.send(&StampedRequest::new("a", 20 + operation).once(operation).post("/pay")).await;
        assert_eq!(first.body, body);
        let again = guard.send(&StampedRequest::new("a", 30).once(operation).post("/pay")).await;
        assert_eq!((again.status, &again.body[..]), (201, &b""[..]));
        assert_eq!(again.field("fencing-outcome"), Some("replayed; body=omitted"));
        guard.stop().await;
    }
    assert_eq!(fixture.origin.count("/pay"), 2);
}

/// A finished operation is forgotten after its `keep` time, and an unknown one never.
#[tokio::test]
async fn only_finished_operations_are_forgotten() {
    const KEEP: Duration = Duration::from_secs(1);
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "100ms").start().await;
    fixture.origin.script("/unknown", [OriginAction::Reset]);
    guard.send(&StampedRequest::new("b", 20).once(2).keep(1).post("/unknown")).await;
    let began = Instant::now();
    let mut epoch = 20;
    while fixture.origin.count("/done") < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "kept: {}", guard.log());
        epoch += 1;
        guard.send(&StampedRequest::new("a", epoch).once(1).keep(1).post("/done")).await;
        // Forgetting causes no event. It happens every ten seconds.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() > KEEP);
    assert_unknown(&guard.send(&StampedRequest::new("b", 30).once(2).keep(1).post("/unknown")).await);
    assert_eq!(fixture.origin.count("/unknown"), 1);
}

fn start_probing_guard(fixture: &GuardFixture) -> impl Future<Output = Guard> {
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404], "closes": true});
    async move {
        let launch = fixture.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
        let launch = launch.with("/max_execution", "1s").with("/send_within", "300ms");
        launch.with("/upstream/response_timeout", "700ms").start().await
    }
}

fn status(status: u16) -> OriginAction {
    OriginAction::now(OriginReply::ok().status(status))
}

/// A probe that answers `done` is accepted at once, and opens the key.
#[tokio::test]
async fn probe_done_is_accepted_at_once() {
    let fixture = GuardFixture::new().await;
    let guard = start_probing_guard(&fixture).await;
    fixture.origin.script("/pay", [OriginAction::Reset]);
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    fixture.origin.script("/ops/op-1", [status(500), status(200)]);
    assert_unknown(&guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await);
    for epoch in [31, 32] {
        let done = guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await;
        assert_eq!(
            (done.status, done.reason().as_str(), done.outcome()),
            (409, "already-done", Some(FencingOutcome::Done))
        );
    }
    // The answer of the probe also opens the key.
    assert_eq!(guard.send(&StampedRequest::new("a", 40).post("/next")).await.status, 200);
    assert_eq!((fixture.origin.count("/pay"), fixture.origin.count("/ops/op-1")), (1, 2));
}

/// A final `not done` of the probe is accepted only when the request can no longer begin.
#[tokio::test]
async fn probe_not_done_waits_for_deadline() {
    let fixture = GuardFixture::new().await;
    let guard = start_probing_guard(&fixture).await;
    fixture.origin.script("/pay", [OriginAction::Reset, OriginAction::now(created_reply())]);
    // Every probe is answered with 404. A fast machine probes more than a thousand times.
    fixture.origin.set_default_action(status(404));
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    let last = fixture.origin.wait_for_request("/pay", 1).await.whole.expect("read");
    assert_unknown(&guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await);
    let mut epoch = 30;
    while fixture.origin.count("/pay") < 2 {
        assert!(last.elapsed() < Duration::from_secs(20), "{}", guard.log());
        epoch += 1;
        guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await;
    }
    let again = fixture.origin.wait_for_request("/pay", 2).await.arrived;
    assert!(again >= last + Duration::from_millis(980), "believed after {:?}", again - last);
    let replayed = guard.send(&StampedRequest::new("a", epoch + 1).once(1).post("/pay")).await;
    assert_eq!(replayed.outcome(), Some(FencingOutcome::Replayed));
}

/// A `not done` of a probe without `closes` decides nothing: the request may be in a queue, or in a process that stands
/// still, and arrive after the answer.
#[tokio::test]
async fn probe_without_closes_resolves_nothing() {
    let fixture = GuardFixture::new().await;
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404]});
    let launch = fixture.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
    let launch = launch.with("/max_execution", "1s").with("/send_within", "300ms");
    let guard = launch.with("/upstream/response_timeout", "700ms").start().await;
    fixture.origin.script("/pay", [OriginAction::Reset]);
    fixture.origin.set_default_action(status(404));
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    let last = fixture.origin.wait_for_request("/pay", 1).await.whole.expect("read");
    // By the times of the guard, which counts whole seconds, the request cannot run for longer than this.
    while last.elapsed() < Duration::from_millis(3500) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_unknown(&guard.send(&StampedRequest::new("a", 30).once(1).post("/pay")).await);
    assert_eq!(fixture.origin.count("/pay"), 1);
    assert_eq!(guard.send(&StampedRequest::new("a", 31).post("/next")).await.status, 404, "the key is open");
}

/// The guard probes the endpoint that got the request, and names the token up to which that endpoint has to close the
/// operation: another instance may have no trace of what the first one is about to do.
#[tokio::test]
async fn probe_goes_to_dispatched_endpoint() {
    let fixture = GuardFixture::new().await;
    let addresses =
        ["one", "two", "three"].map(|name| format!("http://{}", fixture.origin.open_listener(name)));
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404], "closes": true});
    let launch = fixture.launch().await.with("/journal/probe", probe).with("/settle", "100ms");
    let launch = launch.with("/upstream/endpoint", Value::Null).with("/upstream/endpoints", json!(addresses));
    let guard = launch.start().await;
    fixture.origin.script("/pay", [OriginAction::Reset]);
    fixture.origin.set_default_action(status(404));
    guard.send(&StampedRequest::new("a", 20).once(1).post("/pay")).await;
    for epoch in 30..36 {
        assert_unknown(&guard.send(&StampedRequest::new("a", epoch).once(1).post("/pay")).await);
    }
    let log = fixture.origin.log();
    let target = &log.requests_for("/pay").next().expect("it was sent").gateway;
    let probes: Vec<_> = log.requests_for("/ops/op-1").collect();
    assert!(probes.len() >= 6, "{}", probes.len());
    for one in probes {
        assert_eq!(
            (&one.gateway, one.token()),
            (target, Some(StampedRequest::new("a", 20).token())),
            "{one:?}"
        );
    }
}

/// An operator can record an unknown operation as done or as not done.
#[tokio::test]
async fn operator_resolves_unknown_operation() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "100ms").start().await;
    for (key, operation) in [("a", 1), ("b", 2), ("c", 3)] {
        let path = format!("/{key}");
        fixture.origin.script(&path, [OriginAction::Reset]);
        guard.send(&StampedRequest::new(key, 20).once(operation).post(&path)).await;
    }
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/next")).await, "in-doubt");
    assert_eq!(resolve(&guard, &operation_reference(1), "done").await.status, 200);
    assert_eq!(resolve(&guard, &operation_reference(2), "not-done").await.status, 200);
    assert_eq!(resolve(&guard, &operation_reference(9), "done").await.status, 404);
    assert_eq!(resolve(&guard, &operation_reference(3), "perhaps").await.status, 400);

    let repeat = guard.send(&StampedRequest::new("a", 31).once(1).post("/a")).await;
    assert_eq!((repeat.status, repeat.reason().as_str()), (409, "already-done"));
    assert_eq!(
        guard.send(&StampedRequest::new("a", 32).post("/next")).await.status,
        200,
        "the key is open again"
    );
    let guard = guard.stop().await.start().await;
    assert_eq!(guard.send(&StampedRequest::new("b", 31).once(2).post("/b")).await.status, 200);
    assert_unknown(&guard.send(&StampedRequest::new("c", 31).once(3).post("/c")).await);
    let counts = ["/a", "/b", "/c"].map(|path| fixture.origin.count(path));
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

/// An operator can open a key that is closed by a doubt. An execution that is no operation is named by its token.
#[tokio::test]
async fn operator_opens_key_in_doubt() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.launch().await.with("/settle", "100ms").start().await;
    fixture.origin.script("/a", [OriginAction::Reset]);
    guard.send(&StampedRequest::new("a, b", 20).post("/a")).await;
    let listed = guard.admin_json("/api/v1/operations").await;
    let token = StampedRequest::new("a", 20).token().to_string();
    assert_eq!(listed["operations"][0]["reference"], token.as_str());
    assert_eq!(listed["operations"][0]["kind"], "execution");
    assert_refused(&guard.send(&StampedRequest::new("b", 30).post("/next")).await, "in-doubt");
    assert_eq!(resolve(&guard, &token, "done").await.status, 200);
    assert_eq!(resolve(&guard, &token, "done").await.status, 404);
    assert_eq!(guard.send(&StampedRequest::new("b", 31).post("/next")).await.status, 200);
}
