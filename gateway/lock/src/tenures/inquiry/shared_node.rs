//! Who holds a node that we share with programs that know nothing of us, and its removal by an operator who means it.

use crate::recipe::saying;
use crate::session::{
    epoch::epoch,
    link::{Fault, Link, Seen, Step},
    live::Live,
    member::gateway_among,
};
use crate::tenures::question::{Broken, LineEntry, Program, Untold};
use fencegate_policies::plan::Mode;

/// The line of ours, in front of it whoever has the node.
pub(super) async fn settle<L: Link>(
    live: &Live<L>,
    path: &str,
    members: &[String],
    mut line: Vec<LineEntry>,
) -> Result<Vec<LineEntry>, Untold> {
    for one in &mut line {
        // Tokens are made of the number of the node, and only who has made it has one.
        (one.number, one.holds) = (None, false);
    }
    let (says, seen) = match live.link.data(path).await {
        Ok(read) => read,
        // It was given back, and is about to be made.
        Err(Fault::NoNode) => return Ok(line),
        Err(fault) => return Err(fault.into()),
    };
    let (session, number) = (session(seen), epoch(live.base, seen.czxid).ok());
    let ours = saying::attempt(&says).is_some();
    match line.first_mut() {
        Some(first) if first.session == session && saying::is_of(&says, &first.node) => {
            (first.number, first.holds) = (number, true);
        }
        first => {
            let node = name(seen);
            if let Some(first) = first {
                first.behind = Some(node.clone());
            }
            let gateway = gateway_among(members, &session);
            let program = if ours || gateway.is_some() { Program::Fencegate } else { Program::Unknown };
            let (mode, behind, permit) = (Mode::Exclusive, None, None);
            let (holds, made_ms) = (true, Some(seen.created));
            let first =
                LineEntry { node, mode, program, gateway, session, number, holds, permit, behind, made_ms };
            line.insert(0, first);
        }
    }
    Ok(line)
}

fn session(seen: Seen) -> String {
    format!("{:016x}", seen.owner)
}

/// The path is that of everybody who ever holds it, and tells the key. The transaction is that of one.
fn name(seen: Seen) -> String {
    format!("node@{:x}", seen.czxid)
}

/// The first in line, at `place`, and the node at `path` that it has made: both or neither.
pub(super) async fn remove_ours<L: Link>(live: &Live<L>, place: &str, path: &str) -> Result<Broken, Untold> {
    let (first, node) = (live.link.seen(place), live.link.data(path));
    let (Some(first), Ok((says, seen))) = (first.await?, node.await) else { return Ok(Broken::NotHolding) };
    let name = place.rsplit('/').next().unwrap_or_default();
    if first.owner != seen.owner || !saying::is_of(&says, name) {
        return Ok(Broken::NotHolding);
    }
    let steps =
        [Step::Delete { path: place, version: None }, Step::Delete { path, version: Some(seen.version) }];
    Broken::of(live.link.commit(&steps).await.map(drop).map_err(|failed| failed.fault))
}

/// The one that was meant, `named` as [`settle`] does.
pub(super) async fn remove_theirs<L: Link>(
    live: &Live<L>,
    named: &str,
    path: &str,
) -> Result<Broken, Untold> {
    let seen = match live.link.seen(path).await? {
        Some(seen) if name(seen) == named => seen,
        _ => return Ok(Broken::NotHolding),
    };
    let steps = [Step::Delete { path, version: Some(seen.version) }];
    Broken::of(live.link.commit(&steps).await.map(drop).map_err(|failed| failed.fault))
}
