//! Where nobody compares tokens: keeps the key of an exchange that was given up until its upstream has had its time.
//!
//! The proof ends before the session does, and the session may live on: after a short pause, or a short way without
//! ZooKeeper. Then the lock node is ours still, and to remove it would let the next holder begin beside an upstream that
//! is at work. It is in time until `response_timeout` after the last byte that it was sent, so until then the key is not
//! given on, here or elsewhere. Should the session end after all, the server removes the node, as it does of the dead.
//!
//! The same holds when `response_timeout` is over, which for the client counts from the first byte. The last one may have
//! left much later: an upstream takes a body slowly, or a worker stands still directly before it writes.

use std::time::Duration;

use fencegate_lock::session::evidence::Evidence;
use fencegate_policies::plan::Level;
use fencegate_process::{clock::Boot, said::Brief};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::{
    stage::{Hold, Notes},
    upstream::gate::Gate,
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

    /// The exchange has ended without its answer, at `now`. The hold goes now, or when the upstream has had its time.
    pub(super) fn rests(&self, hold: Hold, notes: &Notes, now: Boot) {
        let gate = notes.gate.borrow();
        let Some(until) = gate.as_ref().and_then(|gate| self.until(gate, hold.tenure.evidence(), now)) else {
            return;
        };
        let rest = until.saturating_duration_since(Instant::now());
        info!(rest = %Brief(rest), "the key of an exchange that was given up is kept until its upstream has had its time");
        self.running.spawn_local(async move {
            sleep_until(until).await;
            drop(hold);
        });
    }

    /// `None`: nothing was sent, or the other side has ended it under a proof that held throughout.
    ///
    /// Who shut the gate does not decide: after a pause a time limit may be over as well, and whichever is looked at
    /// first is the reason that stays. Nor does the evidence alone: a later beat may have moved it again.
    fn until(&self, gate: &Gate, evidence: &Evidence, now: Boot) -> Option<Instant> {
        let given_up = gate.was_given_up() || !evidence.holds(now);
        let rests = self.level == Level::None && given_up && gate.written() > 0;
        rests.then(|| gate.last_write() + self.response_timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::{rc::Rc, sync::Arc};

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use crate::upstream::gate::{Gated, Why};
    use fencegate_lock::session::proof::Proof;
    use fencegate_process::clock::ManualClock;

    const LIMIT: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> Boot {
        Boot::from_nanos(0) + Duration::from_secs(seconds)
    }

    fn terms(level: Level) -> Terms {
        Terms { level, response_timeout: LIMIT, running: TaskTracker::new() }
    }

    /// The gate of an exchange that has sent so many bytes under a proof of five seconds, and was shut for this reason.
    async fn ended(sent: &[u8], why: Why) -> (Rc<Gate>, Arc<Proof>, Arc<Evidence>) {
        let proof = Arc::new(Proof::until(1, at(5)));
        let evidence = Arc::new(Evidence::of(proof.clone()));
        let gate = Rc::new(Gate::new(Arc::<ManualClock>::default()));
        let (near, _far) = duplex(64);
        gate.arm(Some(evidence.clone()));
        Gated::new(near, gate.clone()).write_all(sent).await.expect("within the proof");
        gate.shut(why);
        (gate, proof, evidence)
    }

    #[tokio::test]
    async fn the_key_rests_when_the_proof_has_ended_whichever_limit_ended_the_exchange() {
        for why in [Why::Abandoned, Why::Late, Why::ProofLost] {
            let (gate, _, evidence) = ended(b"x", why).await;
            let until = Some(gate.last_write() + LIMIT);
            assert_eq!(terms(Level::None).until(&gate, &evidence, at(5)), until, "{why:?}");
            for level in [Level::Guard, Level::Upstream] {
                assert_eq!(terms(level).until(&gate, &evidence, at(5)), None, "{why:?}: tokens are compared");
            }
            let (gate, _, evidence) = ended(b"", why).await;
            assert_eq!(terms(Level::None).until(&gate, &evidence, at(5)), None, "{why:?}: nothing was sent");
        }
    }

    #[tokio::test]
    async fn a_proof_that_goes_on_undoes_no_end_and_what_the_other_side_has_ended_keeps_no_key() {
        let terms = terms(Level::None);
        for why in [Why::Late, Why::ProofLost] {
            let (gate, proof, evidence) = ended(b"x", why).await;
            proof.extend(at(50));
            assert_eq!(terms.until(&gate, &evidence, at(6)), Some(gate.last_write() + LIMIT), "{why:?}");
        }
        let (gate, _, evidence) = ended(b"x", Why::Abandoned).await;
        assert_eq!(terms.until(&gate, &evidence, at(4)), None);
    }
}
