//! Reads the journal. Only the holder of an operation's lock changes its entry.

use bytes::Bytes;
use fencegate_guard_store::operation::{JournalEntryState, OperationJournalEntry};
use fencegate_policies::operation::OperationId;
use tokio_postgres::Row;

use super::{error::PostgresError, instance::PostgresStore};

/// True for operations that no living guard has reserved.
const FREE: &str = "NOT EXISTS (SELECT FROM $$.held h JOIN $$.instance n ON n.id = h.instance AND NOT n.dead
    WHERE h.operation = o.id)";

impl PostgresStore {
    /// The entry of an operation.
    ///
    /// # Errors
    /// Returns an error if the entry cannot be read.
    pub async fn operation(&self, id: &OperationId) -> Result<Option<OperationJournalEntry>, PostgresError> {
        let query = "SELECT id, entry, body FROM $$.operation WHERE id = $1";
        let rows = self.instance.query_rows(query, &[&id.as_bytes().as_slice()]).await?;
        rows.first().map(|row| parse_row(row).map(|(_, entry)| entry)).transpose()
    }

    /// Operations with an unknown outcome that are not reserved.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub async fn unresolved_operations(
        &self,
        most: usize,
    ) -> Result<Vec<(OperationId, OperationJournalEntry)>, PostgresError> {
        let query = format!(
            "SELECT id, entry, body FROM $$.operation o WHERE ends IS NULL AND {FREE} ORDER BY id LIMIT $1"
        );
        let rows = self.instance.query_rows(&query, &[&i64::try_from(most).unwrap_or(i64::MAX)]).await?;
        rows.iter().map(parse_row).collect()
    }

    /// The number of operations with an unknown outcome that are not reserved, at most `most`.
    ///
    /// # Errors
    /// Returns an error if they cannot be counted.
    pub async fn count_unknown(&self, most: usize) -> Result<usize, PostgresError> {
        let query = format!(
            "SELECT count(*) FROM (SELECT FROM $$.operation o WHERE ends IS NULL AND {FREE} LIMIT $1) AS open"
        );
        let rows = self.instance.query_rows(&query, &[&i64::try_from(most).unwrap_or(i64::MAX)]).await?;
        let count = rows.first().map(|row| row.get::<_, i64>(0)).unwrap_or_default();
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// The operation with this reference.
    ///
    /// # Errors
    /// Returns an error if the operation cannot be read.
    pub async fn find_by_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(OperationId, OperationJournalEntry)>, PostgresError> {
        let Some((first, last)) = OperationId::ids_with_reference(reference) else { return Ok(None) };
        let query = "SELECT id, entry, body FROM $$.operation WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT 1";
        let range = (first.as_bytes().as_slice(), last.as_bytes().as_slice());
        let rows = self.instance.query_rows(query, &[&range.0, &range.1]).await?;
        rows.first().map(parse_row).transpose()
    }
}

fn parse_row(row: &Row) -> Result<(OperationId, OperationJournalEntry), PostgresError> {
    let damaged = || PostgresError::Refused("an operation is damaged".into());
    let id: &[u8] = row.get(0);
    let id = OperationId::from_bytes(id.try_into().map_err(|_| damaged())?);
    let mut entry: OperationJournalEntry = serde_json::from_str(row.get(1)).map_err(|_| damaged())?;
    let body: Option<&[u8]> = row.get(2);
    if let (JournalEntryState::Done { answer: Some(kept), .. }, Some(body)) = (&mut entry.state, body) {
        kept.body = Some(Bytes::copy_from_slice(body));
    }
    Ok((id, entry))
}
