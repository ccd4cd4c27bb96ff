//! The store of a guard that is alone: one redb file.

use std::{collections::HashMap, fmt, fs, os::unix::fs::PermissionsExt, path::Path};

use bytes::Bytes;
use fencegate_policies::key::ResourceKey;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{Change, CleanStop, Epochs, FORMAT, Identity, Remembered, Store, StoreError};
use crate::guard::operation::{Entry, Kept, OperationId, State};

/// Resource key to the epochs of its marks: 16 bytes, big-endian, zero for none.
const MARKS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("marks");
/// Operation id to its entry, JSON.
const OPERATIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("operations");
/// When a finished operation may be forgotten, and its id: in the order of that time.
const ENDS: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("ends");
/// Operations without a known outcome.
const UNFINISHED: TableDefinition<'_, &[u8], ()> = TableDefinition::new("unfinished");
/// The few single values.
const SINGLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("single");

const IDENTITY: &str = "identity";
const FLOOR: &str = "floor";
const ERA: &str = "era";
const CLEAN_STOP: &str = "clean-stop";

/// A redb file. Only one process has it open.
pub struct Redb {
    database: Database,
    path: String,
}

impl Redb {
    /// Makes the file, with a floor below which no token will pass.
    ///
    /// # Errors
    /// There is one already: a store is never made anew silently, because that forgets every mark.
    pub fn init(path: &Path, identity: &Identity, floor: u64) -> Result<Self, StoreError> {
        if path.exists() {
            return Err(StoreError::Exists { path: path.display().to_string() });
        }
        let database = Database::create(path).map_err(|error| unreadable(path, error))?;
        // Answers may be kept in it, and answers may be card data.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| unreadable(path, error))?;
        let store = Self { database, path: path.display().to_string() };
        store.write(|write| {
            for table in [MARKS, SINGLE] {
                write.open_table(table)?;
            }
            write.open_table(OPERATIONS)?;
            write.open_table(ENDS)?;
            write.open_table(UNFINISHED)?;
            let mut single = write.open_table(SINGLE)?;
            let identity = serde_json::to_vec(identity).expect("plain fields serialise");
            single.insert(IDENTITY, identity.as_slice())?;
            single.insert(FLOOR, floor.to_be_bytes().as_slice())?;
            Ok(())
        })?;
        Ok(store)
    }

    /// Opens what [`Redb::init`] made.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { path: path.display().to_string() });
        }
        let mut database = Database::open(path).map_err(|error| unreadable(path, error))?;
        // After an orderly stop the library takes every page for good.
        match database.check_integrity() {
            Ok(true) => Ok(Self { database, path: path.display().to_string() }),
            Ok(false) => Err(unreadable(path, "pages are damaged")),
            Err(error) => Err(unreadable(path, error)),
        }
    }

    /// One transaction, on the disk when it returns.
    fn write(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let committed = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            // Written in one phase, a last commit that is damaged would be rolled back at the next start without a
            // word, and its marks with it. In two, the store is refused then.
            transaction.set_two_phase_commit(true);
            write(&transaction)?;
            Ok(transaction.commit()?)
        };
        committed().map_err(|error| StoreError::Failed(format!("{}: {error}", self.path)))
    }

    fn identity(&self, read: &redb::ReadTransaction) -> Result<Identity, StoreError> {
        let bad = |why: String| StoreError::Unreadable { path: self.path.clone(), why };
        let single = read.open_table(SINGLE).map_err(|error| bad(error.to_string()))?;
        let value = single.get(IDENTITY).map_err(|error| bad(error.to_string()))?;
        let value = value.ok_or_else(|| bad("it has no identity".into()))?;
        let identity: Identity =
            serde_json::from_slice(value.value()).map_err(|error| bad(error.to_string()))?;
        if identity.format > FORMAT {
            return Err(StoreError::Newer { path: self.path.clone(), found: identity.format });
        }
        Ok(identity)
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let done = || -> Result<T, redb::Error> { read(&self.database.begin_read()?) };
        done().map_err(|error| StoreError::Failed(format!("{}: {error}", self.path)))
    }
}

