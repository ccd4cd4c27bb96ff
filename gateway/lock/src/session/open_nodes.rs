//! Looks who may write below the root: whoever may remove a lock node gives a lock away.
//!
//! It sees ACLs. It does not see whom a server lets in as its super user, what a server believes without asking
//! (`skipACL`), nor who reads the snapshots and logs of a server's disk.

use std::collections::VecDeque;

use futures_util::future::{join, join_all};
use tracing::{debug, info, warn};

use super::{
    link::{Fault, Link},
    live::Live,
    settings::Settings,
};

/// What was found.
#[derive(Debug, Default)]
pub struct Audit {
    /// So many nodes were looked at.
    pub looked: usize,
    /// There are more.
    pub unfinished: bool,
    /// Nodes that others may write, with these: the first ones that were found, from the root on.
    pub open: Vec<String>,
    /// So many in all.
    pub count: usize,
}

/// Nodes of which the ACL is read, from the root on: what is always there, and what is there of keys.
const MOST: usize = 4096;

/// So many are named.
const NAMED: usize = 8;

/// So many are asked about at once.
const TOGETHER: usize = 64;

impl Audit {
    /// In one sentence.
    pub fn told(&self) -> String {
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

/// Looks at the nodes from `root` on. `meant`: who may write them. Reads only.
///
/// # Errors
/// The root cannot be looked at. Nodes that go meanwhile are none.
pub async fn audit(link: &impl Link, root: &str, meant: &[String]) -> Result<Audit, Fault> {
    let mut found = Audit::default();
    let mut left = VecDeque::from([root.to_owned()]);
    while !left.is_empty() && found.looked < MOST {
        let some: Vec<String> = left.drain(..left.len().min(TOGETHER).min(MOST - found.looked)).collect();
        let read = join_all(
            some.iter().map(|path| async move { join(link.writers(path), link.children(path)).await }),
        );
        for (path, (writers, children)) in some.iter().zip(read.await) {
            found.looked += 1;
            match writers {
                Ok(writers) => {
                    let others = writers.iter().filter(|writer| !meant.contains(&writer.who));
                    let others: Vec<&str> = others.map(|writer| writer.who.as_str()).collect();
                    if !others.is_empty() {
                        found.notes(format!("{path} ({})", others.join(", ")));
                    }
                }
                Err(Fault::NoNode) => continue,
                // One that not even we may look at is somebody else's.
                Err(Fault::Denied(_)) if path != root => found.notes(format!("{path} (closed to us)")),
                Err(fault) => return Err(fault),
            }
            left.extend(children.unwrap_or_default().into_iter().map(|child| format!("{path}/{child}")));
        }
    }
    found.unfinished = !left.is_empty();
    Ok(found)
}

impl Audit {
    fn notes(&mut self, node: String) {
        self.count += 1;
        if self.open.len() < NAMED {
            self.open.push(node);
        }
    }
}

/// Once in the life of a process, by one of its sessions; tells it in the log.
pub(crate) async fn once<L: Link>(live: &Live<L>, settings: &Settings) {
    let Some(claim) = settings.complaints.audits() else { return };
    let audited = async {
        let Some(meant) = live.link.meant().await? else { return Ok(None) };
        audit(&live.link, live.paths.root(), &meant).await.map(Some)
    };
    match audited.await {
        Ok(None) => claim.done(),
        Ok(Some(found)) => {
            claim.done();
            match found.count {
                0 => info!(nodes = found.looked, "zookeeper.nodes_closed: nobody else may write them"),
                _ => warn!(code = "FG0522", told = found.told(), "zookeeper.nodes_open"),
            }
        }
        // Another session, or the next one of this, looks.
        Err(fault) => debug!(%fault, "nobody has looked who may write the nodes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_told_in_one_sentence_of_a_bounded_length() {
        let mut found = Audit { looked: 4096, unfinished: true, ..Audit::default() };
        for number in 0..1000 {
            found.notes(format!("/f/{number} (world:anyone)"));
        }
        let told = found.told();
        assert!(told.contains("/f/7 (world:anyone), and 992 more") && !told.contains("/f/8 "), "{told}");
        assert!(told.len() < 400, "{told}");
    }
}
