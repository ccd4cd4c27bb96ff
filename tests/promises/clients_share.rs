//! One client uses no more than its share of a route or of the gateway, and all other clients are served.
//!
//! A request returns its share when it ends, in whatever way.

use std::{net::IpAddr, time::Duration};

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, Http1Client, TestRequest},
    gateway::Gateway,
    held_request::HeldRequest,
    history::History,
    origin::Latch,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;
use tokio::{
    net::TcpSocket,
    task::{JoinHandle, spawn},
};

fn policy_with_client_share(site: &TestSite) -> TestPolicy {
    site.policy("gw-1").with("/routes/0/fence/client_share", 2)
}

/// Sends a request from this address of the machine, so that it counts for another client.
pub(super) fn send_from(
    address: &str,
    gateway: &Gateway,
    request: TestRequest,
) -> JoinHandle<ClientResponse> {
    let address: IpAddr = address.parse().expect("an address");
    let public = gateway.public;
    spawn(async move {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("an address of loopback");
        let stream = socket.connect(public).await.expect("listens");
        let mut client = Http1Client::on_stream(stream, public).await.expect("a connection");
        client.send(&request).await.expect("an answer")
    })
}

fn assert_refused(answer: &ClientResponse) {
    assert_eq!((answer.status, answer.reason().as_str()), (429, "client-limit"), "{answer:?}");
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{answer:?}");
    assert!(answer.field("retry-after").is_some(), "{answer:?}");
}

/// A client that has used its share of a route is refused at once with 429; another client is queued and served.
#[tokio::test]
async fn client_above_share_is_refused() {
    let site = TestSite::alone().await;
    let gateway = Gateway::start(&policy_with_client_share(&site)).await;
    let tree = site.tree().await;
    let HeldRequest { request: holder, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let waiter = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;

    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_refused(&answer);
    assert!(answer.took() < Duration::from_secs(1), "took {:?}", answer.took());
    assert_refused(&gateway.send(&TestRequest::post("/pay/8")).await);
    assert_eq!(gateway.send(&TestRequest::get("/read")).await.status, 200, "another route has its own share");
    let other = send_from("127.0.0.2", &gateway, TestRequest::post("/pay/7"));
    tree.wait_locks("the other client, too", |locks| locks.len() == 3).await;

    latch.release();
    for request in [holder, waiter] {
        assert_eq!(request.answer().await.status, 200);
    }
    assert_eq!(other.await.expect("no panic").status, 200);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "the share is free again");
    let refused = gateway.metrics().await.sum("fencegate_rejections_total", &["reason=\"client-limit\""]);
    assert!((refused - 2.0).abs() < 0.1, "{refused}");
    History::from_log(&site.origin.log()).assert_holds();
}

/// A waiter that hangs up returns its share; a dispatched request keeps its share until the upstream has finished.
#[tokio::test]
async fn hangup_returns_share_of_waiter_only() {
    let site = TestSite::alone().await;
    let gateway = Gateway::start(&policy_with_client_share(&site)).await;
    let tree = site.tree().await;
    let HeldRequest { request: in_flight, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    for _ in 0..3 {
        let waiter = gateway.begin(TestRequest::post("/pay/7"));
        tree.wait_waiters(1).await;
        assert_refused(&gateway.send(&TestRequest::post("/pay/7")).await);
        waiter.hang_up();
        tree.wait_waiters(0).await;
    }
    // The upstream goes on with this request, so the key is still held on behalf of this client.
    in_flight.hang_up();
    let waiter = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_waiters(1).await;
    assert_refused(&gateway.send(&TestRequest::post("/pay/7")).await);
    latch.release();
    assert_eq!(waiter.answer().await.status, 200);
    tree.assert_no_locks().await;
    let latch = site.origin.hold("/pay/8");
    let both = [(); 2].map(|()| gateway.begin(TestRequest::post("/pay/8")));
    tree.wait_locks("both in their places", |locks| locks.len() == 2).await;
    latch.release();
    for request in both {
        assert_eq!(request.answer().await.status, 200, "nothing of the share was lost");
    }
}

/// Behind a trusted proxy each client address has a share of its own; IPv6 addresses of one /64 network share one.
#[tokio::test]
async fn clients_behind_trusted_proxy_have_shares() {
    let site = TestSite::alone().await;
    let policy =
        policy_with_client_share(&site).with("/listeners/public/trusted_peers", json!(["127.0.0.0/8"]));
    let gateway = Gateway::start(&policy).await;
    let tree = site.tree().await;
    let latch = site.origin.hold("/pay/7");
    let of = |client: &str| TestRequest::post("/pay/7").field("X-Forwarded-For", client);
    let mut pending = Vec::new();
    for (n, client) in ["2001:db8::1", "2001:db8::2", "198.51.100.7", "2001:db8:0:1::1"].iter().enumerate() {
        pending.push(gateway.begin(of(client)));
        tree.wait_waiters(n).await;
    }
    assert_refused(&gateway.send(&of("2001:db8::3")).await);
    latch.release();
    for request in pending {
        assert_eq!(request.answer().await.status, 200);
    }
}

/// `per_client` limits the requests of one client over all routes; a fenced request counts until the upstream has
/// finished.
#[tokio::test]
async fn per_client_limit_spans_routes() {
    let site = TestSite::alone().await;
    let policy = site.policy("gw-1").with("/listeners/public/limits", json!({"per_client": 3}));
    let gateway = Gateway::start(&policy).await;
    let latches = ["/a", "/b", "/pay/7"].map(|path| site.origin.hold(path));
    let requests = [TestRequest::get("/a"), TestRequest::get("/b"), TestRequest::post("/pay/7")];
    // Each request has a connection of its own, which the kernel gives to any worker.
    let [reads, hung_up, pays] = requests.map(|ask| gateway.begin(ask));
    for path in ["/a", "/b", "/pay/7"] {
        site.origin.wait_for_request(path, 1).await;
    }
    for _ in 0..8 {
        let answer = gateway.send(&TestRequest::get("/c")).await;
        assert_eq!((answer.status, answer.reason().as_str()), (429, "client-limit"), "{answer:?}");
    }
    assert_eq!(site.origin.count("/c"), 0);
    let other = send_from("127.0.0.2", &gateway, TestRequest::get("/c")).await.expect("no panic");
    assert_eq!(other.status, 200, "another client");

    hung_up.hang_up();
    gateway.wait_series("fencegate_requests_in_flight", &["route=\"read\""], 1.0).await;
    assert_eq!(
        gateway.send(&TestRequest::get("/c")).await.status,
        200,
        "who hangs up on an unfenced route is gone"
    );
    // On a fenced route the upstream goes on after the client has left, so the request still counts.
    pays.hang_up();
    let HeldRequest { request: again, latch: held, .. } =
        site.origin.hold_request(&gateway, TestRequest::get("/a")).await;
    assert_eq!(gateway.send(&TestRequest::get("/c")).await.status, 429);
    for latch in latches.iter().chain([&held]) {
        latch.release();
    }
    for request in [reads, again] {
        assert_eq!(request.answer().await.status, 200);
    }
    site.tree().await.assert_no_locks().await;
    let latches = ["/d", "/e", "/f"].map(|path| site.origin.hold(path));
    let all = ["/d", "/e", "/f"].map(|path| gateway.begin(TestRequest::get(path)));
    for path in ["/d", "/e", "/f"] {
        site.origin.wait_for_request(path, 1).await;
    }
    latches.iter().for_each(Latch::release);
    for request in all {
        assert_eq!(request.answer().await.status, 200, "the counts were back to nothing");
    }
}
