//! With the shipped files for a proxy before the gateways, a client cannot choose the address, host or scheme under which
//! the service sees it.
//!
//! Fields whose names only begin like the reserved ones, such as `X-Client-Id`, pass unchanged.

use std::fs;

use fencegate_tests::{client::TestRequest, gateway::Gateway, peers::ProxyProcess, site::TestSite};
use serde_json::json;

use super::artefacts::shipped;

const LISTENS: &str = "127.0.0.1:8080";

fn shipped_config(path: &str) -> String {
    fs::read_to_string(shipped(path)).expect("a file of the repository")
}

/// A gateway that trusts a proxy on this machine.
async fn trusting_local_proxy() -> (TestSite, Gateway) {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/trusted_peers", json!(["127.0.0.1/32"]));
    let gateway = Gateway::start(&policy).await;
    (site, gateway)
}

/// Fields with which a client pretends to be another client, or a client of another host.
const FORGED: [(&str, &str); 9] = [
    ("x-forwarded-for", "198.51.100.7"),
    ("x_forwarded_for", "198.51.100.7"),
    ("x-forwarded-host", "forged.example"),
    ("x-forwarded-proto", "forged"),
    ("x-real-ip", "198.51.100.7"),
    ("x-client-ip", "198.51.100.7"),
    ("true-client-ip", "198.51.100.7"),
    ("forwarded", "for=198.51.100.7;host=forged.example"),
    ("connection", "X-Forwarded-For, X-Forwarded-Proto"),
];

async fn names_client_itself(
    site: &TestSite,
    proxy: &ProxyProcess,
    gateway: &Gateway,
    more: &[(&'static str, &'static str)],
) {
    let all = [&FORGED, more].concat();
    // One by one and all together, because some fields count only with or without another one.
    let alone = all.iter().map(|one| vec![*one]);
    for (n, forged) in alone.chain([all.clone()]).enumerate() {
        let path = format!("/seen/{n}");
        let ask = forged.iter().fold(TestRequest::get(&path), |ask, (name, value)| ask.field(name, value));
        let answer = ask.send_to(proxy.address).await.expect("an answer");
        assert_eq!(answer.status, 200, "{forged:?}: {answer:?}");
        let request = site.origin.wait_for_request(&path, 1).await.request;
        let forged_field =
            request.fields.iter().find(|(_, value)| value.contains("forged") || value.contains("198.51"));
        assert_eq!(forged_field, None, "{forged:?}");
        assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1, 127.0.0.1"), "{forged:?}: {request:?}");
        assert_eq!(request.field("x-forwarded-proto"), Some("http"), "{forged:?}");
    }
    // Fields whose names only begin like one of these contain no address, and pass.
    let others = [("x-client-id", "shop"), ("x-realm", "test"), ("x-client-version", "7")];
    let ask = others.iter().fold(TestRequest::get("/others"), |ask, (name, value)| ask.field(name, value));
    ask.send_to(proxy.address).await.expect("an answer");
    let request = site.origin.wait_for_request("/others", 1).await.request;
    for (name, value) in others {
        assert_eq!(request.field(name), Some(value), "{request:?}");
    }
    assert!(!gateway.log().contains("198.51.100.7"), "counted as another client");
}

/// nginx with the shipped file removes fields in which a client claims another address, host or scheme.
#[tokio::test]
async fn nginx_removes_forged_client_addresses() {
    let (site, gateway) = trusting_local_proxy().await;
    let instead =
        [("127.0.0.1:8081", gateway.public.to_string()), ("127.0.0.1:8082", gateway.public.to_string())];
    let proxy = ProxyProcess::nginx_with(&shipped_config("proxies/nginx.conf"), LISTENS, &instead);
    // nginx removes only the fields that its file names, so no further spellings are sent.
    names_client_itself(&site, &proxy, &gateway, &[]).await;
}

/// HAProxy with the shipped file removes fields in which a client claims another address, host or scheme.
#[tokio::test]
async fn haproxy_removes_forged_client_addresses() {
    let (site, gateway) = trusting_local_proxy().await;
    let check = format!("{} check port {}", gateway.public, gateway.admin.port());
    let instead =
        [("127.0.0.1:8081 check port 9901", check.clone()), ("127.0.0.1:8082 check port 9911", check)];
    let proxy = ProxyProcess::haproxy_with(&shipped_config("proxies/haproxy.cfg"), LISTENS, &instead);
    names_client_itself(&site, &proxy, &gateway, &[("x-forwarded-anything", "forged")]).await;
}