impl Store for Redb {
    fn load(&self) -> Result<Remembered, StoreError> {
        let bad = |why: String| StoreError::Unreadable { path: self.path.clone(), why };
        let read = self.database.begin_read().map_err(|error| bad(error.to_string()))?;
        let identity = self.identity(&read)?;
        drop(read);
        let (floor, era, clean_stop, marks) = self.read(|read| {
            let single = read.open_table(SINGLE)?;
            let number =
                |name| Ok::<u64, redb::Error>(single.get(name)?.map_or(0, |value| number(value.value())));
            let clean_stop = single.get(CLEAN_STOP)?.map(|value| value.value().to_vec());
            let mut marks = HashMap::new();
            for row in read.open_table(MARKS)?.iter()? {
                let (key, epochs) = row?;
                marks.insert(key.value().to_owned(), read_epochs(epochs.value()));
            }
            Ok((number(FLOOR)?, number(ERA)?, clean_stop, marks))
        })?;
        let clean_stop: Option<CleanStop> = clean_stop
            .map(|json| serde_json::from_slice(&json))
            .transpose()
            .map_err(|error| bad(error.to_string()))?;
        let known = |(key, epochs): (String, Option<Epochs>)| {
            let key = ResourceKey::parse(&key).map_err(|error| bad(format!("`{key}`: {error}")))?;
            Ok((key, epochs.ok_or_else(|| bad("the marks of a key have another length".into()))?))
        };
        let marks = marks.into_iter().map(known).collect::<Result<_, StoreError>>()?;
        self.write(|write| {
            write.open_table(SINGLE)?.remove(CLEAN_STOP)?;
            Ok(())
        })?;
        Ok(Remembered { identity, floor, era, marks, clean_stop })
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.write(|write| {
            let mut tables = Tables {
                marks: write.open_table(MARKS)?,
                operations: write.open_table(OPERATIONS)?,
                ends: write.open_table(ENDS)?,
                unfinished: write.open_table(UNFINISHED)?,
                single: write.open_table(SINGLE)?,
            };
            changes.iter().try_for_each(|change| tables.apply(change))
        })
    }

    fn operation(&self, id: &OperationId) -> Result<Option<Entry>, StoreError> {
        let json = self.read(|read| {
            let table = read.open_table(OPERATIONS)?;
            Ok(table.get(id.bytes().as_slice())?.map(|value| value.value().to_vec()))
        })?;
        json.map(|json| self.entry(&json)).transpose()
    }

    fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, StoreError> {
        let ids = self.read(|read| {
            let rows = read.open_table(UNFINISHED)?;
            let ids = rows.iter()?.take(most).map(|row| Ok(row?.0.value().to_vec()));
            ids.collect::<Result<Vec<_>, redb::Error>>()
        })?;
        let mut found = Vec::with_capacity(ids.len());
        for id in ids.into_iter().filter_map(|id| Some(OperationId::of(id.try_into().ok()?))) {
            found.extend(self.operation(&id)?.map(|entry| (id, entry)));
        }
        Ok(found)
    }

    fn finished(&self, reference: &str) -> Result<Option<OperationId>, StoreError> {
        self.read(|read| {
            let ends = read.open_table(ENDS)?;
            for row in ends.iter()? {
                let id: Option<[u8; 32]> = row?.0.value().1.try_into().ok();
                if let Some(id) = id.map(OperationId::of).filter(|id| id.reference() == reference) {
                    return Ok(Some(id));
                }
            }
            Ok(None)
        })
    }

    fn outlived(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError> {
        self.read(|read| {
            let ends = read.open_table(ENDS)?;
            let rows = ends.range((0, [].as_slice())..(now, [].as_slice()))?.take(most);
            let ids =
                rows.map(|row| Ok(row?.0.value().1.to_vec())).collect::<Result<Vec<_>, redb::Error>>()?;
            Ok(ids.into_iter().filter_map(|id| Some(OperationId::of(id.try_into().ok()?))).collect())
        })
    }
}

impl Redb {
    fn entry(&self, json: &[u8]) -> Result<Entry, StoreError> {
        read_entry(json).ok_or_else(|| StoreError::Unreadable {
            path: self.path.clone(),
            why: "an operation is damaged".into(),
        })
    }
}

struct Tables<'t> {
    marks: redb::Table<'t, &'static str, &'static [u8]>,
    operations: redb::Table<'t, &'static [u8], &'static [u8]>,
    ends: redb::Table<'t, (u64, &'static [u8]), ()>,
    unfinished: redb::Table<'t, &'static [u8], ()>,
    single: redb::Table<'t, &'static str, &'static [u8]>,
}

