//! Removes parents with a grant record whose keys are not used any more. They are persistent nodes, so no server
//! removes them.
//!
//! A plain delete is not safe. Another contender may be about to hold the key, and a delete by version may hit a parent
//! that was created anew, because versions begin again. So the key is locked like any other: the cleanup queues, waits
//! for the delay in the record, and removes the parent together with its own lock node. Nothing is ever sent under that
//! lock.

use std::{future::pending, rc::Rc};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockLocation, LockMode},
};
use fencegate_recipe::{
    attempt::LockAttempt,
    grant::{LockAttemptError, LockAttemptObserver},
    grant_record::GrantRecord,
    lock_node::REFUSED_PAUSE,
};
use fencegate_zookeeper::session::{
    active_session::{ActiveSession, CurrentSession},
    client::{ZkClient, ZkError},
};
use futures_util::future::join_all;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::panic_guard::catch_panic;

/// The most parents, and the most folders of parents, that are read in one round.
const BATCH: usize = 64;
const FOLDERS: usize = 8;

/// The place where the last round ended: a folder, and a name in it.
#[derive(Debug, Default)]
struct OrphanScanCursor {
    folder: String,
    name: String,
}

/// Runs one round of the cleanup in each session timeout, until `stop`.
pub(super) async fn run_grant_record_cleanup<L: ZkClient>(
    current: Rc<CurrentSession<L>>,
    stop: CancellationToken,
) {
    let mut position = OrphanScanCursor::default();
    loop {
        let rest = current.session().map_or(REFUSED_PAUSE, |live| live.heartbeat_schedule().timeout);
        tokio::select! {
            () = sleep(rest) => {}
            () = stop.cancelled() => return,
        }
        let Some(live) = current.session() else { continue };
        if let Some(Err(fault)) = catch_panic(scan_round(&live, &mut position)).await {
            debug!(%fault, "records that nobody asks for not looked at");
        }
    }
}

async fn scan_round<L: ZkClient>(
    live: &Rc<ActiveSession<L>>,
    position: &mut OrphanScanCursor,
) -> Result<(), ZkError> {
    let locks = live.paths.locks_path();
    let mut folders = children(live, &locks).await?;
    folders.sort_unstable();
    let mut room = BATCH;
    for _ in 0..FOLDERS.min(folders.len()) {
        let next = folders.partition_point(|folder| *folder < position.folder);
        let folder = folders.get(next).or(folders.first()).expect("there is one").clone();
        if folder != position.folder {
            *position = OrphanScanCursor { folder: folder.clone(), name: String::new() };
        }
        let mut names = children(live, &format!("{locks}/{folder}")).await?;
        names.sort_unstable();
        names.retain(|name| *name > position.name);
        let here = names.len().min(room);
        remove_idle_records(live, &format!("{locks}/{folder}"), &names[..here]).await;
        room -= here;
        match names.get(here..) {
            Some([_, ..]) => {
                position.name = names.swap_remove(here - 1);
                return Ok(());
            }
            // The next round begins after this folder.
            _ => position.folder.push('\u{7f}'),
        }
        if room == 0 {
            return Ok(());
        }
    }
    Ok(())
}

async fn children<L: ZkClient>(live: &ActiveSession<L>, path: &str) -> Result<Vec<String>, ZkError> {
    match live.client.children(path).await {
        Err(ZkError::NoNode) => Ok(Vec::new()),
        read => read,
    }
}

/// Locks the keys of all parents with a record and without children. They are locked at the same time, because each may
/// have to wait for a delay.
async fn remove_idle_records<L: ZkClient>(live: &Rc<ActiveSession<L>>, folder: &str, names: &[String]) {
    let paths: Vec<_> = names.iter().map(|name| format!("{folder}/{name}")).collect();
    let read = join_all(paths.iter().map(|path| live.client.data(path))).await;
    let left = names.iter().zip(read).filter_map(|(name, read)| {
        let (data, seen) = read.ok()?;
        let record = GrantRecord::parse(&data).ok()??;
        let key = ResourceKey::from_segment(name)?;
        (seen.children == 0).then(|| remove_idle_record(live, key, record))
    });
    join_all(left.collect::<Vec<_>>()).await;
}

async fn remove_idle_record<L: ZkClient>(live: &Rc<ActiveSession<L>>, key: ResourceKey, record: GrantRecord) {
    let Ok(attempt) = LockAttempt::begin(live, &key, &LockLocation::Native, LockMode::Exclusive).await else {
        return;
    };
    let attempt = attempt.for_record_cleanup();
    let taken = catch_panic(attempt.acquire(&mut NonWaitingLockObserver)).await;
    let granted = matches!(taken, Some(Ok(_)));
    if granted {
        attempt.mark_request_outcomes_known();
        debug!(
            epoch = record.epoch,
            held = record.has_handover_delay(),
            "record that nobody asked for taken"
        );
    }
    while catch_panic(attempt.remove_nodes()).await.is_none() {
        sleep(REFUSED_PAUSE).await;
    }
    live.metrics.delays.record_idle_parent_check(granted);
}

/// An observer that leaves as soon as another contender is ahead. The cleanup delays nobody behind it: its wait for the
/// delay began earlier than the wait of a later contender would.
struct NonWaitingLockObserver;

impl LockAttemptObserver for NonWaitingLockObserver {
    fn is_closed(&self) -> bool {
        false
    }

    async fn closed(&mut self) {
        pending().await
    }

    fn on_waiting(&mut self) -> Result<(), LockAttemptError> {
        Err(LockAttemptError::CallerGone)
    }
}
