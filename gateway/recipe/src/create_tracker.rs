//! The known state of an attempt's nodes: whether there can be one, and its name.

use std::cell::RefCell;

/// The state of one attempt's nodes, from the answers to its creates. `N`: the type of their names, or of a czxid.
#[derive(Debug)]
pub(super) struct ZnodeCreationTracker<N>(RefCell<ZnodeCreationState<N>>);

#[derive(Debug)]
enum ZnodeCreationState<N> {
    /// There can be no node: every create so far was refused, or every created node is gone.
    Nothing,
    /// A create was sent; its answer is outstanding, or was lost. `before`: the highest epoch known before that create.
    Unclear { before: u64 },
    /// These nodes exist, and no others.
    Named { before: u64, names: N },
}

impl<N> Default for ZnodeCreationTracker<N> {
    fn default() -> Self {
        Self(RefCell::new(ZnodeCreationState::Nothing))
    }
}

impl<N: Clone> ZnodeCreationTracker<N> {
    /// Records that a create is about to be sent. `highest`: the highest epoch that is known at this moment.
    pub(super) fn record_create_sent(&self, highest: u64) {
        let mut state = self.0.borrow_mut();
        if matches!(*state, ZnodeCreationState::Nothing) {
            *state = ZnodeCreationState::Unclear { before: highest };
        }
    }

    /// Records that no node was created, or none is left. After a refused create, call this only if every earlier
    /// create, at any key, is known to have created nothing. The GUID leaves the registry with this call, so a
    /// remaining node would have no owner.
    pub(super) fn record_no_nodes_left(&self) {
        self.0.replace(ZnodeCreationState::Nothing);
    }

    /// Records an unambiguous answer to a create. Only the first such answer counts.
    pub(super) fn record_names(&self, names: &N) {
        let mut state = self.0.borrow_mut();
        if let ZnodeCreationState::Unclear { before } = *state {
            *state = ZnodeCreationState::Named { before, names: names.clone() };
        }
    }

    /// The names of the nodes. `None` if no answer was unambiguous: then there may be no node, one or several.
    pub(super) fn created_names(&self) -> Option<N> {
        match &*self.0.borrow() {
            ZnodeCreationState::Named { names, .. } => Some(names.clone()),
            ZnodeCreationState::Nothing | ZnodeCreationState::Unclear { .. } => None,
        }
    }

    pub(super) fn may_nodes_exist(&self) -> bool {
        !matches!(*self.0.borrow(), ZnodeCreationState::Nothing)
    }

    /// The highest epoch that was known before the first create that can have created the nodes. `None` if there can be
    /// no node.
    pub(super) fn highest_epoch_before(&self) -> Option<u64> {
        match *self.0.borrow() {
            ZnodeCreationState::Nothing => None,
            ZnodeCreationState::Unclear { before } | ZnodeCreationState::Named { before, .. } => Some(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest epoch known before the first create is kept until no node of these creates can exist any more.
    #[test]
    fn highest_before_stays_until_cleared() {
        let made = ZnodeCreationTracker::<String>::default();
        assert_eq!((made.may_nodes_exist(), made.highest_epoch_before()), (false, None));
        made.record_create_sent(5);
        made.record_create_sent(7);
        assert_eq!(
            (made.highest_epoch_before(), made.created_names()),
            (Some(5), None),
            "an answer was lost"
        );
        made.record_names(&"one".to_owned());
        assert_eq!((made.highest_epoch_before(), made.created_names().as_deref()), (Some(5), Some("one")));
        made.record_no_nodes_left();
        assert_eq!((made.may_nodes_exist(), made.created_names()), (false, None));
        made.record_create_sent(9);
        assert_eq!(made.highest_epoch_before(), Some(9));
    }
}
