//! The endpoint of an upstream may be a host name: all of its addresses are used, changes are followed, and a name
//! server that is away delays and refuses nothing that was resolved before.
//!
//! Idle connections follow a change as well. A name that is not found any more keeps its addresses, and recovers.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    hosts::HostsFile,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

const NAME: &str = "ledger.test";

/// Opens one listener of the origin at each of these addresses, all with the same port, which is returned. The address
/// is the name of its listener.
fn open_doors(site: &TestSite, addresses: &[&str]) -> u16 {
    let at = |address: &str, port| SocketAddr::new(address.parse().expect("an address"), port);
    let port = site.origin.open_listener_at(addresses[0], at(addresses[0], 0)).port();
    for address in &addresses[1..] {
        site.origin.open_listener_at(address, at(address, port));
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

async fn assert_get_succeeds(gateway: &Gateway, path: &str) {
    assert_eq!(gateway.send(&TestRequest::get(path)).await.status, 200, "{}", gateway.log());
}

fn endpoints_of(site: &TestSite, path: &str) -> BTreeSet<String> {
    site.origin.log().requests_for(path).map(|record| record.gateway.clone()).collect()
}

#[tokio::test]
async fn all_addresses_of_name_are_used() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1", "127.0.0.2"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1", "127.0.0.2"]);
    // No connection is reused, so each request makes a new one.
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    for _ in 0..6 {
        assert_get_succeeds(&gateway, "/a").await;
    }
    assert_eq!(endpoints_of(&site, "/a").len(), 2);
}

#[tokio::test]
async fn unreachable_address_costs_no_request() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.2", "127.0.0.1"]);
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    for _ in 0..6 {
        assert_get_succeeds(&gateway, "/a").await;
    }
}

/// Requests follow a name to its new address, idle connections to the old one are not used, and running requests end.
#[tokio::test]
async fn requests_follow_changed_address() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1", "127.0.0.3"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let gateway = start(&policy(&site, port), &hosts).await;
    let held = site.origin.hold_request(&gateway, TestRequest::get("/held")).await;
    for _ in 0..4 {
        assert_get_succeeds(&gateway, "/before").await;
    }
    hosts.set(NAME, &["127.0.0.3"]);
    gateway.wait_line("the new address", |line| line.text().contains("127.0.0.3")).await;
    for _ in 0..4 {
        assert_get_succeeds(&gateway, "/after").await;
    }
    assert_eq!(endpoints_of(&site, "/before"), ["127.0.0.1".to_owned()].into());
    assert_eq!(endpoints_of(&site, "/after"), ["127.0.0.3".to_owned()].into());
    assert_eq!(held.finish().await.status, 200, "what was under way ends as it would have");
}

/// A name that is no longer found keeps its addresses, and is logged once.
#[tokio::test]
async fn lost_name_keeps_its_addresses() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    assert_get_succeeds(&gateway, "/a").await;
    hosts.set(NAME, &[]);
    gateway.wait_lookup("bad").await;
    for _ in 0..4 {
        assert_get_succeeds(&gateway, "/a").await;
    }
    let warnings = gateway.log().matches("endpoint.not_found").count();
    assert_eq!(warnings, 1, "told once");
}

/// Requests to a name that was never found end as `not-dispatched`; they are served once it is found.
#[tokio::test]
async fn unresolved_name_is_not_dispatched() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1"]);
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
async fn reload_keeps_resolved_addresses() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = policy(&site, port);
    let gateway = start(&policy, &hosts).await;
    assert_get_succeeds(&gateway, "/a").await;
    hosts.set(NAME, &[]);
    gateway.wait_lookup("bad").await;
    // A change of the pool makes new endpoints.
    gateway.rewrite(&policy.with("/upstreams/ledger/pool", json!({"max_idle": 0})));
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    gateway.wait_lookup("bad").await;
    assert_get_succeeds(&gateway, "/a").await;
}

/// A name server that falls silent delays no request and no shutdown.
///
/// A lookup by the system cannot be cancelled, so no other task may wait for it.
#[tokio::test]
async fn silent_name_server_delays_no_request() {
    let site = TestSite::fresh().await;
    let port = open_doors(&site, &["127.0.0.1"]);
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    let policy = policy(&site, port).with("/upstreams/ledger/pool", json!({"max_idle": 0}));
    let gateway = start(&policy, &hosts).await;
    assert_get_succeeds(&gateway, "/a").await;
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
    assert_get_succeeds(&gateway, "/a").await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
}

/// A first lookup without an answer ends its requests in time as `not-dispatched`, and delays no shutdown.
#[tokio::test]
async fn unanswered_first_lookup_times_out() {
    let site = TestSite::fresh().await;
    let gateway = start(&policy(&site, open_doors(&site, &["127.0.0.1"])), &HostsFile::unresponsive()).await;
    for ask in [TestRequest::get("/a"), TestRequest::post("/pay/7")] {
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream-connect"));
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        assert!(answer.took() < Duration::from_secs(8), "{:?}", answer.took());
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0));
}
