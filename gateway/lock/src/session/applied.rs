//! Gives every node below the root the ACL that nodes get which are made now: what was made before has the one of then.

use std::collections::VecDeque;

use futures_util::future::join_all;

use super::{
    link::{Fault, Link},
    zookeeper::Session,
};

/// What was done.
#[derive(Debug, Default)]
pub struct Applied {
    /// So many nodes have it now.
    pub nodes: usize,
    /// Those that are closed to us, and what stands below them.
    pub closed_to_us: Vec<String>,
}

/// So many are asked at once.
const TOGETHER: usize = 64;

/// From the root on, so that nothing more is made by strangers below what has been gone through. Safe to repeat.
///
/// # Errors
/// Some nodes have it, and some may not: repeat.
pub async fn apply(link: &Session, root: &str) -> Result<Applied, Fault> {
    let mut applied = Applied::default();
    let mut left = VecDeque::from([root.to_owned()]);
    while !left.is_empty() {
        let some: Vec<String> = left.drain(..left.len().min(TOGETHER)).collect();
        // First the ACL, then who is below: what is made after that is made under the new one.
        let done = join_all(some.iter().map(async |path| {
            link.close_to_others(path).await?;
            link.children(path).await
        }));
        for (path, done) in some.iter().zip(done.await) {
            match done {
                Ok(children) => {
                    applied.nodes += 1;
                    left.extend(children.into_iter().map(|child| format!("{path}/{child}")));
                }
                // It went meanwhile.
                Err(Fault::NoNode) if path != root => {}
                Err(Fault::Denied(_)) if path != root => applied.closed_to_us.push(path.clone()),
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(applied)
}
