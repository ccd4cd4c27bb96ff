//! A request under a warm key costs at most twice the allocations of a request without a lock, and wakes no second thread.
//! Both costs are counted, not timed.
//!
//! The binary under test has an allocator that counts (`gateway/fencegate/src/counted.rs`).

use std::{collections::BTreeMap, fs, path::Path};

use fencegate_tests::{
    client::{Http1Client, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    site::TestSite,
};
use serde_json::json;
use tokio::{
    io::AsyncBufReadExt as _,
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, UnixStream},
};

/// Requests in one measurement.
const REQUESTS: usize = 200;
/// Work beside the requests, such as heartbeats, disturbs only some of the measurements. The smallest count is
/// therefore used.
const MEASUREMENTS: usize = 5;

/// Starts a service that answers every request.
async fn service() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

async fn serve(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
        if line == "\r\n"
            && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err()
        {
            return;
        }
        line.clear();
    }
}

async fn allocations(counts: &Path) -> u64 {
    let mut count = String::new();
    let mut counter = UnixStream::connect(counts).await.expect("it counts");
    counter.read_to_string(&mut count).await.expect("a number");
    count.trim().parse().expect("a number")
}

/// How often each thread has stopped to wait, by its id.
fn thread_waits(gateway: &Gateway) -> BTreeMap<String, u64> {
    let threads = fs::read_dir(format!("/proc/{}/task", gateway.pid())).expect("it runs");
    let threads = threads.map(|thread| thread.expect("a thread").path());
    threads
        .map(|thread| {
            let status = fs::read_to_string(thread.join("status")).expect("it lives");
            let waited = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            (thread.display().to_string(), waited.expect("counted").trim().parse().expect("a number"))
        })
        .collect()
}

/// The number of threads that have stopped to wait at least once for every second request.
fn threads_waiting_per_request(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> usize {
    let often = |(thread, waited): &(&String, &u64)| {
        **waited - before.get(*thread).copied().unwrap_or(0) >= (REQUESTS / 2) as u64
    };
    after.iter().filter(often).count()
}

/// A request under a warm key makes at most twice the allocations of an unfenced request, and wakes no second thread.
#[tokio::test]
async fn warm_key_costs_few_allocations() {
    let site = TestSite::alone().await;
    let endpoints = json!([format!("http://{}", service().await)]);
    let policy = site
        .policy("gw-1")
        .with("/upstreams", json!({"service": {"endpoints": endpoints, "fencing": "upstream"}}))
        .with(
            "/routes",
            json!([
                {"name": "open", "upstream": "service", "match": {"path": "/open/{key}"}, "fence": "none"},
                {"name": "warm", "upstream": "service", "match": {"path": "/warm/{key}"},
                 "fence": {"key": "warm/{path.key}", "hold": {"mode": "cached", "linger": "60s"}}},
            ]),
        );
    let home = tempfile::tempdir().expect("a folder");
    let counts = home.path().join("counts");
    let gateway = GatewayLaunch::new(&policy).with_workers(1).with_allocation_socket(&counts).start().await;
    gateway.wait_ready().await;
    let mut client = Http1Client::connect(gateway.public).await.expect("listens");
    let mut costs = BTreeMap::new();
    for path in ["/open/1", "/warm/1"] {
        let mut least = u64::MAX;
        for _ in 0..MEASUREMENTS {
            // The first request creates what later requests reuse, so it is not counted.
            assert_eq!(client.send(&TestRequest::get(path)).await.expect("an answer").status, 200);
            let before = allocations(&counts).await;
            let waited = thread_waits(&gateway);
            for _ in 0..REQUESTS {
                assert_eq!(client.send(&TestRequest::get(path)).await.expect("an answer").status, 200);
            }
            least = least.min(allocations(&counts).await - before);
            let threads = threads_waiting_per_request(&waited, &thread_waits(&gateway));
            assert!(threads <= 1, "{threads} threads work for {path}");
        }
        costs.insert(path, least as f64 / REQUESTS as f64);
    }
    let open = costs["/open/1"];
    let warm = costs["/warm/1"];
    println!("{open} allocations without a lock, {warm} under a warm key");
    assert!(open > 1.0 && warm <= 2.0 * open, "{costs:?}");
}
