//! Reads a backup. Its data is not trusted: a disk, a copy or an operator may have changed any byte.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, ErrorKind, Read},
    path::Path,
};

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use super::archive::{
    BEGINNING, BackupHeader, BackupRow, BackupRowKind, FIRST_LINE, LONGEST, MARK, OPERATION, SUM,
};
use crate::store::recovery::FORMAT;

/// The reason for which a file is not accepted as a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupFormatError {
    #[error("the backup cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("the file is no backup of a guard's store")]
    Foreign,
    #[error("a newer build has written the backup; upgrade this one")]
    Newer,
    #[error("the backup is cut off: its end is missing")]
    Truncated,
    #[error("the backup was changed since it was made: {0}")]
    Corrupt(&'static str),
}

/// Reads a whole backup, and returns its header.
///
/// # Errors
/// Returns an error if the file is no backup, or is not whole.
pub fn verify_backup(path: &Path) -> Result<BackupHeader, BackupFormatError> {
    read_backup_rows(path, |_| Ok(()))
}

/// Passes each row to `each`. The rows count only when this has returned without an error, because the sum comes
/// after them.
///
/// # Errors
/// Returns an error if the file is no backup or is not whole, or if `each` has failed.
pub fn read_backup_rows<E: From<BackupFormatError>>(
    path: &Path,
    each: impl FnMut(BackupRow) -> Result<(), E>,
) -> Result<BackupHeader, E> {
    let file = File::open(path).map_err(BackupFormatError::Unreadable)?;
    BackupReader { from: BufReader::with_capacity(BUFFER, file), sum: Context::new(&SHA256) }.read(each)
}

const BUFFER: usize = 64 << 10;

/// The longest header, in bytes.
const LONGEST_HEADER: u64 = 64 << 10;

struct BackupReader<R> {
    from: R,
    sum: Context,
}

impl<R: BufRead> BackupReader<R> {
    fn read<E: From<BackupFormatError>>(
        mut self,
        mut each: impl FnMut(BackupRow) -> Result<(), E>,
    ) -> Result<BackupHeader, E> {
        let header = self.read_header()?;
        let mut marks = 0;
        let mut operations = 0;
        while let Some(kind) = self.read_row_kind()? {
            *match kind {
                BackupRowKind::Mark => &mut marks,
                BackupRowKind::Operation => &mut operations,
            } += 1;
            let key = self.read_length_prefixed()?;
            let value = self.read_length_prefixed()?;
            each(BackupRow { kind, key, value })?;
        }
        self.verify_checksum()?;
        if (marks, operations) != (header.marks, header.operations) {
            return Err(BackupFormatError::Corrupt("it holds more or less than it says").into());
        }
        Ok(header)
    }

    fn read_header(&mut self) -> Result<BackupHeader, BackupFormatError> {
        let first = self.read_bounded_line(FIRST_LINE.len() as u64)?;
        if first != FIRST_LINE {
            let one = first.starts_with(BEGINNING);
            return Err(if one { BackupFormatError::Newer } else { BackupFormatError::Foreign });
        }
        let line = self.read_bounded_line(LONGEST_HEADER)?;
        if !line.ends_with(b"\n") {
            return Err(BackupFormatError::Truncated);
        }
        let bad = |_| BackupFormatError::Corrupt("what it says of itself cannot be read");
        let header: BackupHeader = serde_json::from_slice(&line).map_err(bad)?;
        if header.identity.format > FORMAT {
            return Err(BackupFormatError::Newer);
        }
        Ok(header)
    }

    /// Reads to the end of a line, or `most` bytes.
    fn read_bounded_line(&mut self, most: u64) -> Result<Vec<u8>, BackupFormatError> {
        let mut line = Vec::new();
        self.from.by_ref().take(most).read_until(b'\n', &mut line).map_err(BackupFormatError::Unreadable)?;
        self.sum.update(&line);
        Ok(line)
    }

    /// The kind of the next row; `None` if the sum follows.
    fn read_row_kind(&mut self) -> Result<Option<BackupRowKind>, BackupFormatError> {
        let [tag] = self.read_exact()?;
        self.sum.update(&[tag]);
        match tag {
            MARK => Ok(Some(BackupRowKind::Mark)),
            OPERATION => Ok(Some(BackupRowKind::Operation)),
            SUM => Ok(None),
            _ => Err(BackupFormatError::Corrupt("something stands in it that nobody has written")),
        }
    }

    fn read_length_prefixed(&mut self) -> Result<Vec<u8>, BackupFormatError> {
        let length: [u8; 4] = self.read_exact()?;
        self.sum.update(&length);
        let length = u32::from_be_bytes(length);
        if length > LONGEST {
            return Err(BackupFormatError::Corrupt("an entry is longer than any can be"));
        }
        // The buffer grows as bytes come, so a wrong length takes no more memory than the file has bytes.
        let mut part = Vec::new();
        self.from
            .by_ref()
            .take(length.into())
            .read_to_end(&mut part)
            .map_err(BackupFormatError::Unreadable)?;
        if part.len() != length as usize {
            return Err(BackupFormatError::Truncated);
        }
        self.sum.update(&part);
        Ok(part)
    }

    fn verify_checksum(&mut self) -> Result<(), BackupFormatError> {
        let told: [u8; SHA256_OUTPUT_LEN] = self.read_exact()?;
        let sum = self.sum.clone().finish();
        if sum.as_ref() != told {
            return Err(BackupFormatError::Corrupt("its sum is another one"));
        }
        match self.from.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(BackupFormatError::Corrupt("something stands behind its end")),
            Err(error) => Err(BackupFormatError::Unreadable(error)),
        }
    }

    fn read_exact<const N: usize>(&mut self) -> Result<[u8; N], BackupFormatError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => BackupFormatError::Truncated,
            _ => BackupFormatError::Unreadable(error),
        })?;
        Ok(bytes)
    }
}
