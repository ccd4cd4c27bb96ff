//! Two upstreams whose names resolve to one address are one service: `check --online` warns the operator, and no
//! request bypasses its fences.

use std::net::SocketAddr;

use fencegate_tests::{
    client::TestRequest,
    gateway::PolicyFile,
    gateway::{GatewayLaunch, command_with_hosts},
    hosts::HostsFile,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

const NAME: &str = "ledger.test";

/// Payments lead to one listener of the origin by its address, and reads to another listener by a name.
fn policy(site: &TestSite, payments: SocketAddr, reads: SocketAddr) -> TestPolicy {
    let by_name = json!({"endpoints": [format!("http://{NAME}:{}", reads.port())], "fencing": "upstream"});
    site.policy("gw-1")
        .with("/upstreams/ledger/endpoints", json!([format!("http://{payments}")]))
        .with("/upstreams/reads", by_name)
        .with("/routes/1/upstream", "reads")
}

fn hosts() -> HostsFile {
    let hosts = HostsFile::none();
    hosts.set(NAME, &["127.0.0.1"]);
    hosts
}

async fn check_report(policy: &TestPolicy, hosts: &HostsFile) -> Value {
    let file = PolicyFile::new(&policy);
    let checked = command_with_hosts(hosts, &["check", "--online", "--format", "json", &file]).await;
    let output = checked.expect("started");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// `check --online` warns that two upstreams are one service and says how to write them; an unfenced one does not
/// count.
#[tokio::test]
async fn check_reports_names_of_one_service() {
    let site = TestSite::fresh().await;
    let hosts = hosts();
    let payments = site.origin.open_listener("payments");
    let reads = site.origin.open_listener("reads");
    let same = policy(&site, payments, payments);
    let elsewhere = policy(&site, payments, reads);
    let said = check_report(&same, &hosts).await;
    let shared = |said: &Value| -> Vec<Value> {
        let all = said["diagnostics"].as_array().expect("a list");
        all.iter().filter(|one| one["code"] == "FG0525").cloned().collect()
    };
    let [one] = &shared(&said)[..] else { panic!("told once: {said:#}") };
    let message = one["message"].as_str().expect("text");
    for part in ["`ledger`", "`reads`", &payments.to_string()] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(one["severity"], "warning");
    assert!(one["line"].as_u64().is_some_and(|line| line > 1), "{one:#}");
    assert!(one["remedy"].as_str().is_some_and(|remedy| remedy.contains("alike")), "{one:#}");
    let said = check_report(&elsewhere, &hosts).await;
    assert!(shared(&said).is_empty(), "another port is another service: {said:#}");
    // An unfenced upstream has no fences to bypass.
    let open = same.with("/routes/0/fence", "none");
    assert!(shared(&check_report(&open, &hosts).await).is_empty());
}

/// An ambiguous path is refused also on an unfenced route, because the service may read it as a fenced path.
#[tokio::test]
async fn ambiguous_path_refused_at_fenced_service() {
    const AMBIGUOUS: &str = "/reports/..%2fpay/7";
    let site = TestSite::fresh().await;
    let hosts = hosts();
    let payments = site.origin.open_listener("payments");
    let reads = site.origin.open_listener("reads");
    for (reads, refused) in [(reads, false), (payments, true)] {
        let policy = policy(&site, payments, reads);
        let gateway = GatewayLaunch::new(&policy).with_hosts(&hosts).start().await;
        gateway.wait_ready().await;
        let before = site.origin.log().records.len();
        let answer = gateway.send(&TestRequest::get(AMBIGUOUS)).await;
        if refused {
            assert_eq!((answer.status, answer.reason().as_str()), (400, "ambiguous-path"), "{answer:?}");
        } else {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        assert_eq!(site.origin.log().records.len() - before, usize::from(!refused));
        assert_eq!(
            gateway.send(&TestRequest::get("/reports/7")).await.status,
            200,
            "what is not ambiguous goes on"
        );
    }
}
