//! What is known of the nodes that an attempt makes: whether there can be one, and what it is called.

use std::cell::RefCell;

/// What is known of the nodes of one attempt, by the answers to its creates. `N`: what an unambiguous answer names.
#[derive(Debug)]
pub(super) struct Made<N>(RefCell<State<N>>);

#[derive(Debug)]
enum State<N> {
    /// No create was sent that was not refused, or whatever was made is gone.
    Nothing,
    /// A create was sent; its answer is not here, or was lost.
    Unclear { before: u64 },
    /// These, and no others.
    Named { before: u64, names: N },
}

impl<N> Default for Made<N> {
    fn default() -> Self {
        Self(RefCell::new(State::Nothing))
    }
}

impl<N: Clone> Made<N> {
    /// A create is about to be sent. `highest`: the highest epoch that is known at this moment.
    pub(super) fn sending(&self, highest: u64) {
        let mut state = self.0.borrow_mut();
        if matches!(*state, State::Nothing) {
            *state = State::Unclear { before: highest };
        }
    }

    /// Nothing was made, or nothing is left. Of a create that was refused this is true only where every create before it is
    /// known to have made nothing, at any key: the GUID leaves the registry with this, and what is left then is nobody's.
    pub(super) fn nothing(&self) {
        self.0.replace(State::Nothing);
    }

    /// An unambiguous answer. The first one counts.
    pub(super) fn named(&self, names: &N) {
        let mut state = self.0.borrow_mut();
        if let State::Unclear { before } = *state {
            *state = State::Named { before, names: names.clone() };
        }
    }

    /// `None` where no answer has named them: then there may be none, or several.
    pub(super) fn names(&self) -> Option<N> {
        match &*self.0.borrow() {
            State::Named { names, .. } => Some(names.clone()),
            State::Nothing | State::Unclear { .. } => None,
        }
    }

    pub(super) fn may_exist(&self) -> bool {
        !matches!(*self.0.borrow(), State::Nothing)
    }

    /// The highest epoch that was known when the first create was sent that can have made them. `None` where there can be
    /// none.
    pub(super) fn before(&self) -> Option<u64> {
        match *self.0.borrow() {
            State::Nothing => None,
            State::Unclear { before } | State::Named { before, .. } => Some(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_before_the_first_create_counts_until_nothing_can_be_left_of_it() {
        let made = Made::<String>::default();
        assert_eq!((made.may_exist(), made.before()), (false, None));
        made.sending(5);
        made.sending(7);
        assert_eq!((made.before(), made.names()), (Some(5), None), "an answer was lost");
        made.named(&"one".to_owned());
        assert_eq!((made.before(), made.names().as_deref()), (Some(5), Some("one")));
        made.nothing();
        assert_eq!((made.may_exist(), made.names()), (false, None));
        made.sending(9);
        assert_eq!(made.before(), Some(9));
    }
}
