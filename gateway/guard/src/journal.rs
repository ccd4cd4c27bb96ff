//! Keeps an operation from happening twice. Fencing alone does not: a client that got no answer retries with a newer
//! token.
//!
//! Whoever wants to run an operation reserves its name first, so that between looking it up and writing down that it
//! was admitted nobody else can do either.

mod unfinished;

use std::sync::Arc;

use fencegate_policies::operation::{Operation, one_resource};

use crate::{
    guard::Guard,
    operation::{Entry, Kept, State},
    refused::Refused,
    reserve::{Reservation, Reserved, Wanted},
    waiter::{Patience, Waiting},
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
        let mut reservation = Reservation::of(self, id);
        let mut known = reservation.take(patience).await?;
        if let (None, Some(former)) = (&known, former)
            && self.arbiter.entry(&former).await?.is_some()
        {
            // It goes on as what it was, or nobody would know it by the name under which it was told of. Whoever had it may
            // have brought it to its end and have it forgotten.
            known = reservation.take_former(former, patience).await?;
        }
        let Some(entry) = known else {
            let journal = self.arbiter.journal();
            let most = self.rules.journal.most;
            if journal.bytes >= most {
                return Err(Refused::JournalFull { bytes: journal.bytes, most });
            }
            return Ok(Found::New(Reserved::new(reservation, wanted)));
        };
        if !entry.is_of(&wanted.operation) || !one_resource(&entry.keys, &wanted.keys) {
            return Err(Refused::Mismatch);
        }
        Ok(match entry.state {
            State::Done { answer: Some(answer), .. } => Found::Done(answer),
            State::Done { answer: None, .. } | State::Resolved { .. } => Found::DoneUnseen,
            State::Admitted => Found::Unknown(Reserved::new(reservation, wanted), Box::new(entry)),
        })
    }

    /// Could an execution of the operation still be at work, or begin? Then a "no" of the upstream means nothing yet.
    ///
    /// # Errors
    /// The store cannot be asked.
    pub async fn may_still_run(&self, entry: &Entry) -> Result<bool, Refused> {
        self.arbiter.may_still_run(entry).await
    }
}
