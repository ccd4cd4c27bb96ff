//! Streamed bodies are not kept: memory stays flat, however large a body is and however slowly it is read.
//!
//! A gibibyte passes intact in each direction. A client that stops reading makes the upstream stop as well.

use std::{
    net::SocketAddr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use fencegate_testkit::wait::{QUIET, wait_until};
use fencegate_tests::{gateway::Gateway, site::TestSite};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Builder,
    sync::oneshot,
};

const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
/// The buffers of one exchange, on both sides together, take less than a MiB. The rest is slack of the allocator.
pub(crate) const FLAT: usize = 16 << 20;

/// A service that stores no body. A `GET` is answered with a gibibyte, and the body of any other request is counted.
/// The service has its own thread, so clients do not wait for it.
pub(crate) struct BulkService {
    pub(crate) address: SocketAddr,
    /// Bytes of bodies that the service has written or read.
    moved: Arc<AtomicU64>,
    /// Dropped with the service, which ends the thread.
    _running: oneshot::Sender<()>,
}

impl BulkService {
    pub(crate) async fn start() -> Self {
        let (running, stopped) = oneshot::channel::<()>();
        let (bound, address) = oneshot::channel();
        let moved = Arc::new(AtomicU64::new(0));
        let counter = moved.clone();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = listener();
                bound.send(listener.local_addr().expect("bound")).expect("whoever starts it waits");
                tokio::select! {
                    () = accept(listener, counter) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address: address.await.expect("the thread listens"), moved, _running: running }
    }

    pub(crate) fn bytes_moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

fn listener() -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    // A small send buffer keeps few bytes in the kernel. The bytes that the service has sent are then those that the
    // gateway took.
    socket.set_send_buffer_size(64 << 10).expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    socket.listen(1024).expect("bound")
}

async fn accept(listener: TcpListener, counter: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let counter = counter.clone();
        // Clients that hang up in the middle belong to some tests, so an error here is fine.
        tokio::spawn(async move { drop(serve(stream, &counter).await) });
    }
}

async fn serve(stream: TcpStream, moved: &AtomicU64) -> std::io::Result<()> {
    let mut stream = BufReader::with_capacity(PIECE, stream);
    let mut line = String::new();
    let mut down = false;
    stream.read_line(&mut line).await?;
    down |= line.starts_with("GET ");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await?;
    }
    if down {
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n").as_bytes()).await?;
        return send_pattern(&mut stream, GIB, |piece| add(moved, piece)).await;
    }
    read_pattern(&mut stream, GIB, |piece| add(moved, piece)).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

const PIECE: usize = 64 << 10;

/// The byte at a position of the body. Neighbouring bytes and pieces differ, so that a lost or doubled piece is
/// noticed.
fn byte_at(place: u64) -> u8 {
    (place ^ (place >> 8) ^ (place >> 16)).to_le_bytes()[0]
}

fn piece_at(place: u64) -> Vec<u8> {
    (place..place + PIECE as u64).map(byte_at).collect()
}

/// The number of different pieces. Repeating them saves time.
const CYCLE: u64 = 256;

static PIECES: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| (0..CYCLE).map(|n| piece_at(n * PIECE as u64)).collect());

pub(crate) async fn send_pattern(
    to: &mut (impl AsyncWriteExt + Unpin),
    length: u64,
    mut told: impl FnMut(u64),
) -> std::io::Result<()> {
    for piece in PIECES.iter().cycle().take(usize::try_from(length).expect("64 bits") / PIECE) {
        to.write_all(piece).await?;
        told(PIECE as u64);
    }
    to.flush().await
}

/// Reads a body and compares every byte of it.
async fn read_pattern(
    from: &mut (impl AsyncReadExt + Unpin),
    length: u64,
    mut told: impl FnMut(u64),
) -> std::io::Result<()> {
    let mut got = vec![0; PIECE];
    for piece in PIECES.iter().cycle().take(usize::try_from(length).expect("64 bits") / PIECE) {
        from.read_exact(&mut got).await?;
        if got != *piece {
            return Err(std::io::Error::other("a piece of the body is not what was sent"));
        }
        told(PIECE as u64);
    }
    Ok(())
}

