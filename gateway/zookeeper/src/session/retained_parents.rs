//! Parents of keys that one session leaves in place although no lock node is below them, because their keys come back
//! again and again.
//!
//! A key that is used once is better removed with its parent at once: the parent would only fill the ensemble. A key
//! that this session alone has used [`INITIAL_VISITS`] times keeps its parent until it was not used for [`RETENTION`].
//! Then a lock is one create and one delete, and not two of each. Another user of the key finds the parent and leaves
//! it, or removes it. So a retained parent is only expected to exist, and the server decides.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use fencegate_process::clock::BootInstant;

/// The retained parents of one session, by the hash of [`super::parent_cache::ParentNodeCache`].
#[derive(Default)]
pub struct RetainedParents {
    kept: RefCell<HashMap<u64, RetainedParent>>,
    known: RefCell<HashMap<u64, ParentUsage>>,
}

struct RetainedParent {
    parent: String,
    /// The sequence number that the next node below it gets, unless other sessions create nodes there.
    next: i64,
    since: BootInstant,
}

/// The statistics of a key that was used lately.
struct ParentUsage {
    /// The number of visits to the key after which its parent was left, counted since other contenders were last seen
    /// there, up to `needed`.
    visits: u16,
    /// The number of visits after which the parent of the key is retained.
    needed: u16,
    /// The time at which the parent was last found missing although it was retained.
    missed: Option<BootInstant>,
}

/// The number of visits that makes it likely that no other session uses the key. A retained parent that another session
/// removes costs the shared transaction that expected it.
const INITIAL_VISITS: u16 = 8;

/// The most visits that a key needs. Each sign of other users doubles the number that the key needs, up to this.
const MAX_VISITS: u16 = 1024;

/// The time for which an empty parent is retained.
pub const RETENTION: Duration = Duration::from_secs(10);

/// Once a minute the server removes each container that is empty at that moment. If a parent is missing twice within
/// less than that, another session has removed it.
const CONTAINER_SWEEP_INTERVAL: Duration = Duration::from_secs(55);

/// The most retained parents of a session: they take some hundred kilobytes here, and in the ensemble.
const MAX_RETAINED: usize = 1024;

/// The most keys with statistics. When there are more, all counts begin anew.
const MAX_TRACKED: usize = 4096;

impl Default for ParentUsage {
    fn default() -> Self {
        Self { visits: 0, needed: INITIAL_VISITS, missed: None }
    }
}

impl ParentUsage {
    fn raise_needed_visits(&mut self) {
        self.visits = 0;
        self.needed = (self.needed * 2).min(MAX_VISITS);
    }
}

impl RetainedParents {
    fn with_usage<T>(&self, mark: u64, then: impl FnOnce(&mut ParentUsage) -> T) -> T {
        let mut known = self.known.borrow_mut();
        if known.len() == MAX_TRACKED && !known.contains_key(&mark) {
            known.clear();
        }
        then(known.entry(mark).or_default())
    }

    /// Counts a visit of a key that is being left, at which no other session was seen. Returns whether its parent
    /// should stay.
    pub fn record_uncontended_visit(&self, mark: u64) -> bool {
        let often = self.with_usage(mark, |known| {
            known.visits = (known.visits + 1).min(known.needed);
            known.visits == known.needed
        });
        often && self.kept.borrow().len() < MAX_RETAINED
    }

    /// Records that other sessions, or traces of them, were seen at the key.
    pub fn mark_used_by_others(&self, mark: u64) {
        self.with_usage(mark, ParentUsage::raise_needed_visits);
        self.kept.borrow_mut().remove(&mark);
    }

    /// Records that a retained parent is missing: another session has removed it, or the server.
    pub fn record_missing_parent(&self, mark: u64, now: BootInstant) {
        self.with_usage(mark, |known| match known.missed.replace(now) {
            Some(before) if now.since(before) < CONTAINER_SWEEP_INTERVAL => known.raise_needed_visits(),
            _ => known.visits = known.visits.min(known.needed.saturating_sub(INITIAL_VISITS)),
        });
    }

    pub fn insert(&self, mark: u64, parent: &str, next: i64, now: BootInstant) {
        let kept = RetainedParent { parent: parent.to_owned(), next, since: now };
        self.kept.borrow_mut().insert(mark, kept);
    }

