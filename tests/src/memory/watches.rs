//! The server's list of who wants to be told what, once.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Change, parent};

/// What of a node is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aspect {
    Data,
    Children,
}

/// What a session is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Fires the watches of that aspect.
    Changed { path: String, aspect: Aspect },
    /// Fires both.
    Deleted { path: String },
}

/// One-shot watches of all sessions.
#[derive(Debug, Default)]
pub(super) struct Watches(BTreeMap<(String, Aspect), BTreeSet<i64>>);

impl Watches {
    pub(super) fn set(&mut self, session: i64, path: &str, aspect: Aspect) {
        self.0.entry((path.to_owned(), aspect)).or_default().insert(session);
    }

    /// The session's connection is gone, and with it what it watched.
    pub(super) fn forget(&mut self, session: i64) {
        self.0.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
    }

    /// Whom a change concerns, each with its event; those watches are spent.
    pub(super) fn spend(&mut self, change: &Change) -> Vec<(i64, Event)> {
        match change {
            // Data watches are set on existing nodes only.
            Change::Made(path) => self.children_of(parent(path)),
            Change::Written(path) => {
                let event = Event::Changed { path: path.clone(), aspect: Aspect::Data };
                self.take(path, Aspect::Data).into_iter().map(|session| (session, event.clone())).collect()
            }
            Change::Deleted(path) => {
                let mut told = self.take(path, Aspect::Data);
                told.extend(self.take(path, Aspect::Children));
                let event = Event::Deleted { path: path.clone() };
                let deleted = told.into_iter().map(|session| (session, event.clone()));
                deleted.chain(self.children_of(parent(path))).collect()
            }
        }
    }

    fn children_of(&mut self, parent: &str) -> Vec<(i64, Event)> {
        let event = Event::Changed { path: parent.to_owned(), aspect: Aspect::Children };
        self.take(parent, Aspect::Children).into_iter().map(|session| (session, event.clone())).collect()
    }

    fn take(&mut self, path: &str, aspect: Aspect) -> BTreeSet<i64> {
        self.0.remove(&(path.to_owned(), aspect)).unwrap_or_default()
    }
}
