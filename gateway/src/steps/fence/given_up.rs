//! Where nobody compares tokens: keeps the key of an exchange that was given up until its upstream has had its time.
//!
//! The proof ends before the session does, and the session may live on: after a short pause, or a short way without
//! ZooKeeper. Then the lock node is ours still, and to remove it would let the next holder begin beside an upstream that
//! is at work. It is in time until `response_timeout` after the last byte that it was sent, so until then the key is not
//! given on, here or elsewhere. Should the session end after all, the server removes the node, as it does of the dead.

use std::time::Duration;

use fencegate_policies::plan::Level;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::{
    said::Brief,
    stage::{Hold, Notes},
};

/// What is known of an exchange beside its hold.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) level: Level,
    /// How long the upstream may take.
    pub(super) response_timeout: Duration,
    /// Whoever stops waits for what is in here.
    pub(super) running: TaskTracker,
}

impl Terms {
    /// The proof has ended, and the rest of the answer is not waited for.
    pub(super) fn gives_up(hold: &Hold, notes: &Notes) {
        if let Some(gate) = &*notes.gate.borrow() {
            gate.lapse(hold.tenure.evidence());
        }
    }

    /// The exchange has ended without its answer. The hold goes now, or when the upstream has had its time.
    pub(super) fn rests(&self, hold: Hold, notes: &Notes) {
        let Some(until) = self.until(notes) else { return };
        let rest = until.saturating_duration_since(Instant::now());
        info!(rest = %Brief(rest), "the key of an exchange that was given up is kept until its upstream has had its time");
        self.running.spawn_local(async move {
            sleep_until(until).await;
            drop(hold);
        });
    }

    /// `None`: nothing was sent, or it was not the end of the proof that ended it.
    fn until(&self, notes: &Notes) -> Option<Instant> {
        let gate = notes.gate.borrow();
        let gate = gate.as_ref().filter(|gate| self.level == Level::None && gate.lost_its_proof())?;
        (gate.written() > 0).then(|| gate.last_write() + self.response_timeout)
    }
}
