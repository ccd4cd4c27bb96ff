//! Keeps an operation from happening twice. Fencing alone does not: a client that got no answer retries with a newer
//! token.
//!
//! Whoever wants to run an operation reserves its name first, so that between looking it up and writing down that it
//! was admitted nobody else can do either.

mod unfinished;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    operation::{Operation, OperationId},
    plan::{self, Ending},
    token::Token,
};
use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::sleep_until,
};

use super::{
    Guard,
    admit::{Patience, Waiting},
    operation::{Entry, Kept, Resolution, State},
    refused::Refused,
    store::{Change, FORMAT},
    time::wall_clock,
};

/// Operations that somebody has reserved.
#[derive(Debug, Default)]
pub(super) struct Underway {
    reserved: HashMap<OperationId, Arc<Notify>>,
    /// Those of them that are at work, or about to be: their end is still to come.
    running: HashSet<OperationId>,
}

impl Underway {
    pub(super) fn is_reserved(&self, id: &OperationId) -> bool {
        self.reserved.contains_key(id)
    }

    /// From before its admission is written down until whoever has reserved it lets go of it.
    pub(super) fn runs(&mut self, id: OperationId) {
        self.running.insert(id);
    }

    fn let_go(&mut self, id: &OperationId) {
        self.running.remove(id);
        if let Some(told) = self.reserved.remove(id) {
            told.notify_waiters();
        }
    }
}

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
pub struct Reserved {
    guard: Arc<Guard>,
    wanted: Wanted,
    /// What has to be given back: more than one where it is known by the name that a former build gave it.
    taken: Vec<OperationId>,
}

/// What is known of a wanted operation.
pub enum Found {
    New(Reserved),
    /// It was done, with this answer.
    Done(Kept),
    /// It was done, and nobody here saw the answer.
    DoneUnseen,
    /// It was admitted, and nobody knows what came of it.
    Unknown(Reserved, Box<Entry>),
}

/// What comes of taking an operation in hand.
pub enum Taken {
    Yours(Box<Reserved>, Box<Entry>),
    /// Somebody else has it.
    InHand,
    /// There is none, or it is known what came of it.
    Settled,
}

impl Guard {
    /// Reserves the operation, waits for whoever has reserved it now, and says what is known of it.
    ///
    /// # Errors
    /// It is running for longer than we wait, or it was another request.
    pub async fn find(
        self: &Arc<Self>,
        wanted: Wanted,
        patience: &mut Patience<'_, impl Waiting>,
    ) -> Result<Found, Refused> {
        let Operation { id, former, .. } = wanted.operation;
        let mut reserved = Reserved { guard: self.clone(), wanted, taken: Vec::new() };
        reserved.take(id, patience).await?;
        let mut known = self.entry(&id)?;
        if let (None, Some(former)) = (&known, former)
            && self.entry(&former)?.is_some()
        {
            // It goes on as what it was, or nobody would know it by the name under which it was told of.
            reserved.take(former, patience).await?;
            // Whoever had it may have brought it to its end and have it forgotten.
            known = self.entry(&former)?;
            if known.is_some() {
                reserved.wanted.operation.id = former;
            }
        }
        let Some(entry) = known else {
            let journal = self.store.journal();
            let most = self.rules.journal.most;
            if journal.bytes >= most {
                return Err(Refused::JournalFull { bytes: journal.bytes, most });
            }
            return Ok(Found::New(reserved));
        };
        if !entry.is_of(&reserved.wanted.operation) || *entry.keys != *reserved.wanted.keys {
            return Err(Refused::Mismatch);
        }
        Ok(match entry.state {
            State::Done { answer: Some(answer), .. } => Found::Done(answer),
            State::Done { answer: None, .. } | State::Resolved { .. } => Found::DoneUnseen,
            State::Admitted => Found::Unknown(reserved, Box::new(entry)),
        })
    }

    fn reserve(&self, id: OperationId) -> Result<(), OwnedNotified> {
        let mut state = self.lock();
        match state.underway.reserved.get(&id) {
            Some(told) => Err(told.clone().notified_owned()),
            None => {
                state.underway.reserved.insert(id, Arc::default());
                Ok(())
            }
        }
    }

    fn entry(&self, id: &OperationId) -> Result<Option<Entry>, Refused> {
        self.store.operation(id).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &super::store::StoreError) -> Refused {
        self.metrics.store_error("read");
        Refused::Store(error.to_string())
    }

