//! Sends a list of requests one after another, and judges each by its answer and its effect.

use std::collections::HashMap;

use tokio::time::sleep;

use super::crash;
use crate::verify::{
    action::{Act, Action, At, Expect, Who},
    case_result::{Event, Wrong},
    effects::{Change, Reading},
    scene::{Aim, Ask, Keys, Scene},
    service::Probe,
    shot::{Came, Shot},
    stamp::Form,
};

/// The keys of one case, and the last reading of each.
struct Cast<'a, 's> {
    scene: &'a Scene<'s>,
    names: Vec<(String, String)>,
    seen: HashMap<String, Reading>,
}

/// How many keys a case may name.
const KEYS: usize = 8;

/// Whether the requests of a case have operations of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operations {
    /// All but a repeat.
    Own,
    One,
}

pub(super) async fn play(scene: &Scene<'_>, steps: &[Action], log: &mut Vec<Event>) -> Result<(), Wrong> {
    played(scene, steps, Operations::Own, log).await
}

pub(super) async fn about_one_operation(
    scene: &Scene<'_>,
    steps: &[Action],
    log: &mut Vec<Event>,
) -> Result<(), Wrong> {
    played(scene, steps, Operations::One, log).await
}

async fn played(
    scene: &Scene<'_>,
    steps: &[Action],
    operations: Operations,
    log: &mut Vec<Event>,
) -> Result<(), Wrong> {
    let mut cast = Cast::of(scene);
    let mut operation = String::new();
    for (number, step) in steps.iter().enumerate() {
        match step.act {
            Act::Crash => {
                crash::restarted(scene, log).await?;
                continue;
            }
            Act::Wait => {
                sleep(scene.service.remember.unwrap_or_default()).await;
                continue;
            }
            Act::Write | Act::Repeat | Act::Also | Act::Read | Act::Question => {}
        }
        let is_same = step.act == Act::Repeat || operations == Operations::One;
        if operation.is_empty() || !is_same {
            operation = format!("op-{}-{number}", cast.names[0].0);
        }
        let keys = cast.keys(step.who);
        let before = cast.before(&keys).await?;
        let at = match step.at {
            At::First => 0,
            At::Second => 1,
        };
        let ask = match step.act {
            Act::Read => Ask::Read,
            Act::Also => Ask::Also,
            _ => Ask::Write,
        };
        let aim = Aim { ask, keys: &keys, stamp: step.stamp, at, operation: Some(&operation) };
        let shot = match step.act {
            Act::Question => scene.question(&operation, step.stamp, at).await,
            _ => scene.send(aim).await,
        };
        let after = scene.look(&keys).await?;
        let change = scene.change(before.as_ref(), after.as_ref());
        log.push(shot.event(change.as_ref()));
        let expect = step.expect.meant(scene.service.fields.form);
        let lets_in = matches!(expect, Expect::Accepted | Expect::Ready);
        // It is not known how a request of another kind changes the reading, if it does.
        let told = change.filter(|_| step.act != Act::Read && !(step.act == Act::Also && lets_in));
        match expect {
            Expect::Done | Expect::NotDone => {
                judge_question(&shot, expect, told, scene.service.probe.as_ref())?
            }
            _ => judge(&shot, expect, told)?,
        }
        if let Some(after) = after {
            cast.seen.insert(keys.key.clone(), after);
        }
        if !lets_in {
            cast.untouched(&keys).await?;
        }
    }
    Ok(())
}

impl<'a, 's> Cast<'a, 's> {
    fn of(scene: &'a Scene<'s>) -> Self {
        let names = (0..KEYS).map(|_| scene.fresh()).map(|keys| (keys.key, keys.other)).collect();
        Self { scene, names, seen: HashMap::new() }
    }

    fn keys(&self, who: Who) -> Keys {
        match who {
            Who::One(key) => {
                let (key, other) = self.names[key].clone();
                self.scene.about(key, other)
            }
            Who::Both(key, other) => {
                self.scene.about_both(self.names[key].0.clone(), self.names[other].0.clone())
            }
        }
    }

