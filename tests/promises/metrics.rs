//! Metrics count what happened, and the number of their series does not depend on the requests of clients.
//!
//! 3,000 random requests, and 10,000 among the faults, add no series. Gauges return to zero. The exposed and the
//! documented metrics are the same.

use std::{
    collections::BTreeSet,
    io::Write,
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use fencegate_tests::{
    client::{Http1Client, RawClient, TestRequest},
    effort::effort,
    gateway::{Gateway, MetricSamples},
    guarded::GuardedSite,
    load::{LoadPlan, RunningLoad},
    origin::{Latch, OriginAction, OriginReply},
    site::TestSite,
};
use futures_util::future::join_all;
use serde_json::json;

fn names(metrics: &MetricSamples) -> BTreeSet<String> {
    metrics.0.keys().cloned().collect()
}

fn sum(metrics: &MetricSamples, name: &str, labels: &[&str]) -> f64 {
    let wanted = |sample: &str| {
        sample.split('{').next() == Some(name) && labels.iter().all(|label| sample.contains(label))
    };
    metrics.0.iter().filter(|(sample, _)| wanted(sample)).map(|(_, value)| value).sum()
}

/// Sends requests that get every kind of answer which the random requests can get.
async fn send_each_kind(gateway: &Gateway) {
    for ask in [
        TestRequest::get("/x"),
        TestRequest::post("/pay/7"),
        TestRequest::post("/none"),
        TestRequest::post(&format!("/pay/{}", "x".repeat(600))),
    ] {
        gateway.send(&ask).await;
    }
}

fn random(below: u32) -> u32 {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).expect("the kernel has randomness");
    u32::from_ne_bytes(bytes) % below
}

fn random_request() -> TestRequest {
    const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "BREW", "PATCH"];
    let path = match random(5) {
        0 => format!("/pay/{}", random(u32::MAX)),
        1 => format!("/pay/{}{}", "y".repeat(600), random(u32::MAX)),
        2 => format!("/x/{}?a={}", random(u32::MAX), random(9)),
        3 => format!("/{}/{}", random(u32::MAX), random(u32::MAX)),
        _ => format!("/pay/{}/more", random(u32::MAX)),
    };
    let method = METHODS[random(6) as usize];
    let host = format!("h{}.example", random(u32::MAX));
    let client = Ipv4Addr::from(random(u32::MAX)).to_string();
    TestRequest::with_method(method, &path)
        .field("host", &host)
        .field("user-agent", &random(u32::MAX).to_string())
        .field("x-forwarded-for", &client)
        .field("idempotency-key", &format!("\"{}\"", random(u32::MAX)))
}

/// Sends this number of random requests over one connection, and over a new one where it was closed.
async fn send_random_requests(gateway: &Gateway, requests: usize) {
    let mut client = None;
    for _ in 0..requests {
        let connected = match client.take() {
            Some(connected) => connected,
            None => Http1Client::connect(gateway.public).await.expect("the gateway listens"),
        };
        let mut connected: Http1Client = connected;
        let ask = random_request();
        client = match connected.send(&ask).await {
            Ok(_) => Some(connected),
            // The connection was closed after a refusal, just when the client wrote. The request is sent once more
            // and counts once.
            Err(_) => {
                gateway.send(&ask).await;
                None
            }
        };
    }
}

#[tokio::test]
async fn random_requests_add_no_series() {
    const CONNECTIONS: usize = 8;
    let requests = effort(3000, 10_000);
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with_cached_hold()
        .with("/listeners/public/trusted_peers", json!(["127.0.0.0/8"]))
        .with("/listeners/public/limits/per_client", 100);
    let gateway = Gateway::start(&policy).await;
    send_each_kind(&gateway).await;
    let before = gateway.metrics().await;

    join_all((0..CONNECTIONS).map(|_| send_random_requests(&gateway, requests / CONNECTIONS))).await;
    let after = gateway.metrics().await;
    // These series appear after the first look through ZooKeeper, independent of requests.
    let of_requests = |metrics: &MetricSamples| {
        let mut names = names(metrics);
        names.retain(|name| !name.starts_with("fencegate_operations_unknown"));
        names
    };
    assert_eq!(of_requests(&after), of_requests(&before));
    let count = |metrics| sum(metrics, "fencegate_requests_total", &[]);
    assert!(count(&after) - count(&before) >= requests as f64, "{} then {}", count(&before), count(&after));
}

