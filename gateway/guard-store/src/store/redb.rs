//! The store in a redb file, for a guard that shares it with no other.

mod copy;
mod export;
pub(super) mod restore;
mod tables;

use std::{
    collections::HashMap,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fencegate_policies::{key::ResourceKey, operation::OperationId};
use redb::{Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, WriteTransaction};

use self::tables::{
    AT_WORK, CLEAN_STOP, ENDS, ERA, FLOOR, GONE, IDENTITY, LIST, LISTED, MARKS, MAX_EXECUTION, NEW,
    OPERATIONS, RESTORED, RedbTables, SINGLE, TIME, UNFINISHED, WHOLE, decode_entry, decode_epochs,
    decode_number, latest_operation_time,
};
use super::{
    CleanShutdownState, DiskSpace, FORMAT, GuardStore, JournalSize, KeyWatermarks, RecoveredActiveKeys,
    RecoveredState, StoreError, StoreIdentity, StoreMovedMarker, StoreMutation,
    backup::{BEGINNING, BackupHeader},
    durable::StoreBackupError,
};
use crate::{operation::OperationJournalEntry, wall_clock::wall_clock_seconds};

/// A redb file. Only one process has it open.
pub struct RedbStore {
    database: Database,
    path: String,
    journal: Mutex<JournalSize>,
}

/// Bytes of pages that are cached in memory. The library's default is a gigabyte, and the kernel caches the file
/// anyway.
const CACHE: usize = 4 << 20;

impl RedbStore {
    /// Creates the file, with a floor up to which no token will be admitted.
    ///
    /// # Errors
    /// Returns an error if there is a store already. A store is never replaced silently, because that would
    /// forget every watermark.
    pub fn init(path: &Path, identity: &StoreIdentity, floor: u64) -> Result<Self, StoreError> {
        let store = Self::create(path)?;
        store.run_write_transaction(|write| {
            RedbTables::open(write)?;
            let mut single = write.open_table(SINGLE)?;
            let identity = serde_json::to_vec(identity).expect("plain fields serialise");
            single.insert(IDENTITY, identity.as_slice())?;
            single.insert(FLOOR, floor.to_be_bytes().as_slice())?;
            single.insert(LIST, NEW)?;
            Ok(())
        })?;
        Ok(store)
    }

    /// Creates an empty file.
    fn create(path: &Path) -> Result<Self, StoreError> {
        // The file has mode 0600 from its creation on, because it may keep responses with card data.
        let new = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = new.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.display().to_string() },
            _ => read_error(path, error),
        })?;
        let made = Database::builder().set_cache_size(CACHE).create_file(file);
        let database = made.map_err(|error| read_error(path, error))?;
        Ok(Self { database, path: path.display().to_string(), journal: Mutex::default() })
    }

    /// Opens a file that [`RedbStore::init`] or [`RedbStore::restore`] made, and that was not moved elsewhere since.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self::open_moved(path)?;
        match store.moved_marker()? {
            None => Ok(store),
            Some(StoreMovedMarker { to, .. }) => Err(StoreError::Moved { path: store.path, to }),
        }
    }

    /// Commits one transaction, which is on the disk when this returns.
    fn run_write_transaction<T>(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let committed = || -> Result<T, redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            // With one-phase commits a damaged last commit would be rolled back silently at the next start, and its
            // watermarks with it. With two phases the store is refused then.
            transaction.set_two_phase_commit(true);
            let written = write(&transaction)?;
            transaction.commit()?;
            Ok(written)
        };
        committed().map_err(|error| StoreError::Failed(format!("{}: {error}", self.path)))
    }

    fn run_read_transaction<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let done = || -> Result<T, redb::Error> { read(&self.database.begin_read()?) };
        done().map_err(|error| StoreError::Failed(format!("{}: {error}", self.path)))
    }

    fn damaged_error(&self, error: impl fmt::Display) -> StoreError {
        StoreError::Unreadable { path: self.path.clone(), why: error.to_string() }
    }
}

impl RedbStore {
    fn identity(&self) -> Result<StoreIdentity, StoreError> {
        let read = self.database.begin_read().map_err(|error| self.damaged_error(error))?;
        let single = read.open_table(SINGLE).map_err(|error| self.damaged_error(error))?;
        let value = single.get(IDENTITY).map_err(|error| self.damaged_error(error))?;
        let value = value.ok_or_else(|| self.damaged_error("it has no identity"))?;
        let identity: StoreIdentity =
            serde_json::from_slice(value.value()).map_err(|error| self.damaged_error(error))?;
        if identity.format > FORMAT && identity.format != GONE {
            return Err(StoreError::Newer { path: self.path.clone(), found: identity.format });
        }
        Ok(StoreIdentity { format: FORMAT, ..identity })
    }

