//! What stands in a backup, in which order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::remembered::Identity;

/// The first line. The number is that of the written form.
pub(super) const FIRST_LINE: &[u8] = b"fencegate guard backup 1\n";

/// How every backup begins, of whichever form.
pub(in crate::store) const BEGINNING: &[u8] = b"fencegate guard backup ";

/// What a backup says of itself before its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Of the store that it is a copy of.
    pub identity: Identity,
    /// Seconds of the wall clock when it was made, for people.
    pub taken: u64,
    /// No mark in it is above this epoch, nor is its floor.
    pub highest: u64,
    pub floor: u64,
    pub era: u64,
    /// Seconds of the store's time; what an older build kept has none.
    pub time: Option<u64>,
    /// How long what was sent may take; what an older build kept does not say it.
    pub max_execution: Option<Duration>,
    /// Keys of which marks were remembered.
    pub marks: u64,
    /// Operations in the journal.
    pub operations: u64,
}

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A key, and the epochs of its marks: that of writes and that of reads, eight bytes each, zero for none.
    Mark,
    /// The id of an operation, and its entry.
    Operation,
}

/// One thing that the store remembered, as the store writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRow {
    pub kind: Kind,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// What stands before a row, and before the sum.
pub(super) const MARK: u8 = b'm';
pub(super) const OPERATION: u8 = b'o';
pub(super) const SUM: u8 = b's';

/// A name, or what is remembered under it, is not longer than this. Answers are kept up to `journal.store_body`, and no
/// answer that is kept has a gibibyte.
pub(super) const LONGEST: u32 = 1 << 30;
