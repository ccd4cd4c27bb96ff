//! Audits write access below the root, because a client that can remove a lock node can pass a lock on.
//!
//! The audit reads ACLs only. It does not detect a super user of the server, a server that ignores ACLs
//! (`skipACL`), or people who read a server's disk.

use std::collections::VecDeque;

use futures_util::future::{join, join_all};
use tracing::{debug, info, warn};

use super::{
    active_session::ActiveSession,
    client::{ZkClient, ZkError},
    settings::SessionSettings,
};

/// The result of the check.
#[derive(Debug, Default)]
pub struct AclAuditReport {
    /// The number of nodes that were read.
    pub looked: usize,
    /// Whether there were more nodes than could be read.
    pub unfinished: bool,
    /// The first nodes that unintended identities may write, each with those identities.
    pub open: Vec<String>,
    /// The number of nodes that unintended identities may write.
    pub count: usize,
}

/// The most nodes whose ACL is read, from the root down: all permanent ones, and some of the keys.
const MOST: usize = 4096;

/// The most nodes that the summary names.
const NAMED: usize = 8;

/// The number of nodes that are read at once.
const TOGETHER: usize = 64;

impl AclAuditReport {
    /// The result in one sentence.
    pub fn summary(&self) -> String {
        let more = self.count - self.open.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let bound = if self.unfinished { ", the first ones of more" } else { "" };
        format!(
            "of {} nodes{bound} below the root others may write {}: {}{more}",
            self.looked,
            self.count,
            self.open.join(", ")
        )
    }
}

/// Audits the nodes from `root` down. `meant`: the identities that may write them. Reads only.
///
/// # Errors
/// Returns an error if the root cannot be read. A node that is removed meanwhile is no error.
pub async fn audit_acls(
    link: &impl ZkClient,
    root: &str,
    meant: &[String],
) -> Result<AclAuditReport, ZkError> {
    let mut found = AclAuditReport::default();
    let mut left = VecDeque::from([root.to_owned()]);
    while !left.is_empty() && found.looked < MOST {
        let some: Vec<String> = left.drain(..left.len().min(TOGETHER).min(MOST - found.looked)).collect();
        let read = join_all(
            some.iter().map(|path| async move { join(link.acl_grantees(path), link.children(path)).await }),
        );
        for (path, (writers, children)) in some.iter().zip(read.await) {
            found.looked += 1;
            match writers {
                Ok(writers) => {
                    let others = writers.iter().filter(|writer| !meant.contains(&writer.who));
                    let others: Vec<&str> = others.map(|writer| writer.who.as_str()).collect();
                    if !others.is_empty() {
                        found.record_open_acl_node(format!("{path} ({})", others.join(", ")));
                    }
                }
                Err(ZkError::NoNode) => continue,
                // A node that even this session may not read belongs to another client.
                Err(ZkError::Denied(_)) if path != root => {
                    found.record_open_acl_node(format!("{path} (closed to us)"))
                }
                Err(fault) => return Err(fault),
            }
            left.extend(children.unwrap_or_default().into_iter().map(|child| format!("{path}/{child}")));
        }
    }
    found.unfinished = !left.is_empty();
    Ok(found)
}

impl AclAuditReport {
    fn record_open_acl_node(&mut self, node: String) {
        self.count += 1;
        if self.open.len() < NAMED {
            self.open.push(node);
        }
    }
}

/// Runs the audit once in the life of a process, in one of its sessions, and logs the result.
pub async fn audit_once<L: ZkClient>(live: &ActiveSession<L>, settings: &SessionSettings) {
    let Some(claim) = settings.log_dedup.claim_audit() else { return };
    let audited = async {
        let Some(meant) = live.client.intended_writers().await? else { return Ok(None) };
        audit_acls(&live.client, live.paths.root(), &meant).await.map(Some)
    };
    match audited.await {
        Ok(None) => claim.complete(),
        Ok(Some(found)) => {
            claim.complete();
            match found.count {
                0 => info!(nodes = found.looked, "zookeeper.nodes_closed: nobody else may write them"),
                _ => warn!(code = "FG0522", told = found.summary(), "zookeeper.nodes_open"),
            }
        }
        // The claim is dropped here, so another session of this process tries again.
        Err(fault) => debug!(%fault, "nobody has looked who may write the nodes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The summary of an ACL audit names the first open nodes, counts the rest, and has a bounded length.
    #[test]
    fn summary_length_is_bounded() {
        let mut found = AclAuditReport { looked: 4096, unfinished: true, ..AclAuditReport::default() };
        for number in 0..1000 {
            found.record_open_acl_node(format!("/f/{number} (world:anyone)"));
        }
        let summary = found.summary();
        assert!(
            summary.contains("/f/7 (world:anyone), and 992 more") && !summary.contains("/f/8 "),
            "{summary}"
        );
        assert!(summary.len() < 400, "{summary}");
    }
}
