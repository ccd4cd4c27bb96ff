//! Parents of keys that one session leaves in place although no lock node is below them, because their keys come back
//! again and again.
//!
//! A key that is used once is better removed with its parent at once: the parent would only fill the ensemble. A key
//! that this session alone has used [`OFTEN`] times keeps its parent until it was not used for [`KEPT_FOR`]. Then a lock
//! is one create and one delete, and not two of each. Whoever else uses the key finds the parent and leaves it, or
//! removes it; whether it is there is only ever expected, and the server decides.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use fencegate_process::clock::Boot;

/// The kept parents of one session, by mark of [`super::parents::Parents`].
#[derive(Default)]
pub struct KeptParents {
    kept: RefCell<HashMap<u64, Kept>>,
    known: RefCell<HashMap<u64, Known>>,
}

struct Kept {
    parent: String,
    /// The number that the next node below it gets, unless others come there.
    next: i64,
    since: Boot,
}

/// What is known of a key that was used lately.
struct Known {
    /// How often it was left since others were seen there, up to `needed`.
    visits: u16,
    /// After so many visits its parent stays.
    needed: u16,
    /// When its parent was not there although we had kept it.
    missed: Option<Boot>,
}

/// So many visits make it likely that the key is ours alone. A parent that others remove costs a shared transaction.
const OFTEN: u16 = 8;

/// Whoever shares a key with others needs twice as many visits each time, up to this.
const MOST_NEEDED: u16 = 1024;

/// How long a parent stays below which nothing is.
pub const KEPT_FOR: Duration = Duration::from_secs(10);

/// Once a minute the server removes each container that is empty at that moment. A parent that is missed twice in less
/// was removed by others.
const SERVER_TIDIES: Duration = Duration::from_secs(55);

/// Most kept parents of a session: some hundred kilobytes here, and in the ensemble.
const MOST: usize = 1024;

/// Most keys of which something is known. Beyond that all counts begin anew.
const MOST_KNOWN: usize = 4096;

impl Default for Known {
    fn default() -> Self {
        Self { visits: 0, needed: OFTEN, missed: None }
    }
}

impl Known {
    fn is_shared(&mut self) {
        self.visits = 0;
        self.needed = (self.needed * 2).min(MOST_NEEDED);
    }
}

impl KeptParents {
    fn knows<T>(&self, mark: u64, then: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.borrow_mut();
        if known.len() == MOST_KNOWN && !known.contains_key(&mark) {
            known.clear();
        }
        then(known.entry(mark).or_default())
    }

    /// Nobody but this session was seen at the key, which is being left. Returns whether its parent should stay.
    pub(crate) fn stays(&self, mark: u64) -> bool {
        let often = self.knows(mark, |known| {
            known.visits = (known.visits + 1).min(known.needed);
            known.visits == known.needed
        });
        often && self.kept.borrow().len() < MOST
    }

    /// Others were seen at the key, or have left their traces there.
    pub(crate) fn is_shared(&self, mark: u64) {
        self.knows(mark, Known::is_shared);
        self.kept.borrow_mut().remove(&mark);
    }

    /// The parent was not there, although we had kept it: others have removed it, or the server.
    pub(crate) fn is_missed(&self, mark: u64, now: Boot) {
        self.knows(mark, |known| match known.missed.replace(now) {
            Some(before) if now.since(before) < SERVER_TIDIES => known.is_shared(),
            _ => known.visits = known.visits.min(known.needed.saturating_sub(OFTEN)),
        });
    }

    pub(crate) fn keep(&self, mark: u64, parent: &str, next: i64, now: Boot) {
        let kept = Kept { parent: parent.to_owned(), next, since: now };
        self.kept.borrow_mut().insert(mark, kept);
    }

    /// The number that the next node at the key should get, if its parent was kept. The parent is then in use.
    pub(crate) fn takes(&self, mark: u64) -> Option<i64> {
        self.kept.borrow_mut().remove(&mark).map(|kept| kept.next)
    }

    /// Parents that are kept for too long. They are not kept any more.
    pub(crate) fn unused(&self, now: Boot) -> Vec<String> {
        let mut kept = self.kept.borrow_mut();
        let unused = kept.extract_if(|_, kept| now.since(kept.since) >= KEPT_FOR);
        unused.map(|(_, kept)| kept.parent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = u64::MAX;

    fn at(seconds: u64) -> Boot {
        Boot::from_nanos(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_that_was_used_often_by_us_alone_keeps_its_parent() {
        let parents = KeptParents::default();
        assert!((1..OFTEN).all(|_| !parents.stays(KEY)));
        assert!(parents.stays(KEY) && parents.stays(KEY));
    }

    #[test]
    fn a_key_that_others_use_as_well_has_to_be_used_alone_twice_as_often_each_time() {
        let parents = KeptParents::default();
        for needed in [OFTEN * 2, OFTEN * 4] {
            parents.is_shared(KEY);
            assert!((1..needed).all(|_| !parents.stays(KEY)));
            assert!(parents.stays(KEY));
        }
        (0..20).for_each(|_| parents.is_shared(KEY));
        assert!((1..MOST_NEEDED).all(|_| !parents.stays(KEY)));
        assert!(parents.stays(KEY));
    }

    #[test]
    fn a_parent_that_the_server_may_have_removed_is_no_sign_of_others() {
        let parents = KeptParents::default();
        for minute in 1..4 {
            parents.is_missed(KEY, at(minute * 60));
            assert!((1..OFTEN).all(|_| !parents.stays(KEY)));
            assert!(parents.stays(KEY));
        }
        parents.is_missed(KEY, at(200));
        assert!((1..2 * OFTEN).all(|_| !parents.stays(KEY)));
        assert!(parents.stays(KEY));
    }

    #[test]
    fn a_parent_is_kept_until_it_is_used_or_its_time_is_over() {
        let parents = KeptParents::default();
        parents.keep(KEY, "/a", 3, at(5));
        assert_eq!(parents.takes(KEY), Some(3));
        assert_eq!(parents.takes(KEY), None);
        parents.keep(KEY, "/a", 4, at(6));
        assert_eq!(parents.unused(at(15)), [""; 0]);
        assert_eq!(parents.unused(at(16)), ["/a"]);
        assert_eq!(parents.takes(KEY), None);
    }

    #[test]
    fn many_keys_that_are_used_once_do_not_fill_the_memory() {
        let parents = KeptParents::default();
        for key in 0..3 * MOST_KNOWN as u64 {
            assert!(!parents.stays(key));
        }
        assert!(parents.known.borrow().len() <= MOST_KNOWN);
    }

    #[test]
    fn no_more_parents_are_kept_than_a_session_may_have() {
        let parents = KeptParents::default();
        assert!((1..OFTEN).all(|_| !parents.stays(KEY)));
        for other in 0..MOST as u64 {
            parents.keep(other, "/a", 0, at(0));
        }
        assert!(!parents.stays(KEY));
        parents.takes(0);
        assert!(parents.stays(KEY));
    }
}
