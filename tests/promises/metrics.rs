//! Metrics count what happened, and their number does not depend on what clients send.

use std::collections::BTreeSet;

use fencegate_tests::{
    client::{Ask, Raw},
    gateway::{Gateway, Metrics},
    load::{Load, Plan},
    origin::{Act, Latch, Reply},
    site::Site,
};

fn names(metrics: &Metrics) -> BTreeSet<String> {
    metrics.0.keys().cloned().collect()
}

fn sum(metrics: &Metrics, name: &str, labels: &[&str]) -> f64 {
    let wanted = |sample: &str| {
        sample.split('{').next() == Some(name) && labels.iter().all(|label| sample.contains(label))
    };
    metrics.0.iter().filter(|(sample, _)| wanted(sample)).map(|(_, value)| value).sum()
}

/// Every kind of answer that the random requests below can get.
async fn one_of_each(gateway: &Gateway) {
    for ask in [
        Ask::get("/x"),
        Ask::post("/pay/7"),
        Ask::post("/none"),
        Ask::post(&format!("/pay/{}", "x".repeat(600))),
    ] {
        gateway.send(&ask).await;
    }
}

fn random(below: u32) -> u32 {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).expect("the kernel has randomness");
    u32::from_ne_bytes(bytes) % below
}

fn random_request() -> Ask {
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
    Ask::with_method(method, &path).field("host", &host).field("user-agent", &random(u32::MAX).to_string())
}

#[tokio::test]
async fn random_requests_add_no_series() {
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    one_of_each(&gateway).await;
    let before = gateway.metrics().await;
    assert!(
        before.0.keys().all(|name| name.starts_with("fencegate_") || name.starts_with("process_")),
        "{before:?}"
    );
    assert!(before.0.len() > 10, "{before:?}");

    for _ in 0..500 {
        gateway.send(&random_request()).await;
    }
    let after = gateway.metrics().await;
    assert_eq!(names(&after), names(&before));
    let count = |metrics| sum(metrics, "fencegate_requests_total", &[]);
    assert!(
        (count(&after) - count(&before) - 500.0).abs() < 0.5,
        "{} then {}",
        count(&before),
        count(&after)
    );
}

#[tokio::test]
async fn requests_and_refusals_are_counted_by_route_and_reason() {
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    for _ in 0..3 {
        gateway.send(&Ask::post("/pay/7")).await;
    }
    gateway.send(&Ask::post("/none")).await;
    let metrics = gateway.metrics().await;
    let count = |name: &str, labels: &[&str]| sum(&metrics, name, labels) as u64;
    assert_eq!(count("fencegate_requests_total", &["route=\"pay\"", "code=\"200\""]), 3);
    assert_eq!(count("fencegate_requests_total", &["route=\"none\"", "code=\"404\""]), 1);
    assert_eq!(count("fencegate_rejections_total", &["route=\"none\"", "reason=\"no-route\""]), 1);
}

/// Whoever looks at the gauge before a restart wants to know whether anybody would notice.
#[tokio::test]
async fn an_unfenced_request_is_in_flight_until_the_last_byte_of_its_answer() {
    const GAUGE: &str = "fencegate_requests_in_flight";
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let latch = Latch::default();
    site.origin.script("/x", [Act::HoldInBody(latch.clone(), Reply::with_body(vec![7; 1 << 20]))]);
    let mut client = Raw::connect(gateway.public).await.expect("listens");
    client.say("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("connected");
    let mut answer = client.head().await.expect("a head");
    assert_eq!(gateway.metrics().await.sum(GAUGE, &["\"read\""]), 1.0);
    latch.let_go();
    client.body(&mut answer).await.expect("the rest");
    gateway.series_becomes(GAUGE, &["\"read\""], 0.0).await;
}

#[tokio::test]
async fn gauges_return_to_zero_after_load() {
    const GAUGES: [&str; 3] =
        ["fencegate_requests_in_flight", "fencegate_lock_waiters", "fencegate_locks_held"];
    let site = Site::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let latch = site.origin.holds("/pay/0");
    let holder = gateway.begin(Ask::post("/pay/0"));
    site.origin.request("/pay/0", 1).await;
    let held = gateway.metrics().await;
    let plan = Plan {
        gateways: vec![gateway.public],
        paths: vec!["/pay/0".into()],
        clients: 8,
        requests: 5,
        pause: std::time::Duration::ZERO,
    };
    let load = Load::start("load", &plan);
    latch.let_go();
    load.end().await;
    assert_eq!(holder.answer().await.status, 200);
    site.tree().await.locks_become("none left", <[String]>::is_empty).await;
    let after = gateway.metrics().await;
    assert!(sum(&held, "fencegate_requests_in_flight", &[]) >= 1.0, "{held:?}");
    for gauge in GAUGES {
        assert!(sum(&after, gauge, &[]).abs() < 0.5, "{gauge}: {after:?}");
    }
}
