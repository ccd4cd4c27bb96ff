//! Interference from outside: with lock nodes, and with answers on their way.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::AccidentResult;
use crate::{
    matrix::{environment::RunEnvironment, level::LONG},
    zookeeper_proxy::{LockNodeOperation, OperationFault},
};

/// Another client deletes the lock node of a request that is being executed.
pub fn node_deleted(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        let tree = lab.tree().await;
        let record = lab.wait_at_work(0, LONG).await;
        let from = lab.mark_accident(0);
        let parent = format!("/{}/", record.key().unwrap_or_default().replace('/', "%2F"));
        let mut line: Vec<String> = tree.locks().await;
        line.retain(|node| node.contains(&parent));
        // The last ten digits are the sequence number of the node.
        line.sort_by_key(|node| node[node.len() - 10..].to_owned());
        let holder = line.first().ok_or(format!("no node of `{parent}`"))?;
        tree.delete(holder).await.map_err(|error| format!("delete `{holder}`: {error}"))?;
        Ok(from)
    })
}

/// Nodes are made and deleted, and the answers to these operations are lost with their connections.
pub fn answers_eaten(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    /// A link without a session has no such operation, so its trap is not sprung.
    const UNUSED: Duration = Duration::from_secs(2);
    Box::pin(async move {
        let from = Instant::now();
        for operation in [LockNodeOperation::Create, LockNodeOperation::Delete, LockNodeOperation::Create] {
            for link in &lab.stations[0].links {
                let sprung = link.intercept(operation, OperationFault::AnswerLost);
                if timeout(UNUSED, sprung.wait()).await.is_ok() {
                    lab.hit += 1;
                } else {
                    link.clear_intercept();
                }
            }
        }
        Ok(from)
    })
}
