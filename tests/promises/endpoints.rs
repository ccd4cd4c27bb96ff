//! Requests are shared out among endpoints that work; what does not is left alone, and the last one never is.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::{Gateway, LogLine},
    history::History,
    leases::{ClientLease, LeaseTokens},
    origin::{Act, OriginLog, OriginReply},
    policy::TestPolicy,
    site::TestSite,
    wait::wait_until,
};
use serde_json::{Value, json};

fn at(policy: TestPolicy, doors: &[SocketAddr]) -> TestPolicy {
    let endpoints: Vec<String> = doors.iter().map(|door| format!("http://{door}")).collect();
    policy.with("/upstreams/ledger/endpoints", endpoints)
}

fn doors(site: &TestSite) -> [SocketAddr; 3] {
    ["one", "two", "three"].map(|name| site.origin.door(name))
}

/// Bound and dropped: for this moment nobody listens there.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

/// The endpoints that got the requests for this path, in order.
fn came_to(log: &OriginLog, path: &str) -> Vec<String> {
    log.on(path).map(|record| record.gateway.clone()).collect()
}

async fn gets(gateway: &Gateway, path: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(gateway.send(&TestRequest::get(path)).await.status, 200);
    }
}

#[tokio::test]
async fn round_robin_gives_each_endpoint_the_same_share() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&at(site.policy("gw-1"), &doors(&site))).await;
    gets(&gateway, "/a", 9).await;
    let log = site.origin.log();
    let came = came_to(&log, "/a");
    for name in ["one", "two", "three"] {
        assert_eq!(came.iter().filter(|door| *door == name).count(), 3, "{came:?}");
    }
}

#[tokio::test]
async fn the_least_busy_endpoint_gets_the_next_request() {
    let site = TestSite::fresh().await;
    let policy = at(site.policy("gw-1"), &doors(&site)).with("/upstreams/ledger/balance", "least-busy");
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    let busy = held.record.gateway.clone();
    gets(&gateway, "/a", 6).await;
    let came: BTreeSet<String> = came_to(&site.origin.log(), "/a").into_iter().collect();
    assert_eq!(came.len(), 2, "{came:?}");
    assert!(!came.contains(&busy), "{came:?} beside {busy}");
    assert_eq!(held.finish().await.status, 200);
}

/// A fenced request is placed by its key, and another request by its path.
#[tokio::test]
async fn requests_of_one_key_go_to_one_endpoint() {
    let site = TestSite::fresh().await;
    let policy = at(site.policy("gw-1"), &doors(&site)).with("/upstreams/ledger/balance", "by-key");
    let gateway = Gateway::start(&policy).await;
    let mut used = BTreeSet::new();
    for n in 0..12 {
        let path = format!("/pay/{n}");
        for _ in 0..3 {
            assert_eq!(gateway.send(&TestRequest::post(&path)).await.status, 200);
        }
        let came: BTreeSet<String> = came_to(&site.origin.log(), &path).into_iter().collect();
        assert_eq!(came.len(), 1, "{path}: {came:?}");
        used.extend(came);
    }
    gets(&gateway, "/free", 3).await;
    assert_eq!(came_to(&site.origin.log(), "/free").into_iter().collect::<BTreeSet<_>>().len(), 1);
    assert!(used.len() > 1, "all keys went to {used:?}");
    History::from_log(&site.origin.log()).assert_holds();
}

