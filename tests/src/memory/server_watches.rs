//! The server's list of watches, each of which fires once.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{ZnodeChange, parent};

/// The aspect of a node that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchKind {
    Data,
    Children,
}

/// The event that a session gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatchEvent {
    /// Fires the watches of this aspect.
    Changed { path: String, aspect: WatchKind },
    /// Fires the watches of both aspects.
    Deleted { path: String },
}

/// The watches of all sessions, each of which fires once.
#[derive(Debug, Default)]
pub(super) struct ServerWatches(BTreeMap<(String, WatchKind), BTreeSet<i64>>);

impl ServerWatches {
    pub(super) fn set(&mut self, session: i64, path: &str, aspect: WatchKind) {
        self.0.entry((path.to_owned(), aspect)).or_default().insert(session);
    }

    /// Removes the watches of a session whose connection is lost.
    pub(super) fn forget(&mut self, session: i64) {
        self.0.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
    }

    /// Removes the watches that a change fires, and returns the event of each with its session.
    pub(super) fn fire(&mut self, change: &ZnodeChange) -> Vec<(i64, WatchEvent)> {
        match change {
            // A new node has no data watches, because they are set on existing nodes only.
            ZnodeChange::Made(path) => self.children_of(parent(path)),
            ZnodeChange::Written(path) => {
                let event = WatchEvent::Changed { path: path.clone(), aspect: WatchKind::Data };
                self.take(path, WatchKind::Data).into_iter().map(|session| (session, event.clone())).collect()
            }
            ZnodeChange::Deleted(path) => {
                let mut told = self.take(path, WatchKind::Data);
                told.extend(self.take(path, WatchKind::Children));
                let event = WatchEvent::Deleted { path: path.clone() };
                let deleted = told.into_iter().map(|session| (session, event.clone()));
                deleted.chain(self.children_of(parent(path))).collect()
            }
        }
    }

    fn children_of(&mut self, parent: &str) -> Vec<(i64, WatchEvent)> {
        let event = WatchEvent::Changed { path: parent.to_owned(), aspect: WatchKind::Children };
        self.take(parent, WatchKind::Children).into_iter().map(|session| (session, event.clone())).collect()
    }

    fn take(&mut self, path: &str, aspect: WatchKind) -> BTreeSet<i64> {
        self.0.remove(&(path.to_owned(), aspect)).unwrap_or_default()
    }
}
