//! Parents of keys that one session leaves in place although no lock node is below them, because their keys come back
//! again and again.
//!
//! A key that is used once is better removed with its parent at once: the parent would only fill the ensemble. A key
//! that this session alone has used [`INITIAL_VISITS`] times keeps its parent until it was not used for [`RETENTION`]. Then a lock
//! is one create and one delete, and not two of each. Whoever else uses the key finds the parent and leaves it, or
//! removes it; whether it is there is only ever expected, and the server decides.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use fencegate_process::clock::BootInstant;

/// The kept parents of one session, by mark of [`super::parent_cache::ParentCache`].
#[derive(Default)]
pub struct RetainedParents {
    kept: RefCell<HashMap<u64, RetainedParent>>,
    known: RefCell<HashMap<u64, ParentUsage>>,
}

struct RetainedParent {
    parent: String,
    /// The number that the next node below it gets, unless others come there.
    next: i64,
    since: BootInstant,
}

/// What is known of a key that was used lately.
struct ParentUsage {
    /// How often it was left since others were seen there, up to `needed`.
    visits: u16,
    /// After so many visits its parent stays.
    needed: u16,
    /// When its parent was not there although we had kept it.
    missed: Option<BootInstant>,
}

/// So many visits make it likely that the key is ours alone. A parent that others remove costs a shared transaction.
const INITIAL_VISITS: u16 = 8;

/// Whoever shares a key with others needs twice as many visits each time, up to this.
const MAX_VISITS: u16 = 1024;

/// How long a parent stays below which nothing is.
pub const RETENTION: Duration = Duration::from_secs(10);

/// Once a minute the server removes each container that is empty at that moment. A parent that is missed twice in less
/// was removed by others.
const CONTAINER_SWEEP_INTERVAL: Duration = Duration::from_secs(55);

/// Most kept parents of a session: some hundred kilobytes here, and in the ensemble.
const MAX_RETAINED: usize = 1024;

/// Most keys of which something is known. Beyond that all counts begin anew.
const MAX_TRACKED: usize = 4096;

impl Default for ParentUsage {
    fn default() -> Self {
        Self { visits: 0, needed: INITIAL_VISITS, missed: None }
    }
}

impl ParentUsage {
    fn mark_shared(&mut self) {
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

    /// Nobody but this session was seen at the key, which is being left. Returns whether its parent should stay.
    pub(crate) fn record_visit(&self, mark: u64) -> bool {
        let often = self.with_usage(mark, |known| {
            known.visits = (known.visits + 1).min(known.needed);
            known.visits == known.needed
        });
        often && self.kept.borrow().len() < MAX_RETAINED
    }

    /// Others were seen at the key, or have left their traces there.
    pub(crate) fn mark_shared(&self, mark: u64) {
        self.with_usage(mark, ParentUsage::mark_shared);
        self.kept.borrow_mut().remove(&mark);
    }

    /// The parent was not there, although we had kept it: others have removed it, or the server.
    pub(crate) fn record_miss(&self, mark: u64, now: BootInstant) {
        self.with_usage(mark, |known| match known.missed.replace(now) {
            Some(before) if now.since(before) < CONTAINER_SWEEP_INTERVAL => known.mark_shared(),
            _ => known.visits = known.visits.min(known.needed.saturating_sub(INITIAL_VISITS)),
        });
    }

    pub(crate) fn insert(&self, mark: u64, parent: &str, next: i64, now: BootInstant) {
        let kept = RetainedParent { parent: parent.to_owned(), next, since: now };
        self.kept.borrow_mut().insert(mark, kept);
    }

    /// The number that the next node at the key should get, if its parent was kept. The parent is then in use.
    pub(crate) fn take(&self, mark: u64) -> Option<i64> {
        self.kept.borrow_mut().remove(&mark).map(|kept| kept.next)
    }

    /// Parents that are kept for too long. They are not kept any more.
    pub(crate) fn take_unused(&self, now: BootInstant) -> Vec<String> {
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

    #[test]
    fn a_key_that_was_used_often_by_us_alone_keeps_its_parent() {
        let parents = RetainedParents::default();
        assert!((1..INITIAL_VISITS).all(|_| !parents.record_visit(KEY)));
        assert!(parents.record_visit(KEY) && parents.record_visit(KEY));
    }

    #[test]
    fn a_key_that_others_use_as_well_has_to_be_used_alone_twice_as_often_each_time() {
        let parents = RetainedParents::default();
        for needed in [INITIAL_VISITS * 2, INITIAL_VISITS * 4] {
            parents.mark_shared(KEY);
            assert!((1..needed).all(|_| !parents.record_visit(KEY)));
            assert!(parents.record_visit(KEY));
        }
        (0..20).for_each(|_| parents.mark_shared(KEY));
        assert!((1..MAX_VISITS).all(|_| !parents.record_visit(KEY)));
        assert!(parents.record_visit(KEY));
    }

    #[test]
    fn a_parent_that_the_server_may_have_removed_is_no_sign_of_others() {
        let parents = RetainedParents::default();
        for minute in 1..4 {
            parents.record_miss(KEY, at(minute * 60));
            assert!((1..INITIAL_VISITS).all(|_| !parents.record_visit(KEY)));
            assert!(parents.record_visit(KEY));
        }
        parents.record_miss(KEY, at(200));
        assert!((1..2 * INITIAL_VISITS).all(|_| !parents.record_visit(KEY)));
        assert!(parents.record_visit(KEY));
    }

    #[test]
    fn a_parent_is_kept_until_it_is_used_or_its_time_is_over() {
        let parents = RetainedParents::default();
        parents.insert(KEY, "/a", 3, at(5));
        assert_eq!(parents.take(KEY), Some(3));
        assert_eq!(parents.take(KEY), None);
        parents.insert(KEY, "/a", 4, at(6));
        assert_eq!(parents.take_unused(at(15)), [""; 0]);
        assert_eq!(parents.take_unused(at(16)), ["/a"]);
        assert_eq!(parents.take(KEY), None);
    }

    #[test]
    fn many_keys_that_are_used_once_do_not_fill_the_memory() {
        let parents = RetainedParents::default();
        for key in 0..3 * MAX_TRACKED as u64 {
            assert!(!parents.record_visit(key));
        }
        assert!(parents.known.borrow().len() <= MAX_TRACKED);
    }

    #[test]
    fn no_more_parents_are_kept_than_a_session_may_have() {
        let parents = RetainedParents::default();
        assert!((1..INITIAL_VISITS).all(|_| !parents.record_visit(KEY)));
        for other in 0..MAX_RETAINED as u64 {
            parents.insert(other, "/a", 0, at(0));
        }
        assert!(!parents.record_visit(KEY));
        parents.take(0);
        assert!(parents.record_visit(KEY));
    }
}
