//! Creates a store, and opens it as a new instance.

use std::sync::Arc;

use fencegate_guard_store::store::StoreIdentity;
use fencegate_process::{clock::SharedClock, randomness::Randomness};

use super::{
    config::{PostgresConfig, UnusableDatabaseError},
    connect::{PostgresConnection, PostgresConnectionPurpose, StatementError, millis},
    driver,
    error::PostgresError,
    instance::{GuardInstanceRow, GuardTimeLimits, PostgresStore, PostgresStoreInner},
    migrate,
};

/// The longest name of an instance. The server would cut longer names, and the connections of two instances
/// could have one name.
const LONGEST_NAME: usize = 36;

/// Whether another guard uses the store. If one does, the standby is not checked: after a failover the remaining
/// server has no standby for a while, guards that start again are needed then, and a further guard adds no
/// danger.
async fn has_other_guards(
    connection: &PostgresConnection,
    place: &PostgresConfig,
) -> Result<bool, UnusableDatabaseError> {
    let query = format!("SELECT EXISTS (SELECT FROM {}.instance WHERE NOT dead)", place.schema);
    let others = connection.client().query_one(&query, &[]).await;
    Ok(others.map_err(|error| place.database_error(&error))?.get(0))
}

impl PostgresStore {
    /// Creates schema, tables and functions, with a floor up to which no token will be admitted.
    ///
    /// # Errors
    /// Returns an error if there is a store already. A store is never replaced silently, because that would
    /// forget every watermark.
    pub async fn init(
        place: &PostgresConfig,
        identity: &StoreIdentity,
        floor: u64,
    ) -> Result<(), UnusableDatabaseError> {
        migrate::init(place, identity, floor).await
    }

    /// The identity of the store. Changes nothing, and no guard joins.
    ///
    /// # Errors
    /// Returns an error if there is no store, or one that this build must not use.
    pub async fn inspect(place: &PostgresConfig) -> Result<StoreIdentity, UnusableDatabaseError> {
        migrate::read_identity(place).await
    }

    /// Opens a store that [`PostgresStore::init`] made, as a new instance. Call it on the long-lived runtime, because
    /// its tasks are spawned there. `name`: a name that no other process ever has.
    ///
    /// # Errors
    /// Returns an error if there is no store, or one that this build must not use.
    pub async fn open(
        place: &PostgresConfig,
        terms: GuardTimeLimits,
        clock: SharedClock,
        randomness: Arc<dyn Randomness>,
        name: &str,
    ) -> Result<Self, UnusableDatabaseError> {
        if name.is_empty() || name.len() > LONGEST_NAME || !name.is_ascii() {
            let why = format!(
                "`{name}` names no process: {LONGEST_NAME} letters at most, and none that is not ASCII"
            );
            return Err(UnusableDatabaseError::Failed { place: place.to_string(), why });
        }
        let identity = migrate::open_and_upgrade(place).await?;
        let connection = PostgresConnection::open(place, PostgresConnectionPurpose::Heartbeat, name).await?;
        if !has_other_guards(&connection, place).await? {
            connection.check_replication(place).await?;
        }
        let sent = clock.now();
        let arrive = format!("SELECT {}.arrive($1, $2, $3)", place.schema);
        let send_within = millis(terms.send_within);
        let max_execution = millis(terms.max_execution);
        let failed = |error: StatementError| UnusableDatabaseError::Failed {
            place: place.to_string(),
            why: PostgresError::from(error).to_string(),
        };
        let row =
            connection.query_one(&arrive, &[&name, &send_within, &max_execution]).await.map_err(failed)?;
        let instance = PostgresStoreInner::new(
            place.clone(),
            identity,
            terms,
            GuardInstanceRow { id: row.get(0), name: name.to_owned() },
            clock,
            randomness,
            sent,
        );
        *instance.beating.lock().await = Some(connection);
        let instance = Arc::new(instance);
        let deciding = tokio::spawn(driver::run(instance.clone())).abort_handle();
        let opened = Self::new(instance, deciding);
        let unheard = |error: PostgresError| UnusableDatabaseError::Failed {
            place: place.to_string(),
            why: error.to_string(),
        };
        opened.send_heartbeat().await.map_err(unheard)?;
        Ok(opened)
    }
}
