//! Accidents of a guard, and of its store.

use std::time::{Duration, Instant};

use fencegate::demo::child::Signal;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::Happened;
use crate::{
    matrix::{
        laboratory::Laboratory,
        level::{LONG, MAX_EXECUTION},
    },
    small_disk::SmallDisk,
};

/// A guard dies while the service works for it, and is started again at once.
pub fn kill(lab: &mut Laboratory) -> BoxFuture<'_, Happened> {
    Box::pin(async move {
        lab.at_work(0, LONG).await;
        let from = lab.strikes_all();
        let launch = lab.guard_dies(0).await;
        lab.guard_starts(0, &launch).await;
        Ok(from)
    })
}

/// The guard stands still for longer than any execution that it has admitted may take.
pub fn freeze(lab: &mut Laboratory) -> BoxFuture<'_, Happened> {
    Box::pin(async move {
        lab.at_work(0, LONG).await;
        lab.strikes_all();
        lab.guards[0].signal(Signal::STOP);
        sleep(MAX_EXECUTION + lab.apparatus.session).await;
        lab.guards[0].signal(Signal::CONT);
        Ok(Instant::now())
    })
}

/// The disk of the guard is full. The guard ends, rather than forward a request that it cannot record. It comes back
/// when there is room.
pub fn disk_is_full(lab: &mut Laboratory) -> BoxFuture<'_, Happened> {
    Box::pin(async move {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount a small disk".to_owned());
        }
        let launch = lab.guard_dies(0).await;
        let disk = SmallDisk::below(&launch, 1 << 20);
        lab.guard_starts(0, &launch).await;
        lab.guards[0].becomes_ready().await;
        lab.each_serves(5).await;
        lab.at_work(0, LONG).await;
        lab.strikes_all();
        disk.fills_up();
        // Keys that the store knows have their pages already, and new keys need new pages.
        for n in 0.. {
            if lab.guards[0].ready_or_ended().await == Some(false) {
                break;
            }
            let key = format!("/pay/{}{n}", "k".repeat(400));
            lab.clients.sends_for(Duration::from_millis(500), n % 2, &key, Duration::ZERO);
            sleep(Duration::from_millis(5)).await;
        }
        let status = lab.guards[0].exit().await;
        assert_eq!(status.code(), Some(1), "{}", lab.guards[0].log());
        disk.makes_room();
        let launch = lab.guard_has_ended(0);
        lab.guard_starts(0, &launch).await;
        lab.kept.push(Box::new(disk));
        Ok(Instant::now())
    })
}
