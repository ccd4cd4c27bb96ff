//! Lets a dispatch in: announced durably, settled, checked again, and registered in one step with that check.

use std::sync::Arc;

use fencegate_process::{clock::Boot, failpoint};
use tokio::time::{Instant, sleep_until};

use crate::{
    doubt::Running,
    guard::{Guard, State},
    patience::{Patience, Waiting},
    refused::Refused,
    register::{Claim, Settled, Told},
    reserve::Reserved,
    store::{Change, Moment},
};

/// What one look at the register came to.
struct Looked {
    settled: Settled,
    /// Nothing may be sent, and nothing be waited for, before everything up to here is durable.
    written: Moment,
    at: Boot,
}

impl Guard {
    /// Lets the dispatch in. It counts as in flight until the returned [`Running`] is told how it ended.
    ///
    /// # Errors
    /// Nothing was sent. The mark may have moved: the tenure tries again with its next dispatch number.
    ///
    /// # Cancellation
    /// To be run to its end: it watches for its client's going away itself.
    pub async fn admit(
        self: &Arc<Self>,
        claim: Claim,
        reserved: Option<Reserved>,
        patience: &mut Patience<'_, impl Waiting>,
    ) -> Result<Running, Refused> {
        let asked = Instant::now();
        let (mut looked, new_tenure) = self.announce(&claim, reserved.as_ref())?;
        loop {
            let Looked { settled, written, at } = looked;
            match settled {
                Settled::Running(id) => {
                    let running = Running::new(self.clone(), claim, id, reserved, at);
                    if let Err(refused) = self.durable(written).await {
                        running.never_sent();
                        return Err(refused);
                    }
                    failpoint::pass("guard_admitted");
                    self.metrics.admitted(new_tenure, asked.elapsed());
                    return Ok(running);
                }
                Settled::Wait { told, doubt } => {
                    self.durable(written).await?;
                    self.wait(told, doubt, patience).await?;
                    looked = self.settle(&claim, reserved.as_ref())?;
                }
            }
        }
    }

    /// Raises and registers whatever the marks say: nothing is refused while one only looks on. Never lowers a mark.
    pub async fn let_pass(self: &Arc<Self>, claim: Claim) -> Result<Running, Refused> {
        let (id, written, now) = {
            let mut state = self.lock();
            let now = self.now();
            let mut changes = state.register.raise(&claim, now);
            let (id, at_work) = state.register.register(&claim, now);
            changes.extend(at_work);
            (id, self.hand_in(&mut state, &claim, changes, None), now)
        };
        let running = Running::new(self.clone(), claim, id, None, now);
        if let Err(refused) = self.durable(written).await {
            running.never_sent();
            return Err(refused);
        }
        Ok(running)
    }

    /// Compare and raise; and where nothing is in the way, register in the same step, so that mark, what is at work and
    /// journal entry are one transaction. Whether the tenure is a new one.
    fn announce(&self, claim: &Claim, reserved: Option<&Reserved>) -> Result<(Looked, bool), Refused> {
        let mut state = self.lock();
        let now = self.now();
        let raised = state.register.announce(claim, now)?;
        let new_tenure = !raised.is_empty();
        let looked = self.look(&mut state, claim, reserved, raised, now)?;
        Ok((looked, new_tenure))
    }

    /// Once more, after a wait.
    fn settle(&self, claim: &Claim, reserved: Option<&Reserved>) -> Result<Looked, Refused> {
        let (mut state, now) = (self.lock(), self.now());
        self.look(&mut state, claim, reserved, Vec::new(), now)
    }

    /// Hands in what was raised also where the claim is refused: it was announced.
    fn look(
        &self,
        state: &mut State,
        claim: &Claim,
        reserved: Option<&Reserved>,
        mut changes: Vec<Change>,
        at: Boot,
    ) -> Result<Looked, Refused> {
        let (settled, entry) = match state.register.settle(claim, at) {
            Ok((settled, at_work)) => {
                changes.extend(at_work);
                let entry = reserved.filter(|_| matches!(settled, Settled::Running(_)));
                (Ok(settled), entry.map(Reserved::admitted))
            }
            Err(refused) => (Err(refused), None),
        };
        let written = self.hand_in(state, claim, changes, entry);
        Ok(Looked { settled: settled?, written, at })
    }

    /// One transaction: marks and what is at work, and the entry. Nothing may be sent under the claim before the returned
    /// moment.
    fn hand_in(&self, state: &mut State, claim: &Claim, marks: Vec<Change>, entry: Option<Change>) -> Moment {
        let mut changes = marks.clone();
        let entered = entry.is_some();
        if let Some(Change::Operation { id, .. }) = &entry {
            state.underway.runs(*id);
        }
        if let Some(entry) = entry {
            // Whoever asks how long ago it was asks by this time, also after an unclean stop.
            changes.extend([entry, Change::Time(self.time())]);
        }
        if changes.is_empty() {
            return state.register.written(claim);
        }
        let moment = self.committer.submit(changes);
        state.register.handed_in(&marks, moment);
        // An entry is behind the marks, also where those were handed in before.
        if entered { moment } else { state.register.written(claim) }
    }

    /// Until something may have changed.
    async fn wait(
        &self,
        told: Told,
        doubt: Option<Boot>,
        patience: &mut Patience<'_, impl Waiting>,
    ) -> Result<(), Refused> {
        let now = self.now();
        let over = doubt.map(|until| Instant::now() + until.since(now));
        // A doubt that outlasts our patience is not worth waiting for.
        if let (Some(until), Some(over)) = (doubt, over)
            && over > patience.deadline
        {
            return Err(Refused::InDoubt { until });
        }
        let look_again = over.map_or(patience.deadline, |over| over.min(patience.deadline));
        tokio::select! {
            () = told => Ok(()),
            () = sleep_until(look_again) => match (Instant::now() >= patience.deadline, doubt) {
                (true, Some(until)) => Err(Refused::InDoubt { until }),
                (true, None) => Err(Refused::Busy),
                (false, _) => Ok(()),
            },
            () = patience.client.gone() => Err(Refused::Busy),
        }
    }
}
