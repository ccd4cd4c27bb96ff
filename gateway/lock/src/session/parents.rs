//! What one session knows of the parents of keys: which are in ZooKeeper, and beside whom its own nodes stand there. Who is told
//! wrong pays a round trip.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

#[derive(Default)]
pub struct Parents {
    /// Those that were there when they were last seen.
    there: Noted,
    /// Those at which something was refused because others had come, or were there already.
    disputed: Noted,
    /// Attempts of ours, where there are any.
    ours: RefCell<HashMap<u64, u32>>,
    hasher: RandomState,
}

/// A bounded set: of two that meet in one place the later one stays.
struct Noted(RefCell<Box<[u64]>>);

/// Eight bytes each.
const PLACES: usize = 8192;

impl Default for Noted {
    fn default() -> Self {
        Self(RefCell::new(vec![0; PLACES].into()))
    }
}

impl Noted {
    fn has(&self, mark: u64) -> bool {
        self.0.borrow()[place(mark)] == mark
    }

    fn put(&self, mark: u64) {
        self.0.borrow_mut()[place(mark)] = mark;
    }

    fn remove(&self, mark: u64) {
        let noted = &mut self.0.borrow_mut()[place(mark)];
        if *noted == mark {
            *noted = 0;
        }
    }
}

fn place(mark: u64) -> usize {
    usize::try_from(mark >> 32).unwrap_or_default() % PLACES
}

impl Parents {
    /// A node can be made below it, unless somebody else has removed it since.
    pub fn expects(&self, parent: &str) -> bool {
        self.there.has(self.mark(parent))
    }

    pub fn is_there(&self, parent: &str) {
        self.there.put(self.mark(parent));
    }

    pub fn is_gone(&self, parent: &str) {
        self.there.remove(self.mark(parent));
    }

    /// What is asked for there goes by itself, so that it is refused to nobody else.
    pub fn is_disputed(&self, parent: &str) -> bool {
        self.disputed.has(self.mark(parent))
    }

    pub fn dispute(&self, parent: &str) {
        self.disputed.put(self.mark(parent));
    }

    /// It was made anew, and nobody was there.
    pub fn settle(&self, parent: &str) {
        self.disputed.remove(self.mark(parent));
    }

    /// An attempt of ours begins there. What it is to give back: [`Parents::parts`].
    pub(crate) fn joins(&self, parent: &str) -> u64 {
        let mark = self.mark(parent);
        *self.ours.borrow_mut().entry(mark).or_default() += 1;
        mark
    }

    pub(crate) fn parts(&self, mark: u64) {
        let mut ours = self.ours.borrow_mut();
        if let Some(count) = ours.get_mut(&mark) {
            *count -= 1;
            if *count == 0 {
                ours.remove(&mark);
            }
        }
    }

    /// Only one attempt of ours is there, or about to be.
    pub(crate) fn has_one(&self, mark: u64) -> bool {
        self.ours.borrow().get(&mark) == Some(&1)
    }

    fn mark(&self, parent: &str) -> u64 {
        // 0 is nobody's.
        self.hasher.hash_one(parent) | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_last_is_expected() {
        let parents = Parents::default();
        assert!(!parents.expects("/a"));
        parents.is_there("/a");
        assert!(parents.expects("/a") && !parents.expects("/b"));
        parents.is_gone("/b");
        assert!(parents.expects("/a"));
        parents.is_gone("/a");
        assert!(!parents.expects("/a"));
    }

    #[test]
    fn an_attempt_is_alone_until_another_one_of_the_session_begins_there() {
        let parents = Parents::default();
        let first = parents.joins("/a");
        assert!(parents.has_one(first));
        let second = parents.joins("/a");
        assert!(first == second && !parents.has_one(first));
        parents.parts(second);
        assert!(parents.has_one(first));
        parents.parts(first);
        assert!(!parents.has_one(first) && parents.ours.borrow().is_empty());
    }

    #[test]
    fn a_parent_is_disputed_until_it_is_settled() {
        let parents = Parents::default();
        parents.dispute("/a");
        assert!(parents.is_disputed("/a") && !parents.is_disputed("/b"));
        parents.settle("/a");
        assert!(!parents.is_disputed("/a"));
    }
}
