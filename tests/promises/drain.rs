//! A gateway that is told to stop finishes what is in flight, refuses the rest, and leaves nothing behind.

use std::time::{Duration, Instant};

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::{Ask, Client, Outcome},
    patience::QUIET,
    site::Site,
};

#[tokio::test]
async fn sigterm_finishes_what_is_in_flight_and_leaves_no_node_behind() {
    let site = Site::fresh();
    let gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let latch = site.origin.holds("/pay/7");
    let in_flight = gateway.begin(Ask::post("/pay/7"));
    site.origin.request("/pay/7", 1).await;
    let waiting = gateway.begin(Ask::post("/pay/7"));
    tree.locks_become("a holder and a waiter", |locks| locks.len() == 2).await;
    let mut idle = Client::connect(gateway.public).await.expect("listens");
    assert_eq!(idle.send(&Ask::get("/x")).await.expect("answered").status, 200);

    gateway.signal(Signal::TERM);
    let refused = waiting.answer().await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "draining"));
    assert_eq!(refused.outcome(), Some(Outcome::NotDispatched));
    tokio::time::sleep(QUIET).await;
    assert!(!in_flight.is_over(), "given up instead of finished");
    let late = Ask::post("/pay/8").to(gateway.public).await;
    assert!(late.is_err() || late.is_ok_and(|answer| answer.reason() == "draining"), "took new work");
    latch.let_go();
    let finished = in_flight.answer().await;
    assert_eq!((finished.status, finished.outcome()), (200, Some(Outcome::Done)));

    assert_eq!(gateway.exit().await.code(), Some(0));
    assert_eq!(tree.locks().await, [""; 0]);
    let members: Vec<String> =
        tree.paths().await.into_iter().filter(|path| path.starts_with("/members/")).collect();
    assert_eq!(members, [""; 0]);
    assert_eq!(site.origin.log().records.len(), 2);
}

#[tokio::test]
async fn an_idle_gateway_stops_at_once() {
    let site = Site::fresh();
    let gateway = site.gateway("gw-1").await;
    let _idle = Client::connect(gateway.public).await.expect("listens");
    let told = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(2), "took {:?}", told.elapsed());
}
