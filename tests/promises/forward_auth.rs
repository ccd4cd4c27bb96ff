//! Another proxy forwards requests and takes their locks through a gateway. With the shipped files a key has one holder
//! at a time, each holder has a larger token, and the key is released when the service has answered.
//!
//! The proxies are nginx and HAProxy. No client can write a token. An answer from which the state of the service
//! cannot be known keeps the lock. The time limits of the shipped files end before a lock does, with the default
//! times of a gateway.

use std::{
    fs,
    time::{Duration, Instant},
};

use fencegate_policies::file;
use fencegate_tests::{
    client::{ClientResponse, TestRequest},
    gateway::Gateway,
    leases::{CLIENT, LeaseTokens},
    origin::OriginAction,
    peers::ProxyProcess,
    site::TestSite,
};
use serde_json::json;

use super::artefacts::shipped;

/// The addresses in the shipped files: of the proxy, the gateway and the service.
const DOOR: &str = "127.0.0.1:8080";
const GATEWAY: &str = "127.0.0.1:8081";
const SERVICE: &str = "127.0.0.1:9000";

fn shipped_config(path: &str) -> String {
    fs::read_to_string(shipped(path)).expect("a file of the repository")
}

async fn start_trusting_proxy() -> (TestSite, LeaseTokens, Gateway, std::net::SocketAddr) {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let unfenced = json!({"name": "open", "upstream": "ledger", "match": {"methods": ["POST"], "path": "/open"}, "fence": "none"});
    let keyed = json!({"name": "told", "upstream": "ledger", "match": {"methods": ["POST"], "path": "/told"},
        "fence": {"key": "account/{host}/{header.x-tenant}"}});
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1").with_route(unfenced).with_route(keyed)).await;
    let service = site.origin.open_listener("behind");
    (site, tokens, gateway, service)
}

pub(super) fn nginx(gateway: &Gateway, service: std::net::SocketAddr) -> ProxyProcess {
    let token = format!("proxy_set_header Fencing-Authorization \"Bearer {CLIENT}\";");
    let instead = [
        ("include fencegate-token.conf;", token),
        (GATEWAY, gateway.public.to_string()),
        (SERVICE, service.to_string()),
    ];
    ProxyProcess::nginx_with(&shipped_config("proxies/forward-auth/nginx.conf"), DOOR, &instead)
}

pub(super) fn haproxy(gateway: &Gateway, service: std::net::SocketAddr) -> ProxyProcess {
    let lua = shipped("proxies/forward-auth/fence.lua");
    let instead = [
        ("lua-load fence.lua", format!("lua-load {lua}")),
        ("change-me-0123456789", CLIENT.to_owned()),
        (GATEWAY, gateway.public.to_string()),
        (SERVICE, service.to_string()),
    ];
    ProxyProcess::haproxy_with(&shipped_config("proxies/forward-auth/haproxy.cfg"), DOOR, &instead)
}

async fn send_payment(proxy: &ProxyProcess) -> ClientResponse {
    TestRequest::post("/pay/7")
        .field("fencing-token", "v1-ffffffffffffffff-00000000-00000001")
        .send_to(proxy.address)
        .await
        .expect("an answer")
}

