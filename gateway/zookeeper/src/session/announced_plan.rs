//! The plan that one session has published, and the plan that is to replace it.

use std::cell::RefCell;

use tracing::warn;

use super::plan_publication::PlanPublication;

/// The published plan of one session.
#[derive(Debug)]
pub(super) struct AnnouncedPlan {
    now: RefCell<PlanPublication>,
    /// The plan that is being published. It stays here after a lost answer, until it is known which of the two is
    /// published.
    pub(super) next: RefCell<Option<PlanPublication>>,
    /// The reason that was last logged for the delay.
    told: RefCell<String>,
}

impl AnnouncedPlan {
    pub(super) fn new(publication: PlanPublication) -> Self {
        Self { now: RefCell::new(publication), next: RefCell::default(), told: RefCell::default() }
    }

    pub(super) fn current(&self) -> PlanPublication {
        self.now.borrow().clone()
    }

    pub(super) fn complete_switch(&self) {
        if let Some(next) = self.next.take() {
            self.now.replace(next);
        }
        self.told.take();
    }

    pub(super) fn log_publication_delay(&self, why: String) {
        if *self.told.borrow() != why {
            warn!(code = "FG0550", why, "the new plan is not published yet: its new routes are refused");
            self.told.replace(why);
        }
    }
}
