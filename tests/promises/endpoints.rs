//! Requests are balanced over the usable endpoints of an upstream. An endpoint that fails gets no requests until it
//! recovers, unless it is the last one.
//!
//! Requests are balanced in turn, to the least busy endpoint, or by key. The tests cover health checks, ejection, and
//! limits for connections. A request that could not be sent goes to another endpoint.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    ensemble::free_address,
    gateway::{Gateway, LogLine},
    history::History,
    leases::{ClientLease, LeaseTokens},
    origin::{OriginAction, OriginLog, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

fn with_endpoints(policy: TestPolicy, doors: &[SocketAddr]) -> TestPolicy {
    let endpoints: Vec<String> = doors.iter().map(|door| format!("http://{door}")).collect();
    policy.with("/upstreams/ledger/endpoints", endpoints)
}

fn open_doors(site: &TestSite) -> [SocketAddr; 3] {
    ["one", "two", "three"].map(|name| site.origin.open_listener(name))
}

/// The endpoints that received the requests for this path, in order.
fn endpoints_of(log: &OriginLog, path: &str) -> Vec<String> {
    log.requests_for(path).map(|record| record.gateway.clone()).collect()
}

async fn send_gets(gateway: &Gateway, path: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(gateway.send(&TestRequest::get(path)).await.status, 200);
    }
}

#[tokio::test]
async fn round_robin_balances_evenly() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&with_endpoints(site.policy("gw-1"), &open_doors(&site))).await;
    send_gets(&gateway, "/a", 9).await;
    let log = site.origin.log();
    let came = endpoints_of(&log, "/a");
    for name in ["one", "two", "three"] {
        assert_eq!(came.iter().filter(|door| *door == name).count(), 3, "{came:?}");
    }
}

/// With `least-busy` an endpoint that works on a request gets no further one while other endpoints are idle.
#[tokio::test]
async fn least_busy_avoids_busy_endpoint() {
    let site = TestSite::fresh().await;
    let policy = with_endpoints(site.policy("gw-1"), &open_doors(&site))
        .with("/upstreams/ledger/balance", "least-busy");
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    let busy = held.record.gateway.clone();
    send_gets(&gateway, "/a", 6).await;
    let came: BTreeSet<String> = endpoints_of(&site.origin.log(), "/a").into_iter().collect();
    assert_eq!(came.len(), 2, "{came:?}");
    assert!(!came.contains(&busy), "{came:?} beside {busy}");
    assert_eq!(held.finish().await.status, 200);
}

/// With `by-key` the endpoint of a fenced request depends on its key, and that of an unfenced request on its path.
#[tokio::test]
async fn by_key_pins_key_to_endpoint() {
    let site = TestSite::fresh().await;
    let policy =
        with_endpoints(site.policy("gw-1"), &open_doors(&site)).with("/upstreams/ledger/balance", "by-key");
    let gateway = Gateway::start(&policy).await;
    let mut used = BTreeSet::new();
    for n in 0..12 {
        let path = format!("/pay/{n}");
        for _ in 0..3 {
            assert_eq!(gateway.send(&TestRequest::post(&path)).await.status, 200);
        }
        let came: BTreeSet<String> = endpoints_of(&site.origin.log(), &path).into_iter().collect();
        assert_eq!(came.len(), 1, "{path}: {came:?}");
        used.extend(came);
    }
    send_gets(&gateway, "/free", 3).await;
    assert_eq!(endpoints_of(&site.origin.log(), "/free").into_iter().collect::<BTreeSet<_>>().len(), 1);
    assert!(used.len() > 1, "all keys went to {used:?}");
    History::from_log(&site.origin.log()).assert_holds();
}

