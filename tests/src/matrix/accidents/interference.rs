//! Interference from outside: with lock nodes, and with answers in flight.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::AccidentResult;
use crate::{
    matrix::{environment::RunEnvironment, level::LONG},
    zookeeper_proxy::{LockNodeOperation, OperationFault},
};

/// Deletes the lock node of a request that is being executed, as another client.
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

/// Loses the answers to creates and deletes of lock nodes, with their connections.
pub fn answers_eaten(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    /// The time after which a fault is given up: a proxy whose connection has no session never gets such an
    /// operation.
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
