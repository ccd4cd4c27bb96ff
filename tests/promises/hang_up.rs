//! A client that disconnects neither frees a key that the upstream is at work on, nor keeps its position in the queue.
//!
//! A waiting client leaves the queue within a second. A client that disconnects while its node is created leaves no
//! node.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{RawClient, TestRequest},
    gateway::Gateway,
    history::History,
    site::TestSite,
};

/// How a client disconnects.
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

fn disconnect(client: RawClient, close: CloseKind) {
    match close {
        CloseKind::Politely => drop(client),
        CloseKind::WithReset => client.reset().expect("still connected"),
    }
}

async fn assert_in_flight_hang_up(close: CloseKind) {
    let site = TestSite::fresh().await;
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let latch = site.origin.hold("/pay/7");
    let gone = client(&one).await;
    site.origin.wait_for_request("/pay/7", 1).await;

    disconnect(gone, close);
    let next = two.begin(TestRequest::post("/pay/7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "{close:?}: the next began while the upstream worked");
    assert!(site.origin.log().records[0].abandoned.is_none(), "{close:?}: the upstream was hung up on");
    latch.release();
    assert_eq!(next.answer().await.status, 200);
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    assert_eq!(history.executions.len(), 2);
}

/// A client that closes its connection in flight frees no key before the upstream has answered.
#[tokio::test]
async fn client_close_in_flight_keeps_key() {
    assert_in_flight_hang_up(CloseKind::Politely).await;
}

/// A client that resets its connection in flight frees no key before the upstream has answered.
#[tokio::test]
async fn client_reset_in_flight_keeps_key() {
    assert_in_flight_hang_up(CloseKind::WithReset).await;
}

async fn assert_waiting_hang_up(close: CloseKind) {
    let site = TestSite::alone().await;
    let one = Gateway::start(&site.policy_without_janitor("gw-1")).await;
    let two = Gateway::start(&site.policy_without_janitor("gw-2")).await;
    let tree = site.tree().await;
    let holder = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let waiter = client(&two).await;
    tree.wait_waiters(1).await;

    let left = Instant::now();
    disconnect(waiter, close);
    tree.wait_waiters(0).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{close:?}: took {:?}", left.elapsed());
    assert_eq!(holder.finish().await.status, 200);
    tree.assert_no_locks().await;
    assert_eq!(site.origin.count("/pay/7"), 1, "nobody was left to want it");
}

/// A waiting client that closes its connection leaves the queue within a second.
#[tokio::test]
async fn waiting_client_close_leaves_queue() {
    assert_waiting_hang_up(CloseKind::Politely).await;
}

/// A waiting client that resets its connection leaves the queue within a second.
#[tokio::test]
async fn waiting_client_reset_leaves_queue() {
    assert_waiting_hang_up(CloseKind::WithReset).await;
}

/// A client that disconnects before the reply with the name of its lock node arrives leaves no node. Only the GUID shows
/// whose node it is.
#[tokio::test]
async fn disconnect_during_create_leaves_no_node() {
    const PAUSE: Duration = Duration::from_millis(600);
    let site = TestSite::alone().await;
    let one = site.gateway_paused_at(&site.policy_without_janitor("gw-1"), "after_create_sent", PAUSE).await;
    let two = Gateway::start(&site.policy_without_janitor("gw-2")).await;
    let tree = site.tree().await;
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200);
    tree.assert_no_locks().await;

    let gone = client(&one).await;
    one.wait_at_failpoint("after_create_sent").await;
    disconnect(gone, CloseKind::WithReset);
    // The create may reach ZooKeeper only after the pause.
    tokio::time::sleep(PAUSE + QUIET).await;
    let left = Instant::now();
    tree.assert_no_locks().await;
    assert!(left.elapsed() < Duration::from_secs(1), "took {:?}", left.elapsed());
    assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200, "an orphan blocks the key");
    assert!(site.origin.log().records.iter().all(|record| record.gateway == "gw-2"), "dispatched for nobody");
}

/// A storm of clients that hang up leaves no lock node, and no two executions of a key overlap.
#[tokio::test]
async fn disconnect_storm_leaves_no_node() {
    const CLIENTS: u64 = 16;
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::from_millis(2));
    let (one, two) = tokio::join!(site.gateway("gw-1"), site.gateway("gw-2"));
    let tree = site.tree().await;
    let mut sent = 0;
    let mut answered = 0;
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
        sent += CLIENTS as usize;
        if site.origin.log().records.len() > answered + 50 {
            break;
        }
    }
    tree.assert_no_locks().await;
    let history = History::from_log(&site.origin.log());
    history.assert_holds();
    let dispatched = history.executions.len();
    let exercised = answered + 50 <= dispatched && dispatched < sent;
    assert!(exercised, "not exercised: {sent} asked, {dispatched} dispatched, {answered} answered");
    for gateway in [&one, &two] {
        assert_eq!(gateway.send(&TestRequest::post("/pay/0")).await.status, 200);
    }
}
