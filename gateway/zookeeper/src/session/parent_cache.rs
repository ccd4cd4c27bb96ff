//! The session's cache about the parents of keys: which of them exist in ZooKeeper, and at which of them this session
//! has attempts. A wrong entry costs one round trip.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use super::retained_parents::RetainedParents;

#[derive(Default)]
pub struct ParentNodeCache {
    /// Parents that existed when they were last seen.
    there: BoundedSet,
    /// Parents at which a transaction was refused because of other contenders.
    disputed: BoundedSet,
    /// The number of this session's attempts, by the hash of the parent.
    ours: RefCell<HashMap<u64, u32>>,
    pub kept: RetainedParents,
    hasher: RandomState,
}

/// A set of bounded size: if two entries have the same index, the later one stays.
struct BoundedSet(RefCell<Box<[u64]>>);

/// The number of entries of a set; each takes eight bytes.
const CAPACITY: usize = 8192;

impl Default for BoundedSet {
    fn default() -> Self {
        Self(RefCell::new(vec![0; CAPACITY].into()))
    }
}

impl BoundedSet {
    fn contains(&self, mark: u64) -> bool {
        self.0.borrow()[slot_index(mark)] == mark
    }

    fn insert(&self, mark: u64) {
        self.0.borrow_mut()[slot_index(mark)] = mark;
    }

    fn remove(&self, mark: u64) {
        let noted = &mut self.0.borrow_mut()[slot_index(mark)];
        if *noted == mark {
            *noted = 0;
        }
    }
}

fn slot_index(mark: u64) -> usize {
    usize::try_from(mark >> 32).unwrap_or_default() % CAPACITY
}

impl ParentNodeCache {
    /// Whether the parent probably exists.
    pub fn is_expected_to_exist(&self, parent: &str) -> bool {
        self.there.contains(self.parent_hash(parent))
    }

    pub fn mark_present(&self, parent: &str) {
        self.there.insert(self.parent_hash(parent));
    }

    pub fn mark_absent(&self, parent: &str) {
        self.there.remove(self.parent_hash(parent));
    }

    /// Whether requests at this parent have to be sent alone: in a shared transaction a refusal would hit other keys,
    /// too.
    pub(crate) fn is_disputed(&self, parent: &str) -> bool {
        self.disputed.contains(self.parent_hash(parent))
    }

    pub(crate) fn mark_disputed(&self, parent: &str) {
        self.disputed.insert(self.parent_hash(parent));
    }

    /// Records that this session created a node without other contenders, so the parent is not disputed any more.
    pub(crate) fn clear_disputed(&self, parent: &str) {
        self.disputed.remove(self.parent_hash(parent));
    }

    /// Counts an attempt of this session that begins at `parent`. Pass the returned hash to
    /// [`ParentNodeCache::remove_attempt`] at its end.
    pub fn add_attempt(&self, parent: &str) -> u64 {
        let mark = self.parent_hash(parent);
        *self.ours.borrow_mut().entry(mark).or_default() += 1;
        mark
    }

    /// Whether an attempt of this session is at `parent`, or about to be.
    pub fn has_attempts(&self, parent: &str) -> bool {
        self.ours.borrow().contains_key(&self.parent_hash(parent))
    }

    pub fn remove_attempt(&self, mark: u64) {
        let mut ours = self.ours.borrow_mut();
        if let Some(count) = ours.get_mut(&mark) {
            *count -= 1;
            if *count == 0 {
                ours.remove(&mark);
            }
        }
    }

    /// Whether exactly one attempt of this session is at the parent, or about to be.
    pub fn has_single_attempt(&self, mark: u64) -> bool {
        self.ours.borrow().get(&mark) == Some(&1)
    }

    fn parent_hash(&self, parent: &str) -> u64 {
        // A hash is never 0, because 0 stands for an empty entry.
        self.hasher.hash_one(parent) | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parent is expected to exist if it was present when last observed.
    #[test]
    fn last_observed_state_is_expected() {
        let parents = ParentNodeCache::default();
        assert!(!parents.is_expected_to_exist("/a"));
        parents.mark_present("/a");
        assert!(parents.is_expected_to_exist("/a") && !parents.is_expected_to_exist("/b"));
        parents.mark_absent("/b");
        assert!(parents.is_expected_to_exist("/a"));
        parents.mark_absent("/a");
        assert!(!parents.is_expected_to_exist("/a"));
    }

    /// An attempt is the single one below its parent until another attempt of the session begins there, and again
    /// after that one ended.
    #[test]
    fn attempt_is_single_until_second() {
        let parents = ParentNodeCache::default();
        let first = parents.add_attempt("/a");
        assert!(parents.has_single_attempt(first));
        let second = parents.add_attempt("/a");
        assert!(first == second && !parents.has_single_attempt(first));
        parents.remove_attempt(second);
        assert!(parents.has_single_attempt(first));
        parents.remove_attempt(first);
        assert!(!parents.has_single_attempt(first) && parents.ours.borrow().is_empty());
    }

    #[test]
    fn parent_stays_disputed_until_cleared() {
        let parents = ParentNodeCache::default();
        parents.mark_disputed("/a");
        assert!(parents.is_disputed("/a") && !parents.is_disputed("/b"));
        parents.clear_disputed("/a");
        assert!(!parents.is_disputed("/a"));
    }
}