/// An endpoint that fails repeatedly is ejected, and becomes usable again after `eject.for`.
#[tokio::test]
async fn failing_endpoint_is_ejected_and_returns() {
    let site = TestSite::fresh().await;
    let [one, two, _] = open_doors(&site);
    let dead = free_address();
    let policy = with_endpoints(site.policy("gw-1"), &[one, dead, two])
        .with("/upstreams/ledger/eject", json!({"failures": 2, "for": "1s"}));
    let gateway = Gateway::start(&policy).await;
    send_gets(&gateway, "/a", 12).await;
    gateway.wait_line("endpoint.ejected", |line: &LogLine| line.message() == "endpoint.ejected").await;
    let metrics = gateway.metrics().await;
    let label = format!("endpoint=\"{dead}\"");
    let sum = |name: &str, label: &str| metrics.sum(name, &[label]) as u64;
    assert_eq!(sum("fencegate_upstream_ejections_total", &label), 1);
    assert_eq!(sum("fencegate_upstream_endpoints", "state=\"usable\""), 2);
    assert_eq!(sum("fencegate_upstream_endpoints", "state=\"ejected\""), 1);
    let back = async {
        while gateway.metrics().await.sum("fencegate_upstream_endpoints", &["state=\"usable\""]) < 2.5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("the endpoint to come back", back, || gateway.log()).await;
}

/// A 503 counts as a failure of the endpoint and a 500 does not; the last usable endpoint is never ejected.
#[tokio::test]
async fn status_503_counts_as_failure() {
    let site = TestSite::fresh().await;
    let [sick, well, _] = open_doors(&site);
    let policy = with_endpoints(site.policy("gw-1"), &[sick, well])
        .with("/upstreams/ledger/eject", json!({"failures": 3, "for": "60s"}));
    let gateway = Gateway::start(&policy).await;
    site.origin.set_default_action(OriginAction::now(OriginReply::ok().status(500)));
    for _ in 0..10 {
        gateway.send(&TestRequest::get("/a")).await;
    }
    let ejected = || async { gateway.metrics().await.sum("fencegate_upstream_ejections_total", &[]) as u64 };
    assert_eq!(ejected().await, 0, "a 500 is the answer of a service that works");
    site.origin.set_default_action(OriginAction::now(OriginReply::ok().status(503)));
    for _ in 0..12 {
        assert_eq!(gateway.send(&TestRequest::get("/a")).await.status, 503);
    }
    assert_eq!(ejected().await, 1, "the last one is never ejected");
}

/// The only endpoint of an upstream gets every request, however often its requests and health checks fail.
#[tokio::test]
async fn only_endpoint_is_never_excluded() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/eject", json!({"failures": 1, "for": "60s"}))
        .with("/upstreams/ledger/health", json!({"path": "/health", "interval": "50ms", "unhealthy": 1}));
    let gateway = Gateway::start(&policy).await;
    site.origin.set_default_action(OriginAction::now(OriginReply::ok().status(503)));
    gateway.wait_line("unhealthy", |line: &LogLine| line.field("state") == "unhealthy").await;
    for _ in 0..5 {
        assert_eq!(gateway.send(&TestRequest::get("/a")).await.status, 503, "its own answer");
    }
    assert_eq!(site.origin.count("/a"), 5);
}

/// An endpoint whose health checks fail gets no request until they succeed; health checks carry no fencing field.
#[tokio::test]
async fn unhealthy_endpoint_gets_no_requests() {
    let site = TestSite::fresh().await;
    let other = TestSite::fresh().await;
    let sick = other.origin.open_listener("sick");
    let well = site.origin.open_listener("well");
    let health = json!({"path": "/health?deep=1", "interval": "50ms", "healthy": 2, "unhealthy": 2});
    let policy = with_endpoints(site.policy("gw-1"), &[sick, well]).with("/upstreams/ledger/health", health);
    other.origin.set_default_action(OriginAction::now(OriginReply::ok().status(500)));
    let gateway = Gateway::start(&policy).await;
    gateway.wait_line("unhealthy", |line: &LogLine| line.field("state") == "unhealthy").await;
    send_gets(&gateway, "/a", 6).await;
    for _ in 0..3 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    }
    assert_eq!((other.origin.count("/a"), other.origin.count("/pay/7")), (0, 0));
    let check = other.origin.wait_for_request("/health?deep=1", 1).await;
    assert!(check.request.fields.iter().all(|field| !format!("{field:?}").contains("encing")), "{check:?}");
    other.origin.set_default_action(OriginAction::now(OriginReply::ok()));
    gateway.wait_line("usable", |line: &LogLine| line.field("state") == "usable").await;
    send_gets(&gateway, "/a", 4).await;
    assert_eq!(other.origin.count("/a"), 2);
}

