//! The parts of a backup, in their order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::recovery::StoreIdentity;

/// The first line, with the version of the format.
pub(super) const FIRST_LINE: &[u8] = b"fencegate guard backup 1\n";

/// The beginning of every backup, of any version.
pub(in crate::store) const BEGINNING: &[u8] = b"fencegate guard backup ";

/// The facts about a backup, before its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    /// The identity of the store that was copied.
    pub identity: StoreIdentity,
    /// The time at which the backup was made, in seconds of the wall clock; for display only.
    pub taken: u64,
    /// No watermark in the backup is above this epoch, nor is the backup's floor.
    pub highest: u64,
    pub floor: u64,
    pub era: u64,
    /// Seconds of the store's time; a store of an older build has none.
    pub time: Option<u64>,
    /// How long executions may take; a store of an older build does not have this.
    pub max_execution: Option<Duration>,
    /// The number of keys with watermarks.
    pub marks: u64,
    /// Operations in the journal.
    pub operations: u64,
}

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupRowKind {
    /// A key, and the epochs of its watermarks: that of writes and that of reads, eight bytes each, zero for none.
    Mark,
    /// The id of an operation, and its entry.
    Operation,
}

/// One row of a backup, in the store's own form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRow {
    pub kind: BackupRowKind,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The bytes before each kind of row, and before the sum.
pub(super) const MARK: u8 = b'm';
pub(super) const OPERATION: u8 = b'o';
pub(super) const SUM: u8 = b's';

/// The longest key or value of a row. Responses are kept up to `journal.store_body`, which is far below a gibibyte.
pub(super) const LONGEST: u32 = 1 << 30;
