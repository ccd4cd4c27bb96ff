//! The right to decide over an operation, and the request that wants to run as it.

use std::sync::Arc;

use fencegate_policies::{
    key::ResourceKey,
    operation::{Operation, OperationId},
    plan::{self, Ending},
    token::Token,
};
use tokio::time::sleep_until;

use crate::{
    guard::Guard,
    operation::{Entry, Kept, Resolution, State},
    patience::{Patience, Waiting},
    refused::Refused,
    store::{Change, FORMAT},
    time::wall_clock,
};

/// A request that is an operation.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub operation: Operation,
    pub keys: Arc<[ResourceKey]>,
    pub token: Token,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The `Idempotency-Key` that it came with.
    pub name: Option<String>,
}

/// The right to decide over an operation; given back when dropped.
pub struct Reservation {
    guard: Arc<Guard>,
    id: OperationId,
    /// What has to be given back: more than one where it is known by the name that a former build gave it.
    taken: Vec<OperationId>,
}

/// A request that has reserved its operation, and may run once nothing is known of it.
pub struct Reserved {
    pub reservation: Reservation,
    wanted: Wanted,
}

impl Reservation {
    /// Of an operation that nobody has in hand. `None` where somebody has.
    pub(crate) fn at_once(guard: &Arc<Guard>, id: OperationId) -> Option<Self> {
        guard.lock().underway.reserve(id).ok()?;
        Some(Self { guard: guard.clone(), id, taken: vec![id] })
    }

    /// Waits for whoever has it now.
    pub(crate) async fn wait(
        guard: &Arc<Guard>,
        id: OperationId,
        patience: &mut Patience<'_, impl Waiting>,
    ) -> Result<Self, Refused> {
        let mut reservation = Self { guard: guard.clone(), id, taken: Vec::new() };
        reservation.take(id, patience).await?;
        Ok(reservation)
    }

    /// One more name of it, also waited for.
    pub(crate) async fn take(
        &mut self,
        id: OperationId,
        patience: &mut Patience<'_, impl Waiting>,
    ) -> Result<(), Refused> {
        loop {
            let told = self.guard.lock().underway.reserve(id);
            let Err(told) = told else { break };
            tokio::select! {
                () = told => {}
                () = sleep_until(patience.deadline) => return Err(Refused::InProgress),
                () = patience.client.gone() => return Err(Refused::InProgress),
            }
        }
        self.taken.push(id);
        Ok(())
    }

    /// What is known of it stands under this name.
    pub(crate) fn goes_by(&mut self, id: OperationId) {
        self.id = id;
    }

    /// It was done, by the word of somebody who knows: durable when this returns.
    pub async fn resolve_done(self, entry: &Entry, how: Resolution) -> Result<(), Refused> {
        let state = State::Resolved { at: self.guard.time(), how };
        let entry = Box::new(Entry { state, ..entry.clone() });
        self.guard.metrics.operation("resolved-done");
        let change = Change::Operation { id: self.id, entry };
        self.guard.durable(self.guard.committer.submit(vec![change])).await
    }

    /// It was not done, by the word of somebody who knows: it may run, once that is durable.
    pub async fn resolve_not_done(&self) -> Result<(), Refused> {
        self.guard.metrics.operation("resolved-not-done");
        self.guard.durable(self.guard.committer.submit(vec![self.forgotten()])).await
    }

    pub(crate) fn forgotten(&self) -> Change {
        self.guard.metrics.operation("forgotten");
        Change::ForgetOperation { id: self.id }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.guard.lock();
        self.taken.iter().for_each(|id| state.underway.let_go(id));
    }
}

impl Reserved {
    pub(crate) fn new(reservation: Reservation, wanted: Wanted) -> Self {
        Self { reservation, wanted }
    }

    pub fn id(&self) -> OperationId {
        self.reservation.id
    }

    pub fn reference(&self) -> String {
        self.id().reference()
    }

    fn entry(&self, state: State) -> Entry {
        let wanted = &self.wanted;
        Entry {
            format: FORMAT,
            fingerprint: wanted.operation.fingerprint.to_string(),
            keys: wanted.keys.to_vec(),
            token: wanted.token,
            method: wanted.method.clone(),
            target: wanted.target.clone(),
            name: wanted.name.clone(),
            askable: wanted.operation.askable,
            admitted: wall_clock(),
            began: Some(self.reservation.guard.time()),
            keep: wanted.operation.keep,
            state,
        }
    }

    pub(crate) fn admitted(&self) -> Change {
        self.reservation.guard.metrics.operation("admitted");
        Change::Operation { id: self.reservation.id, entry: Box::new(self.entry(State::Admitted)) }
    }

    /// `None` where the answer does not say for certain what happened: what was written at admission stays. The second
    /// half of the journal is for what keeps operations from happening twice, and bodies do not.
    pub(crate) fn finished(&self, answer: Kept, journal: &plan::Journal) -> Option<Change> {
        let guard = &self.reservation.guard;
        let finals = [&journal.final_statuses[..], &self.wanted.operation.finals].concat();
        match Ending::of(answer.status, &finals) {
            Ending::Over => guard.metrics.operation("done"),
            Ending::NotTakenUp => return Some(self.reservation.forgotten()),
            Ending::Unknown => {
                guard.metrics.operation("unknown");
                return None;
            }
        }
        let roomy = guard.store.journal().bytes <= journal.most / 2;
        let body = answer.body.filter(|body| roomy && body.len() <= journal.max_body);
        let state = State::Done { at: guard.time(), answer: Some(Kept { body, ..answer }) };
        Some(Change::Operation { id: self.reservation.id, entry: Box::new(self.entry(state)) })
    }
}
