//! Sends a list of requests one after another, and judges each by its answer and its effect.

use std::collections::HashMap;

use tokio::time::sleep;

use super::crash;
use crate::{
    case_result::{CaseError, CaseStepRecord},
    context::{RequestTemplateKind, TestContext, TestKeys, TestRequestSpec},
    effects::{EffectReadingDiff, ObservedEffectValue},
    sent_request::{ServiceRequestOutcome, TestRequestRecord},
    service::OutcomeProbeTemplate,
    step::{CaseStep, CaseStepKeys, CaseStepKind, ExpectedResult, TestedInstance},
    token_headers::ComparedHeaderKind,
};

/// The keys of one case, and the last reading of each.
struct CaseState<'a, 's> {
    scene: &'a TestContext<'s>,
    names: Vec<(String, String)>,
    seen: HashMap<String, ObservedEffectValue>,
}

/// The most keys that a case may name.
const KEYS: usize = 8;

/// Whether the requests of a case have operations of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseOperationIdMode {
    /// Each request has an operation of its own, except for a repeat.
    Own,
    One,
}

pub(super) async fn run_steps(
    context: &TestContext<'_>,
    steps: &[CaseStep],
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    run(context, steps, CaseOperationIdMode::Own, log).await
}

pub(super) async fn run_steps_of_one_operation(
    context: &TestContext<'_>,
    steps: &[CaseStep],
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    run(context, steps, CaseOperationIdMode::One, log).await
}

async fn run(
    context: &TestContext<'_>,
    steps: &[CaseStep],
    operations: CaseOperationIdMode,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let mut cast = CaseState::new(context);
    let mut operation = String::new();
    for (number, step) in steps.iter().enumerate() {
        match step.act {
            CaseStepKind::Crash => {
                crash::run_restart(context, log).await?;
                continue;
            }
            CaseStepKind::Wait => {
                sleep(context.service.remember.unwrap_or_default()).await;
                continue;
            }
            CaseStepKind::Write
            | CaseStepKind::Repeat
            | CaseStepKind::WriteOther
            | CaseStepKind::Read
            | CaseStepKind::Question => {}
        }
        let is_same = step.act == CaseStepKind::Repeat || operations == CaseOperationIdMode::One;
        if operation.is_empty() || !is_same {
            operation = format!("op-{}-{number}", cast.names[0].0);
        }
        let keys = cast.keys(step.who);
        let before = cast.last_effect_reading(&keys).await?;
        let at = match step.at {
            TestedInstance::First => 0,
            TestedInstance::Second => 1,
        };
        let ask = match step.act {
            CaseStepKind::Read => RequestTemplateKind::Read,
            CaseStepKind::WriteOther => RequestTemplateKind::WriteOther,
            _ => RequestTemplateKind::Write,
        };
        let spec = TestRequestSpec { ask, keys: &keys, stamp: step.stamp, at, operation: Some(&operation) };
        let shot = match step.act {
            CaseStepKind::Question => context.probe_outcome(&operation, step.stamp, at).await,
            _ => context.send(spec).await,
        };
        let after = context.read_effects(&keys).await?;
        let change = context.change(before.as_ref(), after.as_ref());
        log.push(shot.event(change.as_ref()));
        let expect = step.expect.resolve_same_tenure(context.service.fields.form);
        let lets_in = matches!(expect, ExpectedResult::Accepted | ExpectedResult::Ready);
        // It is not known how a request of another kind changes the reading, if it does, so its effect is not
        // judged.
        let effect_change = change
            .filter(|_| step.act != CaseStepKind::Read && !(step.act == CaseStepKind::WriteOther && lets_in));
        match expect {
            ExpectedResult::Done | ExpectedResult::NotDone => {
                check_probe_answer(&shot, expect, effect_change, context.service.probe.as_ref())?
            }
            _ => check_response(&shot, expect, effect_change)?,
        }
        if let Some(after) = after {
            cast.seen.insert(keys.key.clone(), after);
        }
        if !lets_in {
            cast.check_second_key_unchanged(&keys).await?;
        }
    }
    Ok(())
}

impl<'a, 's> CaseState<'a, 's> {
    fn new(context: &'a TestContext<'s>) -> Self {
        let names = (0..KEYS).map(|_| context.fresh_keys()).map(|keys| (keys.key, keys.other)).collect();
        Self { scene: context, names, seen: HashMap::new() }
    }

    fn keys(&self, who: CaseStepKeys) -> TestKeys {
        match who {
            CaseStepKeys::One(key) => {
                let (key, other) = self.names[key].clone();
                self.scene.keys_for_write(key, other)
            }
            CaseStepKeys::Both(key, other) => {
                self.scene.keys_for_both(self.names[key].0.clone(), self.names[other].0.clone())
            }
        }
    }

