//! Faults of the disk with the store of a guard.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::{
    matrix::{environment::RunEnvironment, level::LONG},
    small_disk::SmallDisk,
    syscall_faults::{FsyncFault, SyscallFaults},
};

/// Fills the guard's disk. The guard ends, because it must not forward a request that it cannot record. It is
/// started again when there is space.
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
        // Request new keys: they need new pages in the store, and known keys have theirs already.
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

/// Makes each sync of the disk take a quarter of a second, and then longer than a guard may wait before it sends an
/// admitted request.
pub fn slow_disk(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const LATE: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(1300)];
    const FOR: Duration = Duration::from_secs(4);
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        for late in LATE {
            let tampered = SyscallFaults::attach(lab.guards[0].pid(), FsyncFault::Late(late)).await?;
            sleep(FOR).await;
            let met = tampered.detach().await;
            assert!(met > 1, "not exercised: {met} writes were late");
        }
        Ok(Instant::now())
    })
}

/// Makes the syncs of the disk fail. The guard ends, because it cannot know which writes are on the disk.
pub fn fail_sync(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let tampered = SyscallFaults::attach(lab.guards[0].pid(), FsyncFault::Failing).await?;
        lab.mark_accident_everywhere();
        wait_given_up(lab).await;
        let met = tampered.detach().await;
        assert!(met > 0, "not exercised: no write has failed");
        restart_guard(lab).await;
        Ok(Instant::now())
    })
}

/// Waits until the guard has ended by itself, with a failure.
async fn wait_given_up(lab: &RunEnvironment) {
    let status = lab.guards[0].exit().await;
    assert_eq!(status.code(), Some(1), "{}", lab.guards[0].log());
}

/// Starts the guard again, on the same disk.
async fn restart_guard(lab: &mut RunEnvironment) {
    let launch = lab.take_ended_guard(0);
    lab.start_guard(0, &launch).await;
}
