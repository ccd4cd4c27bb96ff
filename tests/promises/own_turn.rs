//! A client that sends its next request as soon as it has its response does not queue behind its last request.

use fencegate_tests::{
    client::{Http1Client, TestRequest},
    gateway::Gateway,
    site::TestSite,
};
use serde_json::json;
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const REQUESTS: usize = 200;

/// A client that sends its next request as soon as it has a response finds the key free.
#[tokio::test(flavor = "multi_thread")]
async fn returning_client_finds_key_free() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/defaults/hold", json!({"mode": "strict"}));
    let gateway = Gateway::start(&policy.with("/zookeeper/sessions", 1)).await;
    let public = gateway.public;
    let mut clients: JoinSet<_> = (0..CLIENTS)
        .map(|key| async move {
            let mut connection = Http1Client::connect(public).await.expect("listens");
            for _ in 0..REQUESTS {
                let answer =
                    connection.send(&TestRequest::post(&format!("/pay/{key}"))).await.expect("answered");
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        })
        .collect();
    while let Some(client) = clients.join_next().await {
        client.expect("every request is answered with 200");
    }
    let metrics = gateway.metrics().await;
    let asked =
        |contended| metrics.sum("fencegate_lock_acquisitions_total", &[contended, "result=\"granted\""]);
    let free = asked("contended=\"no\"");
    let behind = asked("contended=\"yes\"");
    println!("{free} found their key free, {behind} did not");
    assert_eq!(free + behind, (CLIENTS * REQUESTS) as f64);
    assert!(behind < free / 20.0, "{behind} requests stood behind the last one of their client");
}
