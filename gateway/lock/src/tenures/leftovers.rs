//! Removes the parents of keys that nobody asks for any more, where they keep a record: no server does that.
//!
//! Such a parent is no orphan: somebody may be about to hold its key, and a delete by version would hit another life of it,
//! whose versions begin anew. So it is taken like any key, in line; what its record asks for is sat out; and it goes with our
//! own lock node. Nothing is ever sent under it.

use std::{future::pending, rc::Rc};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
};
use futures_util::future::join_all;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::caught::caught;
use crate::{
    recipe::{
        attempt::Attempt,
        candidate::PAUSE,
        grant::{Caller, Stop},
        grant_record::GrantRecord,
    },
    session::{
        link::{Fault, Link},
        live::{Current, Live},
    },
};

/// Parents that are looked at in one round, and folders of them.
const BATCH: usize = 64;
const FOLDERS: usize = 8;

/// Where the last round ended: a folder, and a name in it.
#[derive(Debug, Default)]
struct Position {
    folder: String,
    name: String,
}

/// A round in each session timeout, until `stop`.
pub(super) async fn tidy<L: Link>(current: Rc<Current<L>>, stop: CancellationToken) {
    let mut position = Position::default();
    loop {
        let rest = current.live().map_or(PAUSE, |live| live.rhythm().timeout);
        tokio::select! {
            () = sleep(rest) => {}
            () = stop.cancelled() => return,
        }
        let Some(live) = current.live() else { continue };
        if let Some(Err(fault)) = caught(round(&live, &mut position)).await {
            debug!(%fault, "records that nobody asks for not looked at");
        }
    }
}

async fn round<L: Link>(live: &Rc<Live<L>>, position: &mut Position) -> Result<(), Fault> {
    let locks = live.paths.locks();
    let mut folders = children(live, &locks).await?;
    folders.sort_unstable();
    let mut room = BATCH;
    for _ in 0..FOLDERS.min(folders.len()) {
        let next = folders.partition_point(|folder| *folder < position.folder);
        let folder = folders.get(next).or(folders.first()).expect("there is one").clone();
        if folder != position.folder {
            *position = Position { folder: folder.clone(), name: String::new() };
        }
        let mut names = children(live, &format!("{locks}/{folder}")).await?;
        names.sort_unstable();
        names.retain(|name| *name > position.name);
        let here = names.len().min(room);
        look(live, &format!("{locks}/{folder}"), &names[..here]).await;
        room -= here;
        match names.get(here..) {
            Some([_, ..]) => {
                position.name = names.swap_remove(here - 1);
                return Ok(());
            }
            // Behind the last name, the next folder begins.
            _ => position.folder.push('\u{7f}'),
        }
        if room == 0 {
            return Ok(());
        }
    }
    Ok(())
}

async fn children<L: Link>(live: &Live<L>, path: &str) -> Result<Vec<String>, Fault> {
    match live.link.children(path).await {
        Err(Fault::NoNode) => Ok(Vec::new()),
        read => read,
    }
}

/// Takes those that keep a record and have nobody below them, all at once: each may have to sit out a delay.
async fn look<L: Link>(live: &Rc<Live<L>>, folder: &str, names: &[String]) {
    let paths: Vec<_> = names.iter().map(|name| format!("{folder}/{name}")).collect();
    let read = join_all(paths.iter().map(|path| live.link.data(path))).await;
    let left = names.iter().zip(read).filter_map(|(name, read)| {
        let (data, seen) = read.ok()?;
        let record = GrantRecord::parse(&data).ok()??;
        let key = ResourceKey::of_segment(name)?;
        (seen.children == 0).then(|| remove(live, key, record))
    });
    join_all(left.collect::<Vec<_>>()).await;
}

async fn remove<L: Link>(live: &Rc<Live<L>>, key: ResourceKey, record: GrantRecord) {
    let Ok(attempt) = Attempt::begin(live, &key, &LockSite::Native, Mode::Exclusive).await else { return };
    let attempt = attempt.sending_nothing();
    let taken = caught(attempt.acquire(&mut Nobody)).await;
    let granted = matches!(taken, Some(Ok(_)));
    if granted {
        attempt.all_known();
        debug!(epoch = record.epoch, held = record.is_held(), "record that nobody asked for taken");
    }
    while caught(attempt.clear()).await.is_none() {
        sleep(PAUSE).await;
    }
    live.metrics.delays.leftover(granted);
}

/// Whoever waits behind us waits for a delay that is older than his own would be; who is before us is not disturbed.
struct Nobody;

impl Caller for Nobody {
    fn is_gone(&self) -> bool {
        false
    }

    async fn gone(&mut self) {
        pending().await
    }

    fn behind(&mut self) -> Result<(), Stop> {
        Err(Stop::CallerGone)
    }
}