    /// The last reading. Compared with it, an effect that came late shows at the next step.
    async fn last_effect_reading(&self, keys: &TestKeys) -> Result<Option<ObservedEffectValue>, CaseError> {
        match self.seen.get(&keys.key) {
            Some(seen) => Ok(Some(seen.clone())),
            None => self.scene.read_effects(keys).await,
        }
    }

    /// Checks that a refused request left its second key unchanged, if that was read before.
    async fn check_second_key_unchanged(&self, keys: &TestKeys) -> Result<(), CaseError> {
        let Some(before) = self.seen.get(&keys.other) else { return Ok(()) };
        let swapped = self.scene.keys_for_both(keys.other.clone(), keys.key.clone());
        let after = self.scene.read_effects(&swapped).await?;
        match self.scene.change(Some(before), after.as_ref()) {
            Some(change) if change != EffectReadingDiff::Effects(0) => {
                CaseError::failed(format!("it was refused, and its second key has had {change} all the same"))
            }
            _ => Ok(()),
        }
    }
}

impl ExpectedResult {
    fn resolve_same_tenure(self, form: ComparedHeaderKind) -> Self {
        match (self, form) {
            (Self::SameTenure, ComparedHeaderKind::Token) => Self::Stale,
            (Self::SameTenure, ComparedHeaderKind::Number) => Self::Accepted,
            (other, _) => other,
        }
    }
}

/// Judges the answer first, then the effect.
pub(super) fn check_response(
    shot: &TestRequestRecord,
    expect: ExpectedResult,
    change: Option<EffectReadingDiff>,
) -> Result<(), CaseError> {
    let sent = &shot.sent;
    let came = &shot.came;
    // A server that closes the connection on malformed input has refused it, if the readings show no effect.
    let untouched = expect == ExpectedResult::Refused && change == Some(EffectReadingDiff::Effects(0));
    if matches!(came, ServiceRequestOutcome::Disconnected(_)) && untouched {
        return Ok(());
    }
    if matches!(
        came,
        ServiceRequestOutcome::TimedOut(_)
            | ServiceRequestOutcome::Disconnected(_)
            | ServiceRequestOutcome::Unreachable(_)
    ) {
        return CaseError::undecided(format!("`{sent}` got {came}"));
    }
    let wanted = match expect {
        ExpectedResult::Ready | ExpectedResult::Accepted => return check_accepted(shot, expect, change),
        ExpectedResult::Stale => *came == ServiceRequestOutcome::Stale,
        ExpectedResult::NotAgain
            if matches!(came, ServiceRequestOutcome::Accepted(_))
                && change == Some(EffectReadingDiff::Effects(0)) =>
        {
            true
        }
        ExpectedResult::NotAgain => *came == ServiceRequestOutcome::Stale,
        ExpectedResult::Expired => *came == ServiceRequestOutcome::Expired,
        ExpectedResult::Refused => {
            matches!(
                came,
                ServiceRequestOutcome::Stale
                    | ServiceRequestOutcome::Expired
                    | ServiceRequestOutcome::Refused(..)
            )
        }
        ExpectedResult::SameTenure => unreachable!("one of two others, by what is compared"),
        ExpectedResult::Done | ExpectedResult::NotDone => {
            unreachable!("what a question is answered is judged elsewhere")
        }
    };
    let had = change.filter(|change| *change != EffectReadingDiff::Effects(0));
    match (wanted, had) {
        (true, None) => Ok(()),
        (true, Some(change)) => {
            CaseError::failed(format!("`{sent}` was refused with {came}, and had {change} all the same"))
        }
        (false, had) => {
            let effect = had.map(|change| format!(", and had {change}")).unwrap_or_default();
            let right = match (expect, came) {
                (ExpectedResult::Refused, _) => "a refusal with 4xx",
                (ExpectedResult::Expired, _) => "412 with `Fencing-Refusal: expired`",
                (_, ServiceRequestOutcome::Refused(..)) => {
                    "412 with `Fencing-Refusal: stale`: nothing was done, and the client is not \
                                           told that it has to begin anew"
                }
                _ => "412 with `Fencing-Refusal: stale`",
            };
            CaseError::failed(format!("`{sent}` was answered {came}{effect}; right is {right}"))
        }
    }
}

/// Judges the answer to a probe, and that the probe itself changes nothing.
fn check_probe_answer(
    shot: &TestRequestRecord,
    expect: ExpectedResult,
    change: Option<EffectReadingDiff>,
    probe: Option<&OutcomeProbeTemplate>,
) -> Result<(), CaseError> {
    let sent = &shot.sent;
    let came = &shot.came;
    let Some((status, probe)) = came.status().zip(probe) else {
        return CaseError::undecided(format!("`{sent}` got {came}"));
    };
    if let Some(change) = change.filter(|change| *change != EffectReadingDiff::Effects(0)) {
        return CaseError::failed(format!("`{sent}` is a question, and had {change}"));
    }
    let (right, statuses) = match expect {
        ExpectedResult::Done => ("done", &probe.done),
        _ => ("not done", &probe.not_done),
    };
    if statuses.contains(&status) {
        return Ok(());
    }
    let statuses = statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    CaseError::failed(format!("`{sent}` was answered {came}; right is {right}: {statuses}"))
}