/// A request that could not be sent goes to the next endpoint with a token of its own, unless `retries` is 0.
#[tokio::test]
async fn unsent_request_retries_at_next_endpoint() {
    let site = TestSite::fresh().await;
    let dead = free_address();
    let alive = site.origin.open_listener("alive");
    let policy = with_endpoints(site.policy("gw-1").with_cached_hold(), &[dead, alive])
        .with("/upstreams/ledger/eject", json!({"failures": 1000}));
    let gateway = Gateway::start(&policy).await;
    for _ in 0..6 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    }
    History::from_log(&site.origin.log()).assert_holds();
    let none = with_endpoints(site.policy("gw-2"), &[dead, alive])
        .with("/upstreams/ledger/retries", 0)
        .with("/upstreams/ledger/eject", json!({"failures": 1000}));
    let gateway = Gateway::start(&none).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let answer = gateway.send(&TestRequest::post("/pay/8")).await;
        statuses.push(answer.status);
        if answer.status == 502 {
            assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        }
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 502, 502], "no further endpoint was to be tried");
}

fn policy_with_pool(site: &TestSite, pool: Value) -> TestPolicy {
    with_endpoints(site.policy("gw-1"), &[site.origin.open_listener("one")])
        .with("/upstreams/ledger/pool", pool)
}

/// At `max_connections` a request waits for a connection, and is refused as `overloaded` after `connect_timeout`.
#[tokio::test]
async fn max_connections_makes_requests_wait() {
    let site = TestSite::fresh().await;
    let policy = policy_with_pool(&site, json!({"max_connections": 1}))
        .with("/upstreams/ledger/connect_timeout", "1s");
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    let refused = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "overloaded"));
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(refused.took() >= Duration::from_secs(1), "it waits for a while");
    let waiting = gateway.begin(TestRequest::get("/waits"));
    gateway.wait_gauge("fencegate_upstream_pool_waiting", 1.0).await;
    assert_eq!((held.finish().await.status, waiting.answer().await.status), (200, 200));
    let metrics = gateway.metrics().await;
    let waits = |result: &str| metrics.sum("fencegate_upstream_pool_waits_total", &[result]) as u64;
    assert_eq!((waits("in-vain"), waits("got")), (1, 1));
    assert_eq!(metrics.sum("fencegate_upstream_connections", &[]) as u64, 1);
}

/// Clients on all workers share one connection. When the idle connection is at another worker, that worker gives it up at
/// once.
#[tokio::test]
async fn idle_connection_yields_to_other_worker() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy_with_pool(&site, json!({"max_connections": 1}))).await;
    let pending: Vec<_> =
        (0..60).map(|n| gateway.begin(TestRequest::get(&format!("/a/{}", n % 7)))).collect();
    for pending in pending {
        assert_eq!(pending.answer().await.status, 200);
    }
    for _ in 0..40 {
        let answer = gateway.send(&TestRequest::get("/b")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.took() < Duration::from_secs(2), "it waited for a connection that nobody used");
    }
}

/// While one endpoint is at `max_connections`, requests go to another one without waiting.
#[tokio::test]
async fn full_endpoint_is_skipped() {
    let site = TestSite::fresh().await;
    let [one, two, _] = open_doors(&site);
    let policy = with_endpoints(site.policy("gw-1"), &[one, two])
        .with("/upstreams/ledger/pool", json!({"max_connections": 1}));
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    for _ in 0..5 {
        let answer = gateway.send(&TestRequest::get("/a")).await;
        assert!(answer.status == 200 && answer.took() < Duration::from_secs(2), "{answer:?}");
    }
    assert_eq!(held.finish().await.status, 200);
}

