//! The SQL statements that compare: if a statement changes no row, the request is stale.

use fencegate_upstream::{Number, Token, Transaction, WatermarkOutcome, WatermarkUpdate};
use rusqlite::params;

use crate::fencing::FencingStamp;

/// A database transaction that raises watermarks, and the statement by which it does so.
pub(crate) struct WatermarkTransaction<'t> {
    pub(crate) transaction: &'t rusqlite::Transaction<'t>,
    pub(crate) statement: &'t str,
    pub(crate) stamp: &'t FencingStamp,
    /// The key whose row did not change because the request is stale.
    pub(crate) stale: Option<String>,
}

/// Compares and raises the watermark of a write in one statement. If it changes no row, the request is stale. Tokens
/// are compared as text. A write has to be newer than all writes and all reads before it.
pub(crate) const RAISE_TOKEN: &str = "
    INSERT INTO marks (key, token, number) VALUES (?1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, number = excluded.number
    WHERE excluded.token > marks.token AND excluded.token > marks.read_token";

/// Like [`RAISE_TOKEN`], but compares numbers. An equal number passes, because all requests of a tenure have the same
/// number.
pub(crate) const RAISE_NUMBER: &str = "
    INSERT INTO marks (key, token, number) VALUES (?1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, number = excluded.number
    WHERE excluded.number >= marks.number AND excluded.number >= marks.read_number";

/// Compares and raises the watermark of a read. A read has to be newer than all writes. The watermark stays at the
/// newest token of a read if an older read comes later.
pub(crate) const READ_TOKEN: &str = "
    INSERT INTO marks (key, token, number, read_token, read_number) VALUES (?1, '', -1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE
    SET read_token = max(read_token, excluded.read_token), read_number = max(read_number, excluded.read_number)
    WHERE excluded.read_token > marks.token";

pub(crate) const READ_NUMBER: &str = "
    INSERT INTO marks (key, token, number, read_token, read_number) VALUES (?1, '', -1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE
    SET read_token = max(read_token, excluded.read_token), read_number = max(read_number, excluded.read_number)
    WHERE excluded.read_number >= marks.number";

impl Transaction for WatermarkTransaction<'_> {
    type Error = rusqlite::Error;

    /// Writes both token and number into the row; the statement compares one of them.
    fn raise(&mut self, update: WatermarkUpdate<'_>) -> rusqlite::Result<WatermarkOutcome> {
        let token = self.stamp.token.as_ref().map(Token::as_str).unwrap_or_default();
        let number = self.stamp.number.map_or(0, Number::as_i64);
        let rows = self.transaction.execute(self.statement, params![update.key, token, number])?;
        if rows == 0 {
            self.stale = Some(update.key.to_owned());
        }
        Ok(WatermarkOutcome::from_rows_affected(rows))
    }
}
