//! Keeps the key of an exchange that was abandoned until the upstream has had its time, for upstreams that compare no
//! tokens.
//!
//! The lock validity ends before the session, and the session may survive, for example after a short pause or a short
//! loss of ZooKeeper. Then the lock node still exists. To remove it would let the next holder begin while the upstream
//! is at work. The upstream may answer until `response_timeout` after the last byte that it was sent. So the key is not
//! released before then, to requests here or elsewhere. If the session does end, the server removes the node.
//!
//! The key is also kept after `response_timeout` has ended the exchange. That timeout counts from the first byte, but
//! the last byte may leave much later: an upstream reads a body slowly, or a worker stops just before a write.
//!
//! The key is also kept whenever the upstream has not ended the exchange itself: the client broke off its body, a body
//! or tunnel passed its time limit, the answer could not be passed on, or the process stops. A panic of the task that
//! worked for the request leaves the end of the exchange unknown as well.
//!
//! An answer that a proxy in front of the upstream may have made, such as its 504, does not end the execution either:
//! the upstream may be at work behind that proxy, as if no answer had come.
//!
//! A guard itself closes a key that is in doubt, under the name of the key. So the lock is released at once. But a
//! reload may give the same resource another key, which the guard does not have. So the request counts as running until
//! the upstream has had its time: requests under other keys wait for that.

use std::{rc::Rc, time::Duration};

use fencegate_http_client::upstream::gate::WriteGate;
use fencegate_policies::plan::{FencingLevel, NotAfterEnforcement};
use fencegate_process::{clock::BootInstant, display::FormattedDuration};
use fencegate_zookeeper::session::lock_validity::LockValidity;
use tokio::{
    task::spawn_local,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::{
    request_context::{UpstreamAttempt, UpstreamExchange},
    steps::fence::held_lock::HeldLock,
};

/// The settings of an upstream that decide how long the key of an abandoned exchange is kept.
#[derive(Clone)]
pub(in crate::steps::fence) struct AbandonedHoldPolicy {
    pub(in crate::steps::fence) level: FencingLevel,
    /// The longest time that the upstream may take.
    pub(in crate::steps::fence) response_timeout: Duration,
    /// Tells whether the upstream refuses a request that comes after its deadline.
    pub(in crate::steps::fence) expiry: NotAfterEnforcement,
    /// Tracks the tasks that keep keys: a stopping process waits for them.
    pub(in crate::steps::fence) running: TaskTracker,
}

/// The end of an exchange, as far as it was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeEnd {
    /// No end was reported, or the gateway ended the exchange itself.
    Abandoned,
    /// The exchange ended without a complete answer. The write gate shows whether the gateway has ended it.
    Broken,
    /// The exchange ended as in `Broken`, but it was reported that no service executes the request.
    Undispatched,
    /// An answer came in full, but a proxy in front of the upstream may have made it: its status is one that such
    /// proxies give.
    Unfinished,
    /// The upstream has answered in full.
    Complete,
}

impl AbandonedHoldPolicy {
    /// Ends the exchange after its lock validity has ended: the rest of the answer is not waited for.
    pub(super) fn shut_gate_after_lock_loss(hold: &HeldLock, exchange: &UpstreamExchange) {
        if let Some(sent) = &*exchange.attempt() {
            sent.gate.shut_if_armed_with(hold.tenure.validity());
        }
    }

    /// Keeps the hold of an exchange that ended at `now`, where the upstream has to have its time first.
    pub(super) fn keep_until_safe(
        &self,
        hold: &Rc<HeldLock>,
        exchange: &UpstreamExchange,
        end: ExchangeEnd,
        now: BootInstant,
    ) {
        let sent = exchange.attempt();
        let Some(UpstreamAttempt { gate, not_after, .. }) = sent.as_ref() else { return };
        // A guard always refuses a late request.
        let refuses = self.expiry == NotAfterEnforcement::Enforced || self.level == FencingLevel::Guard;
        let not_after = not_after.filter(|_| refuses);
        let begun_by = not_after.map(|not_after| Instant::now() + not_after.since(now));
        if let Some(until) = self.in_doubt_until(gate, begun_by, end) {
            let running = hold.running.clone();
            // A stopping process does not wait for this task: `running` is a count in this process, and the next
            // process has no record of it anyway.
            spawn_local(async move {
                sleep_until(until).await;
                drop(running);
            });
        }
        let Some(until) = self.hold_release_time(gate, begun_by, hold.tenure.validity(), end, now) else {
            return;
        };
        let hold = hold.clone();
        let rest = until.saturating_duration_since(Instant::now());
        info!(rest = %FormattedDuration(rest), "the key of an exchange that was given up is kept until its upstream has had its time");
        self.running.spawn_local(async move {
            sleep_until(until).await;
            drop(hold);
        });
    }

