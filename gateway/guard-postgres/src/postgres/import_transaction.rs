//! Copies a store into its tables, a batch at a time.

use std::time::Duration;

use fencegate_guard_store::{
    admission::TokenWatermark,
    operation::{JournalEntryState, OperationJournalEntry, StoredResponse},
    store::StoreIdentity,
};
use fencegate_policies::{key::ResourceKey, operation::OperationId, plan::LockMode, token::FencingToken};
use tokio_postgres::{
    Error, Transaction,
    types::{ToSql, Type},
};

use super::{
    config::{PostgresConfig, UnusableDatabaseError},
    connect::millis,
    instance::GuardTimeLimits,
    migrate::FORMAT,
    request::expires_at,
};

/// The single values of a store that is moved; without its keys and operations.
#[derive(Debug, Clone)]
pub struct ImportHeader {
    /// Names the move.
    pub id: String,
    /// The former location of the store, for display only.
    pub from: String,
    pub identity: StoreIdentity,
    pub floor: u64,
    pub era: u64,
    /// Seconds of the store's time.
    pub time: u64,
    /// How long every key stays closed; `None` if only the listed keys are.
    pub closed: Option<Duration>,
    /// The time limits of the guard that had the store before.
    pub terms: GuardTimeLimits,
}

/// A key with its watermarks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedKeyRow {
    pub key: ResourceKey,
    pub write: Option<TokenWatermark>,
    pub read: Option<TokenWatermark>,
}

/// An execution that may be at work on some keys; `left`: for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedOpenExecution {
    /// A unique name.
    pub name: String,
    pub keys: Vec<ResourceKey>,
    pub token: FencingToken,
    pub mode: LockMode,
    pub left: Duration,
}

/// The transaction that copies. If it is dropped, nothing was copied.
pub struct ImportTransaction<'i> {
    transaction: Transaction<'i>,
    place: &'i PostgresConfig,
    handed: ImportHeader,
    /// The id of the row that stands for the guard that had the store before.
    instance: i32,
    written: ImportedRowCounts,
}

/// The number of written rows, to compare with the tables at the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct ImportedRowCounts {
    keys: i64,
    unended: i64,
    operations: i64,
    bytes: i64,
    highest: i64,
}

/// The name of the row that stands for the guard that had the store before. Running guards have names of digits,
/// so none of them has this name.
const BEFORE: &str = "before the move";

impl<'i> ImportTransaction<'i> {
    pub(super) async fn begin(
        transaction: Transaction<'i>,
        handed: ImportHeader,
        place: &'i PostgresConfig,
    ) -> Result<Self, UnusableDatabaseError> {
        let mut copying =
            Self { transaction, place, handed, instance: 0, written: ImportedRowCounts::default() };
        copying.written.highest = copying.to_i64(copying.handed.floor)?;
        let GuardTimeLimits { send_within, max_execution, .. } = copying.handed.terms;
        let query = "INSERT INTO instance (name, renewed, dead, send_within, max_execution)
            VALUES ($1, $2, true, $3, $4) RETURNING id";
        let with: [&(dyn ToSql + Sync); 4] =
            [&BEFORE, &copying.store_time_millis()?, &millis(send_within), &millis(max_execution)];
        let row =
            copying.transaction.query_one(query, &with).await.map_err(|error| copying.query_error(&error))?;
        copying.instance = row.get(0);
        Ok(copying)
    }

    /// Writes the rows of some keys.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be written, as the other methods that write rows do.
    pub(crate) async fn insert_keys(
        &mut self,
        marked: &[ImportedKeyRow],
    ) -> Result<(), UnusableDatabaseError> {
        let keys: Vec<&str> = marked.iter().map(|marked| marked.key.as_str()).collect();
        let tokens = |of: fn(&ImportedKeyRow) -> Option<TokenWatermark>| -> Vec<Option<String>> {
            marked.iter().map(|marked| of(marked).map(|watermark| watermark.token.to_string())).collect()
        };
        let write = tokens(|marked| marked.write);
        let read = tokens(|marked| marked.read);
        let exact: Vec<bool> =
            marked.iter().map(|marked| marked.write.is_none_or(|watermark| watermark.exact)).collect();
        for watermark in marked.iter().flat_map(|marked| [marked.write, marked.read]).flatten() {
            self.written.highest = self.written.highest.max(self.to_i64(watermark.token.number())?);
        }
        // The keys count as used until now, as after any start. So they are evicted late rather than early.
        let query = "INSERT INTO key (key, write, exact, read, base, used)
            SELECT *, $5, $6 FROM unnest($1, $2, $3, $4)";
        let types =
            [Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::TEXT_ARRAY, Type::INT8, Type::INT8];
        let base = self.to_i64(self.handed.floor)?;
        let used = self.store_time_millis()?;
        self.written.keys += count(&keys);
        self.insert(query, &types, &[&keys, &write, &exact, &read, &base, &used]).await
    }

