//! The tables of the file, and the effect of each change on them.

use bytes::Bytes;
use fencegate_policies::operation::OperationId;
use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::{
    operation::{JournalEntryState, OperationJournalEntry, StoredResponse},
    store::{DurableKeyWatermarks, JournalSize, StoreMutation},
};

/// Resource key to the epochs of its watermarks: 16 bytes, big-endian, zero for none.
pub(super) const MARKS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("marks");
/// Resource keys that may be at work. [`LIST`] records whether the table is complete.
pub(super) const AT_WORK: TableDefinition<'_, &str, ()> = TableDefinition::new("at-work");
/// Resource key to its whole watermarks of a clean stop, JSON.
pub(super) const WHOLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("whole");
/// Operation id to its entry, JSON.
pub(super) const OPERATIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("operations");
/// The time at which a finished operation may be forgotten, with its id; ordered by time.
pub(super) const ENDS: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("ends");
/// Operations without a known outcome.
pub(super) const UNFINISHED: TableDefinition<'_, &[u8], ()> = TableDefinition::new("unfinished");
/// The few single values.
pub(super) const SINGLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("single");

pub(super) const IDENTITY: &str = "identity";
pub(super) const FLOOR: &str = "floor";
pub(super) const ERA: &str = "era";
pub(super) const CLEAN_STOP: &str = "clean-stop";
/// Milliseconds.
pub(super) const MAX_EXECUTION: &str = "max-execution";
pub(super) const TIME: &str = "time";
/// [`NEW`], [`RESTORED`] or [`LISTED`]; missing after a build without the list.
pub(super) const LIST: &str = "at-work-list";
pub(super) const NEW: &[u8] = b"new";
pub(super) const RESTORED: &[u8] = b"restored";
pub(super) const LISTED: &[u8] = b"listed";
/// The mark of a store that was moved elsewhere, JSON.
pub(super) const DEPARTED: &str = "departed";
/// The format of a file whose store was moved, so that builds which do not know [`DEPARTED`] refuse the file as well.
pub(super) const GONE: u32 = u32::MAX;
/// Entries and bytes of the journal: 16 bytes, big-endian.
pub(super) const JOURNAL: &str = "journal";

/// All tables, open in one transaction.
pub(super) struct RedbTables<'t> {
    marks: Table<'t, &'static str, &'static [u8]>,
    at_work: Table<'t, &'static str, ()>,
    pub(super) whole: Table<'t, &'static str, &'static [u8]>,
    operations: Table<'t, &'static [u8], &'static [u8]>,
    ends: Table<'t, (u64, &'static [u8]), ()>,
    unfinished: Table<'t, &'static [u8], ()>,
    pub(super) single: Table<'t, &'static str, &'static [u8]>,
    before: JournalSize,
    journal: JournalSize,
}

impl<'t> RedbTables<'t> {
    /// Opens all tables, and creates the missing ones.
    pub(super) fn open(write: &'t WriteTransaction) -> Result<Self, redb::Error> {
        let single = write.open_table(SINGLE)?;
        let before = single.get(JOURNAL)?.map(|value| decode_journal_size(value.value())).unwrap_or_default();
        Ok(Self {
            marks: write.open_table(MARKS)?,
            at_work: write.open_table(AT_WORK)?,
            whole: write.open_table(WHOLE)?,
            operations: write.open_table(OPERATIONS)?,
            ends: write.open_table(ENDS)?,
            unfinished: write.open_table(UNFINISHED)?,
            single,
            before,
            journal: before,
        })
    }

    /// Closes the tables, and returns the size of the journal after the commit.
    pub(super) fn close(mut self) -> Result<JournalSize, redb::Error> {
        if self.journal != self.before {
            self.single.insert(JOURNAL, encode_journal_size(self.journal).as_slice())?;
        }
        Ok(self.journal)
    }

