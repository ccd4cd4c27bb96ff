//! Writes a backup row by row. A backup is a file with the contents of a store at one moment, and is no store
//! itself.
//!
//! A backup is a line with its name and version, the [`BackupHeader`] as a line of JSON, the rows, and the SHA-256 of
//! all bytes before it. So a file that was cut off, or has one changed bit, is refused as a whole. The sum detects
//! accidents, but no forgery: with write access to the file, an attacker can write the sum.

mod archive;
mod reader;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use aws_lc_rs::digest::{Context, SHA256};

pub(super) use self::archive::BEGINNING;
use self::archive::{FIRST_LINE, LONGEST, MARK, OPERATION, SUM};
pub use self::{
    archive::{BackupHeader, BackupRow, BackupRowKind},
    reader::{BackupFormatError, read_backup_rows, verify_backup},
};

/// A backup that is being written.
pub(in crate::store) struct BackupWriter<W> {
    out: W,
    sum: Context,
}

impl<W: Write> BackupWriter<W> {
    pub(in crate::store) fn begin(out: W, header: &BackupHeader) -> io::Result<Self> {
        let mut writing = Self { out, sum: Context::new(&SHA256) };
        writing.write(FIRST_LINE)?;
        let header = serde_json::to_vec(header).expect("plain fields serialise");
        writing.write(&header)?;
        writing.write(b"\n")?;
        Ok(writing)
    }

    pub(in crate::store) fn write_row(
        &mut self,
        kind: BackupRowKind,
        key: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        self.write(&[match kind {
            BackupRowKind::Mark => MARK,
            BackupRowKind::Operation => OPERATION,
        }])?;
        for part in [key, value] {
            let length = u32::try_from(part.len()).ok().filter(|length| *length <= LONGEST);
            let length = length.ok_or_else(|| io::Error::other("an entry is longer than any can be"))?;
            self.write(&length.to_be_bytes())?;
            self.write(part)?;
        }
        Ok(())
    }

    /// Writes the sum. Without it the backup is refused.
    pub(in crate::store) fn write_end(mut self) -> io::Result<()> {
        self.write(&[SUM])?;
        let sum = self.sum.finish();
        self.out.write_all(sum.as_ref())?;
        self.out.flush()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}