    /// The last reading. Compared with it, an effect that came late shows at the next step.
    async fn before(&self, keys: &Keys) -> Result<Option<Reading>, Wrong> {
        match self.seen.get(&keys.key) {
            Some(seen) => Ok(Some(seen.clone())),
            None => self.scene.look(keys).await,
        }
    }

    /// Checks that a refused request left its second key unchanged, if that was read before.
    async fn untouched(&self, keys: &Keys) -> Result<(), Wrong> {
        let Some(before) = self.seen.get(&keys.other) else { return Ok(()) };
        let swapped = self.scene.about_both(keys.other.clone(), keys.key.clone());
        let after = self.scene.look(&swapped).await?;
        match self.scene.change(Some(before), after.as_ref()) {
            Some(change) if change != Change::Effects(0) => {
                Wrong::failed(format!("it was refused, and its second key has had {change} all the same"))
            }
            _ => Ok(()),
        }
    }
}

impl Expect {
    fn meant(self, form: Form) -> Self {
        match (self, form) {
            (Self::SameTenure, Form::Token) => Self::Stale,
            (Self::SameTenure, Form::Number) => Self::Accepted,
            (other, _) => other,
        }
    }
}

/// Judges the answer first, then the effect.
pub(super) fn judge(shot: &Shot, expect: Expect, change: Option<Change>) -> Result<(), Wrong> {
    let (sent, came) = (&shot.sent, &shot.came);
    // A server that hangs up on malformed input has refused it, if the readings show no effect.
    let untouched = expect == Expect::Refused && change == Some(Change::Effects(0));
    if matches!(came, Came::HungUp(_)) && untouched {
        return Ok(());
    }
    if matches!(came, Came::Silence(_) | Came::HungUp(_) | Came::Unreachable(_)) {
        return Wrong::undecided(format!("`{sent}` got {came}"));
    }
    let wanted = match expect {
        Expect::Ready | Expect::Accepted => return let_in(shot, expect, change),
        Expect::Stale => *came == Came::Stale,
        Expect::NotAgain if matches!(came, Came::Accepted(_)) && change == Some(Change::Effects(0)) => true,
        Expect::NotAgain => *came == Came::Stale,
        Expect::Expired => *came == Came::Expired,
        Expect::Refused => matches!(came, Came::Stale | Came::Expired | Came::Refused(..)),
        Expect::SameTenure => unreachable!("one of two others, by what is compared"),
        Expect::Done | Expect::NotDone => unreachable!("what a question is answered is judged elsewhere"),
    };
    let had = change.filter(|change| *change != Change::Effects(0));
    match (wanted, had) {
        (true, None) => Ok(()),
        (true, Some(change)) => {
            Wrong::failed(format!("`{sent}` was refused with {came}, and had {change} all the same"))
        }
        (false, had) => {
            let effect = had.map(|change| format!(", and had {change}")).unwrap_or_default();
            let right = match (expect, came) {
                (Expect::Refused, _) => "a refusal with 4xx",
                (Expect::Expired, _) => "412 with `Fencing-Refusal: expired`",
                (_, Came::Refused(..)) => {
                    "412 with `Fencing-Refusal: stale`: nothing was done, and the client is not \
                                           told that it has to begin anew"
                }
                _ => "412 with `Fencing-Refusal: stale`",
            };
            Wrong::failed(format!("`{sent}` was answered {came}{effect}; right is {right}"))
        }
    }
}

/// Judges the answer to a question, and that the question itself changes nothing.
fn judge_question(
    shot: &Shot,
    expect: Expect,
    change: Option<Change>,
    probe: Option<&Probe>,
) -> Result<(), Wrong> {
    let (sent, came) = (&shot.sent, &shot.came);
    let Some((status, probe)) = came.status().zip(probe) else {
        return Wrong::undecided(format!("`{sent}` got {came}"));
    };
    if let Some(change) = change.filter(|change| *change != Change::Effects(0)) {
        return Wrong::failed(format!("`{sent}` is a question, and had {change}"));
    }
    let (right, statuses) = match expect {
        Expect::Done => ("done", &probe.done),
        _ => ("not done", &probe.not_done),
    };
    if statuses.contains(&status) {
        return Ok(());
    }
    let statuses = statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    Wrong::failed(format!("`{sent}` was answered {came}; right is {right}: {statuses}"))
}