#[tokio::test]
async fn max_idle_zero_keeps_no_connection() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&policy_with_pool(&site, json!({"max_idle": 0}))).await;
    send_gets(&gateway, "/a", 3).await;
    gateway.wait_gauge("fencegate_upstream_connections", 0.0).await;
    let connections: BTreeSet<usize> =
        site.origin.log().requests_for("/a").map(|record| record.connection).collect();
    assert_eq!(connections.len(), 3);
}

#[tokio::test]
async fn stalled_upload_is_no_endpoint_failure() {
    let site = TestSite::fresh().await;
    let upload = json!({
        "name": "upload", "upstream": "ledger", "fence": "none", "match": {"methods": ["PUT"], "path": "/up"},
    });
    let policy = with_endpoints(site.policy("gw-1"), &open_doors(&site))
        .with_route(upload)
        .with("/upstreams/ledger/eject", json!({"failures": 1}))
        .with("/listeners/public/timeouts", json!({"request_body": "300ms"}));
    let gateway = Gateway::start(&policy).await;
    let mut client = RawClient::connect(gateway.public).await.expect("listens");
    client.send("PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").await.expect("connected");
    let answer =
        wait_until("the end of patience", client.read_response(), || gateway.log()).await.expect("an answer");
    assert_eq!(answer.word(1), "408", "{answer:?}");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("fencegate_upstream_ejections_total", &[]), 0.0);
    assert_eq!(metrics.sum("fencegate_upstream_errors_total", &[]), 0.0);
}

/// After a reload without `health` an endpoint that was unhealthy counts as healthy.
#[tokio::test]
async fn unchecked_endpoint_counts_as_healthy() {
    let site = TestSite::fresh().await;
    let policy = with_endpoints(site.policy("gw-1"), &[site.origin.open_listener("one"), free_address()]);
    let health = json!({"path": "/health", "interval": "100ms", "timeout": "100ms", "unhealthy": 1});
    let gateway = Gateway::start(&policy.clone().with("/upstreams/ledger/health", health)).await;
    let endpoints = "fencegate_upstream_endpoints";
    let unhealthy = ["state=\"unhealthy\""];
    gateway.wait_series(endpoints, &unhealthy, 1.0).await;
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    gateway.wait_series(endpoints, &unhealthy, 0.0).await;
}

/// A lease prevents the next plan from being applied. That plan has fewer endpoints and no health checks; as long as it is
/// refused, the endpoints of the current plan and their states stay.
#[tokio::test]
async fn refused_plan_changes_no_endpoint() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let health = json!({"path": "/health", "interval": "100ms", "timeout": "100ms", "unhealthy": 1});
    let policy = tokens.policy(&site, "gw-1");
    let checked = with_endpoints(policy.clone(), &[site.origin.open_listener("one"), free_address()])
        .with("/upstreams/ledger/health", health);
    let gateway = Gateway::start(&checked).await;
    let endpoints = "fencegate_upstream_endpoints";
    let unhealthy = ["state=\"unhealthy\""];
    gateway.wait_series(endpoints, &unhealthy, 1.0).await;
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let moved = json!({"key": "account/{path.account}", "wait": "5s", "layout": "curator-mutex", "lock_path": "/locks/account-{path.account}", "hold": {"mode": "strict"}});
    let moved = policy.with("/routes/0/fence", moved).with("/leases/principals/0/keys", json!(["job/*"]));
    gateway.rewrite(&with_endpoints(moved, &[site.origin.open_listener("one")]));
    let (code, report) = gateway.reload(&[]).await;
    assert!(
        code != Some(0) && report["said"].to_string().contains("end it first, or wait"),
        "{code:?} {report}"
    );
    assert_eq!(gateway.metrics().await.sum(endpoints, &unhealthy), 1.0, "the plan in force is shown");
    assert_eq!(lease.release(&gateway).await.status, 204);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    gateway.wait_series(endpoints, &unhealthy, 0.0).await;
}
