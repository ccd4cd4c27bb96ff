//! Keeps the log short while there is no session: each reason is logged once, although every session meets it at each
//! attempt. A pause of the process, too, is logged once, although every session sees it.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fencegate_process::clock::BootInstant;

/// The reasons that were logged, each with the time. Several sessions may report different reasons in turns.
#[derive(Debug, Default)]
pub struct LogDedup {
    said: Mutex<BTreeMap<String, Instant>>,
    /// Whether a session audits write access to the nodes, or has done so.
    audited: AtomicBool,
    /// The end of the last reported pause, in nanoseconds since boot.
    last_pause: AtomicU64,
}

/// The right to audit write access to the nodes. If it is dropped before [`AclAuditClaim::complete`], another session
/// may run the audit.
pub(crate) struct AclAuditClaim<'c>(Option<&'c AtomicBool>);

impl AclAuditClaim<'_> {
    pub(crate) fn complete(mut self) {
        self.0 = None;
    }
}

impl Drop for AclAuditClaim<'_> {
    fn drop(&mut self) {
        if let Some(audited) = self.0 {
            audited.store(false, Ordering::Release);
        }
    }
}

/// A lasting reason is logged again after this time, so that people need not look far back in the log.
const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// The most reasons that are remembered: more than a process has at once. Without a bound, texts that differ each
/// time would fill the memory.
const MAX_REASONS: usize = 64;

impl LogDedup {
    /// Whether `reason` has to be logged: it was not logged yet, or long ago. If so, it counts as logged from now on.
    pub fn should_log(&self, reason: &str) -> bool {
        self.should_log_at(reason, Instant::now())
    }

    fn should_log_at(&self, reason: &str, now: Instant) -> bool {
        let mut entries = self.lock_log_times();
        entries.retain(|_, at| now.saturating_duration_since(*at) < REPEAT_AFTER);
        if entries.contains_key(reason) {
            return false;
        }
        if entries.len() >= MAX_REASONS {
            let oldest = entries.iter().min_by_key(|(_, at)| **at).map(|(reason, _)| reason.clone());
            oldest.map(|reason| entries.remove(&reason));
        }
        entries.insert(reason.to_owned(), now);
        true
    }

    /// Gives the claim to audit write access to one caller only.
    pub(crate) fn claim_audit(&self) -> Option<AclAuditClaim<'_>> {
        let mine = self.audited.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        mine.is_ok().then_some(AclAuditClaim(Some(&self.audited)))
    }

    /// True for exactly one of the sessions that saw the process paused from `begin` to `end`.
    pub fn claim_pause_report(&self, begin: BootInstant, end: BootInstant) -> bool {
        let last = self.last_pause.load(Ordering::Acquire);
        let end = end.as_nanos();
        begin.as_nanos() >= last
            && self.last_pause.compare_exchange(last, end, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Clears the reasons when the trouble is over: they are logged again when they recur.
    pub fn clear_logged_reasons(&self) {
        self.lock_log_times().clear();
    }

    fn lock_log_times(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause that several sessions see is claimed once; the next pause can be claimed again.
    #[test]
    fn pause_is_claimed_once() {
        let dedup = LogDedup::default();
        let second = |n: u64| BootInstant::from_nanos(n * 1_000_000_000);
        assert!(dedup.claim_pause_report(second(10), second(40)));
        for begin in [9, 10, 12, 39] {
            assert!(!dedup.claim_pause_report(second(begin), second(41)), "{begin}");
        }
        assert!(dedup.claim_pause_report(second(40), second(50)));
    }

    /// A logged reason is logged again only after it was cleared or after `REPEAT_AFTER`.
    #[test]
    fn reason_repeats_after_clear_or_interval() {
        let dedup = LogDedup::default();
        let now = Instant::now();
        assert!(dedup.should_log_at("away", now));
        assert!(!dedup.should_log_at("away", now + REPEAT_AFTER / 2));
        assert!(dedup.should_log_at("away", now + REPEAT_AFTER));
        dedup.clear_logged_reasons();
        assert!(dedup.should_log_at("away", now + REPEAT_AFTER));
    }

    /// One session audits for the whole process; a claim that is dropped before completion goes to the next session.
    #[test]
    fn one_session_audits_for_all() {
        let dedup = LogDedup::default();
        let claim = dedup.claim_audit().expect("the first one");
        assert!(dedup.claim_audit().is_none());
        drop(claim);
        dedup.claim_audit().expect("again").complete();
        assert!(dedup.claim_audit().is_none());
    }

    /// Two sessions with different reasons in turn do not cause each other's reason to be logged again.
    #[test]
    fn alternating_reasons_are_logged_once() {
        let dedup = LogDedup::default();
        let now = Instant::now();
        let logged = (0..REPEAT_AFTER.as_secs()).map(|second| {
            let now = now + Duration::from_secs(second);
            [dedup.should_log_at("away", now), dedup.should_log_at("refused", now)]
        });
        assert_eq!(logged.flatten().filter(|news| *news).count(), 2);
    }

    /// At most `MAX_REASONS` reasons are remembered, the newest of them, and none past `REPEAT_AFTER`.
    #[test]
    fn remembered_reasons_are_bounded() {
        let dedup = LogDedup::default();
        let now = Instant::now();
        for number in 0..1000 {
            assert!(dedup.should_log_at(&number.to_string(), now + Duration::from_millis(number)));
        }
        assert_eq!(dedup.lock_log_times().len(), MAX_REASONS);
        let now = now + Duration::from_secs(1);
        assert!(!dedup.should_log_at("999", now), "the latest are kept");
        assert!(dedup.should_log_at("after all", now + REPEAT_AFTER));
        assert_eq!(dedup.lock_log_times().len(), 1, "what is long ago is forgotten");
    }
}
