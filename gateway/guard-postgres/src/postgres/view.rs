//! Reads a shared store, for operators, announcements and probes.

use fencegate_guard_store::admission::{
    DispatchId, GuardKeyView, InDoubtDispatch, InDoubtExecution, RunningDispatch,
};
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use tokio_postgres::Row;

use super::{error::PostgresError, instance::PostgresStore};

impl PostgresStore {
    /// The largest epoch that any guard of this store has announced. It is read now, because gateways compare it with
    /// tokens that other guards have just admitted.
    ///
    /// # Errors
    /// Returns an error if the epoch cannot be read.
    pub async fn highest_epoch(&self) -> Result<u64, PostgresError> {
        let query = "SELECT greatest((SELECT highest FROM $$.store), (SELECT max(highest) FROM $$.lane))";
        let rows = self.instance.query_rows(query, &[]).await?;
        let highest = rows.first().map(|row| row.get::<_, i64>(0)).unwrap_or_default();
        Ok(u64::try_from(highest).unwrap_or_default())
    }

    /// Names the database itself by the server's identifier and the database's number there. A standby that takes
    /// over has both; a copy of the rows has not. It is read now, because an address may lead elsewhere than before.
    ///
    /// # Errors
    /// Returns an error if the name cannot be read.
    pub async fn database_id(&self) -> Result<String, PostgresError> {
        let query = "SELECT system_identifier || '/' || d.oid FROM pg_control_system(), pg_database d
            WHERE d.datname = current_database()";
        let rows = self.instance.query_rows(query, &[]).await?;
        Ok(rows.first().map(|row| row.get(0)).unwrap_or_default())
    }

    /// The state of a key in the database; `None` if it has none.
    ///
    /// # Errors
    /// Returns an error if the state cannot be read.
    pub async fn key_view(&self, key: &ResourceKey) -> Result<Option<GuardKeyView>, PostgresError> {
        let query =
            "SELECT write, read FROM $$.key WHERE key = $1 AND (write IS NOT NULL OR read IS NOT NULL)";
        let marks = self.instance.query_rows(query, &[&key.as_str()]).await?;
        let query = "SELECT id, token, shared, began, over FROM $$.open_work
            WHERE key = $1 AND coalesce(over > (SELECT time FROM $$.store), true) ORDER BY began, id";
        let work = self.instance.query_rows(query, &[&key.as_str()]).await?;
        if marks.is_empty() && work.is_empty() {
            return Ok(None);
        }
        let watermark =
            |at| marks.first().and_then(|row| row.get::<_, Option<&str>>(at)).map(parse_token).transpose();
        let mut seen = GuardKeyView {
            write: watermark(0)?,
            read: watermark(1)?,
            running: Vec::new(),
            doubts: Vec::new(),
        };
        for row in &work {
            let id = DispatchId::from_name_prefix(row.get(0));
            let mode = mode(row.get(2));
            let token = parse_token(row.get(1))?;
            match row.get::<_, Option<i64>>(4) {
                None => {
                    let since = self.instance.clock_samples().local_instant(row.get(3));
                    // The database uses the caller to decide, and does not return it.
                    seen.running.push(RunningDispatch { id, token, mode, since, caller: None });
                }
                Some(over) => {
                    let until = self.instance.clock_samples().local_instant(over);
                    seen.doubts.push(InDoubtDispatch { id, token, mode, until, left: None });
                }
            }
        }
        Ok(Some(seen))
    }

    /// Whether a dispatch with this token is in flight or in doubt on one of the keys, or every key is closed. A
    /// dispatch that was at work when a guard with a file was killed has a token of `ffffffff`, see
    /// `migration/source_file.rs`; it counts for every token.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub async fn may_still_be_executing(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Result<bool, PostgresError> {
        let query = "SELECT EXISTS (SELECT FROM $$.open_work, $$.store
                WHERE key = ANY ($1) AND coalesce(over > time, true)
                    AND (token = $2 OR right(token, 18) = '-ffffffff-ffffffff'))
            OR EXISTS (SELECT FROM $$.store WHERE closed_until > time OR closed_why IS NOT NULL)";
        let keys: Vec<&str> = keys.iter().map(ResourceKey::as_str).collect();
        let rows = self.instance.query_rows(query, &[&keys, &token.to_string()]).await?;
        Ok(rows.first().is_none_or(|row| row.get(0)))
    }

    /// Every execution in doubt, once, with all its keys.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub async fn doubts(&self) -> Result<Vec<InDoubtExecution>, PostgresError> {
        let query =
            "SELECT token, shared, max(over), array_agg(key ORDER BY key), id FROM $$.open_work, $$.store
            WHERE over > time GROUP BY id, token, shared ORDER BY 3, 1";
        let rows = self.instance.query_rows(query, &[]).await?;
        let doubt = |row: &Row| {
            let keys: Vec<&str> = row.get(3);
            let (target, silent) = self.find_probed_doubt(row.get(4)).unwrap_or_default();
            Ok(InDoubtExecution {
                token: parse_token(row.get(0))?,
                mode: mode(row.get(1)),
                until: self.instance.clock_samples().local_instant(row.get(2)),
                place: target,
                silent,
                keys: keys.into_iter().map(parse_key).collect::<Result<_, _>>()?,
            })
        };
        rows.iter().map(doubt).collect()
    }

    /// Forgets a finished operation that is not reserved. False if there was none.
    ///
    /// # Errors
    /// Returns an error if the operation is not known to be forgotten.
    pub async fn forget(
        &self,
        id: &fencegate_policies::operation::OperationId,
    ) -> Result<bool, PostgresError> {
        let query = "SELECT $$.forget($1)";
        let rows = self.instance.query_rows(query, &[&id.as_bytes().as_slice()]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

fn parse_token(text: &str) -> Result<FencingToken, PostgresError> {
    FencingToken::parse(text)
        .map_err(|error| PostgresError::Refused(format!("a watermark `{text}`: {error}")))
}

fn parse_key(key: &str) -> Result<ResourceKey, PostgresError> {
    ResourceKey::parse(key).map_err(|error| PostgresError::Refused(format!("a key `{key}`: {error}")))
}

fn mode(shared: bool) -> LockMode {
    if shared { LockMode::Shared } else { LockMode::Exclusive }
}
