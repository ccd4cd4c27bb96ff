//! How long an answer is waited for, and how long the body of its request may go up.

use std::{rc::Rc, time::Duration};

use fencegate_policies::plan::Level;
use tokio::time::{Instant, sleep_until};

use crate::{
    listen::course::{Coming, Exchange},
    session::{clock::SharedClock, evidence::Evidence},
    upstream::link::Progress,
};

/// Of one attempt.
pub(super) struct Patience {
    /// What goes up while the client sends it.
    pub(super) upload: Option<Rc<Exchange>>,
    /// Under a key: then a request that was here in full has to be answered soon after its dispatch.
    pub(super) fenced: bool,
}

impl Patience {
    /// Returns when it is over. An upload may be long: its time runs from the last byte that went up, and not while the
    /// client is waited for, which the body itself sees to.
    pub(super) async fn over(&self, progress: Progress, limit: Duration) {
        let began = Instant::now();
        let mut last = began;
        loop {
            sleep_until(last + limit).await;
            let moved = match self.upload.as_ref().map(|upload| upload.coming()) {
                Some(Coming::Awaited) => Instant::now(),
                Some(Coming::Here(then)) => then.max(progress.last()),
                _ => progress.last(),
            };
            let moved = moved.max(began);
            if moved == last || (self.fenced && self.upload.is_none()) {
                return;
            }
            last = moved;
        }
    }

    fn is_going_up(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.coming() != Coming::Over)
    }

    /// Returns when the proof of the hold has ended and it matters: see [`evidence_needed`]. What is still going up is
    /// not written in full, and never will be.
    pub(super) async fn unproven(&self, evidence: Option<&Evidence>, level: Level, clock: &SharedClock) {
        if let (Some(evidence), true) = (evidence, self.is_going_up()) {
            evidence.lapsed(clock).await;
            if self.is_going_up() {
                return;
            }
        }
        evidence_needed(evidence, level, clock).await;
    }
}

/// Returns when the hold may be over and nobody at the upstream would notice. Where the upstream compares tokens, what
/// was written in full is waited for: its answer is the truth.
pub async fn evidence_needed(evidence: Option<&Evidence>, level: Level, clock: &SharedClock) {
    match (evidence, level) {
        (Some(evidence), Level::None) => evidence.lapsed(clock).await,
        (None, _) | (_, Level::Guard | Level::Upstream) => std::future::pending().await,
    }
}
