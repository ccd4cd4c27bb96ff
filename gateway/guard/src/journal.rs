//! Keeps an operation from happening twice. Fencing alone does not: a client that got no answer retries with a newer
//! token.
//!
//! Whoever wants to run an operation reserves its name first, so that between looking it up and writing down that it
//! was admitted nobody else can do either.

mod unfinished;

use std::{sync::Arc, time::Duration};

use fencegate_policies::operation::{Operation, OperationId};

use crate::{
    guard::Guard,
    operation::{Entry, Kept, State},
    patience::{Patience, Waiting},
    refused::Refused,
    reserve::{Reservation, Reserved, Wanted},
    store::StoreError,
};

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
    Yours(Reservation, Box<Entry>),
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
        let mut reservation = Reservation::wait(self, id, patience).await?;
        let mut known = self.entry(&id)?;
        if let (None, Some(former)) = (&known, former)
            && self.entry(&former)?.is_some()
        {
            // It goes on as what it was, or nobody would know it by the name under which it was told of.
            reservation.take(former, patience).await?;
            // Whoever had it may have brought it to its end and have it forgotten.
            known = self.entry(&former)?;
            if known.is_some() {
                reservation.goes_by(former);
            }
        }
        let Some(entry) = known else {
            let journal = self.store.journal();
            let most = self.rules.journal.most;
            if journal.bytes >= most {
                return Err(Refused::JournalFull { bytes: journal.bytes, most });
            }
            return Ok(Found::New(Reserved::new(reservation, wanted)));
        };
        if !entry.is_of(&wanted.operation) || *entry.keys != *wanted.keys {
            return Err(Refused::Mismatch);
        }
        Ok(match entry.state {
            State::Done { answer: Some(answer), .. } => Found::Done(answer),
            State::Done { answer: None, .. } | State::Resolved { .. } => Found::DoneUnseen,
            State::Admitted => Found::Unknown(Reserved::new(reservation, wanted), Box::new(entry)),
        })
    }

    fn entry(&self, id: &OperationId) -> Result<Option<Entry>, Refused> {
        self.store.operation(id).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &StoreError) -> Refused {
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

/// None less than the time is long.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
