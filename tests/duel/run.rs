//! One lock system under one schedule: a time without faults, then the faults, then the verdict.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    time::{Duration, Instant},
};

use fencegate_testkit::child::Signal;
use fencegate_tests::comparison::LockSystemRun;
use futures_util::FutureExt;
use tokio::time::{sleep, sleep_until};

use crate::{
    account::{AccountHistory, AccountService, LONG_WORK},
    schedule::{FaultSchedule, LEASE, ProcessFault, TargetedFault},
    verdict::ViolationCounts,
};

/// The time before the first fault, in which the throughput is measured.
const CALM: Duration = Duration::from_millis(2500);
/// A number of executions after each fault, and four times as many at the start, that show that all clients work.
const SOME: usize = 10;

/// The processes that hold the locks and have the faults: the clients themselves, gateways, or handlers.
pub(crate) trait LockProcesses {
    /// The number of these processes.
    fn victims(&self) -> usize;

    /// The names that the clients of this process have at the service.
    fn names(&self, victim: usize) -> Vec<String>;

    /// Returns while the process waits between its last check of its lock and its request.
    async fn wait_before_request(&mut self, victim: usize, account: &AccountService);

    fn signal(&self, victim: usize, signal: Signal);

    /// Called when a process has not answered for the length of a lease, or has been killed: the action of a
    /// supervisor.
    async fn on_missed(&mut self) {}

    /// Called when a thawed process has sent its late write, and the write has arrived or was refused.
    async fn on_thawed(&mut self) {}

    /// Starts a process in the place of a killed one.
    async fn restart(&mut self, victim: usize);

    /// The number of late writes that were refused before they reached the service.
    async fn refused_writes(&self) -> usize {
        0
    }

    /// The output of the processes, which is printed after a failure.
    fn output(&self) -> String;
}

/// Plays a schedule, and judges it.
///
/// # Panics
/// If an expected event does not happen. The output of the processes is printed first.
pub(crate) async fn run(
    mut side: impl LockProcesses,
    account: &AccountService,
    schedule: &FaultSchedule,
) -> LockSystemRun {
    let bout = AssertUnwindSafe(play(&mut side, account, schedule)).catch_unwind().await;
    let bout = bout.unwrap_or_else(|panic| {
        println!("{}", side.output());
        resume_unwind(panic)
    });
    // Dropping the processes ends the clients, so no further execution begins.
    drop(side);
    let over = |book: &AccountHistory| book.executions.iter().all(|execution| execution.ended.is_some());
    let book = account.wait_for("the end of all executions", |book| over(book).then(|| book.clone())).await;
    let ViolationCounts { executions, overlaps, lost, stale } = ViolationCounts::judge(&book);
    LockSystemRun { executions, overlaps, lost, stale, ..bout }
}

/// Plays the schedule, without judging the violations.
async fn play(
    side: &mut impl LockProcesses,
    account: &AccountService,
    schedule: &FaultSchedule,
) -> LockSystemRun {
    account.wait_executions(4 * SOME).await;
    let before = account.history().executions.len();
    sleep(CALM).await;
    let per_second = (account.history().executions.len() - before) as f64 / CALM.as_secs_f64();
    let mut bout = LockSystemRun { seed: schedule.seed, per_second, ..LockSystemRun::default() };
    for &TargetedFault { victim, mishap } in &schedule.accidents {
        let victim = victim % side.victims();
        match mishap {
            ProcessFault::Pause(pause) => {
                bout.pauses += 1;
                bout.taken_over += usize::from(freeze(side, account, victim, pause).await);
            }
            ProcessFault::Kill => bout.recovery.push(kill(side, account, victim).await.as_secs_f64()),
        }
        account.wait_executions(SOME).await;
    }
    bout.refused = side.refused_writes().await + account.history().refused.len();
    bout
}

/// Freezes a process. Returns when its late write has arrived or was refused. True if other clients executed
/// meanwhile.
async fn freeze(
    side: &mut impl LockProcesses,
    account: &AccountService,
    victim: usize,
    pause: Duration,
) -> bool {
    side.wait_before_request(victim, account).await;
    let frozen = Instant::now();
    side.signal(victim, Signal::STOP);
    // A fixed length, and not an event, because the pause is the fault that is tested.
    sleep_until((frozen + LEASE).into()).await;
    side.on_missed().await;
    sleep_until((frozen + pause).into()).await;
    let names = side.names(victim);
    let (executed, refused, taken_over) = {
        let book = account.history();
        let others = book.executions.iter().any(|execution| execution.began > frozen);
        (book.executions.len(), book.refused.len(), others)
    };
    side.signal(victim, Signal::CONT);
    account
        .wait_for("the late write", |book| {
            let executed = book.executions.iter().skip(executed).map(|execution| &execution.holder);
            executed
                .chain(book.refused.iter().skip(refused))
                .any(|holder| names.contains(holder))
                .then_some(())
        })
        .await;
    side.on_thawed().await;
    taken_over
}

/// Kills a process during an execution. Returns the time from the kill to the end of the next execution of another
/// client.
async fn kill(side: &mut impl LockProcesses, account: &AccountService, victim: usize) -> Duration {
    let names = side.names(victim);
    account.delay_next_execution(&names);
    let before = account.history().executions.len();
    account
        .wait_for("a long execution", |book| {
            book.executions.iter().skip(before).any(|execution| execution.work == LONG_WORK).then_some(())
        })
        .await;
    side.signal(victim, Signal::KILL);
    let killed = Instant::now();
    side.on_missed().await;
    let next = account
        .wait_for("the next holder", |book| {
            let later = book.executions.iter().filter(|execution| execution.began > killed);
            later.filter(|execution| !names.contains(&execution.holder)).find_map(|execution| execution.ended)
        })
        .await;
    side.restart(victim).await;
    next - killed
}
