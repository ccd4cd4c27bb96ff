//! The stored format of a store: creates it, and upgrades an older one to the format that this build reads, and reads
//! whether the store was copied from a file.

use fencegate_guard_store::store::StoreIdentity;
use tokio_postgres::{Client, Error};

use super::{
    config::{PostgresConfig, UnusableDatabaseError},
    connect::{PostgresConnection, PostgresConnectionPurpose},
};

/// The steps from each format to the next. Step 1 makes the first format in an empty schema.
const STEPS: [&[&str]; 4] = [
    &[include_str!("sql/tables.sql"), include_str!("sql/act.sql"), include_str!("sql/tend.sql")],
    &[include_str!("sql/called.sql")],
    &[include_str!("sql/heard.sql"), include_str!("sql/rights.sql")],
    &[include_str!("sql/longest.sql"), include_str!("sql/disown.sql")],
];

/// The newest stored format that this build understands.
pub const FORMAT: u32 = STEPS.len() as u32;

/// Takes the lock for changes of the format, so that two processes change it one after the other.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('fencegate migrates ' || $1, 0))";

/// Takes the lock for changes of the format for a whole session, if it is free.
pub(super) const LOCK_IF_FREE: &str =
    "SELECT pg_try_advisory_lock(hashtextextended('fencegate migrates ' || $1, 0))";

/// Releases the lock that `LOCK_IF_FREE` has taken.
pub(super) const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended('fencegate migrates ' || $1, 0))";

