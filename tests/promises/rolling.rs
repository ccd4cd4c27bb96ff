//! A gateway is replaced under load by another one on the same address. The new one starts before the old one ends,
//! and no request fails.
//!
//! It is replaced ten times.

use std::net::SocketAddr;

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    gateway::GatewayLaunch, policy::TestPolicy, rolling_load::RollingLoad, site::TestSite,
};

const RESTARTS: usize = 10;

fn policy(site: &TestSite, name: &str, address: SocketAddr) -> TestPolicy {
    site.policy(name).with_cached_hold().with("/listeners/public/address", address.to_string())
}

#[tokio::test]
async fn ten_restarts_under_load_fail_no_request() {
    let site = TestSite::alone().await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut gateway = GatewayLaunch::new(&policy(&site, "gw-0", anywhere)).start().await;
    gateway.wait_ready().await;
    let address = gateway.public;
    let load = RollingLoad::start(&[address]);
    for round in 1..=RESTARTS {
        let before = site.origin.count("/read");
        site.origin.wait_for_request("/read", before + 10).await;
        let next = GatewayLaunch::new(&policy(&site, &format!("gw-{round}"), address))
            .with_shared_address()
            .start()
            .await;
        next.wait_ready().await;
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.exit().await.code(), Some(0), "round {round}");
        gateway = next;
    }
    let requests = load.finish(&site.origin).await;
    assert!(requests > 500, "not exercised: {requests} requests");
}
