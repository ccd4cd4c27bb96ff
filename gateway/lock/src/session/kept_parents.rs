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
    /// How often each key was left since others were seen there, up to [`OFTEN`].
    visits: RefCell<HashMap<u64, u8>>,
}

struct Kept {
    parent: String,
    /// The number that the next node below it gets, unless others come there.
    next: i64,
    since: Boot,
}

/// So many visits make it likely that the key is ours alone. A parent that others remove costs a shared transaction.
const OFTEN: u8 = 8;

/// How long a parent stays below which nothing is. The server would remove it after one to two minutes.
pub const KEPT_FOR: Duration = Duration::from_secs(10);

/// Most kept parents of a session: some hundred kilobytes here, and in the ensemble.
const MOST: usize = 1024;

/// Most keys whose visits are counted. Beyond that all counts begin anew.
const MOST_COUNTED: usize = 4096;

impl KeptParents {
    /// Nobody but this session was seen at the key, which is being left. Returns whether its parent should stay.
    pub(crate) fn stays(&self, mark: u64) -> bool {
        let mut visits = self.visits.borrow_mut();
        if visits.len() == MOST_COUNTED && !visits.contains_key(&mark) {
            visits.clear();
        }
        let count = visits.entry(mark).or_default();
        *count = (*count + 1).min(OFTEN);
        *count == OFTEN && self.kept.borrow().len() < MOST
    }

    /// Others were seen at the key, or its parent was not there as expected.
    pub(crate) fn is_shared(&self, mark: u64) {
        self.visits.borrow_mut().remove(&mark);
        self.kept.borrow_mut().remove(&mark);
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
        parents.is_shared(KEY);
        assert!(!parents.stays(KEY));
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
        for key in 0..3 * MOST_COUNTED as u64 {
            assert!(!parents.stays(key));
        }
        assert!(parents.visits.borrow().len() <= MOST_COUNTED);
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