    /// The moment until which the lock is kept. `None` if nothing was sent, or if the upstream ended the exchange under
    /// a lock validity that held throughout.
    ///
    /// The reason for which the gate was shut does not decide alone: after a pause a time limit may have passed as well
    /// as the lock validity, and only the first one that is noticed is recorded. The lock validity does not decide
    /// alone either: a later heartbeat may have extended it again.
    ///
    /// After `begun_by` the upstream starts nothing. A relay may still have the request and start it until then, so the
    /// time of the upstream counts from that moment. With the level `delay` the next holder waits for the execution
    /// itself, so after any end that is not known the lock is kept only until `begun_by`.
    fn hold_release_time(
        &self,
        gate: &WriteGate,
        begun_by: Option<Instant>,
        validity: &LockValidity,
        end: ExchangeEnd,
        now: BootInstant,
    ) -> Option<Instant> {
        let sent = gate.written_bytes() > 0;
        let may_go_on = match end {
            ExchangeEnd::Complete => false,
            // The gate counts no bytes any more once the exchange is complete, so the count cannot be asked.
            ExchangeEnd::Unfinished => true,
            ExchangeEnd::Abandoned => sent,
            ExchangeEnd::Broken | ExchangeEnd::Undispatched => {
                sent && (gate.is_locally_aborted() || !validity.is_valid_at(now))
            }
        };
        let last = gate.last_write();
        match self.level {
            FencingLevel::None if may_go_on => {
                Some(begun_by.map_or(last, |begun_by| last.max(begun_by)) + self.response_timeout)
            }
            FencingLevel::Delay(_) if matches!(end, ExchangeEnd::Unfinished) => begun_by,
            FencingLevel::Delay(_) if sent && matches!(end, ExchangeEnd::Abandoned | ExchangeEnd::Broken) => {
                begun_by
            }
            FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Guard | FencingLevel::Upstream => {
                None
            }
        }
    }