#[tokio::test]
async fn an_endpoint_that_fails_again_and_again_is_left_alone_and_comes_back() {
    let site = TestSite::fresh().await;
    let [one, two, _] = doors(&site);
    let dead = nobody();
    let policy = at(site.policy("gw-1"), &[one, dead, two])
        .with("/upstreams/ledger/eject", json!({"failures": 2, "for": "1s"}));
    let gateway = Gateway::start(&policy).await;
    gets(&gateway, "/a", 12).await;
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

#[tokio::test]
async fn statuses_that_say_out_of_order_count_as_failures_and_others_do_not() {
    let site = TestSite::fresh().await;
    let [sick, well, _] = doors(&site);
    let policy = at(site.policy("gw-1"), &[sick, well])
        .with("/upstreams/ledger/eject", json!({"failures": 3, "for": "60s"}));
    let gateway = Gateway::start(&policy).await;
    site.origin.set_default_action(Act::now(OriginReply::ok().status(500)));
    for _ in 0..10 {
        gateway.send(&TestRequest::get("/a")).await;
    }
    let ejected = || async { gateway.metrics().await.sum("fencegate_upstream_ejections_total", &[]) as u64 };
    assert_eq!(ejected().await, 0, "a 500 is the answer of a service that works");
    site.origin.set_default_action(Act::now(OriginReply::ok().status(503)));
    for _ in 0..12 {
        assert_eq!(gateway.send(&TestRequest::get("/a")).await.status, 503);
    }
    assert_eq!(ejected().await, 1, "the last one is never ejected");
}

#[tokio::test]
async fn the_only_endpoint_is_used_however_it_fails() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/upstreams/ledger/eject", json!({"failures": 1, "for": "60s"}))
        .with("/upstreams/ledger/health", json!({"path": "/health", "interval": "50ms", "unhealthy": 1}));
    let gateway = Gateway::start(&policy).await;
    site.origin.set_default_action(Act::now(OriginReply::ok().status(503)));
    gateway.wait_line("unhealthy", |line: &LogLine| line.field("state") == "unhealthy").await;
    for _ in 0..5 {
        assert_eq!(gateway.send(&TestRequest::get("/a")).await.status, 503, "its own answer");
    }
    assert_eq!(site.origin.count("/a"), 5);
}

#[tokio::test]
async fn an_endpoint_that_says_it_is_unwell_gets_nothing_until_it_is_well() {
    let site = TestSite::fresh().await;
    let other = TestSite::fresh().await;
    let (sick, well) = (other.origin.door("sick"), site.origin.door("well"));
    let health = json!({"path": "/health?deep=1", "interval": "50ms", "healthy": 2, "unhealthy": 2});
    let policy = at(site.policy("gw-1"), &[sick, well]).with("/upstreams/ledger/health", health);
    other.origin.set_default_action(Act::now(OriginReply::ok().status(500)));
    let gateway = Gateway::start(&policy).await;
    gateway.wait_line("unhealthy", |line: &LogLine| line.field("state") == "unhealthy").await;
    gets(&gateway, "/a", 6).await;
    for _ in 0..3 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    }
    assert_eq!((other.origin.count("/a"), other.origin.count("/pay/7")), (0, 0));
    let check = other.origin.request("/health?deep=1", 1).await;
    assert!(check.request.fields.iter().all(|field| !format!("{field:?}").contains("encing")), "{check:?}");
    other.origin.set_default_action(Act::now(OriginReply::ok()));
    gateway.wait_line("usable", |line: &LogLine| line.field("state") == "usable").await;
    gets(&gateway, "/a", 4).await;
    assert_eq!(other.origin.count("/a"), 2);
}

#[tokio::test]
async fn what_could_not_be_sent_goes_on_to_the_next_endpoint_with_a_token_of_its_own() {
    let site = TestSite::fresh().await;
    let (dead, alive) = (nobody(), site.origin.door("alive"));
    let policy = at(site.policy("gw-1").with_cached_hold(), &[dead, alive])
        .with("/upstreams/ledger/eject", json!({"failures": 1000}));
    let gateway = Gateway::start(&policy).await;
    for _ in 0..6 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    }
    History::from_log(&site.origin.log()).assert_holds();
    let none = at(site.policy("gw-2"), &[dead, alive])
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

fn limited(site: &TestSite, pool: Value) -> TestPolicy {
    at(site.policy("gw-1"), &[site.origin.door("one")]).with("/upstreams/ledger/pool", pool)
}

