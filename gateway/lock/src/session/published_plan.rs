//! What one session has published of the plan, and what is to take its place.

use std::cell::RefCell;

use tracing::warn;

use super::publication::Publication;

/// What one session has published.
#[derive(Debug)]
pub(super) struct Announced {
    now: RefCell<Publication>,
    /// Takes its place, and whether it has is not known: the answer was lost.
    pub(super) next: RefCell<Option<Publication>>,
    /// What the log was told of why it does not take its place.
    told: RefCell<String>,
}

impl Announced {
    pub(super) fn of(publication: Publication) -> Self {
        Self { now: RefCell::new(publication), next: RefCell::default(), told: RefCell::default() }
    }

    pub(super) fn now(&self) -> Publication {
        self.now.borrow().clone()
    }

    pub(super) fn turned(&self) {
        if let Some(next) = self.next.take() {
            self.now.replace(next);
        }
        self.told.take();
    }

    pub(super) fn waits(&self, why: String) {
        if *self.told.borrow() != why {
            warn!(code = "FG0550", why, "the new plan is not published yet: its new routes are refused");
            self.told.replace(why);
        }
    }
}
