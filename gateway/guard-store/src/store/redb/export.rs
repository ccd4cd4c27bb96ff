//! Exports the rows of a store that is moved elsewhere, and marks the file as moved.
//!
//! Nothing else in the file is changed, so a move that is given up before the file is marked leaves no trace.

use std::{ops::Bound, path::Path, sync::Mutex};

use fencegate_policies::{key::ResourceKey, operation::OperationId};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable};

use super::{
    CACHE, RedbStore, is_backup, operation_id, read_error,
    tables::{AT_WORK, DEPARTED, GONE, IDENTITY, MARKS, OPERATIONS, SINGLE, WHOLE, decode_epochs},
};
use crate::{
    operation::OperationJournalEntry,
    store::{DurableKeyWatermarks, KeyWatermarks, StoreError, StoreIdentity, StoreMovedMarker, StoredKey},
};

/// The bytes of operations after which a batch ends; the last operation may go beyond.
const MOST_BYTES: usize = 1 << 20;

/// A row of watermarks in the file's form: key, epochs, and whole watermarks.
type WatermarkRow = (String, Vec<u8>, Option<Vec<u8>>);

impl RedbStore {
    /// Opens the file even if its store was moved elsewhere.
    pub fn open_moved(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { path: path.display().to_string() });
        }
        if is_backup(path) {
            return Err(StoreError::Backup { path: path.display().to_string() });
        }
        let opened = Database::builder().set_cache_size(CACHE).open(path);
        let mut database = opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.display().to_string() },
            error => read_error(path, error),
        })?;
        // After a clean stop the library trusts every page, so check them here.
        match database.check_integrity() {
            Ok(true) => Ok(Self { database, path: path.display().to_string(), journal: Mutex::default() }),
            Ok(false) => Err(read_error(path, "pages are damaged")),
            Err(error) => Err(read_error(path, error)),
        }
    }

    /// The mark that the store was moved; `None` if it was not.
    pub fn moved_marker(&self) -> Result<Option<StoreMovedMarker>, StoreError> {
        let read = self.database.begin_read().map_err(|error| self.damaged_error(error))?;
        let single = read.open_table(SINGLE).map_err(|error| self.damaged_error(error))?;
        let json = single.get(DEPARTED).map_err(|error| self.damaged_error(error))?;
        let departed = json.map(|json| serde_json::from_slice(json.value())).transpose();
        departed.map_err(|error| self.damaged_error(error))
    }

    /// Marks the file as moved, so that no guard opens it any more. The mark is on the disk when this returns.
    pub fn mark_moved(&self, departed: &StoreMovedMarker) -> Result<(), StoreError> {
        let identity = StoreIdentity { format: GONE, ..self.identity()? };
        self.run_write_transaction(|write| {
            let mut single = write.open_table(SINGLE)?;
            let json = |value: serde_json::Result<Vec<u8>>| value.expect("plain fields serialise");
            single.insert(DEPARTED, json(serde_json::to_vec(departed)).as_slice())?;
            single.insert(IDENTITY, json(serde_json::to_vec(&identity)).as_slice())?;
            Ok(())
        })
    }

    /// The next keys after `last`, in the order of their bytes. If fewer than `most` are returned, they are the
    /// last ones.
    pub fn watermarks_after(
        &self,
        last: Option<&ResourceKey>,
        most: usize,
    ) -> Result<Vec<StoredKey>, StoreError> {
        let rows: Vec<WatermarkRow> = self.run_read_transaction(|read| {
            let marks = read.open_table(MARKS)?;
            let whole = read.open_table(WHOLE)?;
            let mut rows = Vec::new();
            for row in marks.range::<&str>((bound_after(last), Bound::Unbounded))?.take(most) {
                let (key, epochs) = row?;
                let whole = whole.get(key.value())?.map(|whole| whole.value().to_vec());
                rows.push((key.value().to_owned(), epochs.value().to_vec(), whole));
            }
            Ok(rows)
        })?;
        rows.into_iter().map(|row| self.decode_stored_key(row)).collect()
    }

    /// Keys that only have whole watermarks, from a clean stop.
    pub fn keys_without_epochs(&self) -> Result<Vec<StoredKey>, StoreError> {
        let rows: Vec<WatermarkRow> = self.run_read_transaction(|read| {
            let marks = read.open_table(MARKS)?;
            let whole = read.open_table(WHOLE)?;
            let mut rows = Vec::new();
            for row in whole.iter()? {
                let (key, whole) = row?;
                if marks.get(key.value())?.is_none() {
                    rows.push((key.value().to_owned(), vec![0; 16], Some(whole.value().to_vec())));
                }
            }
            Ok(rows)
        })?;
        rows.into_iter().map(|row| self.decode_stored_key(row)).collect()
    }

    fn decode_stored_key(&self, (key, epochs, whole): WatermarkRow) -> Result<StoredKey, StoreError> {
        let key = self.parse_key(&key)?;
        let damaged = || self.damaged_error(format!("the watermarks of `{key}` are damaged"));
        let epochs = decode_epochs(&epochs).ok_or_else(damaged)?;
        if i64::try_from(epochs.highest()).is_err() {
            return Err(damaged());
        }
        let whole = whole.map(|json| serde_json::from_slice(&json).map_err(|_| damaged())).transpose()?;
        let whole = whole.map(|(write, read)| KeyWatermarks { key: key.clone(), write, read });
        Ok(StoredKey { key, epochs, whole })
    }

    /// The next keys after `last` that may be at work.
    pub fn active_keys_after(
        &self,
        last: Option<&ResourceKey>,
        most: usize,
    ) -> Result<Vec<(ResourceKey, DurableKeyWatermarks)>, StoreError> {
        let rows: Vec<(String, Option<Vec<u8>>)> = self.run_read_transaction(|read| {
            let at_work = read.open_table(AT_WORK)?;
            let marks = read.open_table(MARKS)?;
            let mut rows = Vec::new();
            for row in at_work.range::<&str>((bound_after(last), Bound::Unbounded))?.take(most) {
                let key = row?.0;
                let epochs = marks.get(key.value())?.map(|epochs| epochs.value().to_vec());
                rows.push((key.value().to_owned(), epochs));
            }
            Ok(rows)
        })?;
        let at_work = |(key, epochs): (String, Option<Vec<u8>>)| {
            Ok((self.parse_key(&key)?, epochs.and_then(|epochs| decode_epochs(&epochs)).unwrap_or_default()))
        };
        rows.into_iter().map(at_work).collect()
    }

    pub fn has_epochs(&self, key: &ResourceKey) -> Result<bool, StoreError> {
        self.run_read_transaction(|read| Ok(read.open_table(MARKS)?.get(key.as_str())?.is_some()))
    }

    /// The next operations after `last`, up to a bounded number of bytes. Empty after the last one.
    pub fn operations_after(
        &self,
        last: Option<&OperationId>,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, StoreError> {
        let rows: Vec<(Vec<u8>, Vec<u8>)> = self.run_read_transaction(|read| {
            let table = read.open_table(OPERATIONS)?;
            let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.as_bytes().as_slice()));
            let mut rows = Vec::new();
            let mut bytes = 0;
            for row in table.range::<&[u8]>((from, Bound::Unbounded))?.take(most) {
                let (id, written) = row?;
                bytes += written.value().len();
                rows.push((id.value().to_vec(), written.value().to_vec()));
                if bytes > MOST_BYTES {
                    break;
                }
            }
            Ok(rows)
        })?;
        let operation = |(id, written): (Vec<u8>, Vec<u8>)| {
            let id =
                operation_id(id).ok_or_else(|| self.damaged_error("the name of an operation is damaged"))?;
            Ok((id, self.decode_journal_entry(&written)?))
        };
        rows.into_iter().map(operation).collect()
    }

    fn parse_key(&self, text: &str) -> Result<ResourceKey, StoreError> {
        ResourceKey::parse(text).map_err(|error| self.damaged_error(format!("`{text}`: {error}")))
    }
}

fn bound_after(last: Option<&ResourceKey>) -> Bound<&str> {
    last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.as_str()))
}
