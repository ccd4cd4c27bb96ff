//! Which keys have a parent in ZooKeeper, as far as one session knows. Who is told wrong pays a round trip.

use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
};

/// Parents that were there when they were last seen. Bounded: of two that meet in one place the later one stays.
pub struct Parents {
    there: RefCell<Box<[u64]>>,
    hasher: RandomState,
}

/// Eight bytes each.
const PLACES: usize = 8192;

impl Default for Parents {
    fn default() -> Self {
        Self { there: RefCell::new(vec![0; PLACES].into()), hasher: RandomState::new() }
    }
}

impl Parents {
    /// A node can be made below it, unless somebody else has removed it since.
    pub fn expects(&self, parent: &str) -> bool {
        let (place, mark) = self.mark(parent);
        self.there.borrow()[place] == mark
    }

    pub fn is_there(&self, parent: &str) {
        let (place, mark) = self.mark(parent);
        self.there.borrow_mut()[place] = mark;
    }

    pub fn is_gone(&self, parent: &str) {
        let (place, mark) = self.mark(parent);
        let known = &mut self.there.borrow_mut()[place];
        if *known == mark {
            *known = 0;
        }
    }

    fn mark(&self, parent: &str) -> (usize, u64) {
        // 0 is nobody's.
        let hash = self.hasher.hash_one(parent) | 1;
        (usize::try_from(hash >> 32).unwrap_or_default() % PLACES, hash)
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
}
