//! Keeps the log short while there is no session: each reason is logged once, although every session finds it out at
//! each try.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The reasons that were logged, and when. Several sessions may find different reasons in turns.
#[derive(Debug, Default)]
pub struct LogDedup {
    said: Mutex<BTreeMap<String, Instant>>,
    /// A session checks who may write the nodes, or has done so.
    audited: AtomicBool,
}

/// The right to do that check. If it is dropped before [`AuditClaim::complete`], another session may do the check.
pub struct AuditClaim<'c>(Option<&'c AtomicBool>);

impl AuditClaim<'_> {
    pub fn complete(mut self) {
        self.0 = None;
    }
}

impl Drop for AuditClaim<'_> {
    fn drop(&mut self) {
        if let Some(audited) = self.0 {
            audited.store(false, Ordering::Release);
        }
    }
}

/// A lasting reason is logged again after this time, so that people need not look far back in the log.
const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// More reasons than a process has at once. Without a bound, texts that differ each time would fill the memory.
const MAX_REASONS: usize = 64;

impl LogDedup {
    /// Whether `why` has to be logged: it was not yet, or long ago. If so, it counts as logged from now on.
    pub fn insert(&self, why: &str) -> bool {
        self.insert_at(why, Instant::now())
    }

    fn insert_at(&self, why: &str, now: Instant) -> bool {
        let mut said = self.entries();
        said.retain(|_, at| now.saturating_duration_since(*at) < REPEAT_AFTER);
        if said.contains_key(why) {
            return false;
        }
        if said.len() >= MAX_REASONS {
            let oldest = said.iter().min_by_key(|(_, at)| **at).map(|(why, _)| why.clone());
            oldest.map(|why| said.remove(&why));
        }
        said.insert(why.to_owned(), now);
        true
    }

    /// Gives the claim to one caller only.
    pub fn claim_audit(&self) -> Option<AuditClaim<'_>> {
        let mine = self.audited.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        mine.is_ok().then_some(AuditClaim(Some(&self.audited)))
    }

    /// The trouble is over: the same reasons are news when they come again.
    pub fn clear(&self) {
        self.entries().clear();
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_not_said_again_until_it_ends_or_was_long_ago() {
        let (complaints, now) = (LogDedup::default(), Instant::now());
        assert!(complaints.insert_at("away", now));
        assert!(!complaints.insert_at("away", now + REPEAT_AFTER / 2));
        assert!(complaints.insert_at("away", now + REPEAT_AFTER));
        complaints.clear();
        assert!(complaints.insert_at("away", now + REPEAT_AFTER));
    }

    #[test]
    fn one_session_looks_for_all_and_another_one_where_it_could_not() {
        let complaints = LogDedup::default();
        let claim = complaints.claim_audit().expect("the first one");
        assert!(complaints.claim_audit().is_none());
        drop(claim);
        complaints.claim_audit().expect("again").complete();
        assert!(complaints.claim_audit().is_none());
    }

    #[test]
    fn sessions_with_different_reasons_do_not_make_each_other_news() {
        let (complaints, now) = (LogDedup::default(), Instant::now());
        let said = (0..REPEAT_AFTER.as_secs()).map(|second| {
            let now = now + Duration::from_secs(second);
            [complaints.insert_at("away", now), complaints.insert_at("refused", now)]
        });
        assert_eq!(said.flatten().filter(|news| *news).count(), 2);
    }

    #[test]
    fn no_more_is_remembered_than_a_process_finds_out_at_once() {
        let (complaints, now) = (LogDedup::default(), Instant::now());
        for number in 0..1000 {
            assert!(complaints.insert_at(&number.to_string(), now + Duration::from_millis(number)));
        }
        assert_eq!(complaints.entries().len(), MAX_REASONS);
        let now = now + Duration::from_secs(1);
        assert!(!complaints.insert_at("999", now), "the latest are kept");
        assert!(complaints.insert_at("after all", now + REPEAT_AFTER));
        assert_eq!(complaints.entries().len(), 1, "what is long ago is forgotten");
    }
}