    /// Reads the single values of the store, and neither watermarks nor operations.
    pub fn load_single_values(&self) -> Result<RecoveredState, StoreError> {
        let identity = self.identity()?;
        self.run_write_transaction(|write| RedbTables::open(write).map(drop))?;
        let (mut recovered, clean_stop) = self.run_read_transaction(|read| {
            let single = read.open_table(SINGLE)?;
            let value =
                |name: &str| Ok::<_, redb::Error>(single.get(name)?.map(|value| value.value().to_vec()));
            let single_number = |name| Ok::<_, redb::Error>(value(name)?.map(|value| decode_number(&value)));
            let at_work = match value(LIST)?.as_deref() {
                Some(LISTED) => RecoveredActiveKeys::Keys(Vec::new()),
                Some(NEW) => RecoveredActiveKeys::NewStore,
                Some(RESTORED) => RecoveredActiveKeys::Restored,
                _ => RecoveredActiveKeys::NotListed,
            };
            let recovered = RecoveredState {
                identity,
                floor: single_number(FLOOR)?.unwrap_or_default(),
                era: single_number(ERA)?.unwrap_or_default(),
                // The store's time goes on from here. A store of a build without this time has wall clock times in its
                // journal. It begins at the latest of those, because the wall clock of now may be far from them.
                time: match single_number(TIME)? {
                    Some(time) => time,
                    None => latest_operation_time(&read.open_table(OPERATIONS)?)?
                        .unwrap_or_else(wall_clock_seconds),
                },
                max_execution: single_number(MAX_EXECUTION)?.map(Duration::from_millis),
                marks: HashMap::new(),
                at_work,
                clean_stop: None,
            };
            Ok((recovered, value(CLEAN_STOP)?))
        })?;
        let clean_stop =
            clean_stop.map(|json| serde_json::from_slice::<CleanShutdownState>(&json)).transpose();
        recovered.clean_stop = clean_stop.map_err(|error| self.damaged_error(error))?;
        Ok(recovered)
    }

    /// Reads the watermarks, after a clean stop with whole tokens, and the keys at work.
    fn load_keys(&self, recovered: &mut RecoveredState) -> Result<(), StoreError> {
        let bad = |error: &dyn fmt::Display| self.damaged_error(error);
        let key = |text: &str| {
            ResourceKey::parse(text).map_err(|error| self.damaged_error(format!("`{text}`: {error}")))
        };
        let read = self.database.begin_read().map_err(|error| bad(&error))?;
        let marks = read.open_table(MARKS).map_err(|error| bad(&error))?;
        for row in marks.iter().map_err(|error| bad(&error))? {
            let (text, epochs) = row.map_err(|error| bad(&error))?;
            let epochs = decode_epochs(epochs.value())
                .ok_or_else(|| self.damaged_error("watermarks have another length"))?;
            recovered.marks.insert(key(text.value())?, epochs);
        }
        if let RecoveredActiveKeys::Keys(keys) = &mut recovered.at_work {
            let table = read.open_table(AT_WORK).map_err(|error| bad(&error))?;
            for row in table.iter().map_err(|error| bad(&error))? {
                keys.push(key(row.map_err(|error| bad(&error))?.0.value())?);
            }
        }
        let Some(stop) = &mut recovered.clean_stop else { return Ok(()) };
        let whole = read.open_table(WHOLE).map_err(|error| bad(&error))?;
        for row in whole.iter().map_err(|error| bad(&error))? {
            let (text, marks) = row.map_err(|error| bad(&error))?;
            let (write, read) = serde_json::from_slice(marks.value()).map_err(|error| bad(&error))?;
            stop.marks.push(KeyWatermarks { key: key(text.value())?, write, read });
        }
        Ok(())
    }

    /// Adds the values that later builds have introduced, and removes the marker of a clean stop, which counts only
    /// once.
    fn record_startup(
        &self,
        recovered: &RecoveredState,
        max_execution: Duration,
    ) -> Result<JournalSize, StoreError> {
        self.run_write_transaction(|write| {
            let mut tables = RedbTables::open(write)?;
            let identity = serde_json::to_vec(&recovered.identity).expect("plain fields serialise");
            tables.single.insert(IDENTITY, identity.as_slice())?;
            tables.single.remove(CLEAN_STOP)?;
            tables.whole.retain(|_, _| false)?;
            tables.apply(&StoreMutation::MaxExecution(
                max_execution.max(recovered.max_execution.unwrap_or_default()),
            ))?;
            tables.apply(&StoreMutation::Time(recovered.time))?;
            tables.measure_journal()?;
            tables.close()
        })
    }

    fn decode_journal_entry(&self, written: &[u8]) -> Result<OperationJournalEntry, StoreError> {
        decode_entry(written).ok_or_else(|| self.damaged_error("an operation is damaged"))
    }
}