    /// The expected sequence number of the next node at the key, if its parent was retained. The parent is then no
    /// longer in this list, because a node is about to be below it.
    pub fn take_expected_sequence(&self, mark: u64) -> Option<i64> {
        self.kept.borrow_mut().remove(&mark).map(|kept| kept.next)
    }

    /// Takes the parents that were retained for too long.
    pub fn take_expired_parents(&self, now: BootInstant) -> Vec<String> {
        let mut kept = self.kept.borrow_mut();
        let unused = kept.extract_if(|_, kept| now.since(kept.since) >= RETENTION);
        unused.map(|(_, kept)| kept.parent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = u64::MAX;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_secs(seconds)
    }

    /// A key that a session has used `INITIAL_VISITS` times without other users retains its parent.
    #[test]
    fn frequent_unshared_key_retains_parent() {
        let parents = RetainedParents::default();
        assert!((1..INITIAL_VISITS).all(|_| !parents.record_uncontended_visit(KEY)));
        assert!(parents.record_uncontended_visit(KEY) && parents.record_uncontended_visit(KEY));
    }

    /// Each sign of other users of a key doubles the visits required to retain its parent, up to `MAX_VISITS`.
    #[test]
    fn shared_key_doubles_required_visits() {
        let parents = RetainedParents::default();
        for needed in [INITIAL_VISITS * 2, INITIAL_VISITS * 4] {
            parents.mark_used_by_others(KEY);
            assert!((1..needed).all(|_| !parents.record_uncontended_visit(KEY)));
            assert!(parents.record_uncontended_visit(KEY));
        }
        (0..20).for_each(|_| parents.mark_used_by_others(KEY));
        assert!((1..MAX_VISITS).all(|_| !parents.record_uncontended_visit(KEY)));
        assert!(parents.record_uncontended_visit(KEY));
    }

    /// A missing parent that the server may have removed itself does not count as use by others; a second miss within
    /// a minute does.
    #[test]
    fn server_removal_does_not_mark_shared() {
        let parents = RetainedParents::default();
        for minute in 1..4 {
            parents.record_missing_parent(KEY, at(minute * 60));
            assert!((1..INITIAL_VISITS).all(|_| !parents.record_uncontended_visit(KEY)));
            assert!(parents.record_uncontended_visit(KEY));
        }
        parents.record_missing_parent(KEY, at(200));
        assert!((1..2 * INITIAL_VISITS).all(|_| !parents.record_uncontended_visit(KEY)));
        assert!(parents.record_uncontended_visit(KEY));
    }

    /// A retained parent is kept until it is used again or its retention is over.
    #[test]
    fn parent_retained_until_used_or_expired() {
        let parents = RetainedParents::default();
        parents.insert(KEY, "/a", 3, at(5));
        assert_eq!(parents.take_expected_sequence(KEY), Some(3));
        assert_eq!(parents.take_expected_sequence(KEY), None);
        parents.insert(KEY, "/a", 4, at(6));
        assert_eq!(parents.take_expired_parents(at(15)), [""; 0]);
        assert_eq!(parents.take_expired_parents(at(16)), ["/a"]);
        assert_eq!(parents.take_expected_sequence(KEY), None);
    }

    /// Many keys that are used once keep the number of tracked keys at or below `MAX_TRACKED`.
    #[test]
    fn tracked_keys_are_bounded() {
        let parents = RetainedParents::default();
        for key in 0..3 * MAX_TRACKED as u64 {
            assert!(!parents.record_uncontended_visit(key));
        }
        assert!(parents.known.borrow().len() <= MAX_TRACKED);
    }

    /// At most `MAX_RETAINED` parents are retained; a taken one frees its capacity.
    #[test]
    fn retained_parents_are_bounded() {
        let parents = RetainedParents::default();
        assert!((1..INITIAL_VISITS).all(|_| !parents.record_uncontended_visit(KEY)));
        for other in 0..MAX_RETAINED as u64 {
            parents.insert(other, "/a", 0, at(0));
        }
        assert!(!parents.record_uncontended_visit(KEY));
        parents.take_expected_sequence(0);
        assert!(parents.record_uncontended_visit(KEY));
    }
}
