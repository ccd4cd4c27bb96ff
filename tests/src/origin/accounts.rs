//! Accounts to which each request adds one. An execution reads the account when it begins, and writes it when it
//! ends, so two executions that overlap lose an addition.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use fencegate_policies::token::{FencingToken, ReadWriteWatermarks};
use tokio::sync::{Mutex as RowLock, OwnedMutexGuard};

use super::{AccessMode, RequestRecord};

/// The request field with the duration of the execution, in milliseconds.
pub const WORK: &str = "x-work";

/// The side that keeps the executions of an account apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountIsolation {
    /// The senders of the requests keep executions apart. The service reads, works, and writes the read value plus
    /// one.
    Trusting,
    /// The service keeps executions apart: it locks the row while it works, and refuses a token that is not newer
    /// than those before.
    Comparing,
}

/// A fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountFault {
    /// The connection is reset, and nothing is executed.
    ResetBefore,
    /// The request is executed, and the connection is reset before the answer.
    ResetAfter,
    InHead,
    InBody,
    /// The execution takes this much longer.
    Hangs(Duration),
}

pub(super) struct Accounts {
    rule: AccountIsolation,
    rows: Mutex<HashMap<String, Arc<RowLock<AccountRow>>>>,
    mishaps: Mutex<VecDeque<AccountFault>>,
}

/// One account.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccountRow {
    pub balance: u64,
    /// The newest token that was accepted for this account. `None` if the service compares no tokens.
    pub newest: Option<FencingToken>,
    marks: ReadWriteWatermarks,
}

/// An execution that has begun and not ended.
pub(super) struct AccountExecution {
    writes: bool,
    open: Vec<OpenRow>,
}

enum OpenRow {
    Read { row: Arc<RowLock<AccountRow>>, balance: u64 },
    Locked(OwnedMutexGuard<AccountRow>),
}

/// The request's token is not newer than the tokens of the row.
#[derive(Debug)]
pub(super) struct StaleTokenError;

impl Accounts {
    pub(super) fn new(rule: AccountIsolation) -> Self {
        Self { rule, rows: Mutex::default(), mishaps: Mutex::default() }
    }

    pub(super) fn queue_faults(&self, mishaps: impl IntoIterator<Item = AccountFault>) {
        self.mishaps.lock().expect("no thread panics here").extend(mishaps);
    }

    pub(super) fn next_fault(&self) -> Option<AccountFault> {
        self.mishaps.lock().expect("no thread panics here").pop_front()
    }

    pub(super) fn faults_left(&self) -> usize {
        self.mishaps.lock().expect("no thread panics here").len()
    }

    /// The rows of all keys that a request has named.
    pub(super) async fn rows(&self) -> BTreeMap<String, AccountRow> {
        let rows = self.rows.lock().expect("no thread panics here").clone();
        let mut seen = BTreeMap::new();
        for (key, row) in rows {
            seen.insert(key, *row.lock().await);
        }
        seen
    }

    /// Begins an execution. Waits for rows that another execution has locked.
    pub(super) async fn begin(&self, record: &RequestRecord) -> Result<AccountExecution, StaleTokenError> {
        let writes = record.access() == AccessMode::Exclusive;
        let mut open = Vec::new();
        // Gateways write the keys in the order of their names. All requests lock rows in this order, so no deadlock
        // is possible.
        for key in record.key().unwrap_or_default().split(", ") {
            let row = Arc::clone(
                self.rows.lock().expect("no thread panics here").entry(key.to_owned()).or_default(),
            );
            let mut locked = Arc::clone(&row).lock_owned().await;
            match self.rule {
                AccountIsolation::Trusting => open.push(OpenRow::Read { balance: locked.balance, row }),
                AccountIsolation::Comparing => {
                    locked.admits(record.expect_token(), writes)?;
                    open.push(OpenRow::Locked(locked));
                }
            }
        }
        Ok(AccountExecution { writes, open })
    }
}

impl AccountRow {
    fn admits(&mut self, token: FencingToken, writes: bool) -> Result<(), StaleTokenError> {
        let newer = if writes { self.marks.admit_write(token) } else { self.marks.admit_read(token) };
        newer.map_err(|_stale| StaleTokenError)?;
        self.newest = self.newest.max(Some(token));
        Ok(())
    }
}

impl AccountExecution {
    /// Writes the rows, calls `note`, and only then unlocks the rows for the next request.
    pub(super) async fn end(self, note: impl FnOnce()) {
        let mut locked = Vec::new();
        for open in self.open {
            let (mut row, balance) = match open {
                OpenRow::Read { row, balance } => (row.lock_owned().await, balance),
                OpenRow::Locked(row) => {
                    let balance = row.balance;
                    (row, balance)
                }
            };
            if self.writes {
                row.balance = balance + 1;
            }
            locked.push(row);
        }
        note();
    }
}
