//! Queries guard, gateways and ledger for their state.

use std::{net::SocketAddr, time::Duration};

use fencegate_http_client::json_client::JsonClient;
use hyper::StatusCode;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{audit::LedgerExecution, cluster::DemoCluster, error::DemoError};

/// The time limit for steps that take milliseconds, on a machine that may be busy.
pub(super) const SOON: Duration = Duration::from_secs(15);

/// All executions, collected from the pages of the ledger.
pub(super) async fn fetch_executions(ledger: &mut JsonClient) -> Result<Vec<LedgerExecution>, DemoError> {
    let mut executions: Vec<LedgerExecution> = Vec::new();
    loop {
        let after = executions.last().map_or(0, |execution| execution.sequence);
        let page = get(ledger, &format!("/v1/executions?after={after}")).await?["executions"].take();
        let page: Vec<LedgerExecution> = serde_json::from_value(page).expect("the ledger is built with us");
        if page.is_empty() {
            return Ok(executions);
        }
        executions.extend(page);
    }
}

/// Waits until the gateway has counted a client that left before its answer (status 499).
pub(super) async fn wait_for_client_disconnect(admin: SocketAddr) -> Result<(), DemoError> {
    let deadline = Instant::now() + SOON;
    let mut admin = JsonClient::new(admin);
    while Instant::now() < deadline {
        let metrics = get(&mut admin, "/metrics").await?;
        if metrics.as_str().is_some_and(|text| text.contains("code=\"499\"")) {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(DemoError::Late("the client's hanging up"))
}

/// The number of sessions of both gateways that were lost.
pub(super) async fn count_lost_sessions(cluster: &DemoCluster) -> Result<u64, DemoError> {
    let mut lost = 0;
    for gateway in &cluster.gateways {
        let metrics = get(&mut JsonClient::new(gateway.admin), "/metrics").await?;
        let lines = metrics.as_str().unwrap_or_default().lines();
        let counts = lines.filter_map(|line| line.strip_prefix("fencegate_zk_session_expirations_total"));
        lost += counts.filter_map(|count| count.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>();
    }
    Ok(lost)
}

/// Waits until a gateway is ready again: after its pause it has to notice the lost session and get a new one.
pub(super) async fn wait_ready(admin: SocketAddr) -> Result<(), DemoError> {
    let deadline = Instant::now() + 2 * SOON;
    let mut admin = JsonClient::new(admin);
    loop {
        match get(&mut admin, "/ready").await {
            Ok(_) => return Ok(()),
            Err(not_ready) if Instant::now() > deadline => return Err(not_ready),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Gets a document that must exist.
pub(super) async fn get(client: &mut JsonClient, path: &str) -> Result<Value, DemoError> {
    let address = client.address();
    let path = path.to_owned();
    match client.get(&path, Duration::from_secs(10)).await {
        Ok(answer) if answer.status == StatusCode::OK => Ok(answer.body),
        Ok(answer) => Err(DemoError::Unexpected { address, path, said: answer.status.to_string() }),
        Err(source) => Err(DemoError::Unanswered { address, path, source }),
    }
}
