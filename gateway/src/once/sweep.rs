//! Forgets operations that were remembered long enough; a bounded number per round.

use std::{convert::Infallible, time::Duration};

use tracing::debug;

use super::record::{Record, State, is_deletable, is_finished};
use crate::{
    guard::wall_clock,
    session::{
        link::{Fault, Link, Step},
        live::Live,
    },
};

/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(2);
/// Operations that are looked at in one round.
const BATCH: usize = 32;

/// Where the next round goes on.
#[derive(Debug, Default)]
struct Cursor {
    shard: String,
    /// The operation looked at last in this shard.
    name: String,
}

/// Sweeps for as long as it is polled. Every session of every gateway does; they begin at different places.
pub async fn sweep_every<L: Link>(live: &Live<L>) -> Infallible {
    let mut cursor = Cursor { shard: format!("{:02x}", live.link.id() & 0xff), name: String::new() };
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(fault) = sweep(live, &mut cursor).await {
            debug!(%fault, "operations not swept");
        }
    }
}

async fn sweep<L: Link>(live: &Live<L>, cursor: &mut Cursor) -> Result<(), Fault> {
    let all = live.paths.operations();
    let mut shards = match live.link.children(&all).await {
        Ok(shards) => shards,
        Err(Fault::NoNode) => return Ok(()),
        Err(fault) => return Err(fault),
    };
    shards.sort_unstable();
    let Some(shard) = shards.iter().find(|shard| **shard >= cursor.shard).or(shards.first()) else {
        return Ok(());
    };
    if *shard != cursor.shard {
        *cursor = Cursor { shard: shard.clone(), name: String::new() };
    }
    let mut names = live.link.children(&format!("{all}/{shard}")).await?;
    names.retain(|name| *name > cursor.name);
    names.sort_unstable();
    let (now, rest) = names.split_at(names.len().min(BATCH));
    for name in now {
        forget(live, &format!("{all}/{shard}/{name}")).await?;
        cursor.name.clone_from(name);
    }
    if rest.is_empty() {
        // Above this shard and below every other.
        *cursor = Cursor { shard: format!("{shard}\u{7f}"), name: String::new() };
    }
    Ok(())
}

/// In two steps, see [`super::record`]: a delete that is late can only hit what is outlived.
async fn forget<L: Link>(live: &Live<L>, path: &str) -> Result<(), Fault> {
    let (data, seen) = match live.link.data(path).await {
        Ok(read) => read,
        Err(Fault::NoNode) => return Ok(()),
        Err(fault) => return Err(fault),
    };
    let Ok(record) = Record::parse(&data) else { return Ok(()) };
    if !record.is_outlived(wall_clock()) {
        return Ok(());
    }
    let mut version = seen.version;
    if is_finished(version) {
        let data = record.now(State::Outlived).bytes();
        let steps = [Step::Check { path, version }, Step::Set { path, data: &data }];
        if live.link.commit(&steps).await.is_err() {
            // Somebody else did something to it; the next round shows what.
            return Ok(());
        }
        version += 1;
    }
    if is_deletable(version) {
        debug!(path, "operation forgotten");
        let steps = [Step::Delete { path, version: Some(version) }];
        drop(live.link.commit(&steps).await);
    }
    Ok(())
}