async fn assert_proxy_locks(site: &TestSite, proxy: ProxyProcess) {
    // Requests one after another are answered quickly, because the end of each one releases the key.
    let begun = Instant::now();
    for n in 1..=3 {
        let answer = send_payment(&proxy).await;
        assert_eq!(answer.status, 200, "{n}: {answer:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "the end is not told: {:?}", begun.elapsed());
    // Requests at the same time: no two of them overlap, and none is lost.
    site.origin.set_work_time(Duration::from_millis(20));
    let all = futures_util::future::join_all((0..8).map(|_| send_payment(&proxy))).await;
    assert!(all.iter().all(|answer| answer.status == 200), "{all:?}");
    let mut paid: Vec<_> = site.origin.log().requests_for("/pay/7").cloned().collect();
    paid.sort_by_key(|record| record.arrived);
    assert_eq!(paid.len(), 11);
    assert!(paid.iter().all(|record| !record.stale), "a stale token");
    for pair in paid.windows(2) {
        assert!(pair[0].ended.expect("answered") <= pair[1].arrived, "two at once");
    }
    // A request that needs no lock passes without one, and a client's own token is removed.
    let open = TestRequest::post("/open").field("fencing-token", "v1-ffffffffffffffff-00000000-00000001");
    assert_eq!(open.send_to(proxy.address).await.expect("an answer").status, 200);
    let record = site.origin.wait_for_request("/open", 1).await;
    assert_eq!(record.request.field("fencing-token"), None);
}

/// The key comes from the request that the service gets. Fields in which a client imitates the proxy do not change
/// the key.
async fn assert_asks_for_sent_request(site: &TestSite, proxy: &ProxyProcess) {
    let request = TestRequest::post("/told").field("host", "a.example").field("x-tenant", "blue");
    let forged = [
        ("x-original-host", "b.example"),
        ("x-forwarded-host", "b.example"),
        ("x-original-uri", "/pay/9"),
        ("x-forwarded-uri", "/pay/9"),
        ("x-original-method", "GET"),
        ("x-forwarded-method", "GET"),
    ];
    let key = |n, request: TestRequest| async move {
        let answer = request.send_to(proxy.address).await.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        let record = site.origin.wait_for_request("/told", n).await;
        record.request.field("fencing-key").map(str::to_owned)
    };
    assert_eq!(key(1, request.clone()).await.as_deref(), Some("account/a.example/blue"));
    // The fields are tried one by one, because the gateway refuses two fields with the same meaning.
    for (n, (name, value)) in forged.into_iter().enumerate() {
        let found = key(n + 2, request.clone().field(name, value)).await;
        assert_eq!(found.as_deref(), Some("account/a.example/blue"), "{name}");
    }
}

/// Behind nginx with the shipped file each request is served alone under a larger token, and its end releases the
/// key.
#[tokio::test]
async fn nginx_locks_with_auth_request() {
    let (site, _tokens, gateway, service) = start_trusting_proxy().await;
    let proxy = nginx(&gateway, service);
    assert_asks_for_sent_request(&site, &proxy).await;
    assert_proxy_locks(&site, proxy).await;
}

/// Behind HAProxy with the shipped files each request is served alone under a larger token, and its end releases the
/// key.
#[tokio::test]
async fn haproxy_locks_with_lua_script() {
    let (site, _tokens, gateway, service) = start_trusting_proxy().await;
    let proxy = haproxy(&gateway, service);
    assert_asks_for_sent_request(&site, &proxy).await;
    assert_proxy_locks(&site, proxy).await;
}

/// After a 502 of nginx the service may still work: the lock is kept, and the next request is not dispatched.
#[tokio::test]
async fn nginx_502_keeps_lock() {
    let (site, _tokens, gateway, service) = start_trusting_proxy().await;
    let proxy = nginx(&gateway, service);
    site.origin.script("/pay/7", [OriginAction::Reset]);
    assert_eq!(send_payment(&proxy).await.status, 502);
    // The request waits as long as the route allows, and nothing is sent to the service.
    let refused = send_payment(&proxy).await;
    assert_eq!((refused.status, refused.field("fencing-outcome")), (503, Some("not-dispatched")));
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// A time limit in a file: `name 5s;`, `name: 5s`, or `name = 5000` in milliseconds.
#[track_caller]
fn limit(file: &str, name: &str) -> Duration {
    let text = shipped_config(&format!("proxies/forward-auth/{file}"));
    let (_, behind) = text.split_once(name).unwrap_or_else(|| panic!("`{name}` is not in {file}"));
    let behind = behind.trim_start_matches([' ', ':', '=']);
    let end = behind.find(|c: char| !c.is_ascii_digit()).expect("something follows");
    let number: u64 = behind[..end].parse().unwrap_or_else(|_| panic!("`{name}` of {file} is no number"));
    if behind[end..].starts_with('s') { Duration::from_secs(number) } else { Duration::from_millis(number) }
}

/// The time limits of the shipped files end before the lock may end. If the gateway dies, its lock is certain only for the
/// session timeout less the safety margin; if it lives, for `ttl_ms`.
#[test]
fn shipped_timeouts_end_before_lock() {
    let minimal = include_str!("../../policies/examples/minimal.yaml");
    let zookeeper = file::load(minimal).plan.expect("sound").zookeeper;
    let proven = zookeeper.session_timeout - zookeeper.margin(zookeeper.session_timeout);
    let limits = |file: &str, names: &[&str]| names.iter().map(|name| limit(file, name)).sum::<Duration>();
    let nginx = limits("nginx.conf", &["proxy_connect_timeout", "proxy_send_timeout", "proxy_read_timeout"]);
    assert!(nginx < proven && nginx < limit("nginx.conf", "ttl_ms="), "nginx: {nginx:?} of {proven:?}");
    let haproxy = limits("haproxy.cfg", &["timeout connect", "timeout server"]);
    assert!(
        haproxy < proven && haproxy < limit("fence.lua", "local held"),
        "HAProxy: {haproxy:?} of {proven:?}"
    );
    // This limit includes the time to connect.
    let envoy = limit("envoy.yaml", "{cluster: service, timeout");
    assert!(envoy < proven, "Envoy: {envoy:?} of {proven:?}");
}
