//! Lets a dispatch in: announced durably, settled, checked again, and registered in one step with that check.

use std::{sync::Arc, time::Duration};

use fencegate_process::{clock::Boot, failpoint};
use tokio::time::{Instant, sleep_until};

use super::{
    Guard,
    doubt::Running,
    guard::State,
    journal::Reserved,
    refused::Refused,
    register::{Claim, DispatchId, Settled},
    store::{Change, Moment},
};

/// Who waits to be let in, and may go away before.
pub trait Waiting {
    /// Returns when it has gone, also when it is asked once more.
    fn gone(&mut self) -> impl Future<Output = ()>;
}

/// Somebody who does not go away.
#[derive(Debug, Clone, Copy)]
pub struct Staying;

impl Waiting for Staying {
    async fn gone(&mut self) {
        std::future::pending().await
    }
}

/// How long a request may wait for others, and who waits for it.
pub struct Patience<'c, W> {
    pub client: &'c mut W,
    deadline: Instant,
}

impl<'c, W: Waiting> Patience<'c, W> {
    pub fn new(client: &'c mut W, settle: Duration) -> Self {
        Self { client, deadline: Instant::now() + settle }
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// How far an admission came in one step.
enum Step {
    /// Registered; may be sent once everything up to the moment is durable.
    Registered { id: DispatchId, written: Moment, since: Boot },
    /// Announced, and somebody is in the way.
    Behind(Settled, Moment),
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
        let (mut step, new_tenure) = self.announce(&claim, reserved.as_ref())?;
        let asked = Instant::now();
        loop {
            match step {
                Step::Registered { id, written, since } => {
                    let running = Running::new(self.clone(), claim, id, reserved, since);
                    self.durable(written).await.inspect_err(|_| running.never_sent())?;
                    failpoint::pass("guard_admitted");
                    self.metrics.admitted(new_tenure, asked.elapsed());
                    return Ok(running);
                }
                Step::Behind(settled, moment) => {
                    self.durable(moment).await?;
                    self.wait(settled, patience).await?;
                    step = self.settle(&claim, reserved.as_ref())?;
                }
            }
        }
    }

    /// Raises the marks of a token that is not a dispatch, so that nothing older is let in any more.
    ///
    /// # Errors
    /// It is not the newest itself.
    pub async fn raise(&self, claim: &Claim) -> Result<(), Refused> {
        let moment = {
            let mut state = self.lock();
            let changes = match state.register.announce(claim, self.now()) {
                // It has been announced, and nothing newer has: by a dispatch, or by asking the same before.
                Err(Refused::Duplicate { newest }) if newest.same_tenure(claim.token) => Vec::new(),
                changes => changes?,
            };
            self.hand_in(&mut state, claim, changes, None)
        };
        self.durable(moment).await
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
        self.durable(written).await.inspect_err(|_| running.never_sent())?;
        Ok(running)
    }

    /// Compare and raise; and where nothing is in the way, register in the same step, so that mark, what is at work and
    /// journal entry are one transaction.
    fn announce(&self, claim: &Claim, reserved: Option<&Reserved>) -> Result<(Step, bool), Refused> {
        let mut state = self.lock();
        let now = self.now();
        let mut changes = state.register.announce(claim, now)?;
        let new_tenure = !changes.is_empty();
        let settled = state.register.settle(claim, now);
        let mut entry = None;
        if let Ok(Settled::Running { at_work, .. }) = &settled {
            changes.extend_from_slice(at_work);
            entry = reserved.map(Reserved::admitted);
        }
        let written = self.hand_in(&mut state, claim, changes, entry);
        let step = match settled? {
            Settled::Running { id, .. } => Step::Registered { id, written, since: now },
            wait @ Settled::Wait { .. } => Step::Behind(wait, written),
        };
        Ok((step, new_tenure))
    }

    fn settle(&self, claim: &Claim, reserved: Option<&Reserved>) -> Result<Step, Refused> {
        let mut state = self.lock();
        let now = self.now();
        Ok(match state.register.settle(claim, now)? {
            Settled::Running { id, at_work } => {
                let entry = reserved.map(Reserved::admitted);
                let written = self.hand_in(&mut state, claim, at_work, entry);
                Step::Registered { id, written, since: now }
            }
            wait @ Settled::Wait { .. } => Step::Behind(wait, state.register.written(claim)),
        })
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

    pub(super) async fn durable(&self, moment: Moment) -> Result<(), Refused> {
        self.committer.durable(moment).await.map_err(|failed| Refused::Store(failed.to_string()))
    }

    /// Until something may have changed.
    async fn wait(&self, settled: Settled, patience: &mut Patience<'_, impl Waiting>) -> Result<(), Refused> {
        let Settled::Wait { told, doubt } = settled else { return Ok(()) };
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