impl GuardStore for RedbStore {
    fn recover(&self, max_execution: Duration) -> Result<RecoveredState, StoreError> {
        let mut recovered = self.load_single_values()?;
        self.load_keys(&mut recovered)?;
        self.cache_journal_size(self.record_startup(&recovered, max_execution)?);
        Ok(recovered)
    }

    fn commit(&self, changes: &[StoreMutation]) -> Result<(), StoreError> {
        let taken = self.run_write_transaction(|write| {
            let mut tables = RedbTables::open(write)?;
            changes.iter().try_for_each(|change| tables.apply(change))?;
            tables.close()
        })?;
        self.cache_journal_size(taken);
        Ok(())
    }

    fn operation(&self, id: &OperationId) -> Result<Option<OperationJournalEntry>, StoreError> {
        let written = self.run_read_transaction(|read| {
            let table = read.open_table(OPERATIONS)?;
            Ok(table.get(id.as_bytes().as_slice())?.map(|value| value.value().to_vec()))
        })?;
        written.map(|written| self.decode_journal_entry(&written)).transpose()
    }

    fn unresolved_operation_ids(&self, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.run_read_transaction(|read| {
            let rows = read.open_table(UNFINISHED)?;
            let ids = rows.iter()?.take(most).map(|row| Ok(operation_id(row?.0.value().to_vec())));
            Ok(ids.collect::<Result<Vec<_>, redb::Error>>()?.into_iter().flatten().collect())
        })
    }

    fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, StoreError> {
        let found = self.run_read_transaction(|read| {
            let rows = read.open_table(UNFINISHED)?;
            let operations = read.open_table(OPERATIONS)?;
            let mut found = Vec::new();
            for row in rows.iter()?.take(most) {
                let id = row?.0.value().to_vec();
                if let Some(written) = operations.get(id.as_slice())? {
                    found.push((id, written.value().to_vec()));
                }
            }
            Ok(found)
        })?;
        let known = |(id, written): (Vec<u8>, Vec<u8>)| {
            Some((operation_id(id)?, self.decode_journal_entry(&written)))
        };
        found.into_iter().filter_map(known).map(|(id, entry)| Ok((id, entry?))).collect()
    }

    fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, StoreError> {
        let Some((first, last)) = OperationId::ids_with_reference(reference) else { return Ok(None) };
        let found = self.run_read_transaction(|read| {
            let table = read.open_table(OPERATIONS)?;
            let mut rows = table.range(first.as_bytes().as_slice()..=last.as_bytes().as_slice())?;
            let row = rows.next().transpose()?;
            Ok(row.map(|(id, written)| (id.value().to_vec(), written.value().to_vec())))
        })?;
        let Some((id, written)) = found else { return Ok(None) };
        let entry = self.decode_journal_entry(&written)?;
        Ok(operation_id(id).map(|id| (id, entry)))
    }

    fn expired(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.run_read_transaction(|read| {
            let ends = read.open_table(ENDS)?;
            let rows = ends.range((0, [].as_slice())..(now, [].as_slice()))?.take(most);
            let ids =
                rows.map(|row| Ok(row?.0.value().1.to_vec())).collect::<Result<Vec<_>, redb::Error>>()?;
            Ok(ids.into_iter().filter_map(operation_id).collect())
        })
    }

    fn journal(&self) -> JournalSize {
        *self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> Option<DiskSpace> {
        DiskSpace::at_path(Path::new(&self.path))
    }

    fn write_backup(&self, into: &mut dyn Write) -> Result<BackupHeader, StoreBackupError> {
        self.copy_to(into)
    }
}

impl RedbStore {
    /// Turns the store into one of an older build: without list of keys at work, without store's time, and without
    /// journal size.
    #[cfg(test)]
    pub(super) fn downgrade_to_format_1(&self) -> Result<(), StoreError> {
        self.run_write_transaction(|write| {
            let mut single = write.open_table(SINGLE)?;
            for later in [LIST, TIME, MAX_EXECUTION, tables::JOURNAL] {
                single.remove(later)?;
            }
            Ok(())
        })
    }

    fn cache_journal_size(&self, taken: JournalSize) {
        *self.journal.lock().unwrap_or_else(PoisonError::into_inner) = taken;
    }
}

fn operation_id(bytes: Vec<u8>) -> Option<OperationId> {
    Some(OperationId::from_bytes(bytes.try_into().ok()?))
}

/// Whether the file is a backup. False for a file that cannot be read: opening it as a store reports the error.
fn is_backup(path: &Path) -> bool {
    let mut beginning = [0; BEGINNING.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && beginning == *BEGINNING
}

fn read_error(path: &Path, error: impl fmt::Display) -> StoreError {
    StoreError::Unreadable { path: path.display().to_string(), why: error.to_string() }
}