async fn gateway(site: &TestSite, service: &BulkService) -> Gateway {
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/endpoints", json!([format!("http://{}", service.address)]))
        .with("/routes/1/match", json!({"methods": ["GET", "PUT"], "path": "/{rest...}"}));
    Gateway::start(&policy).await
}

async fn head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.expect("connected");
        head.push_str(&line);
    }
    head
}

async fn connect(gateway: &Gateway) -> BufReader<TcpStream> {
    BufReader::with_capacity(PIECE, TcpStream::connect(gateway.public).await.expect("listens"))
}

/// The growth of the peak memory beyond `before`.
pub(crate) fn peak_growth(gateway: &Gateway, before: usize) -> usize {
    gateway.peak().saturating_sub(before)
}

/// Sends a first request, so that the gateway has allocated what all requests share. Returns the memory in use.
pub(crate) async fn warm_up(gateway: &Gateway) -> usize {
    let mut client = connect(gateway).await;
    client.write_all(b"GET /nowhere\\ HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
    head(&mut client).await;
    gateway.reset_peak();
    gateway.resident()
}

/// A gateway before the service, its memory before anything is streamed, and a client.
async fn start_measured(site: &TestSite, service: &BulkService) -> (Gateway, usize, BufReader<TcpStream>) {
    let gateway = gateway(site, service).await;
    let before = warm_up(&gateway).await;
    let client = connect(&gateway).await;
    (gateway, before, client)
}

/// An upload of a gibibyte arrives intact, and the memory of the gateway does not grow with it.
#[tokio::test]
async fn gibibyte_upload_keeps_memory_flat() {
    let site = TestSite::fresh().await;
    let service = BulkService::start().await;
    let (gateway, before, mut client) = start_measured(&site, &service).await;
    let request = format!("PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\n\r\n");
    client.write_all(request.as_bytes()).await.expect("connected");
    tokio::time::timeout(Duration::from_secs(120), send_pattern(&mut client, GIB, |_| ()))
        .await
        .expect("a gibibyte takes seconds")
        .expect("taken in full");
    let answer = wait_until("an answer", head(&mut client), || gateway.log()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(service.bytes_moved(), GIB, "the service compared every byte");
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
}

/// A download of a gibibyte arrives intact, and the memory of the gateway does not grow with it.
#[tokio::test]
async fn gibibyte_download_keeps_memory_flat() {
    let site = TestSite::fresh().await;
    let service = BulkService::start().await;
    let (gateway, before, mut client) = start_measured(&site, &service).await;
    client.write_all(b"GET /down HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    tokio::time::timeout(Duration::from_secs(120), read_pattern(&mut client, GIB, |_| ()))
        .await
        .expect("a gibibyte takes seconds")
        .expect("every byte is what was sent");
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
}

/// When a reader stops, the gateway reads no further from the upstream, and its memory does not grow.
#[tokio::test]
async fn stalled_reader_backpressures_upstream() {
    let site = TestSite::fresh().await;
    let service = BulkService::start().await;
    let (gateway, before, mut client) = start_measured(&site, &service).await;
    client.write_all(b"GET /down HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
    head(&mut client).await;
    read_pattern(&mut client, MIB, |_| ()).await.expect("the first of it");
    // Waits until no byte moves any more. This is polled, because no event reports it.
    let mut moved = 0;
    let still = async {
        while moved != service.bytes_moved() {
            moved = service.bytes_moved();
            tokio::time::sleep(QUIET).await;
        }
    };
    wait_until("the service to be held back", still, || service.bytes_moved()).await;
    // The bound includes the kernel's buffers for two connections on loopback, and those of the gateway.
    assert!(
        service.bytes_moved() < 64 * MIB,
        "{} MiB were taken for a client that reads nothing",
        service.bytes_moved() / MIB
    );
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
    read_pattern_on(&mut client).await;
    assert!(peak_growth(&gateway, before) < FLAT, "grew by {} MiB", peak_growth(&gateway, before) >> 20);
}

/// Reads on, and asserts that the stream continues where it was held back.
async fn read_pattern_on(client: &mut BufReader<TcpStream>) {
    let begun = usize::try_from(MIB).expect("64 bits") / PIECE;
    let mut got = vec![0; PIECE];
    for piece in PIECES.iter().cycle().skip(begun).take(64 * begun) {
        client.read_exact(&mut got).await.expect("goes on");
        assert!(got == *piece, "a piece of the body is not what was sent");
    }
}
