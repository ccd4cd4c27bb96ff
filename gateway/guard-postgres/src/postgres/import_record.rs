//! The row in a schema that records a store copied into it from a file.

use tokio_postgres::{Client, Error};

use super::config::{PostgresConfig, UnusableDatabaseError};

/// A copy, which may or may not be the store of the schema yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRecord {
    /// Names the move.
    pub id: String,
    /// Where the store was before, for display only.
    pub from: String,
    /// The name of the store.
    pub store: String,
    /// The format of the store.
    pub(super) format: u32,
}

impl ImportRecord {
    /// The error for a copy that is not the store yet.
    pub(super) fn into_error(self, place: &PostgresConfig) -> UnusableDatabaseError {
        UnusableDatabaseError::Unfinished { place: place.to_string(), from: self.from }
    }
}

/// Reads that row, if there is one.
pub(super) async fn read_record(
    client: &Client,
    place: &PostgresConfig,
) -> Result<Option<ImportRecord>, UnusableDatabaseError> {
    let failed = |error: Error| place.connect_error(&error);
    let table = format!("{}.moved_in", place.schema);
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await.map_err(failed)?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let query = format!("SELECT id, came_from, store, format FROM {table}");
    let row = client.query_opt(&query, &[]).await.map_err(failed)?;
    Ok(row.map(|row| {
        let format = u32::try_from(row.get::<_, i32>(3)).unwrap_or_default();
        ImportRecord { id: row.get(0), from: row.get(1), store: row.get(2), format }
    }))
}
