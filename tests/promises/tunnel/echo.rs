//! A service that switches protocols and sends every byte back, and clients of it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{gateway::Gateway, policy::TestPolicy, site::TestSite};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A service that switches protocols on request and then sends every byte back. It refuses `/forbidden`, and answers
/// other requests.
pub(super) struct TunnelEchoService {
    pub(super) address: SocketAddr,
    pub(super) heads: Arc<Mutex<Vec<String>>>,
    pub(super) heard: Arc<Mutex<Vec<u8>>>,
}

impl TunnelEchoService {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let seen = heads.clone();
        let told = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, seen.clone(), told.clone()));
            }
        });
        Self { address, heads, heard }
    }

    pub(super) fn received_heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

pub(super) async fn converse(
    mut stream: TcpStream,
    heads: Arc<Mutex<Vec<String>>>,
    heard: Arc<Mutex<Vec<u8>>>,
) {
    while let Some(head) = read_head(&mut stream).await {
        heads.lock().expect("no panic").push(head.clone());
        let asked = head.to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n");
        if !asked || head.contains("/forbidden") {
            let status = if asked { "403 Forbidden" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno");
            drop(stream.write_all(answer.as_bytes()).await);
            continue;
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello";
        drop(stream.write_all(switch.as_bytes()).await);
        let mut piece = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut piece).await {
            heard.lock().expect("no panic").extend(&piece[..read]);
            drop(stream.write_all(&piece[..read]).await);
        }
        if head.contains("/stays") {
            // The service continues to work, although the other side has ended its direction.
            std::future::pending::<()>().await;
        }
        return;
    }
}

pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// A policy whose routes allow WebSocket and lead to an echo service.
pub(super) fn policy(site: &TestSite, name: &str, echo: &TunnelEchoService) -> TestPolicy {
    site.policy(name)
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", echo.address)]))
        .with("/routes/0/match/methods", json!(["GET", "POST"]))
        .with("/routes/0/upgrade", json!(["websocket"]))
        .with("/routes/1/upgrade", json!(["websocket"]))
}

/// Requests an upgrade. Returns the connection, and the head of the answer.
pub(super) async fn request_upgrade(gateway: &Gateway, path: &str) -> (TcpStream, String) {
    request_upgrade_over(TcpStream::connect(gateway.public).await.expect("listens"), gateway, path).await
}

/// Opens a tunnel, and waits for the first message of the service.
pub(super) async fn open_tunnel(gateway: &Gateway, path: &str) -> TcpStream {
    let (mut stream, _) = request_upgrade(gateway, path).await;
    assert_received(&mut stream, "hello").await;
    stream
}

pub(super) async fn request_upgrade_over<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    gateway: &Gateway,
    path: &str,
) -> (S, String) {
    let question = format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: y\r\n\r\n"
    );
    stream.write_all(question.as_bytes()).await.expect("connected");
    let head = wait_until("an answer", read_head(&mut stream), || gateway.log()).await.expect("an answer");
    (stream, head)
}

pub(super) async fn assert_received(stream: &mut (impl AsyncRead + Unpin), wanted: &str) {
    let mut heard = vec![0; wanted.len()];
    wait_until(wanted, stream.read_exact(&mut heard), || "nothing").await.expect("the tunnel is open");
    assert_eq!(heard, wanted.as_bytes());
}

pub(super) async fn wait_closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // The tunnel may end with a reset or in order.
    drop(wait_until("the end of the tunnel", stream.read_to_end(&mut rest), || "open").await);
}
