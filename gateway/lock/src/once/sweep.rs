//! Looks through the remembered operations: forgets records after their time, and counts unknown outcomes.
//!
//! The age of an operation is reckoned by two clocks at both ends. Its end is the later of two times: the one that
//! ZooKeeper's leader gave the node, and the one that the gateway wrote into it. The present time is the earlier of
//! two: the one that the leader gave our own last heartbeat, and this machine's. So an operation is forgotten early
//! only if both clocks were slow at its end, or both are fast now.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use fencegate_policies::operation::OperationId;
use fencegate_process::{clock::wall_clock, randomness::Guid};
use tracing::debug;

use super::{
    census::{Census, Finished, Shelf},
    record::{Record, State, is_deletable, is_finished},
    room::Owner,
    unresolved::is_held,
};
use crate::session::{
    link::{Fault, Link, Step},
    live::Live,
};

/// Between two rounds of one session.
const PERIOD: Duration = Duration::from_secs(2);
/// Nodes of shelves that are listed in one round.
const SHELVES: usize = 8;
/// Operations that are read in one round. The round ends after the shelf that reaches this number.
const BATCH: usize = 128;

/// Sweeps for as long as it is polled. Every session of every gateway sweeps; the sessions of one process take turns.
pub async fn sweep_every<L: Link>(live: &Live<L>, census: &Census) -> Infallible {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(fault) = round(live, census).await {
            debug!(%fault, "operations not swept");
        }
    }
}

async fn round<L: Link>(live: &Live<L>, census: &Census) -> Result<(), Fault> {
    let mut shelves = match live.link.children(&live.paths.operations()).await {
        Ok(shelves) => shelves,
        Err(Fault::NoNode) => Vec::new(),
        Err(fault) => return Err(fault),
    };
    shelves.sort_unstable();
    let now = if shelves.is_empty() { 0 } else { now(live).await? };
    let mut read = 0;
    for _ in 0..SHELVES.min(shelves.len()) {
        if read < BATCH
            && let Some(shelf) = census.next(&shelves)
        {
            read += look_through(live, census, shelf, now).await?;
        }
    }
    census.keep(&shelves, live.clock.now());
    if let Some(unknown) = census.unknown() {
        live.metrics.operations_unknown(unknown);
    }
    Ok(())
}

/// Milliseconds since 1970, by the earlier of two clocks.
async fn now<L: Link>(live: &Live<L>) -> Result<u64, Fault> {
    let member = format!("{}/{}", live.paths.members(), live.member);
    let beaten = live.link.seen(&member).await?.map_or(0, |seen| seen.modified);
    Ok(beaten.min(wall_clock().saturating_mul(1000)))
}

/// What one look at an operation's node says.
enum Look {
    /// Gone, forgotten, or not ours to read.
    Nothing,
    Found(How, Option<Arc<Owner>>),
}

enum How {
    /// Kept until then.
    Finished(u64),
    Running(Option<Guid>),
    Unknown(Option<Guid>),
}

/// Returns how many operations were read.
async fn look_through<L: Link>(
    live: &Live<L>,
    census: &Census,
    name: &str,
    now: u64,
) -> Result<usize, Fault> {
    let folder = format!("{}/{name}", live.paths.operations());
    let nodes = match live.link.children(&folder).await {
        Ok(nodes) => nodes,
        Err(Fault::NoNode) => return Ok(0),
        Err(fault) => return Err(fault),
    };
    let known = census.known(name);
    let (mut shelf, mut admitted, mut read) = (Shelf::default(), HashSet::new(), 0);
    for node in &nodes {
        let id = OperationId::parse(node);
        let finished = id.and_then(|id| known.finished.get(&id)).filter(|finished| now <= finished.until);
        let look = match finished {
            Some(Finished { until, owner }) => Look::Found(How::Finished(*until), owner.clone()),
            None => {
                read += 1;
                look(live, census, &format!("{folder}/{node}"), now).await?
            }
        };
        let Look::Found(how, owner) = look else { continue };
        shelf.former |= owner.is_none();
        shelf.owners.extend(owner.clone());
        match how {
            How::Finished(until) => shelf.finished.extend(id.map(|id| (id, Finished { until, owner }))),
            How::Running(attempt) => admitted.extend(attempt),
            How::Unknown(attempt) => {
                admitted.extend(attempt);
                shelf.unknown += 1;
            }
        }
    }
    census.saw(name, &known, &admitted, shelf);
    Ok(read)
}

async fn look<L: Link>(live: &Live<L>, census: &Census, path: &str, now: u64) -> Result<Look, Fault> {
    let (data, seen) = match live.link.data(path).await {
        Ok(read) => read,
        Err(Fault::NoNode) => return Ok(Look::Nothing),
        Err(fault) => return Err(fault),
    };
    let Ok(record) = Record::parse(&data) else { return Ok(Look::Nothing) };
    let found = |how| Look::Found(how, record.owner.clone().map(Arc::new));
    if record.state == State::Admitted {
        let attempt = Guid::parse(&record.attempt);
        let unknown = is_unknown(live, census, path, &record).await?;
        return Ok(found(if unknown { How::Unknown(attempt) } else { How::Running(attempt) }));
    }
    if !record.is_outlived(seen.modified, now) {
        return Ok(found(How::Finished(record.kept_until(seen.modified))));
    }
    forget(live, path, &record, seen.version).await;
    Ok(Look::Nothing)
}

/// Whether the operation was admitted, does not run any more, and has no recorded outcome.
async fn is_unknown<L: Link>(
    live: &Live<L>,
    census: &Census,
    path: &str,
    record: &Record,
) -> Result<bool, Fault> {
    if census.runs(&record.attempt) {
        return Ok(false);
    }
    if !census.is_left(&record.attempt) && is_held(&live.link, &live.paths, live.base, record).await? {
        return Ok(false);
    }
    // The outcome is written before the lock is given up, so it may have been written since we read the record.
    match live.link.data(path).await {
        Ok((data, _)) => Ok(Record::parse(&data).is_ok_and(|now| now == *record)),
        Err(Fault::NoNode) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Forgets in two steps, see [`super::record`]: a late delete can only hit a record that is outlived.
async fn forget<L: Link>(live: &Live<L>, path: &str, record: &Record, mut version: i32) {
    if is_finished(version) {
        let data = record.now(State::Outlived).bytes();
        let steps = [Step::Check { path, version }, Step::Set { path, data: &data }];
        if live.link.commit(&steps).await.is_err() {
            // Somebody else did something to it; the next round shows what.
            return;
        }
        version += 1;
    }
    if is_deletable(version) {
        debug!(path, "operation forgotten");
        let steps = [Step::Delete { path, version: Some(version) }];
        drop(live.link.commit(&steps).await);
    }
}
