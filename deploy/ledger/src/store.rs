//! The database: executes orders, refuses stale ones in the same transaction, remembers every execution.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fencegate_upstream::{ClaimError, Number};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use serde::Serialize;

use crate::fencing::{FencingStamp, TokenComparison};
use crate::order::{BalanceChange, LedgerResource, Order};
use crate::watermarks::{RAISE_NUMBER, RAISE_TOKEN, READ_NUMBER, READ_TOKEN, WatermarkTransaction};

#[derive(Debug)]
pub(crate) struct LedgerStore {
    /// Writers queue for this mutex, because SQLite itself would only sleep and try again.
    writer: Mutex<Connection>,
    /// The connection for reads, which sees the last commit even while a writer is at work.
    reader: Mutex<Connection>,
    refusals: Mutex<LedgerRefusalStats>,
    work_time: Duration,
    /// The temporary folder, which is deleted on drop.
    _folder: Option<tempfile::TempDir>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OrderOutcome {
    /// The new balance of each changed resource, and the number of the last recorded execution.
    Done {
        balances: Vec<i64>,
        sequence: i64,
    },
    Insufficient {
        available: i64,
    },
    Stale,
}

/// The effect of one run of the business logic on one resource. Two effective executions of a key must not overlap, and
/// must be in the order of their tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Execution {
    sequence: i64,
    operation: String,
    key: String,
    token: Option<String>,
    number: Option<i64>,
    /// Cents or units that the execution added; negative when it took some, 0 when it had no effect.
    change: i64,
    /// The start of the execution in nanoseconds of CLOCK_MONOTONIC, read after the write lock was taken. The end is
    /// read just before the commit.
    begin_ns: i64,
    end_ns: i64,
    /// False if the balance was too small: the order was executed and its token counts, but it changed nothing.
    effective: bool,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct LedgerRefusalStats {
    pub(crate) stale: u64,
    pub(crate) latest: Option<LedgerRefusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LedgerRefusal {
    operation: String,
    key: String,
    presented: Option<String>,
    newest: Option<String>,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS balances (key TEXT PRIMARY KEY, amount INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS marks (
        key TEXT PRIMARY KEY, token TEXT NOT NULL, number INTEGER NOT NULL,
        read_token TEXT NOT NULL DEFAULT '', read_number INTEGER NOT NULL DEFAULT -1
    ) STRICT;
    CREATE TABLE IF NOT EXISTS executions (
        sequence INTEGER PRIMARY KEY, operation TEXT NOT NULL, key TEXT NOT NULL, token TEXT, number INTEGER,
        change INTEGER NOT NULL, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, effective INTEGER NOT NULL
    ) STRICT;";

impl LedgerStore {
    /// Opens or makes the database in `file`. Each acknowledged change survives a power failure.
    ///
    /// # Errors
    /// Returns an error if SQLite cannot open the database.
    pub(crate) fn open(file: &Path, work_time: Duration) -> rusqlite::Result<Self> {
        let writer = connect(file, "FULL")?;
        let reader = connect(file, "FULL")?;
        Ok(Self::new(writer, reader, work_time, None))
    }

    /// A temporary database, which is deleted with the process.
    ///
    /// # Errors
    /// Returns an error if the temporary folder or the database in it cannot be made.
    pub(crate) fn temporary(work_time: Duration) -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("ledger.sqlite");
        // The file is deleted with the process, so its changes need not reach the disk.
        let writer = connect(&file, "OFF")?;
        let reader = connect(&file, "OFF")?;
        Ok(Self::new(writer, reader, work_time, Some(folder)))
    }

    fn new(
        writer: Connection,
        reader: Connection,
        work_time: Duration,
        folder: Option<tempfile::TempDir>,
    ) -> Self {
        let writer = Mutex::new(writer);
        let reader = Mutex::new(reader);
        Self { writer, reader, refusals: Mutex::default(), work_time, _folder: folder }
    }

    /// Runs the business logic for `order`, once for every call that is not stale.
    ///
    /// # Errors
    /// Returns an error if the database fails; then nothing was changed.
    pub(crate) fn execute(
        &self,
        order: &Order,
        stamp: &FencingStamp,
        compare: TokenComparison,
    ) -> rusqlite::Result<OrderOutcome> {
        match compare {
            TokenComparison::Token => self.execute_fenced(order, stamp, RAISE_TOKEN),
            TokenComparison::Number => self.execute_fenced(order, stamp, RAISE_NUMBER),
            TokenComparison::Off => self.execute_unfenced(order, stamp),
        }
    }

    /// Compares the tokens, applies the order and records the execution in one transaction.
    fn execute_fenced(
        &self,
        order: &Order,
        stamp: &FencingStamp,
        raise: &str,
    ) -> rusqlite::Result<OrderOutcome> {
        let mut writer = lock_mutex(&self.writer);
        // `Immediate` takes the write lock at the start, so that the rows read below do not change before the commit.
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let begin_ns = now_ns();
        if !self.claim_keys(&transaction, raise, &order.keys(), stamp, &order.operation)? {
            return Ok(OrderOutcome::Stale);
        }

        let before = balances(&transaction, order)?;
        thread::sleep(self.work_time);
        let outcome = apply_changes(&transaction, order, stamp, begin_ns, &before)?;
        // Committed even without an effect: the client is told that the balance is too small, so no older request may
        // succeed after that.
        transaction.commit()?;
        Ok(outcome)
    }

    /// The balance in cents or units, for a request in mode `shared`; `None` if a newer write has been executed. The
    /// same transaction raises the watermark of reads.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(crate) fn read_fenced(
        &self,
        resource: &LedgerResource,
        stamp: &FencingStamp,
        compare: TokenComparison,
    ) -> rusqlite::Result<Option<i64>> {
        let raise = match compare {
            TokenComparison::Token => READ_TOKEN,
            TokenComparison::Number => READ_NUMBER,
            TokenComparison::Off => return self.balance(resource).map(Some),
        };
        let mut writer = lock_mutex(&self.writer);
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !self.claim_keys(&transaction, raise, &[resource.to_string()], stamp, "read")? {
            return Ok(None);
        }
        let there = balance(&transaction, resource)?;
        transaction.commit()?;
        Ok(Some(there))
    }

    /// Claims the fence of the request. Returns false if the request is stale, and counts the refusal.
    fn claim_keys(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        statement: &str,
        keys: &[String],
        stamp: &FencingStamp,
        operation: &str,
    ) -> rusqlite::Result<bool> {
        let fence = stamp.fence.as_ref().expect("what is compared has passed the layer");
        let mut raising = WatermarkTransaction { transaction, statement, stamp, stale: None };
        match fence.claim_keys(&mut raising, keys) {
            Ok(()) => return Ok(true),
            Err(ClaimError::Database(error)) => return Err(error),
            Err(ClaimError::Stale) => {}
        }
        let key = raising.stale.expect("one of them");
        let marks = "SELECT max(token, read_token) FROM marks WHERE key = ?1";
        let newest = transaction.query_row(marks, [&key], |row| row.get(0)).optional()?;
        let presented = stamp.token.map(|token| token.to_string());
        self.record_refusal(LedgerRefusal { operation: operation.to_owned(), key, presented, newest });
        Ok(false)
    }

    /// Reads, works and writes without a transaction and without a comparison. Two runs at once lose one of the
    /// effects, and a late run overwrites a newer one. The demo shows by it what fencing prevents.
    fn execute_unfenced(&self, order: &Order, stamp: &FencingStamp) -> rusqlite::Result<OrderOutcome> {
        let begin_ns = now_ns();
        let before = balances(&lock_mutex(&self.reader), order)?;
        thread::sleep(self.work_time);
        apply_changes(&lock_mutex(&self.writer), order, stamp, begin_ns, &before)
    }

    /// The balance in cents or units.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(crate) fn balance(&self, resource: &LedgerResource) -> rusqlite::Result<i64> {
        balance(&lock_mutex(&self.reader), resource)
    }

    /// The next executions after the one with the number `after`, oldest first, at most 1000.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(crate) fn executions(&self, after: i64) -> rusqlite::Result<Vec<Execution>> {
        let reader = lock_mutex(&self.reader);
        let mut statement = reader.prepare_cached(
            "SELECT sequence, operation, key, token, number, change, begin_ns, end_ns, effective
             FROM executions WHERE sequence > ?1 ORDER BY sequence LIMIT 1000",
        )?;
        let rows = statement.query_map([after], |row| {
            Ok(Execution {
                sequence: row.get(0)?,
                operation: row.get(1)?,
                key: row.get(2)?,
                token: row.get(3)?,
                number: row.get(4)?,
                change: row.get(5)?,
                begin_ns: row.get(6)?,
                end_ns: row.get(7)?,
                effective: row.get(8)?,
            })
        })?;
        rows.collect()
    }

