//! Ends the service during writes, starts it again, and checks its watermarks and effects.

use std::{
    cell::Cell,
    io,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::race::require_accepted;
use crate::{
    case_result::{CaseError, CaseStepRecord},
    context::{RequestTemplateKind, TestContext, TestKeys, TestRequestSpec},
    effects::{EffectReadingDiff, ObservedEffectValue},
    sent_request::{ServiceRequestOutcome, TestRequestRecord},
    token_headers::{ComparedHeaderKind, SyntheticTokenHeaders, epoch},
};

/// The time limit for the command, and again for the service to listen.
const RESTART_TIMEOUT: Duration = Duration::from_mins(1);
/// The time for which the old process may go on listening after the command.
const WRITE_TIME: Duration = Duration::from_millis(200);
/// How many keys are written while the service ends.
const KEYS: usize = 8;

/// A key that was written until the service ended.
struct CrashKeyWrites {
    keys: TestKeys,
    before: Option<ObservedEffectValue>,
    /// Writes that were answered 2xx; their epochs are 16, 32 and so on.
    done: u64,
    /// The first write that was not.
    cut: Option<TestRequestRecord>,
}

/// Runs the command, and waits until every instance can be reached.
pub(super) async fn run_restart(
    context: &TestContext<'_>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let Some(command) = &context.service.restart else {
        unreachable!("cases that need it are skipped without")
    };
    match shell(command).await {
        Ok(Some(status)) if status.success() => {}
        Ok(Some(status)) => return CaseError::undecided(format!("`{command}` failed: {status}")),
        Ok(None) => {
            return CaseError::undecided(format!("`{command}` takes longer than {RESTART_TIMEOUT:?}"));
        }
        Err(error) => return CaseError::undecided(format!("`sh -c '{command}'` cannot be started: {error}")),
    }
    log.push(CaseStepRecord { sent: command.clone(), came: "done".into(), effect: None });
    sleep(WRITE_TIME).await;
    let deadline = Instant::now() + RESTART_TIMEOUT;
    for instance in &context.service.instances {
        while let Err(error) = instance.open().await {
            if Instant::now() > deadline {
                return CaseError::undecided(format!(
                    "{} {error}, {RESTART_TIMEOUT:?} after the restart",
                    instance.url
                ));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// The status of the command; `None` if it took too long and was killed.
async fn shell(command: &str) -> io::Result<Option<ExitStatus>> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = shell.spawn()?;
    let deadline = Instant::now() + RESTART_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn run_crash_mid_write(
    context: &TestContext<'_>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let over = Cell::new(false);
    let mut work = Vec::new();
    for _ in 0..KEYS {
        let keys = context.fresh_keys();
        require_accepted(context.write(&keys, epoch(8)).await, log)?;
        // All readings are done before the crash, because a reading that breaks off shows nothing.
        let before = context.read_effects(&keys).await?;
        work.push(write_until_disconnected(context, keys, before, &over));
    }
    let crash = async {
        sleep((context.pace * 5).min(Duration::from_secs(5))).await;
        let restarted = run_restart(context, log).await;
        over.set(true);
        restarted
    };
    let (work, crash) = tokio::join!(join_all(work), crash);
    crash?;
    let mut open = 0;
    for worked in work {
        open += usize::from(worked.cut.as_ref().is_some_and(|shot| shot.came.may_have_been_done()));
        log.push(worked.event());
        check_key_after_crash(context, &worked, log).await?;
    }
    match open {
        0 => CaseError::undecided(
            "no write was cut off: name one that takes longer with `--slow-request`, or end it harder",
        ),
        _ => Ok(()),
    }
}

/// Writes again and again until a write is not answered, or until the restart is over.
async fn write_until_disconnected(
    context: &TestContext<'_>,
    keys: TestKeys,
    before: Option<ObservedEffectValue>,
    over: &Cell<bool>,
) -> CrashKeyWrites {
    let mut worked = CrashKeyWrites { keys, before, done: 0, cut: None };
    while !over.get() {
        let stamp = SyntheticTokenHeaders::Whole(epoch(16 * (worked.done + 1)));
        let spec = TestRequestSpec {
            ask: RequestTemplateKind::Slow,
            keys: &worked.keys,
            stamp,
            at: 0,
            operation: None,
        };
        let shot = context.send(spec).await;
        if !matches!(shot.came, ServiceRequestOutcome::Accepted(_)) {
            worked.cut = Some(shot);
            break;
        }
        worked.done += 1;
    }
    worked
}

/// Checks the effects and the watermark of one key after the crash.
async fn check_key_after_crash(
    context: &TestContext<'_>,
    worked: &CrashKeyWrites,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let CrashKeyWrites { keys, done, .. } = worked;
    if *done == 0 {
        return Ok(());
    }
    let last = context.write(keys, epoch(16 * done - 1)).await;
    log.push(last.event(None));
    if matches!(last.came, ServiceRequestOutcome::Accepted(_)) {
        return CaseError::failed(format!(
            "`{}` was let in after the crash, and was stale before it",
            last.sent
        ));
    }
    let now = context.read_effects(keys).await?;
    let Some(EffectReadingDiff::Effects(effects)) = context.change(worked.before.as_ref(), now.as_ref())
    else {
        return Ok(());
    };
    let more = effects - i128::from(*done);
    let silent = worked.cut.as_ref().is_some_and(|shot| shot.came.may_have_been_done());
    if more < 0 || more > i128::from(silent) {
        return CaseError::failed(format!(
            "{done} writes were answered 2xx before the crash, and after it there was {}",
            EffectReadingDiff::Effects(effects)
        ));
    }
    if !silent {
        return Ok(());
    }
    // A service that compares numbers accepts the same token again, so an older one is sent to it.
    let watermark = epoch(16 * (done + 1));
    let (probe, expected) = match (context.service.fields.form, more) {
        (ComparedHeaderKind::Number, 1) => (epoch(watermark.epoch - 1), ServiceRequestOutcome::Stale),
        (_, 1) => (watermark, ServiceRequestOutcome::Stale),
        _ => (watermark, ServiceRequestOutcome::Accepted(200)),
    };
    let shot = context.write(keys, probe).await;
    log.push(shot.event(None));
    match (&shot.came, expected) {
        (ServiceRequestOutcome::Accepted(_), ServiceRequestOutcome::Stale) => CaseError::failed(format!(
            "`{}` was let in, and what the crash had cut off had its effect: the watermark was lost",
            shot.sent
        )),
        (ServiceRequestOutcome::Stale, ServiceRequestOutcome::Accepted(_)) => CaseError::failed(format!(
            "`{}` was refused, and what the crash had cut off had no effect: its watermark is all that was left of it",
            shot.sent
        )),
        _ => Ok(()),
    }
}

impl CrashKeyWrites {
    fn event(&self) -> CaseStepRecord {
        let cut =
            self.cut.as_ref().map_or_else(|| "none was cut off".to_owned(), |shot| shot.came.to_string());
        let sent = format!("writes to {} until the service was gone", self.keys.key);
        CaseStepRecord { sent, came: format!("{} were let in, then {cut}", self.done), effect: None }
    }
}