/// The metric families in a text of `/metrics`.
fn families(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// The metric families that the documentation lists for `who`.
fn documented(who: &str) -> BTreeSet<String> {
    let rows = include_str!("../../deploy/METRICS.md").lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let named = cells.filter(|cells| cells[3] == who || cells[3] == "both");
    named.map(|cells| cells[0].trim_start_matches("| `").trim_end_matches('`').to_owned()).collect()
}

/// Every exposed metric is documented, and `promtool check metrics` finds nothing wrong.
#[tokio::test]
async fn exposed_metrics_are_documented_and_valid() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(gateway.send(&TestRequest::post("/none")).await.status, 404);
    for (who, process) in [("gateway", &*gateway), ("guard", &*guard)] {
        let text = process.admin("/metrics").await.body;
        let text = std::str::from_utf8(&text).expect("metrics are text");
        let exposed = families(text);
        let unknown: Vec<_> = exposed.difference(&documented(who)).cloned().collect();
        assert!(exposed.len() > 20 && unknown.is_empty(), "{who}: {unknown:?}");
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool is installed by tests/run");
        promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        let said = promtool.wait_with_output().expect("it ends");
        assert!(said.status.success() && said.stderr.is_empty() && said.stdout.is_empty(), "{who}: {said:?}");
    }
}

/// Requests are counted by route and status, refusals by route and reason.
#[tokio::test]
async fn requests_counted_by_route_and_reason() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for _ in 0..3 {
        gateway.send(&TestRequest::post("/pay/7")).await;
    }
    gateway.send(&TestRequest::post("/none")).await;
    let metrics = gateway.metrics().await;
    let count = |name: &str, labels: &[&str]| sum(&metrics, name, labels) as u64;
    assert_eq!(count("fencegate_requests_total", &["route=\"pay\"", "code=\"200\""]), 3);
    assert_eq!(count("fencegate_requests_total", &["route=\"none\"", "code=\"404\""]), 1);
    assert_eq!(count("fencegate_rejections_total", &["route=\"none\"", "reason=\"no-route\""]), 1);
}

/// An unfenced request is in flight until the last byte of its response.
///
/// An operator who checks the gauge before a restart must see every request that the restart would break.
#[tokio::test]
async fn request_in_flight_until_last_byte() {
    const GAUGE: &str = "fencegate_requests_in_flight";
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let latch = Latch::default();
    site.origin
        .script("/x", [OriginAction::HoldInBody(latch.clone(), OriginReply::with_body(vec![7; 1 << 20]))]);
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
    let mut answer = client.read_head().await.expect("a head");
    assert_eq!(gateway.metrics().await.sum(GAUGE, &["\"read\""]), 1.0);
    latch.release();
    client.read_body(&mut answer).await.expect("the rest");
    gateway.wait_series(GAUGE, &["\"read\""], 0.0).await;
}

#[tokio::test]
async fn gauges_return_to_zero_after_load() {
    const GAUGES: [&str; 3] =
        ["fencegate_requests_in_flight", "fencegate_lock_waiters", "fencegate_locks_held"];
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/0")).await;
    let held = gateway.metrics().await;
    let plan = LoadPlan {
        gateways: vec![gateway.public],
        paths: vec!["/pay/0".into()],
        clients: 8,
        requests: 5,
        pause: std::time::Duration::ZERO,
    };
    let load = RunningLoad::start("load", &plan);
    holder.release();
    load.end().await;
    assert_eq!(holder.answer().await.status, 200);
    site.tree().await.assert_no_locks().await;
    let after = gateway.metrics().await;
    assert!(sum(&held, "fencegate_requests_in_flight", &[]) >= 1.0, "{held:?}");
    for gauge in GAUGES {
        assert!(sum(&after, gauge, &[]).abs() < 0.5, "{gauge}: {after:?}");
    }
}