    pub(crate) async fn insert_executions(
        &mut self,
        unended: &[ImportedOpenExecution],
    ) -> Result<(), UnusableDatabaseError> {
        let each = || unended.iter().flat_map(|one| one.keys.iter().map(move |key| (key, one)));
        let keys: Vec<&str> = each().map(|(key, _)| key.as_str()).collect();
        let names: Vec<&str> = each().map(|(_, one)| one.name.as_str()).collect();
        let tokens: Vec<String> = each().map(|(_, one)| one.token.to_string()).collect();
        let shared: Vec<bool> = each().map(|(_, one)| one.mode == LockMode::Shared).collect();
        let left: Vec<i64> = each().map(|(_, one)| millis(one.left)).collect();
        let query = "INSERT INTO at_work (key, id, instance, token, shared, began, longest, until)
            SELECT u.key, u.id, $6, u.token, u.shared, $7, u.remains, $7 + u.remains
            FROM unnest($1, $2, $3, $4, $5) AS u (key, id, token, shared, remains)";
        let types = [
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::BOOL_ARRAY,
            Type::INT8_ARRAY,
            Type::INT4,
            Type::INT8,
        ];
        let instance = self.instance;
        let time = self.store_time_millis()?;
        self.written.unended += count(&keys);
        self.insert(query, &types, &[&keys, &names, &tokens, &shared, &left, &instance, &time]).await
    }

    pub(crate) async fn insert_operations(
        &mut self,
        operations: &[(OperationId, OperationJournalEntry)],
    ) -> Result<(), UnusableDatabaseError> {
        let ids: Vec<&[u8]> = operations.iter().map(|(id, _)| id.as_bytes().as_slice()).collect();
        let text = |entry| serde_json::to_string(entry).expect("plain fields serialise");
        let entries: Vec<String> = operations.iter().map(|(_, entry)| text(entry)).collect();
        let bodies: Vec<Option<&[u8]>> = operations.iter().map(|(_, entry)| response_body(entry)).collect();
        let taken = |(entry, body): (&String, &Option<&[u8]>)| {
            i64::try_from(entry.len() + body.map_or(0, <[u8]>::len) + 64).unwrap_or(i64::MAX)
        };
        let bytes: Vec<i64> = entries.iter().zip(&bodies).map(taken).collect();
        let ends: Vec<Option<i64>> = operations.iter().map(|(_, entry)| expires_at(entry)).collect();
        let query = "INSERT INTO operation (id, entry, body, bytes, ends)
            SELECT * FROM unnest($1, $2, $3, $4, $5)";
        let types =
            [Type::BYTEA_ARRAY, Type::TEXT_ARRAY, Type::BYTEA_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY];
        self.written.bytes += bytes.iter().sum::<i64>();
        self.written.operations += count(&ids);
        self.insert(query, &types, &[&ids, &entries, &bodies, &bytes, &ends]).await
    }

    /// Checks that everything was copied, and commits.
    pub(super) async fn commit(self) -> Result<(), UnusableDatabaseError> {
        let counted = "SELECT (SELECT count(*) FROM key), (SELECT count(*) FROM at_work), (SELECT count(*) FROM operation)";
        let row = self.transaction.query_one(counted, &[]).await.map_err(|error| self.query_error(&error))?;
        let ImportedRowCounts { keys, unended, operations, bytes, highest } = self.written;
        if (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)) != (keys, unended, operations) {
            return Err(self.mismatch_error("other rows are there than were written"));
        }
        let time = self.store_time_millis()?;
        let floor = self.to_i64(self.handed.floor)?;
        let era = i64::try_from(self.handed.era).unwrap_or(i64::MAX);
        let ImportHeader { id, from, identity, closed, .. } = &self.handed;
        let closed_until = closed.map(|closed| time.saturating_add(millis(closed)));
        let closed_why = closed.map(|_| "new");
        let query = "INSERT INTO moved_in (id, came_from, format, store, ensemble, floor, highest, entries, bytes, era,
                time, closed_until, closed_why)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
        let format = FORMAT as i32;
        let with: [&(dyn ToSql + Sync); 13] = [
            id,
            from,
            &format,
            &identity.store,
            &identity.ensemble,
            &floor,
            &highest,
            &operations,
            &bytes,
            &era,
            &time,
            &closed_until,
            &closed_why,
        ];
        self.transaction.execute(query, &with).await.map_err(|error| self.query_error(&error))?;
        let place = self.place;
        self.transaction.commit().await.map_err(|error| place.database_error(&error))
    }

    async fn insert(
        &self,
        query: &str,
        types: &[Type],
        with: &[&(dyn ToSql + Sync)],
    ) -> Result<(), UnusableDatabaseError> {
        let failed = |error: Error| self.query_error(&error);
        let prepared = self.transaction.prepare_typed(query, types).await.map_err(failed)?;
        self.transaction.execute(&prepared, with).await.map_err(failed).map(drop)
    }

    /// Milliseconds of the store's time.
    fn store_time_millis(&self) -> Result<i64, UnusableDatabaseError> {
        self.to_i64(self.handed.time.saturating_mul(1000))
    }

    fn to_i64(&self, number: u64) -> Result<i64, UnusableDatabaseError> {
        i64::try_from(number).map_err(|_| self.mismatch_error("a number of the store is beyond 2^63"))
    }

    fn query_error(&self, error: &Error) -> UnusableDatabaseError {
        self.place.database_error(error)
    }

    fn mismatch_error(&self, why: &str) -> UnusableDatabaseError {
        UnusableDatabaseError::Failed { place: self.place.to_string(), why: why.to_owned() }
    }
}

fn count<T>(rows: &[T]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}

/// The body of the kept response, if there is one.
fn response_body(entry: &OperationJournalEntry) -> Option<&[u8]> {
    match &entry.state {
        JournalEntryState::Done { answer: Some(StoredResponse { body, .. }), .. } => body.as_deref(),
        _ => None,
    }
}
