//! The written form of a backup: the contents of a store at one moment, in a file that is no store itself.
//!
//! A backup is a line with its name and version, the [`BackupHeader`] as a line of JSON, the rows, and the SHA-256 of
//! all bytes before it. So a file that was cut off, or has one changed bit, is refused as a whole. The sum detects
//! accidents, but no forgery: with write access to the file, an attacker can write the sum.

mod archive;
mod reader;
#[cfg(test)]
mod tests;
mod write;

pub(super) use self::{archive::BEGINNING, write::BackupWriter};
pub use self::{
    archive::{BackupHeader, BackupRow, RowKind},
    reader::{BackupFormatError, read_backup_rows, verify_backup},
};