/// Creates schema, tables and functions, with a floor up to which no token will be admitted.
pub(super) async fn init(
    place: &PostgresConfig,
    identity: &StoreIdentity,
    floor: u64,
) -> Result<(), UnusableDatabaseError> {
    let mut connection = PostgresConnection::open(place, PostgresConnectionPurpose::Setup, "init").await?;
    connection.check_replication(place).await?;
    let failed = |error: Error| place.database_error(&error);
    let floor = i64::try_from(floor).map_err(|_| UnusableDatabaseError::Failed {
        place: place.to_string(),
        why: "a floor is below 2^63".into(),
    })?;
    let transaction = connection.client_mut().transaction().await.map_err(failed)?;
    transaction.query_one(LOCK, &[&&*place.schema]).await.map_err(failed)?;
    if find_store(transaction.client(), place).await?.is_some() {
        return Err(UnusableDatabaseError::Exists { place: place.to_string() });
    }
    if let Some(copied) = read_record(transaction.client(), place).await? {
        return Err(copied.into_unfinished_import_error(place));
    }
    let schema = format!("CREATE SCHEMA IF NOT EXISTS {}", place.schema);
    transaction.batch_execute(&schema).await.map_err(failed)?;
    upgrade(transaction.client(), place, 0).await?;
    transaction
        .execute(
            &format!(
                "INSERT INTO {}.store (format, store, ensemble, floor, highest, closed_why)
                 VALUES ($1, $2, $3, $4, $4, 'new')",
                place.schema
            ),
            &[&(FORMAT as i32), &identity.store, &identity.ensemble, &floor],
        )
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// The identity of the store. An older format is upgraded first.
pub(super) async fn open_and_upgrade(place: &PostgresConfig) -> Result<StoreIdentity, UnusableDatabaseError> {
    let mut connection = PostgresConnection::open(place, PostgresConnectionPurpose::Setup, "open").await?;
    let Some((mut format, identity)) = find_store(connection.client(), place).await? else {
        return Err(missing_store_error(connection.client(), place).await?);
    };
    if format < FORMAT {
        let failed = |error: Error| place.database_error(&error);
        let transaction = connection.client_mut().transaction().await.map_err(failed)?;
        transaction.query_one(LOCK, &[&&*place.schema]).await.map_err(failed)?;
        let gone = || UnusableDatabaseError::Missing { place: place.to_string() };
        format = find_store(transaction.client(), place).await?.ok_or_else(gone)?.0;
        upgrade(transaction.client(), place, format).await?;
        let told = format!("UPDATE {}.store SET format = greatest(format, $1)", place.schema);
        transaction.execute(&told, &[&(FORMAT as i32)]).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
    }
    if format > FORMAT {
        return Err(UnusableDatabaseError::Newer { place: place.to_string(), found: format, reads: FORMAT });
    }
    Ok(identity)
}

/// The identity of the store. Changes nothing.
pub(super) async fn read_identity(place: &PostgresConfig) -> Result<StoreIdentity, UnusableDatabaseError> {
    let connection = PostgresConnection::open(place, PostgresConnectionPurpose::Setup, "inspect").await?;
    connection.check_replication(place).await?;
    match find_store(connection.client(), place).await? {
        None => Err(missing_store_error(connection.client(), place).await?),
        Some((format, _)) if format > FORMAT => {
            Err(UnusableDatabaseError::Newer { place: place.to_string(), found: format, reads: FORMAT })
        }
        Some((_, identity)) => Ok(identity),
    }
}

/// The error for a missing store, which depends on what is there instead.
async fn missing_store_error(
    client: &Client,
    place: &PostgresConfig,
) -> Result<UnusableDatabaseError, UnusableDatabaseError> {
    let missing = UnusableDatabaseError::Missing { place: place.to_string() };
    Ok(read_record(client, place).await?.map_or(missing, |copied| copied.into_unfinished_import_error(place)))
}

/// Does all steps after the format `from`, in the transaction that the caller has begun.
pub(super) async fn upgrade(
    client: &Client,
    place: &PostgresConfig,
    from: u32,
) -> Result<(), UnusableDatabaseError> {
    let failed = |error: Error| place.database_error(&error);
    let schema = format!("SET LOCAL search_path = {}", place.schema);
    client.batch_execute(&schema).await.map_err(failed)?;
    for step in STEPS.iter().skip(from as usize) {
        for text in *step {
            client.batch_execute(text).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// Format and identity of a store; `None` if there is none.
pub(super) async fn find_store(
    client: &Client,
    place: &PostgresConfig,
) -> Result<Option<(u32, StoreIdentity)>, UnusableDatabaseError> {
    let failed = |error: Error| place.database_error(&error);
    let table = format!("{}.store", place.schema);
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await.map_err(failed)?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let query = format!("SELECT format, store, ensemble FROM {table}");
    let row = client.query_opt(&query, &[]).await.map_err(failed)?;
    Ok(row.map(|row| {
        let format = u32::try_from(row.get::<_, i32>(0)).unwrap_or_default();
        (format, StoreIdentity { format, store: row.get(1), ensemble: row.get(2) })
    }))
}

/// The record of a copy, which may or may not be the store of the schema yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportMarker {
    /// Names the move.
    pub id: String,
    /// The former location of the store, for display only.
    pub from: String,
    /// The name of the store.
    pub store: String,
    /// The format of the store.
    pub(super) format: u32,
}

impl ImportMarker {
    /// The error for a copy that is not the store yet.
    pub(super) fn into_unfinished_import_error(self, place: &PostgresConfig) -> UnusableDatabaseError {
        UnusableDatabaseError::Unfinished { place: place.to_string(), from: self.from }
    }
}

/// Reads the row of the schema that records a store copied into it from a file, if there is one.
pub(super) async fn read_record(
    client: &Client,
    place: &PostgresConfig,
) -> Result<Option<ImportMarker>, UnusableDatabaseError> {
    let failed = |error: Error| place.database_error(&error);
    let table = format!("{}.moved_in", place.schema);
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await.map_err(failed)?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let query = format!("SELECT id, came_from, store, format FROM {table}");
    let row = client.query_opt(&query, &[]).await.map_err(failed)?;
    Ok(row.map(|row| {
        let format = u32::try_from(row.get::<_, i32>(3)).unwrap_or_default();
        ImportMarker { id: row.get(0), from: row.get(1), store: row.get(2), format }
    }))
}
