//! For upstreams that compare no tokens: keeps the key of an exchange that was given up until the upstream has had
//! its time.
//!
//! The proof ends before the session, and the session may survive, for example after a short pause or a short loss of
//! ZooKeeper. Then the lock node still exists. To remove it would let the next holder begin while the upstream is at
//! work. The upstream may answer until `response_timeout` after the last byte that it was sent. So the key is not
//! released before then, to requests here or elsewhere. If the session does end, the server removes the node.
//!
//! The same holds after `response_timeout`. For the client that time counts from the first byte, but the last byte
//! may leave much later: an upstream reads a body slowly, or a worker stops just before a write.
//!
//! It also holds whenever the upstream has not ended the exchange itself: the client broke off its body, a body or
//! tunnel passed its time limit, the answer could not be passed on, or the process stops. A panic of the task that
//! worked for the request leaves its end unknown as well.
//!
//! An answer that a proxy on the way may have made, such as its 504, ends nothing either: the upstream may be at work
//! behind it, as after no answer.
//!
//! A guard closes the key itself for as long as it is in doubt, and it knows the key by its name. So the lock is given
//! back at once. But a reload may call the same resource otherwise, and the guard knows nothing of that name. So
//! the request counts as running until the upstream has had its time: requests under other keys wait for that.

use std::{rc::Rc, time::Duration};

use fencegate_http::upstream::gate::Gate;
use fencegate_lock::session::evidence::Evidence;
use fencegate_policies::plan::{Expiry, Level};
use fencegate_process::{clock::Boot, said::Brief};
use tokio::{
    task::spawn_local,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;
use tracing::info;

use super::held_tenure::HeldTenure;
use crate::notes::Notes;

/// What is known of an exchange beside its hold.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) level: Level,
    /// The longest time that the upstream may take.
    pub(super) response_timeout: Duration,
    /// Whether the upstream refuses what comes after the moment until which it may be begun.
    pub(super) expiry: Expiry,
    /// A stopping process waits for the tasks in here.
    pub(super) running: TaskTracker,
}

/// How an exchange ended, as far as that was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// No end was reported, or the gateway ended the exchange itself.
    Left,
    /// The exchange ended without a complete answer. Its gate tells whether the gateway has ended it.
    Broken,
    /// As `Broken`, but nobody executes the request: that was told.
    Undispatched,
    /// An answer came in full, but its status is one that a proxy between here and the upstream answers in its own name.
    Unfinished,
    /// The upstream has answered in full.
    Complete,
}

impl Terms {
    /// The proof has ended, and the rest of the answer is not waited for.
    pub(super) fn gives_up(hold: &HeldTenure, notes: &Notes) {
        if let Some(gate) = &*notes.gate.borrow() {
            gate.lapse(hold.tenure.evidence());
        }
    }

    /// The exchange has ended, at `now`. Where the upstream has to have its time, the hold is kept until then.
    pub(super) fn rests(&self, hold: &Rc<HeldTenure>, notes: &Notes, end: End, now: Boot) {
        let gate = notes.gate.borrow();
        let Some(gate) = gate.as_ref() else { return };
        // A guard always refuses what comes too late.
        let refuses = self.expiry == Expiry::Enforced || self.level == Level::Guard;
        let not_after = notes.not_after.get().filter(|_| refuses);
        let begun_by = not_after.map(|not_after| Instant::now() + not_after.since(now));
        if let Some(until) = self.in_doubt_until((gate, begun_by), end) {
            let running = hold.running.clone();
            // Not among those that a stopping process waits for: the next process knows nothing of it either.
            spawn_local(async move {
                sleep_until(until).await;
                drop(running);
            });
        }
        let Some(until) = self.until((gate, begun_by), hold.tenure.evidence(), end, now) else { return };
        let hold = hold.clone();
        let rest = until.saturating_duration_since(Instant::now());
        info!(rest = %Brief(rest), "the key of an exchange that was given up is kept until its upstream has had its time");
        self.running.spawn_local(async move {
            sleep_until(until).await;
            drop(hold);
        });
    }

    /// `None` if nothing was sent, or if the upstream ended the exchange under a proof that held throughout.
    ///
    /// The reason why the gate was shut does not decide alone: after a pause a time limit may have passed as well,
    /// and the first one that is noticed is recorded. The evidence does not decide alone either: a later heartbeat
    /// may have extended it again.
    ///
    /// `begun_by`: the moment after which the upstream begins nothing. What a relay still has may be begun until then,
    /// so its time counts from there. With a delay the next holder waits for the execution itself, and the hold is kept
    /// only until that moment, after any end that is not known.
    fn until(
        &self,
        (gate, begun_by): (&Gate, Option<Instant>),
        evidence: &Evidence,
        end: End,
        now: Boot,
    ) -> Option<Instant> {
        let sent = gate.written() > 0;
        let may_go_on = match end {
            End::Complete => false,
            // Nothing is counted any more once an exchange is complete.
            End::Unfinished => true,
            End::Left => sent,
            End::Broken | End::Undispatched => sent && (gate.was_given_up() || !evidence.holds(now)),
        };
        let last = gate.last_write();
        match self.level {
            Level::None if may_go_on => {
                Some(begun_by.map_or(last, |begun_by| last.max(begun_by)) + self.response_timeout)
            }
            Level::Delay(_) if matches!(end, End::Unfinished) => begun_by,
            Level::Delay(_) if sent && matches!(end, End::Left | End::Broken) => begun_by,
            Level::None | Level::Delay(_) | Level::Guard | Level::Upstream => None,
        }
    }

