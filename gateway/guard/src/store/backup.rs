//! The written form of a backup: what a store held at one moment, as a file that is no store itself.
//!
//! A line that says what it is, a line of JSON, the [`Header`]; rows; and the SHA-256 of all that stands before it. So a
//! file that was cut off, or of which one bit has changed, is refused as a whole. The sum tells accidents and not forgers:
//! whoever can write the file can write the sum.

mod archive;
mod reader;
#[cfg(test)]
mod tests;
mod write;

pub(super) use self::{archive::BEGINNING, write::BackupWriter};
pub use self::{
    archive::{BackupRow, Header, Kind},
    reader::{Broken, read, verify},
};
