//! An endpoint may be a name: all its addresses are used, changes are followed, and a name server that is away does no
//! harm.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use fencegate::demo::child::Signal;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    hosts::HostsFile,
    policy::TestPolicy,
    site::TestSite,
    wait::wait_until,
};
use serde_json::json;

const NAME: &str = "ledger.test";

/// The same port at each of these addresses, each a door of that name.
fn doors(site: &TestSite, addresses: &[&str]) -> u16 {
    let at = |address: &str, port| SocketAddr::new(address.parse().expect("an address"), port);
    let port = site.origin.door_at(addresses[0], at(addresses[0], 0)).port();
    for address in &addresses[1..] {
        site.origin.door_at(address, at(address, port));
    }
    port
}

fn policy(site: &TestSite, port: u16) -> TestPolicy {
    site.policy("gw-1")
        .with("/upstreams/ledger/endpoints", json!([format!("http://{NAME}:{port}")]))
        .with("/upstreams/ledger/dns", json!({"refresh": "50ms"}))
}

async fn start(policy: &TestPolicy, hosts: &HostsFile) -> Gateway {
    let gateway = GatewayLaunch::new(policy).with_hosts(hosts).start().await;
    gateway.wait_ready().await;
    gateway
}

async fn good(gateway: &Gateway, path: &str) {
    assert_eq!(gateway.send(&TestRequest::get(path)).await.status, 200, "{}", gateway.log());
}

fn came_to(site: &TestSite, path: &str) -> BTreeSet<String> {
    site.origin.log().on(path).map(|record| record.gateway.clone()).collect()
}

#[tokio::test]
async fn all_addresses_behind_a_name_are_used() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1", "127.0.0.2"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1", "127.0.0.2"]);
    // No connection is used twice, so each request makes one.
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    for _ in 0..6 {
        good(&gateway, "/a").await;
    }
    assert_eq!(came_to(&site, "/a").len(), 2);
}

#[tokio::test]
async fn an_address_that_cannot_be_reached_costs_no_request() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.2", "127.0.0.1"]);
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    for _ in 0..6 {
        good(&gateway, "/a").await;
    }
}

#[tokio::test]
async fn requests_follow_a_name_and_idle_connections_to_where_it_was_are_not_used() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1", "127.0.0.3"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let gateway = start(&policy(&site, port), &hosts).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    for _ in 0..4 {
        good(&gateway, "/before").await;
    }
    hosts.set(NAME, &["127.0.0.3"]);
    gateway.wait_line("the new address", |line| line.text().contains("127.0.0.3")).await;
    for _ in 0..4 {
        good(&gateway, "/after").await;
    }
    assert_eq!(came_to(&site, "/before"), ["127.0.0.1".to_owned()].into());
    assert_eq!(came_to(&site, "/after"), ["127.0.0.3".to_owned()].into());
    assert_eq!(held.finish().await.status, 200, "what was under way ends as it would have");
}

#[tokio::test]
async fn a_name_that_is_no_longer_found_keeps_its_addresses() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    good(&gateway, "/a").await;
    hosts.set(NAME, &[]);
    gateway.wait_lookup("bad").await;
    for _ in 0..4 {
        good(&gateway, "/a").await;
    }
    let warnings = gateway.log().matches("endpoint.not_found").count();
    assert_eq!(warnings, 1, "told once");
}

#[tokio::test]
async fn a_name_that_was_never_found_is_refused_as_not_dispatched_and_heals() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    let gateway = start(&policy(&site, port), &hosts).await;
    for ask in [TestRequest::get("/a"), TestRequest::post("/pay/7")] {
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream-connect"));
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    }
    hosts.set(NAME, &["127.0.0.1"]);
    let heals = async { while gateway.send(&TestRequest::get("/a")).await.status != 200 {} };
    wait_until("the name to be found", heals, || gateway.log()).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
}

/// The plan after a reload keeps the addresses that the earlier plan knew.
#[tokio::test]
async fn a_reload_forgets_no_address() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = policy(&site, port);
    let gateway = start(&policy, &hosts).await;
    good(&gateway, "/a").await;
    hosts.set(NAME, &[]);
    gateway.wait_lookup("bad").await;
    // Other limits make other endpoints.
    gateway.rewrite(&policy.with("/upstreams/ledger/pool", json!({"max_idle": 0})));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    gateway.wait_lookup("bad").await;
    good(&gateway, "/a").await;
}

/// A system lookup cannot be cancelled. Only the lookup itself waits for the silent name server.
#[tokio::test]
async fn a_name_server_that_falls_silent_holds_up_no_request_and_no_end() {
    let site = TestSite::fresh().await;
    let port = doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    good(&gateway, "/a").await;
    hosts.stop_responding(&gateway);
    let given_up =
        gateway.wait_series_at_least("fencegate_upstream_resolutions_total", &["result=\"bad\""], 1.0);
    let served = async {
        loop {
            for ask in [TestRequest::get("/a"), TestRequest::post("/pay/7")] {
                let answer = gateway.send(&ask).await;
                assert!(answer.status == 200 && answer.took() < Duration::from_secs(3), "{answer:?}");
            }
        }
    };
    tokio::select! {
        () = given_up => {}
        () = served => {}
    }
    good(&gateway, "/a").await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_first_lookup_without_an_answer_is_not_waited_for_and_nothing_is_dispatched() {
    let site = TestSite::fresh().await;
    let gateway = start(&policy(&site, doors(&site, &["127.0.0.1"])), &HostsFile::unresponsive()).await;
    for ask in [TestRequest::get("/a"), TestRequest::post("/pay/7")] {
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream-connect"));
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(answer.took() < Duration::from_secs(8), "{:?}", answer.took());
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
}
