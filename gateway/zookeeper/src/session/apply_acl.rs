//! Gives every node below the root the ACL that new nodes get. Existing nodes keep the ACL with which they were
//! created.

use std::collections::VecDeque;

use futures_util::future::join_all;

use super::{
    client::{ZkClient, ZkError},
    zookeeper::ZkSession,
};

/// The result of applying the ACL.
#[derive(Debug, Default)]
pub struct AclApplyReport {
    /// The number of nodes that have the new ACL.
    pub nodes: usize,
    /// Nodes that this session may not change; they and all nodes below them were left unchanged.
    pub closed_to_us: Vec<String>,
}

/// The number of nodes that are changed at once.
const TOGETHER: usize = 64;

/// Applies the ACL from the root down, so that other clients can create nothing more below the nodes that already have
/// it. It is safe to repeat this.
///
/// # Errors
/// Returns an error if some nodes may not have the new ACL yet: call this again.
pub async fn apply_acl(link: &ZkSession, root: &str) -> Result<AclApplyReport, ZkError> {
    let mut applied = AclApplyReport::default();
    let mut left = VecDeque::from([root.to_owned()]);
    while !left.is_empty() {
        let some: Vec<String> = left.drain(..left.len().min(TOGETHER)).collect();
        // The ACL is set before the children are listed: a child that is missing in the list was created under the new
        // ACL.
        let done = join_all(some.iter().map(async |path| {
            link.restrict_acl(path).await?;
            link.children(path).await
        }));
        for (path, done) in some.iter().zip(done.await) {
            match done {
                Ok(children) => {
                    applied.nodes += 1;
                    left.extend(children.into_iter().map(|child| format!("{path}/{child}")));
                }
                // The node was removed meanwhile.
                Err(ZkError::NoNode) if path != root => {}
                Err(ZkError::Denied(_)) if path != root => applied.closed_to_us.push(path.clone()),
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(applied)
}
