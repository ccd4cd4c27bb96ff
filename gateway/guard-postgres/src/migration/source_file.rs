//! The file that a store is moved from: reads it in batches, in the form that the database takes.

use std::{collections::HashMap, mem, path::Path, time::Duration};

use fencegate_guard_store::{
    admission::recover_watermarks,
    operation::OperationJournalEntry,
    store::{
        DurableKeyWatermarks, InDoubtExecutionRecord, KeyWatermarks, RecoveredActiveKeys, RecoveredState,
        RedbStore, StoreError, StoreMovedMarker, StoredKey,
    },
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, plan::LockMode, token::FencingToken};
use fencegate_process::randomness::{Guid, Randomness};

use crate::postgres::{ImportedKeyRow, ImportedOpenExecution};

/// The file of the store, open here, so that no guard can open it.
pub(super) struct MigrationSourceFile {
    redb: RedbStore,
    /// The single values of the store, without watermarks and operations.
    pub(super) remembered: RecoveredState,
    /// Whole watermarks from a build of format 1.
    inline: HashMap<ResourceKey, KeyWatermarks>,
    /// Set if the store was moved already: its new location.
    pub(super) departed: Option<StoreMovedMarker>,
}

/// The quarantine that a guard would begin with on this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitialQuarantine {
    /// Whether every key is closed, or only those that may have been at work.
    pub(super) every_key: bool,
    pub(super) left: Duration,
}

/// The most keys or operations in one batch.
const BATCH: usize = 1000;

impl MigrationSourceFile {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let redb = RedbStore::open_moved(path)?;
        let departed = redb.moved_marker()?;
        let mut recovered = redb.load_single_values()?;
        let marks = recovered.clean_stop.as_mut().map(|stop| mem::take(&mut stop.marks)).unwrap_or_default();
        let inline = marks.into_iter().map(|whole| (whole.key.clone(), whole)).collect();
        Ok(Self { redb, remembered: recovered, inline, departed })
    }

    pub(super) fn mark_moved(&self, departed: &StoreMovedMarker) -> Result<(), StoreError> {
        self.redb.mark_moved(departed)
    }

    /// The quarantine that a guard would begin with on this file.
    pub(super) fn initial_quarantine(&self, max_execution: Duration) -> Option<InitialQuarantine> {
        let every_key = !matches!(self.remembered.at_work, RecoveredActiveKeys::Keys(_));
        self.remembered.quarantine_length(max_execution).map(|left| InitialQuarantine { every_key, left })
    }

    /// The next keys after `last`; empty after the last one.
    pub(super) fn keys_after(&self, last: Option<&ResourceKey>) -> Result<Vec<ImportedKeyRow>, StoreError> {
        let rows = self.redb.watermarks_after(last, BATCH)?;
        rows.into_iter().map(|row| self.key_row(row)).collect()
    }

    /// Keys that only have whole watermarks, from a clean stop. No build so far has left such keys.
    pub(super) fn keys_without_epochs(&self) -> Result<Vec<ImportedKeyRow>, StoreError> {
        let mut rows = self.redb.keys_without_epochs()?;
        for whole in self.inline.values() {
            if !self.redb.has_epochs(&whole.key)? && rows.iter().all(|row| row.key != whole.key) {
                let key = whole.key.clone();
                let epochs = DurableKeyWatermarks::default();
                rows.push(StoredKey { key, epochs, whole: None });
            }
        }
        let marked = rows.into_iter().map(|row| self.key_row(row));
        marked
            .filter(|marked| !matches!(marked, Ok(ImportedKeyRow { write: None, read: None, .. })))
            .collect()
    }

    fn key_row(&self, row: StoredKey) -> Result<ImportedKeyRow, StoreError> {
        let StoredKey { key, epochs, whole } = row;
        // Whole watermarks count only with the marker of a clean stop.
        let whole = whole.filter(|_| self.remembered.clean_stop.is_some());
        let (write, read) = recover_watermarks(&epochs, whole.as_ref().or_else(|| self.inline.get(&key)));
        Ok(ImportedKeyRow { key, write, read })
    }

    /// The executions that a clean stop has left in doubt.
    pub(super) fn in_doubt_executions(&self, randomness: &dyn Randomness) -> Vec<ImportedOpenExecution> {
        let doubts = self.remembered.clean_stop.iter().flat_map(|stop| &stop.doubts);
        let unended = |doubt: &InDoubtExecutionRecord| ImportedOpenExecution {
            name: Guid::new(randomness).to_string(),
            keys: doubt.keys.clone(),
            token: doubt.token,
            mode: doubt.mode,
            left: doubt.remaining,
        };
        doubts.map(unended).collect()
    }

    /// The next keys after `last` that may be at work; empty after the last one. The tokens of their executions
    /// are not known, so they get a token that no gateway ever has.
    pub(super) fn active_executions_after(
        &self,
        last: Option<&ResourceKey>,
        left: Duration,
        randomness: &dyn Randomness,
    ) -> Result<Vec<ImportedOpenExecution>, StoreError> {
        let floor = self.remembered.floor;
        let unended = |(key, epochs): (ResourceKey, DurableKeyWatermarks)| {
            let epoch = epochs.highest().max(floor).min(i64::MAX as u64);
            let token = FencingToken::new(epoch, u32::MAX, u32::MAX).expect("below 2^63");
            let name = Guid::new(randomness).to_string();
            ImportedOpenExecution { name, keys: vec![key], token, mode: LockMode::Exclusive, left }
        };
        Ok(self.redb.active_keys_after(last, BATCH)?.into_iter().map(unended).collect())
    }

    /// The next operations after `last`; empty after the last one.
    pub(super) fn operations_after(
        &self,
        last: Option<&OperationId>,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, StoreError> {
        self.redb.operations_after(last, BATCH)
    }
}
