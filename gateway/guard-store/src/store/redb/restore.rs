//! Makes a store from a backup. The store cannot contain what came after the backup, so it refuses all tokens of that
//! time.

use std::{path::Path, time::Duration};

use fencegate_policies::operation::OperationId;
use fencegate_process::failpoint;

use super::{
    RedbStore,
    tables::{ERA, FLOOR, IDENTITY, LIST, MAX_EXECUTION, RESTORED, RedbTables, SINGLE, TIME, decode_entry},
};
use crate::store::{
    StoreError, StoreIdentity, StoreMutation,
    backup::{BackupFormatError, BackupHeader, BackupRow, BackupRowKind, read_backup_rows},
    durable::RestoreStoreError,
};

/// The properties of a restored store.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The name of the restored store. It is a new one, because the store that was backed up may still be in use
    /// somewhere.
    pub store: String,
    /// No token up to this epoch is admitted, on any key. It has to be at or above every token that was ever
    /// issued.
    pub floor: u64,
    /// The time for which earlier dispatches may still be sent. Each of them may then run for `max_execution`,
    /// or for the backup's own setting if that is longer.
    pub send_within: Duration,
    pub max_execution: Duration,
}

impl RestoreOptions {
    /// The time for which every key is closed after the first start, because a paused guard elsewhere may still
    /// send.
    pub fn quarantine_length(&self, backup: &BackupHeader) -> Duration {
        self.send_within.saturating_add(backup.max_execution.unwrap_or_default().max(self.max_execution))
    }
}

/// The most operations, and bytes of them, in one transaction.
const MOST_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 8 << 20;

impl RedbStore {
    /// Makes the file at `path` from the backup. Until this has returned, the file has no identity and is no store.
    ///
    /// No watermark is taken over: a watermark counts in place of the floor, so it would admit tokens between
    /// watermark and floor.
    ///
    /// # Errors
    /// Returns an error if the backup is not whole, or if the floor is below the backup's own highest epoch.
    pub fn restore(
        path: &Path,
        backup: &Path,
        restored: &RestoreOptions,
    ) -> Result<BackupHeader, RestoreStoreError> {
        let store = Self::create(path)?;
        let mut batch = RestoreOperationBatch::default();
        let header = read_backup_rows(backup, |row| {
            if row.kind == BackupRowKind::Operation {
                batch.push_decoded_row(&row)?;
                if batch.is_full() {
                    batch.flush_operations_into(&store)?;
                }
            }
            Ok::<_, RestoreStoreError>(())
        })?;
        if restored.floor < header.highest {
            return Err(RestoreStoreError::Floor { floor: restored.floor, highest: header.highest });
        }
        batch.flush_operations_into(&store)?;
        store.finish_restore(&header, restored)?;
        Ok(header)
    }

    /// Makes the file a store, in one transaction. This is the last step of a restore.
    fn finish_restore(&self, header: &BackupHeader, restored: &RestoreOptions) -> Result<(), StoreError> {
        let RestoreOptions { store, floor, .. } = restored;
        let identity = StoreIdentity { store: store.clone(), ..header.identity.clone() };
        let longest = u64::try_from(restored.quarantine_length(header).as_millis()).unwrap_or(u64::MAX);
        failpoint::pass("amid_restore");
        self.run_write_transaction(|write| {
            let mut single = write.open_table(SINGLE)?;
            single.insert(FLOOR, floor.to_be_bytes().as_slice())?;
            single.insert(ERA, header.era.to_be_bytes().as_slice())?;
            single.insert(MAX_EXECUTION, longest.to_be_bytes().as_slice())?;
            if let Some(time) = header.time {
                single.insert(TIME, time.to_be_bytes().as_slice())?;
            }
            single.insert(LIST, RESTORED)?;
            let identity = serde_json::to_vec(&identity).expect("plain fields serialise");
            single.insert(IDENTITY, identity.as_slice())?;
            Ok(())
        })
    }
}

/// Operations that are written together.
#[derive(Default)]
struct RestoreOperationBatch {
    changes: Vec<StoreMutation>,
    bytes: usize,
}

impl RestoreOperationBatch {
    fn push_decoded_row(&mut self, row: &BackupRow) -> Result<(), BackupFormatError> {
        let id = row.key.as_slice().try_into().ok().map(OperationId::from_bytes);
        let (Some(id), Some(entry)) = (id, decode_entry(&row.value)) else {
            return Err(BackupFormatError::Corrupt("an operation is damaged"));
        };
        self.bytes += row.value.len();
        self.changes.push(StoreMutation::Operation { id, entry: Box::new(entry) });
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.changes.len() >= MOST_AT_ONCE || self.bytes >= BYTES_AT_ONCE
    }

    fn flush_operations_into(&mut self, store: &RedbStore) -> Result<(), StoreError> {
        let changes = std::mem::take(self).changes;
        store.run_write_transaction(|write| {
            let mut tables = RedbTables::open(write)?;
            changes.iter().try_for_each(|change| tables.apply(change))?;
            tables.close().map(drop)
        })
    }
}