    /// The refusals since the start of the process.
    pub(crate) fn refusals(&self) -> LedgerRefusalStats {
        lock_mutex(&self.refusals).clone()
    }

    fn record_refusal(&self, refusal: LedgerRefusal) {
        let mut refusals = lock_mutex(&self.refusals);
        refusals.stale += 1;
        refusals.latest = Some(refusal);
    }
}

fn connect(file: &Path, synchronous: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

fn balance(connection: &Connection, resource: &LedgerResource) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT amount FROM balances WHERE key = ?1")?;
    let amount = statement.query_row([resource.to_string()], |row| row.get(0)).optional()?;
    Ok(amount.unwrap_or_else(|| resource.initial_balance()))
}

/// The balances of the changed resources, in the order of the changes.
fn balances(connection: &Connection, order: &Order) -> rusqlite::Result<Vec<i64>> {
    order.changes.iter().map(|change| balance(connection, &change.resource)).collect()
}

/// Writes all new balances, or none if a balance is too small. Records the execution in both cases.
fn apply_changes(
    connection: &Connection,
    order: &Order,
    stamp: &FencingStamp,
    begin_ns: i64,
    before: &[i64],
) -> rusqlite::Result<OrderOutcome> {
    let mut balances = Vec::with_capacity(before.len());
    let mut missing = None;
    for (change, before) in order.changes.iter().zip(before) {
        match before.checked_add(change.amount).filter(|after| *after >= 0) {
            Some(after) => balances.push(after),
            None => missing = missing.or(Some(*before)),
        }
    }
    if missing.is_none() {
        let mut statement = connection.prepare_cached(
            "INSERT INTO balances (key, amount) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET amount = excluded.amount",
        )?;
        for (change, after) in order.changes.iter().zip(&balances) {
            statement.execute(params![change.resource.to_string(), after])?;
        }
    }
    let mut sequence = 0;
    for change in &order.changes {
        sequence = record(connection, &order.operation, change, stamp, begin_ns, missing.is_none())?;
    }
    Ok(match missing {
        None => OrderOutcome::Done { balances, sequence },
        Some(available) => OrderOutcome::Insufficient { available },
    })
}

fn record(
    connection: &Connection,
    operation: &str,
    change: &BalanceChange,
    stamp: &FencingStamp,
    begin_ns: i64,
    effective: bool,
) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO executions (operation, key, token, number, change, begin_ns, end_ns, effective)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    statement.insert(params![
        operation,
        change.resource.to_string(),
        stamp.token.map(|token| token.to_string()),
        stamp.number.map(Number::as_i64),
        if effective { change.amount } else { 0 },
        begin_ns,
        now_ns(),
        effective,
    ])
}

/// CLOCK_MONOTONIC: one clock for all processes of this machine, which no operator can set.
fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// A poisoned lock does no harm: SQLite rolls an unfinished transaction back.
fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