    /// Until when the upstream may be at work behind whoever closes the key by its name. `response_timeout` is longer
    /// than a guard may take to settle and execute: a gateway sends nothing to a guard of which that is not true.
    ///
    /// `begun_by` as in [`Self::until`]: what a relay still has may arrive until then. What a relay behind a guard has may be
    /// begun later, by the guard's `send_within`, which a gateway does not know.
    fn in_doubt_until(&self, (gate, begun_by): (&Gate, Option<Instant>), end: End) -> Option<Instant> {
        let longest = match self.level {
            Level::Guard => self.response_timeout,
            Level::Delay(delay) => delay.max(self.response_timeout),
            // The hold itself is kept, where it has to be.
            Level::None => return None,
            // It compares tokens, whatever the key is called.
            Level::Upstream => return None,
        };
        let in_doubt = match end {
            End::Left => gate.written() > 0,
            // The guard may have told its doubt in a complete answer, and then nothing is counted any more.
            End::Broken | End::Unfinished => true,
            End::Undispatched | End::Complete => false,
        };
        let last = gate.last_write();
        in_doubt.then(|| begun_by.map_or(last, |begun_by| last.max(begun_by)) + longest)
    }
}

#[cfg(test)]
mod tests {
    use std::{rc::Rc, sync::Arc};

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use fencegate_http::upstream::gate::{Gated, Why};
    use fencegate_lock::session::proof::Proof;
    use fencegate_process::clock::ManualClock;

    const LIMIT: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> Boot {
        Boot::from_nanos(0) + Duration::from_secs(seconds)
    }

    fn terms(level: Level) -> Terms {
        Terms { level, response_timeout: LIMIT, expiry: Expiry::Ignored, running: TaskTracker::new() }
    }

    /// The gate of an exchange that has sent so many bytes under a proof of five seconds.
    async fn sent(bytes: &[u8]) -> (Rc<Gate>, Arc<Proof>, Arc<Evidence>) {
        let proof = Arc::new(Proof::until(1, at(5)));
        let evidence = Arc::new(Evidence::of(proof.clone()));
        let gate = Rc::new(Gate::new(Arc::<ManualClock>::default()));
        let (near, _far) = duplex(64);
        gate.arm(Some(evidence.clone()));
        Gated::new(near, gate.clone()).write_all(bytes).await.expect("within the proof");
        (gate, proof, evidence)
    }

    /// The same, shut for this reason.
    async fn ended(bytes: &[u8], why: Why) -> (Rc<Gate>, Arc<Proof>, Arc<Evidence>) {
        let (gate, proof, evidence) = sent(bytes).await;
        gate.shut(why);
        (gate, proof, evidence)
    }

    #[tokio::test]
    async fn the_key_rests_when_the_proof_has_ended_whichever_limit_ended_the_exchange() {
        for why in [Why::Abandoned, Why::Late, Why::ProofLost] {
            let (gate, _, evidence) = ended(b"x", why).await;
            let until = Some(gate.last_write() + LIMIT);
            assert_eq!(
                terms(Level::None).until((&gate, None), &evidence, End::Broken, at(5)),
                until,
                "{why:?}"
            );
            for level in [Level::Guard, Level::Upstream] {
                assert_eq!(
                    terms(level).until((&gate, None), &evidence, End::Broken, at(5)),
                    None,
                    "{why:?}: tokens are compared"
                );
            }
            let (gate, _, evidence) = ended(b"", why).await;
            assert_eq!(
                terms(Level::None).until((&gate, None), &evidence, End::Broken, at(5)),
                None,
                "{why:?}: nothing was sent"
            );
        }
    }

    #[tokio::test]
    async fn a_proof_that_goes_on_undoes_no_end_and_what_the_other_side_has_ended_keeps_no_key() {
        let terms = terms(Level::None);
        for why in [Why::Late, Why::ProofLost, Why::Stopped, Why::Cut] {
            let (gate, proof, evidence) = ended(b"x", why).await;
            proof.extend(at(50));
            assert_eq!(
                terms.until((&gate, None), &evidence, End::Broken, at(6)),
                Some(gate.last_write() + LIMIT),
                "{why:?}"
            );
        }
        let (gate, _, evidence) = ended(b"x", Why::Abandoned).await;
        assert_eq!(terms.until((&gate, None), &evidence, End::Broken, at(4)), None);
    }

