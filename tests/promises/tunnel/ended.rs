//! The ways in which a tunnel ends before its two sides end it, and the time when its key is free.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use fencegate_testkit::{
    child::Signal,
    fault_proxy::FaultProxy,
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, LogLine},
    site::TestSite,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::echo::{
    TunnelEchoService, assert_received, open_tunnel, policy, read_head, request_upgrade, wait_closed,
};

/// A tunnel ends when the deadline of its session passes, and no byte leaves after that.
#[tokio::test]
async fn tunnel_ends_with_its_session() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let relay = FaultProxy::start(site.zookeeper);
    let cut_off = policy(&site, "gw-1", &echo).with_zookeeper(relay.address);
    let gateway = Gateway::start(&cut_off).await;
    let mut stream = open_tunnel(&gateway, "/pay/7").await;
    drop(relay);
    let cut =
        |line: &LogLine| line.message() == "tunnel.ended" && line.text().contains("could not be proven");
    gateway.wait_line("the end of the tunnel", cut).await;
    // The client may notice the end only after one more write, which still succeeds.
    drop(stream.write_all(b"too late").await);
    wait_closed(&mut stream).await;
    tokio::time::sleep(QUIET).await;
    assert!(echo.heard.lock().expect("no panic").is_empty(), "a byte left after the session was lost");
}

/// A tunnel is cut when it is idle or its grant reaches `max_tenure`.
#[tokio::test]
async fn idle_or_overdue_tunnel_is_cut() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let idle = policy(&site, "gw-1", &echo).with("/upstreams/ledger/tunnel_idle", "300ms");
    let gateway = Gateway::start(&idle).await;
    let mut stream = open_tunnel(&gateway, "/chat").await;
    wait_closed(&mut stream).await;
    let brief = json!({"mode": "cached", "linger": "10ms", "max_hold": "10ms", "max_tenure": "500ms"});
    let gateway = Gateway::start(&policy(&site, "gw-2", &echo).with("/defaults/hold", brief)).await;
    let mut stream = open_tunnel(&gateway, "/pay/7").await;
    wait_closed(&mut stream).await;
    gateway.wait_line("why", |line: &LogLine| line.text().contains("the tenure is over")).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200, "the key is free");
}

/// A tunnel whose client reads nothing counts as idle.
///
/// Bytes that the client does not read do not count as traffic.
#[tokio::test]
async fn unread_tunnel_counts_as_idle() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let idle = policy(&site, "gw-1", &echo).with("/upstreams/ledger/tunnel_idle", "500ms");
    let gateway = Gateway::start(&idle).await;
    let (mut stream, _) = request_upgrade(&gateway, "/chat").await;
    // More bytes than the kernel keeps. The service sends all of them back.
    let much = vec![7; 64 << 20];
    drop(wait_until("the end of the tunnel", stream.write_all(&much), || "open").await);
    gateway
        .wait_line("why", |line: &LogLine| line.message() == "tunnel.ended" && line.text().contains("idle"))
        .await;
}

#[tokio::test]
async fn drain_gives_tunnels_half_its_time() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let policy = policy(&site, "gw-1", &echo).with("/listeners/public/timeouts/drain", "3s");
    let gateway = Gateway::start(&policy).await;
    let mut stream = open_tunnel(&gateway, "/pay/7").await;
    gateway.signal(Signal::TERM);
    gateway.wait_unready().await;
    stream.write_all(b"still here").await.expect("open");
    assert_received(&mut stream, "still here").await;
    wait_closed(&mut stream).await;
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// A stopping gateway keeps the key of a tunnel until the `response_timeout` of its upstream has passed.
///
/// Where no service compares tokens, the service of a cut tunnel may still work, even if the client has ended its side.
#[tokio::test]
async fn drained_tunnel_keeps_key_for_upstream() {
    tokio::join!(
        assert_cut_by_drain(TunnelClientState::Listens),
        assert_cut_by_drain(TunnelClientState::HasEnded)
    );
}

/// The state of the client of a tunnel when its gateway stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelClientState {
    Listens,
    /// The client has ended its own direction.
    HasEnded,
}

