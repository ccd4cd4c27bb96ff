//! Writes a backup of the file at one moment, while commits go on.

use std::{
    io::{BufWriter, Write},
    time::Duration,
};

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::{
    RedbStore,
    tables::{ERA, FLOOR, MARKS, MAX_EXECUTION, OPERATIONS, SINGLE, TIME, decode_epochs, decode_number},
};
use crate::{
    store::{
        StoreError, StoreIdentity,
        backup::{BackupHeader, BackupRowKind, BackupWriter},
        durable::StoreBackupError,
    },
    wall_clock::wall_clock_seconds,
};

/// The size of one write, in bytes.
const CHUNK: usize = 64 << 10;

impl RedbStore {
    /// The header of a backup that is made now.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read, or is of a newer build.
    pub fn backup_header(&self) -> Result<BackupHeader, StoreError> {
        let identity = self.identity()?;
        let read = self.database.begin_read().map_err(|error| self.damaged_error(error))?;
        self.read_header(&read, identity)
    }

    /// Writes a backup with exactly the commits before this call. A read transaction does not hold up commits;
    /// pages that commits free stay in use until the read has ended.
    pub(super) fn copy_to(&self, into: &mut dyn Write) -> Result<BackupHeader, StoreBackupError> {
        let identity = self.identity()?;
        let read = self.database.begin_read().map_err(|error| self.damaged_error(error))?;
        let header = self.read_header(&read, identity)?;
        let mut writing = BackupWriter::begin(BufWriter::with_capacity(CHUNK, into), &header)?;
        let marks = read.open_table(MARKS).map_err(|error| self.damaged_error(error))?;
        for row in marks.iter().map_err(|error| self.damaged_error(error))? {
            let (key, epochs) = row.map_err(|error| self.damaged_error(error))?;
            writing.write_row(BackupRowKind::Mark, key.value().as_bytes(), epochs.value())?;
        }
        let operations = read.open_table(OPERATIONS).map_err(|error| self.damaged_error(error))?;
        for row in operations.iter().map_err(|error| self.damaged_error(error))? {
            let (id, entry) = row.map_err(|error| self.damaged_error(error))?;
            writing.write_row(BackupRowKind::Operation, id.value(), entry.value())?;
        }
        writing.write_end()?;
        Ok(header)
    }

    fn read_header(
        &self,
        read: &ReadTransaction,
        identity: StoreIdentity,
    ) -> Result<BackupHeader, StoreError> {
        let said = || -> Result<_, redb::Error> {
            let single = read.open_table(SINGLE)?;
            let one =
                |name| Ok::<_, redb::Error>(single.get(name)?.map(|value| decode_number(value.value())));
            let floor = one(FLOOR)?.unwrap_or_default();
            let marks = read.open_table(MARKS)?;
            let mut highest = floor;
            for row in marks.iter()? {
                let epochs = decode_epochs(row?.1.value());
                highest = highest.max(epochs.map_or(0, |epochs| epochs.highest()));
            }
            Ok(BackupHeader {
                identity,
                taken: wall_clock_seconds(),
                highest,
                floor,
                era: one(ERA)?.unwrap_or_default(),
                time: one(TIME)?,
                max_execution: one(MAX_EXECUTION)?.map(Duration::from_millis),
                marks: marks.len()?,
                operations: read.open_table(OPERATIONS)?.len()?,
            })
        };
        said().map_err(|error| self.damaged_error(error))
    }
}
