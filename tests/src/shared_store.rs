//! A store that several guards share, in a database of its own.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{
    GuardTimeLimits, PostgresConfig, PostgresStore, SCHEMA, UnusableDatabaseError,
};
use fencegate_guard_store::store::StoreIdentity;
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use fencegate_testkit::postgres::{TestDatabase, fresh_database};
use tokio::task::spawn_blocking;

/// A new store, and the address of its database.
#[derive(Debug, Clone)]
pub struct SharedStore {
    pub database: TestDatabase,
    pub place: PostgresConfig,
}

/// The floor of the store: no token below it passes.
pub const FLOOR: u64 = 10;

/// The time limits, which are short so that tests are short.
pub const TERMS: GuardTimeLimits = GuardTimeLimits {
    send_within: Duration::from_secs(2),
    max_execution: Duration::from_secs(3),
    begun_within: Duration::ZERO,
    evict_after: Duration::from_secs(10),
};

impl SharedStore {
    /// Makes a store on the server that all tests share.
    ///
    /// # Panics
    /// If the store cannot be made.
    pub async fn new() -> Self {
        Self::in_database(spawn_blocking(fresh_database).await.expect("no panic")).await
    }

    /// Makes a store in this database.
    ///
    /// # Panics
    /// If the store cannot be made.
    pub async fn in_database(database: TestDatabase) -> Self {
        let identity = StoreIdentity::new("12121212121212121212121212121212", &SystemRandomness);
        let place = PostgresConfig::parse(&database.url(), None, SCHEMA).expect("a URL");
        PostgresStore::init(&place, &identity, FLOOR).await.expect("a new store");
        Self { database: database.in_schema(SCHEMA), place }
    }

    /// The same store, reached at other addresses.
    ///
    /// # Panics
    /// Never: addresses make a valid URL.
    pub fn at_addresses(&self, addresses: &[SocketAddr]) -> Self {
        let url = self.database.url_at(addresses);
        let place = PostgresConfig::parse(&url, None, SCHEMA).expect("a URL");
        Self { place, ..self.clone() }
    }

    /// Opens the store as one of its guards.
    ///
    /// # Panics
    /// If the store cannot be opened.
    pub async fn guard(&self, clock: SharedClock, name: &str) -> PostgresStore {
        self.try_guard(clock, name).await.expect("it can be opened")
    }

    /// Opens the store as one of its guards.
    ///
    /// # Errors
    /// Returns an error if the store cannot be opened.
    pub async fn try_guard(
        &self,
        clock: SharedClock,
        name: &str,
    ) -> Result<PostgresStore, UnusableDatabaseError> {
        PostgresStore::open(&self.place, TERMS, clock, Arc::new(SystemRandomness), name).await
    }

    /// Runs statements on the tables of the store.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn run(&self, statements: &str) -> String {
        self.database.run(statements)
    }
}
