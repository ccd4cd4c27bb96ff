//! Clients that flood the gateway, send slowly or read nothing cost bounded memory, and take neither a key nor an answer
//! from other clients.
//!
//! The load is made of floods of HTTP/2 frames, 10,000 streams, the three modes of slowhttptest, and 4,000 idle and
//! slow connections. Other clients use the same key meanwhile. Afterwards no request is left in flight.

use std::{cell::Cell, net::SocketAddr, time::Duration};

use fencegate_serve::rlimit;
use fencegate_testkit::{child::ChildProcess, wait::PATIENCE};
use fencegate_tests::{
    client::{
        RawClient, TestRequest,
        frames::{
            CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, RawH2Client, SETTINGS, frame,
            literal, post,
        },
    },
    effort::effort,
    gateway::Gateway,
    policy::TestPolicy,
    site::TestSite,
};
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::streaming::BulkService;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The time limit for one request of another client while the machine is busy with the abuse.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// Other clients send requests during the abuse, each over a new connection. One request needs the key that the abusing
/// clients request, the other one needs no key.
async fn run_beside_clients<R>(gateway: &Gateway, abuse: impl Future<Output = R>) -> R {
    let over = Cell::new(false);
    let others = async {
        let mut rounds = 0;
        let mut slowest = Duration::ZERO;
        while !over.get() || rounds < FEWEST {
            for request in [TestRequest::post("/pay/7"), TestRequest::get("/x")] {
                let answer = gateway.send(&request).await;
                assert_eq!(answer.status, 200, "{request:?}: {}", gateway.log());
                slowest = slowest.max(answer.took());
            }
            rounds += 1;
        }
        println!("others were served {rounds} times, at worst within {slowest:?}");
        assert!(slowest < SERVED_WITHIN, "somebody waited for {slowest:?}");
    };
    let abuse = async {
        let done = abuse.await;
        over.set(true);
        done
    };
    tokio::join!(abuse, others).0
}

const FEWEST: usize = 3;

async fn wait_nothing_left(gateway: &Gateway) {
    for gauge in ["fencegate_requests_in_flight", "fencegate_lock_waiters", "fencegate_locks_held"] {
        gateway.wait_gauge(gauge, 0.0).await;
    }
}

/// The peak of resident memory during the abuse, less the memory that was resident before.
async fn peak_growth<R>(gateway: &Gateway, abuse: impl Future<Output = R>) -> (R, usize) {
    for _ in 0..20 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    }
    gateway.reset_peak();
    let before = gateway.resident();
    let done = run_beside_clients(gateway, abuse).await;
    (done, gateway.peak().saturating_sub(before))
}

/// Runs a program to its end, and returns its output.
async fn run_program(program: &str, arguments: &[String]) -> String {
    let child = ChildProcess::spawn(program, arguments).expect("setpriv");
    let ended = spawn_blocking(move || (child.wait(PATIENCE * 2), child.log())).await.expect("no panic");
    let (status, log) = ended;
    assert!(status.is_some(), "{program} goes on for ever:\n{log}");
    log
}

fn opened_request(n: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, 2 * n + 1, &post("/pay/7"))
}

/// Sends frames of one kind on a connection, as fast as the gateway takes them. The flood stops when the connection
/// ends or the time is over.
async fn flood_frames(public: SocketAddr, first: Vec<u8>, frames: impl Fn(u32) -> Vec<u8>) {
    let flooded = Duration::from_millis(effort(1500, 4000) as u64);
    let mut bare = RawH2Client::connect(public).await;
    let flooding = bare.send_without_reading(std::iter::once(first).chain((0..).map(frames)));
    drop(tokio::time::timeout(flooded, flooding).await);
}

/// The bound on the growth by one flood: the windows and buffers of one connection, and slack of the allocator.
const ONE_CONNECTION: usize = 16 * MIB;