fn let_in(shot: &Shot, expect: Expect, change: Option<Change>) -> Result<(), Wrong> {
    let (sent, came) = (&shot.sent, &shot.came);
    let wrong = |why: String| match expect {
        Expect::Ready => Wrong::undecided(format!("what had to come before it was not done: {why}")),
        _ => Wrong::failed(why),
    };
    if !matches!(came, Came::Accepted(_)) {
        return wrong(format!("`{sent}` was answered {came}; right is 2xx"));
    }
    match change {
        None | Some(Change::Effects(1) | Change::Some) => Ok(()),
        Some(change) => wrong(format!("`{sent}` was answered {came}, and had {change}; right is one")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn judged(came: Came, expect: Expect, change: Option<Change>) -> &'static str {
        let now = Instant::now();
        let shot =
            Shot { sent: "POST /".into(), mint: None, began: now, ended: now, came, passed_a_gateway: false };
        match judge(&shot, expect, change) {
            Ok(()) => "right",
            Err(Wrong::Failed(_)) => "failed",
            Err(Wrong::Undecided(_)) => "undecided",
        }
    }

    #[test]
    fn an_answer_is_right_only_with_its_effect() {
        use Change::Effects;
        let (yes, no) = (|| Came::Accepted(200), || Came::Refused(400, String::new()));
        for (came, expect, change, verdict) in [
            (yes(), Expect::Accepted, None, "right"),
            (yes(), Expect::Accepted, Some(Effects(1)), "right"),
            (yes(), Expect::Accepted, Some(Effects(0)), "failed"),
            (yes(), Expect::Accepted, Some(Effects(2)), "failed"),
            (yes(), Expect::Ready, Some(Effects(0)), "undecided"),
            (no(), Expect::Ready, None, "undecided"),
            (no(), Expect::Accepted, None, "failed"),
            (Came::Stale, Expect::Stale, Some(Effects(0)), "right"),
            (Came::Stale, Expect::Stale, Some(Effects(1)), "failed"),
            (no(), Expect::Stale, Some(Effects(0)), "failed"),
            (yes(), Expect::Stale, Some(Effects(0)), "failed"),
            (yes(), Expect::NotAgain, Some(Effects(0)), "right"),
            (yes(), Expect::NotAgain, None, "failed"),
            (no(), Expect::Refused, None, "right"),
            (Came::Stale, Expect::Refused, None, "right"),
            (Came::Expired, Expect::Refused, None, "right"),
            (Came::Expired, Expect::Expired, Some(Effects(0)), "right"),
            (Came::Expired, Expect::Expired, Some(Effects(1)), "failed"),
            (Came::Expired, Expect::Stale, None, "failed"),
            (Came::Expired, Expect::Accepted, None, "failed"),
            (Came::Stale, Expect::Expired, None, "failed"),
            (yes(), Expect::Expired, None, "failed"),
            (Came::Unclear(500, String::new()), Expect::Refused, None, "failed"),
            (Came::Silence("late".into()), Expect::Refused, None, "undecided"),
            (Came::Silence("late".into()), Expect::Refused, Some(Effects(0)), "undecided"),
            (Came::HungUp("end".into()), Expect::Refused, None, "undecided"),
            (Came::HungUp("end".into()), Expect::Refused, Some(Effects(0)), "right"),
            (Came::HungUp("end".into()), Expect::Stale, Some(Effects(0)), "undecided"),
            (Came::Silence("late".into()), Expect::Accepted, None, "undecided"),
        ] {
            assert_eq!(
                judged(came.clone(), expect, change.clone()),
                verdict,
                "{came:?} {expect:?} {change:?}"
            );
        }
    }
}
