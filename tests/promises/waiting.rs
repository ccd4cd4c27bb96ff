//! The wait for a resource is bounded in time and in number, and a waiter that gives up leaves no trace.
//!
//! The time limit gives 423, and the queue limit 429. Requests are served in the order of their arrival.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    held_request::HeldRequest,
    history::History,
    site::TestSite,
};

/// A request whose wait is over gets 423 `locked` with `Retry-After`, and its lock node is gone.
#[tokio::test]
async fn expired_wait_removes_node() {
    let site = TestSite::alone().await;
    let one = site.gateway("gw-1").await;
    let two =
        Gateway::start(&site.policy_without_janitor("gw-2").with("/routes/0/fence/wait", "300ms")).await;
    let tree = site.tree().await;
    let holder = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;

    let answer = two.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (423, "locked"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    let after: u32 = answer.field("retry-after").expect("when to come back").parse().expect("seconds");
    assert!(after >= 1);
    assert!(answer.took() >= Duration::from_millis(300), "took only {:?}", answer.took());
    assert!(answer.took() < Duration::from_millis(900), "took {:?}", answer.took());
    tree.wait_waiters(0).await;
    assert!(answer.completed.elapsed() < Duration::from_secs(1), "took {:?}", answer.completed.elapsed());
    assert_eq!(holder.finish().await.status, 200);
    assert_eq!(site.origin.count("/pay/7"), 1);
}

#[tokio::test]
async fn client_can_only_lower_its_wait() {
    let site = TestSite::alone().await;
    let gateway = Gateway::start(&site.policy("gw-1").with("/routes/0/fence/wait", "1s")).await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    for (prefer, least, most) in [("wait=0", 0, 900), ("wait=60", 1000, 2000)] {
        let answer = gateway.send(&TestRequest::post("/pay/7").field("Prefer", prefer)).await;
        assert_eq!(answer.status, 423, "{prefer}");
        let took = answer.took();
        assert!(
            (Duration::from_millis(least)..Duration::from_millis(most)).contains(&took),
            "{prefer}: {took:?}"
        );
    }
    assert_eq!(holder.finish().await.status, 200);
}

/// A full queue refuses at once and serves the requests in it.
#[tokio::test]
async fn full_queue_refuses_and_serves_waiters() {
    let site = TestSite::alone().await;
    let gateway = Gateway::start(&site.policy("gw-1").with("/routes/0/fence/queue", 3)).await;
    let tree = site.tree().await;
    let HeldRequest { request: holder, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let waiting: Vec<_> = (0..3).map(|_| gateway.begin(TestRequest::post("/pay/7"))).collect();
    tree.wait_waiters(3).await;

    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (429, "queue-full"));
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(answer.field("retry-after").is_some());
    assert!(answer.took() < Duration::from_secs(1), "took {:?}", answer.took());
    assert_eq!(
        gateway.send(&TestRequest::post("/pay/8")).await.status,
        200,
        "another key has a queue of its own"
    );

    latch.release();
    for request in waiting.into_iter().chain([holder]) {
        assert_eq!(request.answer().await.status, 200);
    }
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "the places are free again");
    History::from_log(&site.origin.log()).assert_holds();
}

/// Requests for one resource are served in the order of their arrival, across gateways.
#[tokio::test]
async fn requests_served_in_arrival_order() {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let tree = site.tree().await;
    let latch = site.origin.hold("/pay/7");
    let mut asked = vec![one.begin(TestRequest::post("/pay/7").field("x-attempt", "0"))];
    site.origin.wait_for_request("/pay/7", 1).await;
    for n in 1..8 {
        let gateway = if n % 2 == 0 { &one } else { &two };
        asked.push(gateway.begin(TestRequest::post("/pay/7").field("x-attempt", &n.to_string())));
        tree.wait_waiters(n).await;
    }
    latch.release();
    for request in asked {
        assert_eq!(request.answer().await.status, 200);
    }
    let log = site.origin.log();
    let order: Vec<_> =
        log.requests_for("/pay/7").filter_map(|record| record.request.field("x-attempt")).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}