/// Each HTTP/2 flood grows the gateway by less than 16 MiB, and other clients are served within 5 s during the flood.
#[tokio::test]
async fn http2_floods_cost_bounded_memory() {
    let site = TestSite::alone().await;
    let gateway = site.gateway("gw-1").await;
    let public = gateway.public;
    let begun = frame(HEADERS, END_STREAM, 1, &post("/pay/7"));
    let cancelled =
        |n| [opened_request(n, END_STREAM), frame(RST_STREAM, 0, 2 * n + 1, &8_u32.to_be_bytes())].concat();
    let endless = |n: u32| frame(CONTINUATION, 0, 1, &literal(&format!("x-{:04}", n % 10_000), "y"));
    let settings = |_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let pings = |_| frame(PING, 0, 0, b"01234567");
    for (name, first, frames) in [
        ("rapid reset (CVE-2023-44487)", vec![], &cancelled as &dyn Fn(u32) -> Vec<u8>),
        ("continuation (CVE-2024-27316)", begun, &endless),
        ("settings", vec![], &settings),
        ("pings", vec![], &pings),
        ("streams that are opened and left", vec![], &|n| opened_request(n, 0)),
        ("empty continuations", frame(HEADERS, 0, 1, &post("/pay/7")), &|_| frame(CONTINUATION, 0, 1, b"")),
    ] {
        let ((), grown) = peak_growth(&gateway, flood_frames(public, first, frames)).await;
        assert!(grown < ONE_CONNECTION, "{name}: grew by {} KiB", grown / KIB);
        println!("{name}: grew by {} KiB", grown / KIB);
    }
    wait_nothing_left(&gateway).await;
}

/// Ten thousand streams of one connection all succeed in bounded memory, and other clients are served meanwhile.
#[tokio::test]
async fn ten_thousand_streams_are_all_served() {
    let site = TestSite::alone().await;
    let gateway = site.gateway("gw-1").await;
    let url = format!("http://{}/x", gateway.public);
    let arguments = ["-n10000", "-c1", "-m100", "-t1", &url].map(str::to_owned);
    let (output, grown) = peak_growth(&gateway, run_program("h2load", &arguments)).await;
    assert!(output.contains("10000 succeeded, 0 failed, 0 errored"), "{output}");
    assert!(output.contains("status codes: 10000 2xx"), "{output}");
    assert!(grown < ONE_CONNECTION, "grew by {} KiB", grown / KIB);
    wait_nothing_left(&gateway).await;
}

/// `GET /large` leads to a service whose answer is larger than any client here reads.
fn with_large(policy: TestPolicy, service: &BulkService) -> TestPolicy {
    let files = json!({"endpoints": [format!("http://{}", service.address)], "fencing": "none"});
    let large = json!({"methods": ["GET"], "path": "/large"});
    let read = json!({"methods": ["GET"], "path": "/{rest...}"});
    policy
        .with("/upstreams/files", files)
        .with("/routes/1", json!({"name": "large", "upstream": "files", "match": large, "fence": "none"}))
        .with_route(json!({"name": "read", "upstream": "ledger", "match": read, "fence": "none"}))
}

/// The gateway's memory for one slow client: the buffers and the state of a connection whose request is not complete.
const SLOW_CLIENT: usize = 64 * KIB;
/// The further memory for one slow reader: answer bytes that wait to be written, answer bytes that were read, and the
/// connection to the service.
const SLOW_READER: usize = 256 * KIB;

/// The number of clients that slowhttptest plays.
const SLOW: usize = 1000;

