//! The known state of an attempt's nodes: whether there can be one, and its name.

use std::cell::RefCell;

/// The state of one attempt's nodes, from the answers to its creates. `N`: the names in an unambiguous answer.
#[derive(Debug)]
pub(super) struct CreateTracker<N>(RefCell<State<N>>);

#[derive(Debug)]
enum State<N> {
    /// There can be no node: every create so far was refused, or every created node is gone.
    Nothing,
    /// A create was sent; its answer is outstanding, or was lost.
    Unclear { before: u64 },
    /// These nodes exist, and no others.
    Named { before: u64, names: N },
}

impl<N> Default for CreateTracker<N> {
    fn default() -> Self {
        Self(RefCell::new(State::Nothing))
    }
}

impl<N: Clone> CreateTracker<N> {
    /// Records that a create is about to be sent. `highest`: the highest epoch that is known at this moment.
    pub(super) fn record_sent(&self, highest: u64) {
        let mut state = self.0.borrow_mut();
        if matches!(*state, State::Nothing) {
            *state = State::Unclear { before: highest };
        }
    }

    /// Records that no node was created, or none is left. After a refused create, call this only if every earlier
    /// create, at any key, is known to have created nothing. The GUID leaves the registry with this call, so a
    /// remaining node would have no owner.
    pub(super) fn clear(&self) {
        self.0.replace(State::Nothing);
    }

    /// Records an unambiguous answer to a create. Only the first such answer counts.
    pub(super) fn record_names(&self, names: &N) {
        let mut state = self.0.borrow_mut();
        if let State::Unclear { before } = *state {
            *state = State::Named { before, names: names.clone() };
        }
    }

    /// The names; `None` without an unambiguous answer, and then there may be no node or several.
    pub(super) fn names(&self) -> Option<N> {
        match &*self.0.borrow() {
            State::Named { names, .. } => Some(names.clone()),
            State::Nothing | State::Unclear { .. } => None,
        }
    }

    pub(super) fn may_exist(&self) -> bool {
        !matches!(*self.0.borrow(), State::Nothing)
    }

    /// The highest epoch that was known before the first create that can have created the nodes. `None` if there can be
    /// no node.
    pub(super) fn highest_before(&self) -> Option<u64> {
        match *self.0.borrow() {
            State::Nothing => None,
            State::Unclear { before } | State::Named { before, .. } => Some(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest epoch from before the first create counts until no node of these creates can exist any more.
    #[test]
    fn highest_before_stays_until_cleared() {
        let made = CreateTracker::<String>::default();
        assert_eq!((made.may_exist(), made.highest_before()), (false, None));
        made.record_sent(5);
        made.record_sent(7);
        assert_eq!((made.highest_before(), made.names()), (Some(5), None), "an answer was lost");
        made.record_names(&"one".to_owned());
        assert_eq!((made.highest_before(), made.names().as_deref()), (Some(5), Some("one")));
        made.clear();
        assert_eq!((made.may_exist(), made.names()), (false, None));
        made.record_sent(9);
        assert_eq!(made.highest_before(), Some(9));
    }
}
