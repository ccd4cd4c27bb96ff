//! However an answer comes, or whatever breaks on its way: the key is free exactly when the upstream is done.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    guard::{GuardFixture, StampedRequest, assert_refused},
    history::History,
    origin::{Act, Latch, OriginReply},
    wait::QUIET,
};

const LARGE: usize = 3 << 20;

#[tokio::test]
async fn a_large_answer_keeps_the_key_until_the_upstream_has_sent_it_all() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    let latch = Latch::default();
    beside.origin.script("/large", [Act::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; LARGE]))]);
    let mut gateway = RawClient::connect(guard.public).await.expect("listens");
    let token = StampedRequest::new("a", 20).token();
    let head = format!("Host: a\r\nFencing-Token: {token}\r\nFencing-Key: a\r\nFencing-Mode: exclusive\r\n");
    gateway.send(format!("POST /large HTTP/1.1\r\n{head}\r\n")).await.expect("connected");
    assert!(gateway.read_head().await.expect("a head").start.contains("200"));
    gateway.reset().expect("still connected");

    let next = guard.begin(StampedRequest::new("a", 30).post("/next"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(beside.origin.count("/next"), 0, "while the upstream was sending");
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    History::from_log(&beside.origin.log()).assert_holds();
}

#[tokio::test]
async fn a_gateway_that_takes_no_answer_does_not_keep_the_key() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/upstream/response_body_idle", "500ms");
    let launch = launch.with("/max_execution", "2s").with("/send_within", "1s");
    let guard = launch.with("/upstream/response_timeout", "1s").start().await;
    beside.origin.script("/large", [Act::now(OriginReply::with_body(vec![7; 32 << 20]))]);
    let mut gateway = RawClient::connect_narrow(guard.public).await.expect("listens");
    let token = StampedRequest::new("a", 20).token();
    let head = format!("Host: a\r\nFencing-Token: {token}\r\nFencing-Key: a\r\nFencing-Mode: exclusive\r\n");
    gateway.send(format!("POST /large HTTP/1.1\r\n{head}\r\n")).await.expect("connected");
    beside.origin.request("/large", 1).await;
    assert_eq!(guard.send(&StampedRequest::new("a", 30).post("/next")).await.status, 200);
    drop(gateway);
}

/// The guard stops waiting, and the upstream may go on. The guard therefore logs the doubt.
#[tokio::test]
async fn an_answer_that_stops_coming_is_said_to_be_in_doubt() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/upstream/response_body_idle", "300ms").start().await;
    let latch = Latch::default();
    beside.origin.script("/large", [Act::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; LARGE]))]);
    let asked = guard.begin(StampedRequest::new("a", 20).post("/large"));
    guard.wait_line("the doubt", |line| line.message() == "guard.in_doubt").await;
    latch.release();
    drop(asked);
}

#[tokio::test]
async fn an_answer_without_a_body_frees_the_key() {
    let beside = GuardFixture::new().await;
    let guard = beside.guard().await;
    beside.origin.set_default_action(Act::now(OriginReply::with_body("")));
    for (epoch, method) in [(20, "HEAD"), (30, "GET"), (40, "DELETE"), (50, "PUT")] {
        let ask = StampedRequest::new("a", epoch).apply_to(TestRequest::with_method(method, "/x"));
        assert_eq!(guard.send(&ask).await.status, 200, "{method}");
    }
    beside.origin.script("/x", [Act::AnswerAndClose(OriginReply::ok().status(204))]);
    for (epoch, status) in [(60, 204), (70, 200)] {
        assert_eq!(guard.send(&StampedRequest::new("a", epoch).post("/x")).await.status, status);
    }
    History::from_log(&beside.origin.log()).assert_holds();
}

/// Nobody knows what a task has done that panicked; everything else goes on.
#[tokio::test]
async fn a_dispatch_whose_task_panics_is_in_doubt() {
    let beside = GuardFixture::new().await;
    let launch = beside.launch().await.with("/settle", "100ms");
    let guard = launch.failpoint("guard_admitted", "1*panic").start().await;
    let lost = guard.send(&StampedRequest::new("a", 20).once(1).post("/x")).await;
    assert_eq!((lost.status, lost.outcome()), (502, Some(FencingOutcome::Unknown)));
    assert_refused(&guard.send(&StampedRequest::new("a", 30).post("/x")).await, "in-doubt");
    assert_refused(&guard.send(&StampedRequest::new("a", 31).once(1).post("/x")).await, "outcome-unknown");
    assert_eq!(guard.send(&StampedRequest::new("b", 30).post("/y")).await.status, 200);
    assert_eq!(beside.origin.count("/x"), 0);
    guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_connection_that_panics_before_a_byte_was_written_has_sent_nothing() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.failpoint("before_upstream_write", "1*panic").start().await;
    let lost = guard.send(&StampedRequest::new("a", 20).once(1).post("/x")).await;
    assert_eq!((lost.status, lost.outcome()), (502, Some(FencingOutcome::NotDispatched)));
    let again = guard.send(&StampedRequest::new("a", 20).with_dispatch(2).once(1).post("/x")).await;
    assert_eq!((again.status, beside.origin.count("/x")), (200, 1));
}

/// The pool keeps connections; what one tenure has left on one must not reach another.
#[tokio::test]
async fn connections_to_the_upstream_are_used_again_only_after_a_complete_exchange() {
    let beside = GuardFixture::new().await;
    let guard = beside.launch().await.with("/settle", "100ms").start().await;
    beside.origin.set_work_time(Duration::from_millis(1));
    for epoch in 20..40 {
        assert_eq!(guard.send(&StampedRequest::new("a", epoch).post("/x")).await.status, 200);
    }
    beside.origin.script("/x", [Act::CloseInBody(OriginReply::with_body("cut in two"))]);
    assert_eq!(
        guard.send(&StampedRequest::new("a", 50).post("/x")).await.outcome(),
        Some(FencingOutcome::Unknown)
    );
    assert_eq!(guard.send(&StampedRequest::new("b", 60).post("/y")).await.status, 200);
    let log = beside.origin.log();
    let connections: std::collections::BTreeSet<_> =
        log.records.iter().map(|record| record.connection).collect();
    assert!(connections.len() < 10, "{} connections", connections.len());
    let broken = log.on("/x").last().expect("the broken one").connection;
    assert!(log.on("/y").all(|record| record.connection != broken));
}