    /// Could an execution of the operation still be at work, or begin? Then a "no" of the upstream means nothing yet.
    pub fn may_still_run(&self, entry: &Entry) -> bool {
        // An upstream may answer with an error and go on working: nothing is in doubt then, and its "no" comes too
        // early all the same. So the time that this store has seen pass has to be long enough as well.
        let longest = self.rules.send_within + self.longest_execution();
        let began = entry.began.unwrap_or(entry.admitted);
        let now = self.now();
        self.time() <= began.saturating_add(whole_seconds(longest)) || {
            let register = &self.lock().register;
            register.quarantine_of(&entry.keys, now).is_some()
                || register.may_run(&entry.keys, entry.token, now)
        }
    }
}

impl Reserved {
    fn of(guard: Arc<Guard>, id: OperationId, entry: &Entry) -> Self {
        let wanted = Wanted {
            operation: Operation {
                id,
                former: None,
                fingerprint: fencegate_policies::operation::Fingerprint::of([0; 32]),
                keep: entry.keep,
                finals: Vec::new(),
                askable: entry.askable,
            },
            keys: entry.keys.clone().into(),
            token: entry.token,
            method: entry.method.clone(),
            target: entry.target.clone(),
            name: entry.name.clone(),
        };
        Self { guard, wanted, taken: vec![id] }
    }

    /// Waits for whoever has it now.
    async fn take(
        &mut self,
        id: OperationId,
        patience: &mut Patience<'_, impl Waiting>,
    ) -> Result<(), Refused> {
        while let Err(told) = self.guard.reserve(id) {
            tokio::select! {
                () = told => {}
                () = sleep_until(patience.deadline()) => return Err(Refused::InProgress),
                () = patience.client.gone() => return Err(Refused::InProgress),
            }
        }
        self.taken.push(id);
        Ok(())
    }

    pub fn id(&self) -> OperationId {
        self.wanted.operation.id
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
            began: Some(self.guard.time()),
            keep: wanted.operation.keep,
            state,
        }
    }

    pub(super) fn admitted(&self) -> Change {
        self.guard.metrics.operation("admitted");
        Change::Operation { id: self.wanted.operation.id, entry: Box::new(self.entry(State::Admitted)) }
    }

    /// `None` where the answer does not say for certain what happened: what was written at admission stays. The second
    /// half of the journal is for what keeps operations from happening twice, and bodies do not.
    pub(super) fn finished(&self, answer: Kept, journal: &plan::Journal) -> Option<Change> {
        let finals = [&journal.final_statuses[..], &self.wanted.operation.finals].concat();
        match Ending::of(answer.status, &finals) {
            Ending::Over => self.guard.metrics.operation("done"),
            Ending::NotTakenUp => return Some(self.forgotten()),
            Ending::Unknown => {
                self.guard.metrics.operation("unknown");
                return None;
            }
        }
        let roomy = self.guard.store.journal().bytes <= journal.most / 2;
        let body = answer.body.filter(|body| roomy && body.len() <= journal.max_body);
        let state = State::Done { at: self.guard.time(), answer: Some(Kept { body, ..answer }) };
        Some(Change::Operation { id: self.wanted.operation.id, entry: Box::new(self.entry(state)) })
    }

    pub(super) fn forgotten(&self) -> Change {
        self.guard.metrics.operation("forgotten");
        Change::ForgetOperation { id: self.wanted.operation.id }
    }

    /// It was done, by the word of somebody who knows: durable when this returns.
    pub async fn resolve_done(self, entry: &Entry, how: Resolution) -> Result<(), Refused> {
        let state = State::Resolved { at: self.guard.time(), how };
        let entry = Box::new(Entry { state, ..entry.clone() });
        self.guard.metrics.operation("resolved-done");
        let change = Change::Operation { id: self.wanted.operation.id, entry };
        self.guard.durable(self.guard.committer.submit(vec![change])).await
    }

    /// It was not done, by the word of somebody who knows: it may run, once that is durable.
    pub async fn resolve_not_done(&self) -> Result<(), Refused> {
        self.guard.metrics.operation("resolved-not-done");
        self.guard.durable(self.guard.committer.submit(vec![self.forgotten()])).await
    }
}

/// None less than the time is long.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.guard.lock();
        self.taken.iter().for_each(|id| state.underway.let_go(id));
    }
}
