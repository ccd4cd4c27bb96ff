//! The row in a schema that tells of a store copied into it from a file.

use tokio_postgres::{Client, Error};

use super::place::{NotUsable, Place};

/// A copy, which may or may not be the store of the schema yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Names the move.
    pub id: String,
    /// Where the store was before, for people.
    pub from: String,
    /// The name of the store.
    pub store: String,
    /// The format of the store.
    pub(super) format: u32,
}

impl Copied {
    /// The error for a copy that is not the store yet.
    pub(super) fn unfinished(self, place: &Place) -> NotUsable {
        NotUsable::Unfinished { place: place.to_string(), from: self.from }
    }
}

/// Reads that row, if there is one.
pub(super) async fn copied(client: &Client, place: &Place) -> Result<Option<Copied>, NotUsable> {
    let failed = |error: Error| place.failed(&error);
    let table = format!("{}.moved_in", place.schema);
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await.map_err(failed)?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let question = format!("SELECT id, came_from, store, format FROM {table}");
    let row = client.query_opt(&question, &[]).await.map_err(failed)?;
    Ok(row.map(|row| {
        let format = u32::try_from(row.get::<_, i32>(3)).unwrap_or_default();
        Copied { id: row.get(0), from: row.get(1), store: row.get(2), format }
    }))
}
