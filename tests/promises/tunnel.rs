//! A connection is upgraded to another protocol only where its route allows it, and on fenced routes only under the
//! grant of its key.
//!
//! The tunnel is cut with the session, with the tenure, or by a drain. At level `none` the upstream then has its
//! time, also when the client has ended or reset its side, or the tunnel is idle. Where a route only observed, the
//! next holder waits for tunnels without a lock.

mod echo;
mod ended;

use std::time::Duration;

use fencegate_testkit::{
    terminator::{ClientCertificatePolicy, TlsTerminator},
    wait::{QUIET, wait_until},
};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    site::TestSite,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use self::echo::{
    TunnelEchoService, assert_received, open_tunnel, policy, read_head, request_upgrade,
    request_upgrade_over, wait_closed,
};
use super::tls::TlsFiles;

/// Bytes pass both ways where the route allows the upgrade.
#[tokio::test]
async fn upgraded_connection_carries_bytes_both_ways() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", &echo)).await;
    let (mut stream, head) = request_upgrade(&gateway, "/chat").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let told = head.to_ascii_lowercase();
    for field in ["connection: upgrade", "upgrade: websocket", "sec-websocket-accept: x"] {
        assert!(told.contains(field), "{field} in {head}");
    }
    assert_received(&mut stream, "hello").await;
    for n in 0..20 {
        let word = format!("word {n}");
        stream.write_all(word.as_bytes()).await.expect("open");
        assert_received(&mut stream, &word).await;
    }
    gateway.wait_gauge("fencegate_tunnels", 1.0).await;
    stream.shutdown().await.expect("open");
    wait_closed(&mut stream).await;
    gateway.wait_gauge("fencegate_tunnels", 0.0).await;
    let asked = echo.received_heads()[0].to_ascii_lowercase();
    assert!(asked.contains("sec-websocket-key: y") && !asked.contains("fencing"), "{asked}");
}

/// A connection is not upgraded where its route does not allow the protocol.
#[tokio::test]
async fn upgrade_needs_route_permission() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let closed = policy(&site, "gw-1", &echo).with("/routes/1/upgrade", json!(["other"]));
    let gateway = Gateway::start(&closed).await;
    let (_stream, head) = request_upgrade(&gateway, "/chat").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        !echo.received_heads()[0].to_ascii_lowercase().contains("upgrade"),
        "{:?}",
        echo.received_heads()
    );
}

/// A response other than 101 passes as it is, and the key is free after it.
#[tokio::test]
async fn other_response_than_upgrade_passes() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", &echo)).await;
    let (_stream, head) = request_upgrade(&gateway, "/pay/forbidden").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("fencing-outcome: done"), "{head}");
    assert_eq!(gateway.send(&TestRequest::post("/pay/forbidden")).await.status, 200, "the key is free");
}

/// A tunnel on a fenced route holds its key until the upstream has ended it.
#[tokio::test]
async fn fenced_tunnel_holds_key_until_ended() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let fenced = policy(&site, "gw-1", &echo).with("/routes/0/fence/wait", "400ms");
    let gateway = Gateway::start(&fenced).await;
    let (mut stream, head) = request_upgrade(&gateway, "/pay/7").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("fencing-token: v1-"), "{head}");
    assert_received(&mut stream, "hello").await;
    let locked = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((locked.status, locked.outcome()), (423, Some(FencingOutcome::NotDispatched)));
    stream.write_all(b"still here").await.expect("open");
    assert_received(&mut stream, "still here").await;
    stream.shutdown().await.expect("open");
    wait_closed(&mut stream).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let heads = echo.received_heads();
    let token = |head: &str| {
        head.lines().find(|line| line.to_ascii_lowercase().starts_with("fencing-token")).map(str::to_owned)
    };
    assert!(token(&heads[0]) < token(&heads[1]), "{heads:?}");
}

/// The time limits of HTTP do not end a tunnel.
#[tokio::test]
async fn http_timeouts_spare_tunnels() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let brief = json!({"idle": "300ms", "request_headers": "300ms", "request_body": "300ms", "response_write": "300ms"});
    let gateway =
        Gateway::start(&policy(&site, "gw-1", &echo).with("/listeners/public/timeouts", brief)).await;
    let mut stream = open_tunnel(&gateway, "/chat").await;
    // The pause is longer than each of these time limits.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    stream.write_all(b"still here").await.expect("open");
    assert_received(&mut stream, "still here").await;
}

