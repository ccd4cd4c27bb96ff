//! A client that goes away neither frees a resource that is being worked on nor leaves its place in the queue taken.

use std::time::{Duration, Instant};

use fencegate_tests::{
    client::{RawClient, TestRequest},
    gateway::Gateway,
    history::History,
    site::TestSite,
    wait::QUIET,
};

/// How a client goes.
#[derive(Debug, Clone, Copy)]
enum CloseKind {
    /// FIN, as a closed browser tab or a deadline in the caller does it.
    Politely,
    /// RST, as a killed process does it.
    WithReset,
}

async fn client(gateway: &Gateway) -> RawClient {
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    client.send("POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await.expect("connected");
    client
}

fn leave(client: RawClient, way: CloseKind) {
    match way {
        CloseKind::Politely => drop(client),
        CloseKind::WithReset => client.reset().expect("still connected"),
    }
}

async fn a_client_goes_in_flight(way: CloseKind) {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let latch = site.origin.hold("/pay/7");
    let gone = client(&one).await;
    site.origin.request("/pay/7", 1).await;

    leave(gone, way);
    let next = two.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "{way:?}: the next began while the upstream worked");
    assert!(site.origin.log().records[0].abandoned.is_none(), "{way:?}: the upstream was hung up on");
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 2);
}

#[tokio::test]
async fn a_client_that_hangs_up_in_flight_frees_nothing_before_the_upstream_answered() {
    a_client_goes_in_flight(CloseKind::Politely).await;
}

#[tokio::test]
async fn a_client_that_resets_in_flight_frees_nothing_before_the_upstream_answered() {
    a_client_goes_in_flight(CloseKind::WithReset).await;
}

async fn a_client_goes_while_waiting(way: CloseKind) {
    let site = TestSite::alone().await;
    let one = Gateway::start(&site.policy_without_janitor("gw-1")).await;
    let two = Gateway::start(&site.policy_without_janitor("gw-2")).await;
    let tree = site.tree().await;
    let holder = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let waiter = client(&two).await;
    tree.wait_waiters(1).await;

    let left = Instant::now();
    leave(waiter, way);
    tree.wait_waiters(0).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{way:?}: took {:?}", left.elapsed());
    assert_eq!(holder.finish().await.status, 200);
    tree.assert_no_locks().await;
    assert_eq!(site.origin.count("/pay/7"), 1, "nobody was left to want it");
}

#[tokio::test]
async fn a_waiting_client_that_hangs_up_leaves_the_queue_within_a_second() {
    a_client_goes_while_waiting(CloseKind::Politely).await;
}

#[tokio::test]
async fn a_waiting_client_that_resets_leaves_the_queue_within_a_second() {
    a_client_goes_while_waiting(CloseKind::WithReset).await;
}

/// The client goes before the reply with the name of the node arrives. Only the GUID shows whose node it is.
#[tokio::test]
async fn a_client_that_goes_during_the_create_leaves_no_node() {
    const PAUSE: Duration = Duration::from_millis(600);
    let site = TestSite::alone().await;
    let one = site.gateway_paused_at(&site.policy_without_janitor("gw-1"), "after_create_sent", PAUSE).await;
    let two = Gateway::start(&site.policy_without_janitor("gw-2")).await;
    let tree = site.tree().await;
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;

    let gone = client(&one).await;
    one.wait_at_failpoint("after_create_sent").await;
    leave(gone, CloseKind::WithReset);
    // The create may reach ZooKeeper only after the pause.
    tokio::time::sleep(PAUSE + QUIET).await;
    let left = Instant::now();
    tree.assert_no_locks().await;
    assert!(left.elapsed() < Duration::from_secs(1), "took {:?}", left.elapsed());
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200, "an orphan blocks the key");
    assert!(site.origin.log().records.iter().all(|record| record.gateway == "gw-2"), "dispatched for nobody");
}

#[tokio::test]
async fn a_storm_of_clients_that_hang_up_leaves_no_node_and_breaks_no_promise() {
    const CLIENTS: u64 = 16;
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(2));
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let tree = site.tree().await;
    let (mut asked, mut answered) = (0, 0);
    // From wave to wave the clients stay longer, until enough of them leave while the upstream works for them. The
    // waves thus cover every step of a request before that.
    for wave in 0..200 {
        let client = |n: u64| {
            let gateway = if n.is_multiple_of(2) { &one } else { &two };
            gateway.begin(TestRequest::post(&format!("/pay/{}", n % 3)))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in clients {
            tokio::time::sleep(Duration::from_micros(wave * 50)).await;
            answered += usize::from(client.is_over());
            client.hang_up();
        }
        asked += CLIENTS as usize;
        if site.origin.log().records.len() > answered + 50 {
            break;
        }
    }
    tree.assert_no_locks().await;
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    let dispatched = history.executions.len();
    let exercised = answered + 50 <= dispatched && dispatched < asked;
    assert!(exercised, "not exercised: {asked} asked, {dispatched} dispatched, {answered} answered");
    for gateway in [&one, &two] {
        assert_eq!(gateway.send(&TestRequest::post("/pay/0")).await.status, 200);
    }
}
