//! The store of a guard: the state that has to survive a restart, and the one module that makes it durable.
//!
//! - [`StoreMutation`]: one thing to remember or to forget
//! - [`RecoveredState`]: the state that a guard begins with
//! - [`GuardStore`]: keeps that state over restarts; [`RedbStore`] is an implementation, in a file
//! - [`backup`]: a copy of a store in a file, from which a store can be made again
//! - [`CommitQueueHandle`]: puts the changes of many requests into one transaction, and [`CommitLoop`] commits it

pub mod backup;
mod change;
mod durable;
mod group_commit;
mod recovery;
mod redb;
#[cfg(test)]
mod tests;

pub use self::change::StoredKey;
pub use self::{
    change::{
        CleanShutdownState, DurableKeyWatermarks, InDoubtExecutionRecord, KeyWatermarks, StoreMovedMarker,
        StoreMutation,
    },
    durable::{DiskSpace, GuardStore, RestoreStoreError, StoreBackupError, StoreError},
    group_commit::{CommitError, CommitLoop, CommitLoopState, CommitQueueHandle, CommitSeq},
    recovery::{FORMAT, JournalSize, RecoveredActiveKeys, RecoveredState, StoreIdentity},
    redb::{RedbStore, restore::RestoreOptions},
};
