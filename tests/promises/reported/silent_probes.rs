//! What strangers and balancers do all day fills no log.

use std::io::ErrorKind;

use fencegate_tests::{
    client::RawClient,
    gateway::{Gateway, GatewayLaunch},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::json;

const PROBES: usize = 30;

async fn start(policy: &TestPolicy) -> Gateway {
    // Each worker limits its own lines.
    GatewayLaunch::new(policy).with_workers(1).start().await
}

/// Connects again and again, sends these bytes each time, and disconnects.
async fn probe(gateway: &Gateway, bytes: &str) {
    for _ in 0..PROBES {
        let mut client = RawClient::connect(gateway.public).await.expect("it listens");
        if let Err(error) = client.send(bytes).await {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    }
}

/// The lines of the log about single connections.
fn lines_of_connections(gateway: &Gateway) -> Vec<String> {
    let log = gateway.log();
    log.lines().filter(|line| line.contains(r#""peer":"127.0.0.1:"#)).map(str::to_owned).collect()
}

/// Reported as grafana/grafana#112294 and poseidon/typhoon#629: each health check of a balancer that only connects, and
/// each port scan, wrote a line into the log. This test covers lines that any host on the network can cause.
/// Connections without a required PROXY header are counted, and only the first one in a minute is logged.
#[tokio::test]
async fn probes_cause_no_line_each() {
    let site = TestSite::fresh().await;
    let proxied = |trusted: &str| {
        let policy = site.policy("gw-1").with("/listeners/public/proxy_protocol", "require");
        policy.with("/listeners/public/trusted_peers", json!([trusted]))
    };
    let counted = async |gateway: &Gateway, result: &str, probes: usize| {
        let label = format!("result=\"{result}\"");
        gateway.wait_series("fencegate_proxy_headers_total", &[&label], probes as f64).await;
    };

    let plain = start(&site.policy("gw-1")).await;
    probe(&plain, "").await;
    probe(&plain, "G").await;
    assert_eq!(lines_of_connections(&plain), Vec::<String>::new());

    let balanced = start(&proxied("127.0.0.0/8")).await;
    probe(&balanced, "").await;
    counted(&balanced, "gone", PROBES).await;
    assert_eq!(
        lines_of_connections(&balanced),
        Vec::<String>::new(),
        "the balancer looks whether the port is open"
    );
    probe(&balanced, "GET / HTTP/1.0\r\n\r\n").await;
    counted(&balanced, "absent", PROBES).await;
    probe(&balanced, "PROXY TCP4 nonsense\r\n").await;
    counted(&balanced, "malformed", PROBES).await;
    balanced
        .wait_line("of the first one", |line| {
            line.message() == "the connection was closed, because no PROXY header names its client"
        })
        .await;
    let told = lines_of_connections(&balanced);
    assert!(told.len() == 1 && told[0].contains("WARN"), "{told:?}");

    let scanned = start(&proxied("10.0.0.0/8")).await;
    for bytes in ["", "PROXY TCP4 203.0.113.7 192.0.2.1 8080 80\r\n", "\u{16}\u{3}\u{1}"] {
        probe(&scanned, bytes).await;
    }
    counted(&scanned, "untrusted", 3 * PROBES).await;
    scanned.wait_line("of the first one", |line| line.message().contains("trusted_peers")).await;
    let told = lines_of_connections(&scanned);
    assert!(told.len() == 1 && told[0].contains("WARN"), "{told:?}");
}