impl Tables<'_> {
    fn apply(&mut self, change: &Change) -> Result<(), redb::Error> {
        match change {
            Change::Mark { key, epochs } => {
                self.marks.insert(key.as_str(), written_epochs(epochs).as_slice())?;
            }
            Change::Forget { key } => {
                self.marks.remove(key.as_str())?;
            }
            Change::Floor(floor) => {
                self.single.insert(FLOOR, floor.to_be_bytes().as_slice())?;
            }
            Change::Era(era) => {
                self.single.insert(ERA, era.to_be_bytes().as_slice())?;
            }
            Change::Operation { id, entry } => self.operation(id, entry)?,
            Change::ForgetOperation { id } => self.forget(id)?,
            Change::ForgetFinished { id, before } => {
                let written = self.operations.get(id.bytes().as_slice())?.map(|value| value.value().to_vec());
                let entry = written.and_then(|written| read_entry(&written));
                if entry.as_ref().and_then(end).is_some_and(|end| end < *before) {
                    self.forget(id)?;
                }
            }
            Change::CleanStop(stop) => {
                let json = serde_json::to_vec(stop).expect("plain fields serialise");
                self.single.insert(CLEAN_STOP, json.as_slice())?;
            }
        }
        Ok(())
    }

    fn operation(&mut self, id: &OperationId, entry: &Entry) -> Result<(), redb::Error> {
        self.forget(id)?;
        let written = written_entry(entry);
        let id = id.bytes().as_slice();
        self.operations.insert(id, written.as_slice())?;
        match end(entry) {
            None => self.unfinished.insert(id, ())?,
            Some(end) => self.ends.insert((end, id), ())?,
        };
        Ok(())
    }

    fn forget(&mut self, id: &OperationId) -> Result<(), redb::Error> {
        let id = id.bytes().as_slice();
        let before = self.operations.remove(id)?.map(|json| json.value().to_vec());
        self.unfinished.remove(id)?;
        let before = before.and_then(|written| read_entry(&written));
        if let Some(end) = before.as_ref().and_then(end) {
            self.ends.remove((end, id))?;
        }
        Ok(())
    }
}

/// When it may be forgotten: seconds of the wall clock.
fn end(entry: &Entry) -> Option<u64> {
    match entry.state {
        State::Admitted => None,
        State::Done { at, .. } | State::Resolved { at, .. } => Some(at.saturating_add(entry.keep)),
    }
}

/// The length of the JSON, the JSON, and the body of a kept answer where there is one.
fn written_entry(entry: &Entry) -> Vec<u8> {
    let json = serde_json::to_vec(entry).expect("plain fields serialise");
    let length = u32::try_from(json.len()).expect("an entry is made of bounded fields");
    let mut written = length.to_be_bytes().to_vec();
    written.extend(json);
    if let State::Done { answer: Some(Kept { body: Some(body), .. }), .. } = &entry.state {
        written.push(1);
        written.extend_from_slice(body);
    }
    written
}

fn read_entry(written: &[u8]) -> Option<Entry> {
    let (length, rest) = written.split_first_chunk::<4>()?;
    let (json, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    let mut entry: Entry = serde_json::from_slice(json).ok()?;
    if let (State::Done { answer: Some(kept), .. }, Some((1, body))) = (&mut entry.state, rest.split_first())
    {
        kept.body = Some(Bytes::copy_from_slice(body));
    }
    Some(entry)
}

fn written_epochs(epochs: &Epochs) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&epochs.write.unwrap_or_default().to_be_bytes());
    bytes[8..].copy_from_slice(&epochs.read.unwrap_or_default().to_be_bytes());
    bytes
}

fn read_epochs(bytes: &[u8]) -> Option<Epochs> {
    let (write, read) = bytes.split_at_checked(8)?;
    // No czxid is zero.
    let some = |epoch: u64| (epoch > 0).then_some(epoch);
    (read.len() == 8).then(|| Epochs { write: some(number(write)), read: some(number(read)) })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

fn unreadable(path: &Path, error: impl fmt::Display) -> StoreError {
    StoreError::Unreadable { path: path.display().to_string(), why: error.to_string() }
}