    /// Measures the journal, if its size is not in the file yet.
    pub(super) fn measure_journal(&mut self) -> Result<(), redb::Error> {
        if self.single.get(JOURNAL)?.is_none() {
            for row in self.operations.iter()? {
                self.journal.entries += 1;
                self.journal.bytes += entry_length(row?.1.value());
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, change: &StoreMutation) -> Result<(), redb::Error> {
        match change {
            StoreMutation::Mark { key, epochs } => {
                self.marks.insert(key.as_str(), encode_epochs(epochs).as_slice())?;
            }
            StoreMutation::Forget { key } => {
                self.marks.remove(key.as_str())?;
                self.at_work.remove(key.as_str())?;
            }
            StoreMutation::AtWork { key } => {
                self.at_work.insert(key.as_str(), ())?;
            }
            StoreMutation::AtRest { key } => {
                self.at_work.remove(key.as_str())?;
            }
            StoreMutation::AtWorkListed => self.put_single(LIST, LISTED)?,
            StoreMutation::MaxExecution(longest) => {
                let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
                self.put_single(MAX_EXECUTION, &millis.to_be_bytes())?;
            }
            StoreMutation::Time(seconds) => self.put_single(TIME, &seconds.to_be_bytes())?,
            StoreMutation::Floor(floor) => self.put_single(FLOOR, &floor.to_be_bytes())?,
            StoreMutation::Era(era) => self.put_single(ERA, &era.to_be_bytes())?,
            StoreMutation::Operation { id, entry } => self.put_operation(id, entry)?,
            StoreMutation::ForgetOperation { id } => self.remove_operation(id)?,
            StoreMutation::ForgetFinished { id, before } => {
                let written =
                    self.operations.get(id.as_bytes().as_slice())?.map(|value| value.value().to_vec());
                let entry = written.and_then(|written| decode_entry(&written));
                if entry.as_ref().and_then(expires_at).is_some_and(|end| end < *before) {
                    self.remove_operation(id)?;
                }
            }
            StoreMutation::Watermarks(marks) => {
                let json = serde_json::to_vec(&(marks.write, marks.read)).expect("plain fields serialise");
                self.whole.insert(marks.key.as_str(), json.as_slice())?;
            }
            StoreMutation::CleanShutdown(stop) => {
                let json = serde_json::to_vec(stop).expect("plain fields serialise");
                self.put_single(CLEAN_STOP, &json)?;
            }
        }
        Ok(())
    }

    fn put_single(&mut self, name: &'static str, value: &[u8]) -> Result<(), redb::Error> {
        self.single.insert(name, value)?;
        Ok(())
    }

    fn put_operation(&mut self, id: &OperationId, entry: &OperationJournalEntry) -> Result<(), redb::Error> {
        self.remove_operation(id)?;
        let written = encode_entry(entry);
        let id = id.as_bytes().as_slice();
        self.operations.insert(id, written.as_slice())?;
        self.journal.entries += 1;
        self.journal.bytes += entry_length(&written);
        match expires_at(entry) {
            None => self.unfinished.insert(id, ())?,
            Some(end) => self.ends.insert((end, id), ())?,
        };
        Ok(())
    }

    fn remove_operation(&mut self, id: &OperationId) -> Result<(), redb::Error> {
        let id = id.as_bytes().as_slice();
        let Some(before) = self.operations.remove(id)?.map(|written| written.value().to_vec()) else {
            return Ok(());
        };
        self.journal.entries = self.journal.entries.saturating_sub(1);
        self.journal.bytes = self.journal.bytes.saturating_sub(entry_length(&before));
        self.unfinished.remove(id)?;
        if let Some(end) = decode_entry(&before).as_ref().and_then(expires_at) {
            self.ends.remove((end, id))?;
        }
        Ok(())
    }
}

/// The bytes of an entry, with its id in two tables.
fn entry_length(written: &[u8]) -> u64 {
    u64::try_from(written.len() + 2 * 32).unwrap_or(u64::MAX)
}

/// The time at which the operation may be forgotten, in seconds of the store's time; `None` if its outcome is
/// unknown.
fn expires_at(entry: &OperationJournalEntry) -> Option<u64> {
    match entry.state {
        JournalEntryState::Admitted => None,
        JournalEntryState::Done { at, .. } | JournalEntryState::Resolved { at, .. } => {
            Some(at.saturating_add(entry.keep))
        }
    }
}

/// The latest time in any operation of the journal. Damaged entries are skipped.
pub(super) fn latest_operation_time(
    operations: &impl ReadableTable<&'static [u8], &'static [u8]>,
) -> Result<Option<u64>, redb::Error> {
    let mut latest = None;
    for row in operations.iter()? {
        let entry = decode_entry(row?.1.value());
        latest = latest.max(entry.map(|entry| match entry.state {
            JournalEntryState::Admitted => entry.admitted,
            JournalEntryState::Done { at, .. } | JournalEntryState::Resolved { at, .. } => {
                at.max(entry.admitted)
            }
        }));
    }
    Ok(latest)
}

/// Encodes an entry as the length of its JSON, the JSON, and the body of a kept response if there is one.
fn encode_entry(entry: &OperationJournalEntry) -> Vec<u8> {
    let json = serde_json::to_vec(entry).expect("plain fields serialise");
    let length = u32::try_from(json.len()).expect("an entry is made of bounded fields");
    let mut written = length.to_be_bytes().to_vec();
    written.extend(json);
    if let JournalEntryState::Done { answer: Some(StoredResponse { body: Some(body), .. }), .. } =
        &entry.state
    {
        written.push(1);
        written.extend_from_slice(body);
    }
    written
}

pub(super) fn decode_entry(written: &[u8]) -> Option<OperationJournalEntry> {
    let (length, rest) = written.split_first_chunk::<4>()?;
    let (json, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    let mut entry: OperationJournalEntry = serde_json::from_slice(json).ok()?;
    if let (JournalEntryState::Done { answer: Some(kept), .. }, Some((1, body))) =
        (&mut entry.state, rest.split_first())
    {
        kept.body = Some(Bytes::copy_from_slice(body));
    }
    Some(entry)
}

fn encode_epochs(epochs: &DurableKeyWatermarks) -> [u8; 16] {
    encode_pair(epochs.write.unwrap_or_default(), epochs.read.unwrap_or_default())
}

pub(super) fn decode_epochs(bytes: &[u8]) -> Option<DurableKeyWatermarks> {
    let (write, read) = bytes.split_at_checked(8)?;
    // An epoch is a czxid, and no czxid is zero, so zero stands for no watermark.
    let some = |epoch: u64| (epoch > 0).then_some(epoch);
    (read.len() == 8)
        .then(|| DurableKeyWatermarks { write: some(decode_number(write)), read: some(decode_number(read)) })
}

fn encode_journal_size(taken: JournalSize) -> [u8; 16] {
    encode_pair(taken.entries, taken.bytes)
}

fn decode_journal_size(bytes: &[u8]) -> JournalSize {
    let (entries, bytes) = bytes.split_at_checked(8).unwrap_or_default();
    JournalSize { entries: decode_number(entries), bytes: decode_number(bytes) }
}

fn encode_pair(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes());
    bytes
}

pub(super) fn decode_number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}
