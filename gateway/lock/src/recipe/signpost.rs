//! Reads in ZooKeeper where the gateway is reached that holds a key alone.
//!
//! The lock nodes of a cached tenure name the member node of their gateway, and that one says where the gateway
//! listens to others. Whoever would have to wait may go there. What is read here may be out of date before it is used:
//! whoever is asked looks for itself whether it keeps the key.

use crate::{
    reach::Way,
    session::{
        link::{Fault, Link, Seen},
        live::Live,
        member::{Member, gateway_of},
        paths::Paths,
    },
};

/// What was read of a lock node.
pub type Signpost = Result<(Vec<u8>, Seen), Fault>;

/// From the lock node to the gateway; `None` where that is this process, or does not say where it is reached.
pub async fn follow<L: Link>(live: &Live<L>, read: Signpost) -> Option<Way> {
    let (says, seen) = read.ok()?;
    let member = std::str::from_utf8(&says).ok()?;
    let gateway = gateway_of(member);
    let path = live.paths.member(gateway, seen.owner);
    // Nobody but its owner signs a lock node, and what it says becomes a part of a path.
    if gateway.contains('/') || Paths::member_name(gateway, seen.owner) != member {
        return None;
    }
    let (data, _) = live.link.data(&path).await.ok()?;
    let reach = serde_json::from_slice::<Member>(&data).ok()?.peer?;
    // A pass belongs to a process: also the node of a session of ours that is over leads here.
    let ours = live.reach.as_ref().is_some_and(|ours| ours.pass == reach.pass);
    (!ours).then(|| Way { gateway: gateway.into(), address: reach.address.into(), pass: reach.pass })
}