#[tokio::test]
async fn no_more_connections_than_allowed_and_who_finds_none_waits_or_is_told() {
    let site = TestSite::fresh().await;
    let policy =
        limited(&site, json!({"max_connections": 1})).with("/upstreams/ledger/connect_timeout", "1s");
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

/// Clients on all workers share one connection. Half of the time the idle connection is at another worker.
#[tokio::test]
async fn a_connection_that_lies_idle_with_one_worker_is_given_up_for_another() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&limited(&site, json!({"max_connections": 1}))).await;
    let asked: Vec<_> = (0..60).map(|n| gateway.begin(TestRequest::get(&format!("/a/{}", n % 7)))).collect();
    for asked in asked {
        assert_eq!(asked.answer().await.status, 200);
    }
    for _ in 0..40 {
        let answer = gateway.send(&TestRequest::get("/b")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.took() < Duration::from_secs(2), "it waited for a connection that nobody used");
    }
}

#[tokio::test]
async fn when_one_endpoint_is_full_another_one_is_asked() {
    let site = TestSite::fresh().await;
    let [one, two, _] = doors(&site);
    let policy =
        at(site.policy("gw-1"), &[one, two]).with("/upstreams/ledger/pool", json!({"max_connections": 1}));
    let gateway = Gateway::start(&policy).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    for _ in 0..5 {
        let answer = gateway.send(&TestRequest::get("/a")).await;
        assert!(answer.status == 200 && answer.took() < Duration::from_secs(2), "{answer:?}");
    }
    assert_eq!(held.finish().await.status, 200);
}

#[tokio::test]
async fn no_connection_lies_idle_where_none_may() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&limited(&site, json!({"max_idle": 0}))).await;
    gets(&gateway, "/a", 3).await;
    gateway.wait_gauge("fencegate_upstream_connections", 0.0).await;
    let connections: BTreeSet<usize> = site.origin.log().on("/a").map(|record| record.connection).collect();
    assert_eq!(connections.len(), 3);
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_its_upload_is_no_failure_of_the_endpoint() {
    let site = TestSite::fresh().await;
    let upload = json!({
        "name": "upload", "upstream": "ledger", "fence": "none", "match": {"methods": ["PUT"], "path": "/up"},
    });
    let policy = at(site.policy("gw-1"), &doors(&site))
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

#[tokio::test]
async fn an_endpoint_that_nobody_asks_any_more_counts_as_well() {
    let site = TestSite::fresh().await;
    let policy = at(site.policy("gw-1"), &[site.origin.door("one"), nobody()]);
    let health = json!({"path": "/health", "interval": "100ms", "timeout": "100ms", "unhealthy": 1});
    let gateway = Gateway::start(&policy.clone().with("/upstreams/ledger/health", health)).await;
    let (endpoints, unhealthy) = ("fencegate_upstream_endpoints", ["state=\"unhealthy\""]);
    gateway.wait_series(endpoints, &unhealthy, 1.0).await;
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    gateway.wait_series(endpoints, &unhealthy, 0.0).await;
}

/// A lease keeps the next plan from being taken over. That plan has fewer endpoints, and asks none of them.
#[tokio::test]
async fn a_plan_that_is_refused_takes_no_endpoint_over() {
    let (site, tokens) = (TestSite::fresh().await, LeaseTokens::default());
    let health = json!({"path": "/health", "interval": "100ms", "timeout": "100ms", "unhealthy": 1});
    let policy = tokens.policy(&site, "gw-1");
    let asked =
        at(policy.clone(), &[site.origin.door("one"), nobody()]).with("/upstreams/ledger/health", health);
    let gateway = Gateway::start(&asked).await;
    let (endpoints, unhealthy) = ("fencegate_upstream_endpoints", ["state=\"unhealthy\""]);
    gateway.wait_series(endpoints, &unhealthy, 1.0).await;
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let moved = json!({"key": "account/{path.account}", "wait": "5s", "layout": "curator-mutex", "lock_path": "/locks/account-{path.account}", "hold": {"mode": "strict"}});
    let moved = policy.with("/routes/0/fence", moved).with("/leases/principals/0/keys", json!(["job/*"]));
    gateway.rewrite(&at(moved, &[site.origin.door("one")]));
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