/// A thousand clients with slow heads, bodies or reads delay no other client, and memory for each of them is bounded.
#[tokio::test]
async fn slow_clients_delay_no_other_client() {
    let site = TestSite::alone().await;
    let service = BulkService::start().await;
    // slowhttptest opens 500 connections a second (`-r500`); each one sends or reads something every 2 s (`-i2`).
    let seconds = format!("-l{}", effort(4, 10));
    // Each kind has a gateway of its own.
    let slow = async |name, mode: &str, method, path, each| {
        let gateway = Gateway::start(&with_large(site.policy(name), &service)).await;
        let clients = format!("-c{SLOW}");
        let url = format!("http://{}{path}", gateway.public);
        let arguments = [
            mode, &clients, "-r500", "-i2", &seconds, "-x16", "-p5", "-w1", "-y2", "-n2", "-z1", "-t",
            method, "-u", &url,
        ];
        let (output, grown) =
            peak_growth(&gateway, run_program("slowhttptest", &arguments.map(str::to_owned))).await;
        println!(
            "slowhttptest {mode}: grew by {} KiB, {} for each\n{}",
            grown / KIB,
            grown / SLOW,
            last_log_lines(&output)
        );
        assert!(grown < SLOW * each, "{mode}: grew by {} KiB", grown / KIB);
        assert!(!output.contains("service available:   NO"), "{mode}: {output}");
        wait_nothing_left(&gateway).await;
    };
    tokio::join!(
        slow("heads", "-H", "POST", "/pay/7", SLOW_CLIENT),
        slow("bodies", "-B", "POST", "/pay/8", SLOW_CLIENT),
        slow("readers", "-X", "GET", "/large", SLOW_READER),
    );
}

fn last_log_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// The number of clients of each slow kind.
const EACH: usize = 1200;
const READERS: usize = 1000;
/// The bound on the answer bytes taken for a client that does not read: gateway buffers, and kernel buffers on both
/// sides of the gateway.
const TAKEN: u64 = 1 << 20;

/// Over four thousand idle and slow connections delay no other client, and memory for each of them is bounded.
#[tokio::test]
async fn four_thousand_connections_delay_no_client() {
    rlimit::raise_descriptor_limit();
    let site = TestSite::alone().await;
    let long = json!({"request_headers": "60s", "request_body": "60s", "detect": "60s", "idle": "60s"});
    let service = BulkService::start().await;
    let policy = with_large(site.policy("gw-1"), &service)
        .with("/listeners/public/limits", json!({"connections": 5000}))
        .with("/listeners/public/timeouts", long);
    let gateway = Gateway::start(&policy).await;
    let ((), grown) = peak_growth(&gateway, async {
        let mut kept = Vec::new();
        for (count, bytes) in [
            (EACH, ""),
            (EACH, "POST /pay/7 HTTP/1.1\r\nHost: a\r\nX-Slow: "),
            (EACH, "POST /pay/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhal"),
            (READERS, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"),
        ] {
            let public = gateway.public;
            let clients = stream::iter(0..count).map(|_| send_and_stall(public, bytes));
            kept.extend(clients.buffer_unordered(50).collect::<Vec<_>>().await);
        }
        gateway.wait_series_at_least("fencegate_requests_in_flight", &["\"pay\""], EACH as f64).await;
        gateway.wait_series_at_least("fencegate_requests_total", &["\"large\""], READERS as f64).await;
        // Another client is served while all of these connections are open.
        for _ in 0..10 {
            assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
        }
        // Kernel buffers do not show in the memory figures of a process, so they are measured here.
        let taken = service.bytes_moved() / READERS as u64;
        println!("{} KiB were taken for each reader that reads nothing", taken >> 10);
        assert!(taken < TAKEN, "{} KiB were taken for each", taken >> 10);
        drop(kept);
    })
    .await;
    println!("four thousand connections: grew by {} MiB", grown / MIB);
    assert!(grown < 3 * EACH * SLOW_CLIENT + READERS * SLOW_READER, "grew by {} MiB", grown / MIB);
    wait_nothing_left(&gateway).await;
}

/// Sends some bytes, and then neither sends nor reads.
async fn send_and_stall(public: SocketAddr, bytes: &str) -> RawClient {
    let mut client = RawClient::connect_narrow(public).await.expect("listens");
    client.send(bytes).await.expect("connected");
    client
}