async fn assert_cut_by_drain(client: TunnelClientState) {
    // Longer than the half of the drain for which a tunnel may continue, and shorter than the whole drain.
    const TIME: Duration = Duration::from_millis(2500);
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let ours = |name| {
        policy(&site, name, &echo)
            .with("/upstreams/ledger/fencing", "none")
            .with("/upstreams/ledger/response_timeout", "2500ms")
            .with("/routes/0/fence/wait", "20s")
            .with("/listeners/public/timeouts/drain", "4s")
    };
    let (gateway, other) = Gateway::start_both(&ours("gw-1"), &ours("gw-2")).await;
    let mut stream = open_tunnel(&gateway, "/pay/stays").await;
    gateway.signal(Signal::TERM);
    gateway.wait_unready().await;
    let wrote = Instant::now();
    stream.write_all(b"still here").await.expect("open");
    assert_received(&mut stream, "still here").await;
    if client == TunnelClientState::HasEnded {
        stream.shutdown().await.expect("open");
    }
    let next = other.send(&TestRequest::post("/pay/stays")).await;
    let after = wrote.elapsed();
    assert_eq!(next.status, 200, "{next:?}");
    assert!(after >= TIME, "{client:?}: given on {after:?} after the last byte");
}

/// Where no service compares tokens, the key of a tunnel that the gateway cuts stays held until `response_timeout` has
/// passed.
///
/// The upstream has not ended its side, and may be at work on the bytes that it got.
#[tokio::test]
async fn cut_tunnel_keeps_key_for_upstream() {
    tokio::join!(
        assert_ended_by_gateway(TunnelEnd::ItsClientBreaksOff),
        assert_ended_by_gateway(TunnelEnd::ItIsIdle)
    );
}

/// The reason for which a tunnel is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelEnd {
    ItsClientBreaksOff,
    ItIsIdle,
}

async fn assert_ended_by_gateway(how: TunnelEnd) {
    const TIME: Duration = Duration::from_millis(1500);
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let policy = policy(&site, "gw-1", &echo)
        .with("/upstreams/ledger/fencing", "none")
        .with("/upstreams/ledger/response_timeout", "1500ms")
        .with("/upstreams/ledger/tunnel_idle", "700ms")
        .with("/routes/0/fence/wait", "20s");
    let gateway = Gateway::start(&policy).await;
    let mut stream = open_tunnel(&gateway, "/pay/stays").await;
    let wrote = Instant::now();
    stream.write_all(b"still here").await.expect("open");
    assert_received(&mut stream, "still here").await;
    let stays = if how == TunnelEnd::ItsClientBreaksOff {
        stream.set_zero_linger().expect("open");
        None
    } else {
        Some(stream)
    };
    let next = gateway.send(&TestRequest::post("/pay/stays")).await;
    let after = wrote.elapsed();
    assert_eq!(next.status, 200, "{next:?}");
    assert!(after >= TIME, "{how:?}: given on {after:?} after the last byte");
    drop(stays);
}

/// Starts a service that switches protocols, and then resets the connection.
async fn start_upgrade_then_reset() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                read_head(&mut stream).await;
                let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello";
                drop(stream.write_all(switch.as_bytes()).await);
                // A byte from the client shows that the client has received the switch.
                drop(stream.read_u8().await);
                stream.set_zero_linger().expect("open");
            });
        }
    });
    address
}

/// A reset of the upstream ends the tunnel for the client at once, and frees the key without waiting for the idle time.
#[tokio::test]
async fn reset_ends_tunnel_and_frees_key() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let endpoint = json!([format!("http://{}", start_upgrade_then_reset().await)]);
    let gateway =
        Gateway::start(&policy(&site, "gw-1", &echo).with("/upstreams/ledger/endpoints", endpoint)).await;
    for _ in 0..2 {
        let (mut stream, head) = request_upgrade(&gateway, "/pay/7").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert_received(&mut stream, "hello").await;
        stream.write_all(b"x").await.expect("connected");
        let ended = wait_until("the end", stream.read(&mut [0; 8]), || gateway.log()).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    // Here the client resets. The service is notified, and then the key is free.
    let gateway = Gateway::start(&policy(&site, "gw-2", &echo)).await;
    for _ in 0..2 {
        let (mut stream, head) = request_upgrade(&gateway, "/pay/8").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert_received(&mut stream, "hello").await;
        stream.set_zero_linger().expect("open");
    }
}