#[tokio::test]
async fn tunnel_counts_as_listener_connection() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let one = policy(&site, "gw-1", &echo).with("/listeners/public/limits", json!({"connections": 1}));
    let gateway = GatewayLaunch::new(&one).with_workers(1).start().await;
    let stream = open_tunnel(&gateway, "/chat").await;
    // The request comes from another address, because further connections of this client would be closed at once.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.3:0".parse().expect("an address")).expect("an address of loopback");
    let mut waits = socket.connect(gateway.public).await.expect("the kernel queues it");
    waits.write_all(b"GET /read HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("queued");
    assert!(timeout(QUIET, read_head(&mut waits)).await.is_err(), "nobody serves it while the tunnel lasts");
    drop(stream);
    let head = wait_until("an answer", read_head(&mut waits), || gateway.log()).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

/// When a route no longer only observes, a request waits for a tunnel without a lock.
///
/// A tunnel without a lock may overlap with other requests. A request after the change may overlap with none.
#[tokio::test]
async fn enforced_route_waits_for_unlocked_tunnel() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let policy = policy(&site, "gw-1", &echo)
        .with("/routes/0/match/path", "/pay")
        .with("/routes/0/fence/key", "account/{header.x-account}");
    let gateway = Gateway::start(&policy.clone().with("/routes/0/fence/enforce", "observe")).await;
    let (mut stream, head) = request_upgrade(&gateway, "/pay").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(!head.to_ascii_lowercase().contains("fencing-token"), "it names no account: {head}");
    assert_received(&mut stream, "hello").await;
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.1["difference"]["rekeyed"], json!(["pay"]));
    let first = gateway.begin(TestRequest::post("/pay").field("x-account", "7"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(echo.received_heads().len(), 1, "it began beside one without a lock");
    stream.shutdown().await.expect("open");
    wait_closed(&mut stream).await;
    assert_eq!(first.answer().await.status, 200);
}

/// With TLS on both sides nothing is lost: neither bytes that arrive with the switch, nor a large piece, nor the end.
#[tokio::test]
async fn tunnel_passes_through_tls() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let keys = TlsFiles::new();
    keys.authority.write(&keys.path("ca.pem"));
    let signed = keys.authority.sign(&["127.0.0.1"]);
    let front = TlsTerminator::start(&signed, &ClientCertificatePolicy::Anybody, &["http/1.1"], echo.address);
    let policy = policy(&site, "gw-1", &echo)
        .with("/listeners/public/tls", json!({"certificates": [keys.write("a", "a")]}))
        .with("/upstreams/ledger/endpoints", json!([format!("https://{}", front.address)]))
        .with("/upstreams/ledger/tls", json!({"ca_file": keys.path("ca.pem")}));
    let gateway = Gateway::start(&policy).await;
    let large = "0123456789".repeat(30_000);
    for path in ["/chat", "/pay/7"] {
        let stream =
            keys.client().with_alpn(&["http/1.1"]).connect(gateway.public, "a").await.expect("accepted");
        let (stream, head) = request_upgrade_over(stream, &gateway, path).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let (mut input, mut output) = tokio::io::split(stream);
        assert_received(&mut input, "hello").await;
        let (said, ()) =
            tokio::join!(output.write_all(large.as_bytes()), assert_received(&mut input, &large));
        said.expect("open");
        if path == "/pay/7" {
            gateway.wait_gauge("fencegate_locks_held", 1.0).await;
        }
        output.shutdown().await.expect("open");
        let mut rest = Vec::new();
        let end = wait_until("the end", input.read_to_end(&mut rest), || gateway.log()).await;
        assert_eq!(end.expect("in order, not cut off"), 0, "{path}");
        gateway.wait_gauge("fencegate_tunnels", 0.0).await;
        gateway.wait_gauge("fencegate_locks_held", 0.0).await;
    }
    assert!(front.handshakes().iter().all(|seen| seen.protocol.as_deref() == Some("http/1.1")));
}

/// Of several protocols only the one that the route allows is offered to the upstream.
#[tokio::test]
async fn only_allowed_protocol_is_offered() {
    let site = TestSite::fresh().await;
    let echo = TunnelEchoService::start().await;
    let gateway = Gateway::start(&policy(&site, "gw-1", &echo)).await;
    for (offered, passes) in [("h2c, websocket", true), ("websocket, h2c", true), ("h2c, chat", false)] {
        let mut stream = TcpStream::connect(gateway.public).await.expect("listens");
        let question =
            format!("GET /read HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {offered}\r\n\r\n");
        stream.write_all(question.as_bytes()).await.expect("connected");
        let head =
            wait_until("an answer", read_head(&mut stream), || gateway.log()).await.expect("an answer");
        assert_eq!(head.starts_with("HTTP/1.1 101 "), passes, "{offered}: {head}");
        let seen = echo.received_heads().pop().expect("a request").to_ascii_lowercase();
        assert_eq!(seen.contains("\r\nupgrade: websocket\r\n"), passes, "{offered}: {seen}");
        assert!(!seen.contains("h2c"), "{offered}: {seen}");
    }
}