fn check_accepted(
    shot: &TestRequestRecord,
    expect: ExpectedResult,
    change: Option<EffectReadingDiff>,
) -> Result<(), CaseError> {
    let sent = &shot.sent;
    let came = &shot.came;
    let wrong = |reason: String| match expect {
        ExpectedResult::Ready => {
            CaseError::undecided(format!("what had to come before it was not done: {reason}"))
        }
        _ => CaseError::failed(reason),
    };
    if !matches!(came, ServiceRequestOutcome::Accepted(_)) {
        return wrong(format!("`{sent}` was answered {came}; right is 2xx"));
    }
    match change {
        None | Some(EffectReadingDiff::Effects(1) | EffectReadingDiff::AtLeastOne) => Ok(()),
        Some(change) => wrong(format!("`{sent}` was answered {came}, and had {change}; right is one")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn judge_response(
        came: ServiceRequestOutcome,
        expect: ExpectedResult,
        change: Option<EffectReadingDiff>,
    ) -> &'static str {
        let now = Instant::now();
        let shot = TestRequestRecord {
            sent: "POST /".into(),
            mint: None,
            began: now,
            ended: now,
            came,
            passed_a_gateway: false,
        };
        match check_response(&shot, expect, change) {
            Ok(()) => "right",
            Err(CaseError::Failed(_)) => "failed",
            Err(CaseError::Undecided(_)) => "undecided",
        }
    }

    #[test]
    fn answer_is_right_only_with_effect() {
        use EffectReadingDiff::Effects;
        let yes = || ServiceRequestOutcome::Accepted(200);
        let no = || ServiceRequestOutcome::Refused(400, String::new());
        for (came, expect, change, verdict) in [
            (yes(), ExpectedResult::Accepted, None, "right"),
            (yes(), ExpectedResult::Accepted, Some(Effects(1)), "right"),
            (yes(), ExpectedResult::Accepted, Some(Effects(0)), "failed"),
            (yes(), ExpectedResult::Accepted, Some(Effects(2)), "failed"),
            (yes(), ExpectedResult::Ready, Some(Effects(0)), "undecided"),
            (no(), ExpectedResult::Ready, None, "undecided"),
            (no(), ExpectedResult::Accepted, None, "failed"),
            (ServiceRequestOutcome::Stale, ExpectedResult::Stale, Some(Effects(0)), "right"),
            (ServiceRequestOutcome::Stale, ExpectedResult::Stale, Some(Effects(1)), "failed"),
            (no(), ExpectedResult::Stale, Some(Effects(0)), "failed"),
            (yes(), ExpectedResult::Stale, Some(Effects(0)), "failed"),
            (yes(), ExpectedResult::NotAgain, Some(Effects(0)), "right"),
            (yes(), ExpectedResult::NotAgain, None, "failed"),
            (no(), ExpectedResult::Refused, None, "right"),
            (ServiceRequestOutcome::Stale, ExpectedResult::Refused, None, "right"),
            (ServiceRequestOutcome::Expired, ExpectedResult::Refused, None, "right"),
            (ServiceRequestOutcome::Expired, ExpectedResult::Expired, Some(Effects(0)), "right"),
            (ServiceRequestOutcome::Expired, ExpectedResult::Expired, Some(Effects(1)), "failed"),
            (ServiceRequestOutcome::Expired, ExpectedResult::Stale, None, "failed"),
            (ServiceRequestOutcome::Expired, ExpectedResult::Accepted, None, "failed"),
            (ServiceRequestOutcome::Stale, ExpectedResult::Expired, None, "failed"),
            (yes(), ExpectedResult::Expired, None, "failed"),
            (ServiceRequestOutcome::Unclear(500, String::new()), ExpectedResult::Refused, None, "failed"),
            (ServiceRequestOutcome::TimedOut("late".into()), ExpectedResult::Refused, None, "undecided"),
            (
                ServiceRequestOutcome::TimedOut("late".into()),
                ExpectedResult::Refused,
                Some(Effects(0)),
                "undecided",
            ),
            (ServiceRequestOutcome::Disconnected("end".into()), ExpectedResult::Refused, None, "undecided"),
            (
                ServiceRequestOutcome::Disconnected("end".into()),
                ExpectedResult::Refused,
                Some(Effects(0)),
                "right",
            ),
            (
                ServiceRequestOutcome::Disconnected("end".into()),
                ExpectedResult::Stale,
                Some(Effects(0)),
                "undecided",
            ),
            (ServiceRequestOutcome::TimedOut("late".into()), ExpectedResult::Accepted, None, "undecided"),
        ] {
            assert_eq!(
                judge_response(came.clone(), expect, change.clone()),
                verdict,
                "{came:?} {expect:?} {change:?}"
            );
        }
    }
}