    #[tokio::test]
    async fn the_key_rests_when_nobody_has_told_the_end() {
        let (gate, _, evidence) = ended(b"x", Why::Abandoned).await;
        let until = |level, end| terms(level).until((&gate, None), &evidence, end, at(4));
        assert_eq!(until(Level::None, End::Left), Some(gate.last_write() + LIMIT));
        assert_eq!(until(Level::None, End::Complete), None);
        assert_eq!(until(Level::Upstream, End::Left), None, "tokens are compared");
        let (gate, _, evidence) = ended(b"", Why::Abandoned).await;
        assert_eq!(
            terms(Level::None).until((&gate, None), &evidence, End::Left, at(4)),
            None,
            "nothing was sent"
        );
    }

    /// The connection is back in the pool by then.
    #[tokio::test]
    async fn the_key_rests_when_a_proxy_may_have_made_the_whole_answer() {
        let (gate, _, evidence) = sent(b"x").await;
        gate.disarm();
        let until = |level, end| terms(level).until((&gate, None), &evidence, end, at(4));
        assert_eq!(until(Level::None, End::Unfinished), Some(gate.last_write() + LIMIT));
        assert_eq!(until(Level::None, End::Complete), None);
        for level in [Level::Guard, Level::Upstream, Level::Delay(LIMIT)] {
            assert_eq!(until(level, End::Unfinished), None, "{level:?}: others see to it");
        }
        let in_doubt = |level| terms(level).in_doubt_until((&gate, None), End::Unfinished);
        assert_eq!(in_doubt(Level::Guard), Some(gate.last_write() + LIMIT));
        assert_eq!(in_doubt(Level::Delay(LIMIT * 2)), Some(gate.last_write() + LIMIT * 2));
        assert_eq!(in_doubt(Level::Upstream), None, "tokens are compared under every name");
    }

    #[tokio::test]
    async fn a_doubt_that_a_guard_keeps_by_name_is_kept_from_keys_of_other_names() {
        let (gate, _, _) = ended(b"x", Why::Abandoned).await;
        let until = |level, end| terms(level).in_doubt_until((&gate, None), end);
        for end in [End::Left, End::Broken] {
            assert_eq!(until(Level::Guard, end), Some(gate.last_write() + LIMIT), "{end:?}");
            let delay = Level::Delay(LIMIT * 2);
            assert_eq!(until(delay, end), Some(gate.last_write() + LIMIT * 2), "{end:?}");
            assert_eq!(until(Level::Upstream, end), None, "{end:?}: tokens are compared under every name");
        }
        for end in [End::Complete, End::Undispatched] {
            assert_eq!(until(Level::Guard, end), None, "{end:?}: nobody is at work");
        }
        gate.disarm();
        let told = until(Level::Guard, End::Broken);
        assert_eq!(
            told,
            Some(gate.last_write() + LIMIT),
            "the guard has answered in full that it does not know"
        );
        let (gate, _, _) = ended(b"", Why::Abandoned).await;
        assert_eq!(terms(Level::Guard).in_doubt_until((&gate, None), End::Left), None, "nothing was sent");
    }

    #[tokio::test]
    async fn what_is_refused_when_it_comes_late_may_be_begun_until_then_and_not_later() {
        let (gate, _, evidence) = ended(b"x", Why::Late).await;
        let enforced = |level| Terms { expiry: Expiry::Enforced, ..terms(level) };
        let begun_by = gate.last_write() + LIMIT;
        let until =
            |level, end, begun_by| enforced(level).until((&gate, Some(begun_by)), &evidence, end, at(4));
        let at_none = until(Level::None, End::Left, begun_by);
        assert_eq!(at_none, Some(begun_by + LIMIT), "it has its time from then on");
        let before = gate.last_write() - Duration::from_millis(1);
        assert_eq!(until(Level::None, End::Left, before), Some(gate.last_write() + LIMIT));
        for end in [End::Left, End::Broken] {
            let at_delay = until(Level::Delay(LIMIT), end, begun_by);
            assert_eq!(at_delay, Some(begun_by), "{end:?}: the delay counts from then on");
            assert_eq!(terms(Level::Delay(LIMIT)).until((&gate, None), &evidence, end, at(4)), None);
        }
        for end in [End::Complete, End::Undispatched] {
            assert_eq!(until(Level::Delay(LIMIT), end, begun_by), None, "{end:?}: nothing runs");
        }
        // By another name the resource is as long in doubt, where nothing else waits for it.
        for level in [Level::Delay(LIMIT), Level::Guard] {
            let in_doubt = |begun_by| terms(level).in_doubt_until((&gate, begun_by), End::Left);
            assert_eq!(in_doubt(Some(begun_by)), Some(begun_by + LIMIT), "{level:?}");
            assert_eq!(in_doubt(Some(before)), in_doubt(None), "{level:?}");
        }
    }

    /// A tunnel whose client has closed its side in order, while the upstream has not.
    #[tokio::test]
    async fn what_was_written_counts_after_a_gate_was_opened_for_the_end_of_a_client() {
        for why in [Why::ProofLost, Why::Stopped] {
            let (gate, _, evidence) = sent(b"x").await;
            gate.disarm_if_held();
            gate.shut(why);
            let until = terms(Level::None).until((&gate, None), &evidence, End::Broken, at(4));
            assert_eq!(until, Some(gate.last_write() + LIMIT), "{why:?}");
        }
    }
}
