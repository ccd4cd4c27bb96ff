//! Accidents of the disk on which a guard keeps what it has admitted.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::{
    matrix::{laboratory::RunEnvironment, level::LONG},
    small_disk::SmallDisk,
    tampered_calls::{SyncFault, SyscallFaults},
};

/// The disk of the guard is full. The guard ends, rather than forward a request that it cannot record. It comes back
/// when there is room.
pub fn full(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
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
        has_given_up(lab).await;
        disk.makes_room();
        comes_back(lab).await;
        lab.kept.push(Box::new(disk));
        Ok(Instant::now())
    })
}

/// The disk takes a quarter of a second for each write that it has to keep, and then longer than a guard may wait before it
/// sends what it has admitted.
pub fn slow(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const LATE: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(1300)];
    const FOR: Duration = Duration::from_secs(4);
    Box::pin(async move {
        lab.at_work(0, LONG).await;
        lab.strikes_all();
        for late in LATE {
            let tampered = SyscallFaults::of(lab.guards[0].pid(), SyncFault::Late(late)).await?;
            sleep(FOR).await;
            let met = tampered.ends().await;
            assert!(met > 1, "not exercised: {met} writes were late");
        }
        Ok(Instant::now())
    })
}

/// The disk says that it could not keep what was written. The guard ends, because it does not know what the disk has.
pub fn failing(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.at_work(0, LONG).await;
        let tampered = SyscallFaults::of(lab.guards[0].pid(), SyncFault::Failing).await?;
        lab.strikes_all();
        has_given_up(lab).await;
        let met = tampered.ends().await;
        assert!(met > 0, "not exercised: no write has failed");
        comes_back(lab).await;
        Ok(Instant::now())
    })
}

/// The guard ends by itself, as a process that has failed.
async fn has_given_up(lab: &RunEnvironment) {
    let status = lab.guards[0].exit().await;
    assert_eq!(status.code(), Some(1), "{}", lab.guards[0].log());
}

/// Somebody starts it again on the same disk.
async fn comes_back(lab: &mut RunEnvironment) {
    let launch = lab.guard_has_ended(0);
    lab.guard_starts(0, &launch).await;
}
