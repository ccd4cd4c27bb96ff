//! Capacity for connections: a client that takes all of it keeps no other client out, and a client in the middle of a
//! request keeps its connection.
//!
//! Connections without a request make room for new ones. A client has no more connections than its share, but a
//! trusted proxy has no share and waits for a place.

use std::{net::IpAddr, time::Duration};

use fencegate_testkit::wait::QUIET;
use fencegate_tests::{
    client::{Http1Client, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    site::TestSite,
};
use serde_json::json;
use tokio::{net::TcpSocket, time::timeout};

async fn connect(address: &str, gateway: &Gateway) -> Result<Http1Client, String> {
    let address: IpAddr = address.parse().expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((address, 0).into()).expect("an address of loopback");
    let stream = socket.connect(gateway.public).await.map_err(|error| error.to_string())?;
    Http1Client::on_stream(stream, gateway.public).await
}

async fn send_get(client: &mut Http1Client) -> Result<u16, String> {
    let answer = timeout(Duration::from_secs(5), client.send(&TestRequest::get("/x"))).await;
    Ok(answer.map_err(|_| "no answer in time".to_owned())??.status)
}

#[tokio::test]
async fn idle_connections_yield_to_other_clients() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/limits/connections", 8);
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    gateway.wait_ready().await;
    let latch = site.origin.hold("/slow");
    let mut all = Vec::new();
    for _ in 0..7 {
        let mut client = connect("127.0.0.2", &gateway).await.expect("a place");
        assert_eq!(send_get(&mut client).await, Ok(200));
        all.push(client);
    }
    let mut busy = connect("127.0.0.2", &gateway).await.expect("a place");
    let slow = tokio::spawn(async move { busy.send(&TestRequest::get("/slow")).await });
    site.origin.wait_for_request("/slow", 1).await;
    // One client takes all connections, and leaves them idle.
    for address in ["127.0.0.1", "127.0.0.3", "127.0.0.4"] {
        let mut other = connect(address, &gateway).await.expect("listens");
        assert_eq!(send_get(&mut other).await, Ok(200), "{address}");
        assert_eq!(send_get(&mut other).await, Ok(200), "{address} keeps its place");
    }
    let made_room = gateway.metrics().await.sum("fencegate_client_connections_made_room_total", &[]);
    assert!((0.5..3.5).contains(&made_room), "{made_room}");
    latch.release();
    let slow = slow.await.expect("no panic").expect("who is answered stays");
    assert_eq!(slow.status, 200);
}

/// A trusted proxy has no share of connections, and its further connections wait for a free one.
///
/// The connections of a trusted proxy belong to other clients.
#[tokio::test]
async fn trusted_proxy_has_no_connection_share() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/listeners/public/trusted_peers", json!(["127.0.0.2"]))
        .with("/listeners/public/limits", json!({"connections": 4, "connections_per_client": 1}));
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    gateway.wait_ready().await;
    let latch = site.origin.hold("/slow");
    let mut busy = connect("127.0.0.2", &gateway).await.expect("a place");
    let slow = tokio::spawn(async move { busy.send(&TestRequest::get("/slow")).await });
    site.origin.wait_for_request("/slow", 1).await;
    let mut at_work = vec![site.origin.hold("/a"), site.origin.hold("/b"), site.origin.hold("/c")];
    let mut told = Vec::new();
    for path in ["/a", "/b", "/c"] {
        let mut client = connect("127.0.0.2", &gateway).await.expect("a place");
        told.push(tokio::spawn(async move { client.send(&TestRequest::get(path)).await }));
        site.origin.wait_for_request(path, 1).await;
    }
    // A request is in progress on every connection. The client behind the proxy may already have sent a POST, so the
    // gateway must not refuse the fifth connection.
    let mut fifth = connect("127.0.0.2", &gateway).await.expect("listens");
    let waits = tokio::spawn(async move { send_get(&mut fifth).await });
    tokio::time::sleep(QUIET).await;
    assert!(!waits.is_finished(), "it was turned away");
    latch.release();
    at_work.drain(..).for_each(|latch| latch.release());
    assert_eq!(waits.await.expect("no panic"), Ok(200));
    for answer in told.into_iter().chain([slow]) {
        assert_eq!(answer.await.expect("no panic").expect("answered").status, 200);
    }
    // Other clients may still open connections.
    let mut first = connect("127.0.0.3", &gateway).await.expect("a place");
    assert_eq!(send_get(&mut first).await, Ok(200));
    let mut second = connect("127.0.0.3", &gateway).await.expect("listens");
    assert!(send_get(&mut second).await.is_err_and(|why| !why.contains("in time")), "closed at once");
}

#[tokio::test]
async fn client_connections_are_limited_to_share() {
    let site = TestSite::fresh().await;
    let gateway =
        Gateway::start(&site.policy("gw-1").with("/listeners/public/limits/connections_per_client", 3)).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut client = connect("127.0.0.2", &gateway).await.expect("a place");
        assert_eq!(send_get(&mut client).await, Ok(200));
        all.push(client);
    }
    let mut fourth = connect("127.0.0.2", &gateway).await.expect("listens");
    assert!(send_get(&mut fourth).await.is_err_and(|why| !why.contains("in time")), "closed at once");
    let mut other = connect("127.0.0.3", &gateway).await.expect("a place");
    assert_eq!(send_get(&mut other).await, Ok(200));
    drop(all.pop());
    let again = async {
        loop {
            let mut client = connect("127.0.0.2", &gateway).await.expect("listens");
            if send_get(&mut client).await == Ok(200) {
                return;
            }
        }
    };
    timeout(Duration::from_secs(5), again).await.expect("its place is free again");
    let turned_away = ["reason=\"client-limit\""];
    assert!(
        gateway.metrics().await.sum("fencegate_client_connections_turned_away_total", &turned_away) > 0.5
    );
}