    /// The moment until which the upstream may be at work under a key that is closed by its name only, by a guard or a
    /// delay. `response_timeout` is longer than a guard may take to settle and execute: a gateway sends nothing to a
    /// guard of which that is not true.
    ///
    /// A relay may still have the request and deliver it until `begun_by`: see [`Self::hold_release_time`]. A relay
    /// behind a guard may start it even later, by the guard's `send_within`, which a gateway does not know.
    fn in_doubt_until(
        &self,
        gate: &WriteGate,
        begun_by: Option<Instant>,
        end: ExchangeEnd,
    ) -> Option<Instant> {
        let longest = match self.level {
            FencingLevel::Guard => self.response_timeout,
            FencingLevel::Delay(delay) => delay.max(self.response_timeout),
            // Without a guard or a delay the lock itself is kept, by [`Self::hold_release_time`].
            FencingLevel::None => return None,
            // The upstream compares tokens, whatever the name of the key is.
            FencingLevel::Upstream => return None,
        };
        let in_doubt = match end {
            ExchangeEnd::Abandoned => gate.written_bytes() > 0,
            // The guard may have reported its doubt in a complete answer. After that the gate counts no bytes, so they
            // decide nothing.
            ExchangeEnd::Broken | ExchangeEnd::Unfinished => true,
            ExchangeEnd::Undispatched | ExchangeEnd::Complete => false,
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
    use fencegate_http_client::upstream::gate::{GateShutReason, GatedIo};
    use fencegate_process::clock::ManualClock;
    use fencegate_zookeeper::session::session_deadline::SessionDeadline;

    const LIMIT: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_secs(seconds)
    }

    fn abandon_policy(level: FencingLevel) -> AbandonedHoldPolicy {
        AbandonedHoldPolicy {
            level,
            response_timeout: LIMIT,
            expiry: NotAfterEnforcement::Ignored,
            running: TaskTracker::new(),
        }
    }

    /// Returns the gate of an exchange that has sent `bytes` under a lock validity of five seconds.
    async fn sent_gate(bytes: &[u8]) -> (Rc<WriteGate>, Arc<SessionDeadline>, Arc<LockValidity>) {
        let session_deadline = Arc::new(SessionDeadline::new(1, at(5)));
        let validity = Arc::new(LockValidity::new(session_deadline.clone()));
        let gate = Rc::new(WriteGate::new(Arc::<ManualClock>::default()));
        let (near, _far) = duplex(64);
        gate.arm(Some(validity.clone()));
        GatedIo::new(near, gate.clone()).write_all(bytes).await.expect("within the session deadline");
        (gate, session_deadline, validity)
    }

    /// Returns a gate as [`sent_gate`] does, shut for this reason.
    async fn shut_gate(
        bytes: &[u8],
        reason: GateShutReason,
    ) -> (Rc<WriteGate>, Arc<SessionDeadline>, Arc<LockValidity>) {
        let (gate, session_deadline, validity) = sent_gate(bytes).await;
        gate.shut(reason);
        (gate, session_deadline, validity)
    }

    /// If the upstream compares no tokens, the key is kept once the lock validity has ended, whichever limit ended the
    /// exchange.
    #[tokio::test]
    async fn key_is_kept_after_validity_ended() {
        for reason in [GateShutReason::Abandoned, GateShutReason::Late, GateShutReason::ProofLost] {
            let (gate, _, validity) = shut_gate(b"x", reason).await;
            let until = Some(gate.last_write() + LIMIT);
            assert_eq!(
                abandon_policy(FencingLevel::None).hold_release_time(
                    &gate,
                    None,
                    &validity,
                    ExchangeEnd::Broken,
                    at(5)
                ),
                until,
                "{reason:?}"
            );
            for level in [FencingLevel::Guard, FencingLevel::Upstream] {
                assert_eq!(
                    abandon_policy(level).hold_release_time(
                        &gate,
                        None,
                        &validity,
                        ExchangeEnd::Broken,
                        at(5)
                    ),
                    None,
                    "{reason:?}: tokens are compared"
                );
            }
            let (gate, _, validity) = shut_gate(b"", reason).await;
            assert_eq!(
                abandon_policy(FencingLevel::None).hold_release_time(
                    &gate,
                    None,
                    &validity,
                    ExchangeEnd::Broken,
                    at(5)
                ),
                None,
                "{reason:?}: nothing was sent"
            );
        }
    }

    /// If the lock validity is extended after the gateway has ended an exchange, the key is still kept; if the upstream
    /// has ended the exchange, no key is kept.
    #[tokio::test]
    async fn extended_validity_undoes_no_end() {
        let terms = abandon_policy(FencingLevel::None);
        for reason in
            [GateShutReason::Late, GateShutReason::ProofLost, GateShutReason::Stopped, GateShutReason::Cut]
        {
            let (gate, session_deadline, validity) = shut_gate(b"x", reason).await;
            session_deadline.extend(at(50));
            assert_eq!(
                terms.hold_release_time(&gate, None, &validity, ExchangeEnd::Broken, at(6)),
                Some(gate.last_write() + LIMIT),
                "{reason:?}"
            );
        }
        let (gate, _, validity) = shut_gate(b"x", GateShutReason::Abandoned).await;
        assert_eq!(terms.hold_release_time(&gate, None, &validity, ExchangeEnd::Broken, at(4)), None);
    }

    /// If no side has reported the end of the exchange, the key is kept, unless the upstream compares tokens.
    #[tokio::test]
    async fn key_is_kept_without_reported_end() {
        let (gate, _, validity) = shut_gate(b"x", GateShutReason::Abandoned).await;
        let until = |level, end| abandon_policy(level).hold_release_time(&gate, None, &validity, end, at(4));
        assert_eq!(until(FencingLevel::None, ExchangeEnd::Abandoned), Some(gate.last_write() + LIMIT));
        assert_eq!(until(FencingLevel::None, ExchangeEnd::Complete), None);
        assert_eq!(until(FencingLevel::Upstream, ExchangeEnd::Abandoned), None, "tokens are compared");
        let (gate, _, validity) = shut_gate(b"", GateShutReason::Abandoned).await;
        assert_eq!(
            abandon_policy(FencingLevel::None).hold_release_time(
                &gate,
                None,
                &validity,
                ExchangeEnd::Abandoned,
                at(4)
            ),
            None,
            "nothing was sent"
        );
    }

    /// A status that a proxy may have made does not end the execution, although the connection is back in the pool by
    /// then.
    #[tokio::test]
    async fn key_is_kept_after_unfinished_answer() {
        let (gate, _, validity) = sent_gate(b"x").await;
        gate.disarm();
        let until = |level, end| abandon_policy(level).hold_release_time(&gate, None, &validity, end, at(4));
        assert_eq!(until(FencingLevel::None, ExchangeEnd::Unfinished), Some(gate.last_write() + LIMIT));
        assert_eq!(until(FencingLevel::None, ExchangeEnd::Complete), None);
        for level in [FencingLevel::Guard, FencingLevel::Upstream, FencingLevel::Delay(LIMIT)] {
            assert_eq!(until(level, ExchangeEnd::Unfinished), None, "{level:?}: others see to it");
        }
        let in_doubt = |level| abandon_policy(level).in_doubt_until(&gate, None, ExchangeEnd::Unfinished);
        assert_eq!(in_doubt(FencingLevel::Guard), Some(gate.last_write() + LIMIT));
        assert_eq!(in_doubt(FencingLevel::Delay(LIMIT * 2)), Some(gate.last_write() + LIMIT * 2));
        assert_eq!(in_doubt(FencingLevel::Upstream), None, "tokens are compared under every name");
    }

    /// A resource that a guard holds in doubt under one key name is closed to requests under other key names as well.
    #[tokio::test]
    async fn in_doubt_blocks_keys_of_other_names() {
        let (gate, _, _) = shut_gate(b"x", GateShutReason::Abandoned).await;
        let until = |level, end| abandon_policy(level).in_doubt_until(&gate, None, end);
        for end in [ExchangeEnd::Abandoned, ExchangeEnd::Broken] {
            assert_eq!(until(FencingLevel::Guard, end), Some(gate.last_write() + LIMIT), "{end:?}");
            let delay = FencingLevel::Delay(LIMIT * 2);
            assert_eq!(until(delay, end), Some(gate.last_write() + LIMIT * 2), "{end:?}");
            assert_eq!(
                until(FencingLevel::Upstream, end),
                None,
                "{end:?}: tokens are compared under every name"
            );
        }
        for end in [ExchangeEnd::Complete, ExchangeEnd::Undispatched] {
            assert_eq!(until(FencingLevel::Guard, end), None, "{end:?}: nobody is at work");
        }
        gate.disarm();
        let told = until(FencingLevel::Guard, ExchangeEnd::Broken);
        assert_eq!(
            told,
            Some(gate.last_write() + LIMIT),
            "the guard has answered in full that it does not know"
        );
        let (gate, _, _) = shut_gate(b"", GateShutReason::Abandoned).await;
        assert_eq!(
            abandon_policy(FencingLevel::Guard).in_doubt_until(&gate, None, ExchangeEnd::Abandoned),
            None,
            "nothing was sent"
        );
    }

    /// If the upstream refuses late requests, a request may start until its deadline and not later, so the time of the
    /// upstream counts from the deadline.
    #[tokio::test]
    async fn abandoned_time_counts_from_enforced_deadline() {
        let (gate, _, validity) = shut_gate(b"x", GateShutReason::Late).await;
        let enforced =
            |level| AbandonedHoldPolicy { expiry: NotAfterEnforcement::Enforced, ..abandon_policy(level) };
        let begun_by = gate.last_write() + LIMIT;
        let until = |level, end, begun_by| {
            enforced(level).hold_release_time(&gate, Some(begun_by), &validity, end, at(4))
        };
        let at_none = until(FencingLevel::None, ExchangeEnd::Abandoned, begun_by);
        assert_eq!(at_none, Some(begun_by + LIMIT), "it has its time from then on");
        let before = gate.last_write() - Duration::from_millis(1);
        assert_eq!(
            until(FencingLevel::None, ExchangeEnd::Abandoned, before),
            Some(gate.last_write() + LIMIT)
        );
        for end in [ExchangeEnd::Abandoned, ExchangeEnd::Broken] {
            let at_delay = until(FencingLevel::Delay(LIMIT), end, begun_by);
            assert_eq!(at_delay, Some(begun_by), "{end:?}: the delay counts from then on");
            assert_eq!(
                abandon_policy(FencingLevel::Delay(LIMIT)).hold_release_time(
                    &gate,
                    None,
                    &validity,
                    end,
                    at(4)
                ),
                None
            );
        }
        for end in [ExchangeEnd::Complete, ExchangeEnd::Undispatched] {
            assert_eq!(until(FencingLevel::Delay(LIMIT), end, begun_by), None, "{end:?}: nothing runs");
        }
        // With `delay` and `guard` the resource is in doubt under other key names for the same time, because nothing
        // else makes requests under those names wait.
        for level in [FencingLevel::Delay(LIMIT), FencingLevel::Guard] {
            let in_doubt =
                |begun_by| abandon_policy(level).in_doubt_until(&gate, begun_by, ExchangeEnd::Abandoned);
            assert_eq!(in_doubt(Some(begun_by)), Some(begun_by + LIMIT), "{level:?}");
            assert_eq!(in_doubt(Some(before)), in_doubt(None), "{level:?}");
        }
    }

    /// Bytes that were written count, also in a tunnel whose client has closed its side in order, while the upstream
    /// has not.
    #[tokio::test]
    async fn writes_count_after_disarmed_gate() {
        for reason in [GateShutReason::ProofLost, GateShutReason::Stopped] {
            let (gate, _, validity) = sent_gate(b"x").await;
            gate.begin_close_if_permitted();
            gate.shut(reason);
            let until = abandon_policy(FencingLevel::None).hold_release_time(
                &gate,
                None,
                &validity,
                ExchangeEnd::Broken,
                at(4),
            );
            assert_eq!(until, Some(gate.last_write() + LIMIT), "{reason:?}");
        }
    }
}
