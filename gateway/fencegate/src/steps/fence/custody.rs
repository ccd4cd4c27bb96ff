//! What is kept of an exchange until somebody tells its end; without a word it was left, and its upstream may be at work.

use std::rc::Rc;

use bytes::Bytes;
use fencegate_lock::once::{Admitted, Came};
use fencegate_process::{clock::SharedClock, shown};
use hyper::http::response::Parts;

use super::{
    given_up::{End, Terms},
    held_tenure::HeldTenure,
    once,
};
use crate::{
    notes::Notes,
    refusal::{Outcome, Refusal},
    steps::{answer::Keep, forward::evidence_needed},
};

/// The hold goes when this is dropped, or later where the upstream has to have its time first. A panic of the task that
/// works for the request drops it as well.
pub(super) struct Custody {
    hold: Rc<HeldTenure>,
    terms: Terms,
    clock: SharedClock,
    /// Where ZooKeeper remembers what happens at most once.
    once: Option<Admitted>,
    notes: Rc<Notes>,
    end: End,
}

impl Custody {
    pub(super) fn of(
        hold: Rc<HeldTenure>,
        terms: Terms,
        clock: SharedClock,
        once: Option<Admitted>,
        notes: Rc<Notes>,
    ) -> Self {
        Self { hold, terms, clock, once, notes, end: End::Left }
    }

    pub(super) async fn refused(mut self, refusal: &Refusal) {
        self.end = End::Broken;
        let once = self.once.take();
        // The connection may carry another exchange soon.
        drop(self);
        if let (Some(once), Outcome::NotDispatched) = (once, refusal.outcome()) {
            once.came(Came::Nothing).await;
        }
    }
}

impl Keep for Custody {
    async fn lapsed(&self) {
        evidence_needed(Some(self.hold.tenure.permission()), self.terms.level, &self.clock).await;
        Terms::gives_up(&self.hold, &self.notes);
    }

    async fn complete(mut self, head: &Parts, _: Option<&Bytes>) {
        self.end = End::Complete;
        if let Some(once) = self.once.take() {
            // Before the key is given on: whoever has it next finds what came of this.
            once::answered(once, head.status, self.notes.retires.get()).await;
        }
        if !self.notes.retires.get() {
            self.hold.tenure.known();
        }
    }

    /// Without the word that all is known, the tenure retires.
    fn broken(mut self) {
        self.end = End::Broken;
    }

    /// The key rests.
    fn left(self) {}

    fn keys(&self) -> String {
        shown::keys(&self.hold.keys)
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        self.terms.rests(&self.hold, &self.notes, self.end, self.clock.now());
    }
}
