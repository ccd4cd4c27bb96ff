//! Accounts to which every request adds one: read as its execution begins, and written as it ends. Two that overlap lose an addition.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use fencegate_policies::token::{FencingToken, ReadWriteWatermarks};
use tokio::sync::{Mutex as RowLock, OwnedMutexGuard};

use super::{AccessMode, RequestRecord};

/// The request field that says for how many milliseconds its execution works.
pub const WORK: &str = "x-work";

/// What keeps the executions of an account apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountIsolation {
    /// The senders of the requests. The service reads, works, and writes the read value plus one.
    Trusting,
    /// The service. It works with the row locked, and refuses a token that is not newer than those before.
    Comparing,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountFault {
    /// The connection is reset, and nothing is executed.
    ResetBefore,
    /// It is executed, and the connection is reset before the answer.
    ResetAfter,
    InHead,
    InBody,
    /// Its execution takes so much longer.
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
    /// The newest token of those that it compared.
    pub newest: Option<FencingToken>,
    marks: ReadWriteWatermarks,
}

/// An execution between its begin and its end.
pub(super) struct AccountExecution {
    writes: bool,
    open: Vec<OpenRow>,
}

enum OpenRow {
    Read { row: Arc<RowLock<AccountRow>>, balance: u64 },
    Locked(OwnedMutexGuard<AccountRow>),
}

/// The row has a newer token.
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

    /// The rows of all keys that were ever named.
    pub(super) async fn rows(&self) -> BTreeMap<String, AccountRow> {
        let rows = self.rows.lock().expect("no thread panics here").clone();
        let mut seen = BTreeMap::new();
        for (key, row) in rows {
            seen.insert(key, *row.lock().await);
        }
        seen
    }

    /// Waits for the rows where they are locked.
    pub(super) async fn begin(&self, record: &RequestRecord) -> Result<AccountExecution, StaleTokenError> {
        let writes = record.access() == AccessMode::Exclusive;
        let mut open = Vec::new();
        // In the order of their names, in which gateways write them: so no deadlock is possible.
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
    /// Writes, reports that, and only then lets the next request at the rows.
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
