//! The dispatches and operation locks that this guard still has handles of.
//!
//! A database that was rolled back may have rows again whose removal was lost. Their owner lives, so no other
//! guard ends them. So the owner gives the database the list of its names with each new connection, and the rows
//! whose names are not on the list get an end.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencegate_process::randomness::Guid;

/// The names with a handle, and the number of their handles.
#[derive(Debug, Default)]
pub(super) struct OwnedRowRefCounts(Mutex<HashMap<Guid, usize>>);

/// A handle of a name. A caller, a queued request and a reply on its way have one each. The name is listed until the
/// last of them is dropped.
pub(super) struct OwnedRowHandle {
    name: Guid,
    names: Arc<OwnedRowRefCounts>,
}

impl OwnedRowRefCounts {
    /// Registers a name, and returns a handle of it. Call this before the name is sent to the database, so that
    /// no row is ever without a listed name.
    pub(super) fn register_row_name(self: &Arc<Self>, name: Guid) -> OwnedRowHandle {
        *self.lock_handle_counts().entry(name).or_default() += 1;
        OwnedRowHandle { name, names: self.clone() }
    }

    pub(super) fn row_names_in_use(&self) -> Vec<String> {
        self.lock_handle_counts().keys().map(Guid::to_string).collect()
    }

    fn lock_handle_counts(&self) -> MutexGuard<'_, HashMap<Guid, usize>> {
        // A poisoned lock does no harm: no panic leaves the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnedRowHandle {
    pub(super) fn name(&self) -> Guid {
        self.name
    }
}

impl Clone for OwnedRowHandle {
    fn clone(&self) -> Self {
        self.names.register_row_name(self.name)
    }
}

impl Drop for OwnedRowHandle {
    fn drop(&mut self) {
        let mut names = self.names.lock_handle_counts();
        if let Some(handles) = names.get_mut(&self.name) {
            *handles -= 1;
            if *handles == 0 {
                names.remove(&self.name);
            }
        }
    }
}

impl fmt::Debug for OwnedRowHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

#[cfg(test)]
mod tests {
    use fencegate_process::randomness::SystemRandomness;

    use super::*;

    /// A name is listed until its last handle is dropped.
    #[test]
    fn name_is_listed_until_last_drop() {
        let names = Arc::<OwnedRowRefCounts>::default();
        let name = Guid::new(&SystemRandomness);
        let first = names.register_row_name(name);
        let second = first.clone();
        let third = names.register_row_name(name);
        drop((first, third));
        assert_eq!(names.row_names_in_use(), [name.to_string()]);
        drop(second);
        assert!(names.row_names_in_use().is_empty());
    }
}
