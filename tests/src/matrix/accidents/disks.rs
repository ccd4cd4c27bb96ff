//! Accidents of the disk on which a guard keeps what it has admitted.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::{
    matrix::{environment::RunEnvironment, level::LONG},
    small_disk::SmallDisk,
    syscall_faults::{SyncFault, SyscallFaults},
};

/// The disk of the guard is full. The guard ends, rather than forward a request that it cannot record. It comes back
/// when there is space.
pub fn fill_disk(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount a small disk".to_owned());
        }
        let launch = lab.kill_guard(0).await;
        let disk = SmallDisk::mount_below(&launch, 1 << 20);
        lab.start_guard(0, &launch).await;
        lab.guards[0].wait_ready().await;
        lab.wait_all_serving(5).await;
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        disk.fill_up();
        // Keys in the store have their pages already, and new keys need new pages.
        for n in 0.. {
            if lab.guards[0].wait_ready_or_ended().await == Some(false) {
                break;
            }
            let key = format!("/pay/{}{n}", "k".repeat(400));
            lab.clients.send_with_patience(Duration::from_millis(500), n % 2, &key, Duration::ZERO);
            sleep(Duration::from_millis(5)).await;
        }
        wait_given_up(lab).await;
        disk.free_space();
        restart_guard(lab).await;
        lab.kept.push(Box::new(disk));
        Ok(Instant::now())
    })
}

/// The disk takes a quarter of a second for each write that it has to keep, and then longer than a guard may wait before it
/// sends what it has admitted.
pub fn slow_disk(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const LATE: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(1300)];
    const FOR: Duration = Duration::from_secs(4);
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        for late in LATE {
            let tampered = SyscallFaults::attach(lab.guards[0].pid(), SyncFault::Late(late)).await?;
            sleep(FOR).await;
            let met = tampered.detach().await;
            assert!(met > 1, "not exercised: {met} writes were late");
        }
        Ok(Instant::now())
    })
}

/// A sync of the disk fails. The guard ends, because it cannot know which writes the disk has.
pub fn fail_sync(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let tampered = SyscallFaults::attach(lab.guards[0].pid(), SyncFault::Failing).await?;
        lab.mark_accident_everywhere();
        wait_given_up(lab).await;
        let met = tampered.detach().await;
        assert!(met > 0, "not exercised: no write has failed");
        restart_guard(lab).await;
        Ok(Instant::now())
    })
}

/// The guard ends by itself, as a process that has failed.
async fn wait_given_up(lab: &RunEnvironment) {
    let status = lab.guards[0].exit().await;
    assert_eq!(status.code(), Some(1), "{}", lab.guards[0].log());
}

/// It is started again on the same disk.
async fn restart_guard(lab: &mut RunEnvironment) {
    let launch = lab.take_ended_guard(0);
    lab.start_guard(0, &launch).await;
}
