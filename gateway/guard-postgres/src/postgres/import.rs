//! Takes in a store that was kept in a file.
//!
//! One transaction copies the store. The copy is no store until the caller has made sure that the old one is not in
//! use, and calls [`ImportLock::activate_copy`]. A lock keeps other processes from making a store in the schema all that
//! time.

use tokio_postgres::Error;

use super::{
    config::{PostgresConfig, UnusableDatabaseError},
    connect::{PostgresConnection, PostgresConnectionPurpose, StatementError},
    error::PostgresError,
    import_transaction::{ImportHeader, ImportTransaction},
    migrate::{FORMAT, ImportMarker, LOCK_IF_FREE, UNLOCK, find_store, read_record, upgrade},
};

/// A schema that no other process changes meanwhile.
pub struct ImportLock {
    connection: PostgresConnection,
    place: PostgresConfig,
}

/// The content of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DbSchemaContent {
    Nothing,
    /// A copy that is no store yet.
    Copy(ImportMarker),
    /// A store, and the record of the copy that it was made of, if any.
    Store(Option<ImportMarker>),
}

/// Makes the copy of this name the store; works once.
const FINISH: &str = "WITH made AS (
    INSERT INTO $$.store (format, store, ensemble, floor, highest, entries, bytes, era, time, closed_until, closed_why,
        origin, followed)
    SELECT format, store, ensemble, floor, highest, entries, bytes, era, time, closed_until, closed_why,
        origin, followed
    FROM $$.moved_in WHERE id = $1 RETURNING 1)
    SELECT count(*) FROM made";

impl ImportLock {
    /// Takes the lock of the schema.
    ///
    /// # Errors
    /// Returns an error if the database is not fit for a store, or if another process makes one there at this
    /// moment.
    pub async fn open(place: &PostgresConfig) -> Result<Self, UnusableDatabaseError> {
        let connection = PostgresConnection::open(place, PostgresConnectionPurpose::Setup, "migrate").await?;
        connection.check_replication(place).await?;
        let free = connection.client().query_one(LOCK_IF_FREE, &[&&*place.schema]).await;
        let free = free.map_err(|error| place.database_error(&error))?;
        let intake = Self { connection, place: place.clone() };
        if free.get(0) {
            return Ok(intake);
        }
        Err(intake.schema_error("another command makes a store there, or moves one there, at this moment"))
    }

    /// Reads the content of the schema.
    ///
    /// # Errors
    /// Returns an error if the schema cannot be read.
    pub async fn content(&self) -> Result<DbSchemaContent, UnusableDatabaseError> {
        let client = self.connection.client();
        let copy = read_record(client, &self.place).await?;
        Ok(match (find_store(client, &self.place).await?, copy) {
            (Some(_), copy) => DbSchemaContent::Store(copy),
            (None, Some(copy)) => DbSchemaContent::Copy(copy),
            (None, None) => DbSchemaContent::Nothing,
        })
    }

    /// Checks whether a copy could be made: creates the tables, and rolls them back.
    ///
    /// # Errors
    /// Returns an error if the tables cannot be made.
    pub async fn dry_run(&mut self) -> Result<(), UnusableDatabaseError> {
        let Self { connection, place } = self;
        let transaction =
            connection.client_mut().transaction().await.map_err(|error| place.database_error(&error))?;
        create_tables(&transaction, place).await?;
        transaction.rollback().await.map_err(|error| place.database_error(&error))
    }

    /// Copies the store, in place of any earlier copy that is no store yet. The copy is durable when this returns, and
    /// is no store yet.
    ///
    /// # Errors
    /// Returns an error if there is no copy, or if the copy may not be durable. It is no store in both cases.
    pub async fn copy<E: From<UnusableDatabaseError>>(
        &mut self,
        handed: ImportHeader,
        fill: impl AsyncFnOnce(&mut ImportTransaction<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { connection, place } = self;
        let failed = |error: Error| place.database_error(&error);
        let transaction = connection.client_mut().transaction().await.map_err(failed)?;
        create_tables(&transaction, place).await?;
        let mut copying = ImportTransaction::begin(transaction, handed, place).await?;
        fill(&mut copying).await?;
        copying.commit().await?;
        if self.connection.take_replication_warning() {
            return Err(self
                .schema_error("the server warned of the commit: a standby may not have it")
                .into());
        }
        Ok(())
    }

    /// Makes the copy of this name the store.
    ///
    /// # Errors
    /// Returns an error if the copy is missing, or if the database gave no reply. Without a reply it is not
    /// known whether the copy is the store now.
    pub(crate) async fn activate_copy(&self, id: &str) -> Result<(), UnusableDatabaseError> {
        let query = FINISH.replace("$$", &self.place.schema);
        let finished = self.connection.query_one(&query, &[&id]).await;
        match finished.map(|row| row.get::<_, i64>(0)) {
            Ok(1) => Ok(()),
            Ok(_) => Err(self.schema_error("the copy is not there any more")),
            Err(error) => Err(self.statement_error(error)),
        }
    }

    /// Releases the lock at once. Without this the next command could begin only when the server has noticed the end
    /// of the session, which takes a moment.
    pub async fn close(self) {
        // If this fails, the next command waits until the server has noticed the end of the session.
        self.connection.query_one(UNLOCK, &[&&*self.place.schema]).await.ok();
    }

    fn schema_error(&self, why: impl ToString) -> UnusableDatabaseError {
        UnusableDatabaseError::Failed { place: self.place.to_string(), why: why.to_string() }
    }

    fn statement_error(&self, error: StatementError) -> UnusableDatabaseError {
        self.schema_error(PostgresError::from(error))
    }
}

/// Creates the schema and its tables, or empties the tables of an earlier copy.
async fn create_tables(
    transaction: &tokio_postgres::Transaction<'_>,
    place: &PostgresConfig,
) -> Result<(), UnusableDatabaseError> {
    let failed = |error: Error| place.database_error(&error);
    let schema = &place.schema;
    let from = match read_record(transaction.client(), place).await? {
        Some(earlier) if earlier.format > FORMAT => {
            let found = earlier.format;
            let reads = FORMAT;
            return Err(UnusableDatabaseError::Newer { place: place.to_string(), found, reads });
        }
        Some(earlier) => {
            let names = ["key", "at_work", "held", "operation", "lane", "instance", "moved_in"];
            let names = names.map(|name| format!("{schema}.{name}")).join(", ");
            transaction.batch_execute(&format!("TRUNCATE {names}")).await.map_err(failed)?;
            earlier.format
        }
        None => {
            let made = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
            transaction.batch_execute(&made).await.map_err(failed)?;
            0
        }
    };
    upgrade(transaction.client(), place, from).await?;
    if from == 0 {
        transaction.batch_execute(include_str!("sql/moved_in.sql")).await.map_err(failed)?;
    }
    Ok(())
}
