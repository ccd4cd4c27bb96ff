//! A store that several guards share, on a database of its own.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fencegate_guard_postgres::postgres::{
    GuardTimeLimits, PostgresConfig, PostgresStore, SCHEMA, UnusableDatabaseError,
};
use fencegate_guard_store::store::StoreIdentity;
use fencegate_process::{clock::SharedClock, randomness::SystemRandomness};
use fencegate_testkit::postgres::{TestDatabase, fresh_database};
use tokio::task::spawn_blocking;

/// A new store, and the proxy to it.
#[derive(Debug, Clone)]
pub struct SharedStore {
    pub database: TestDatabase,
    pub place: PostgresConfig,
}

/// Below which no token passes.
pub const FLOOR: u64 = 10;

/// Short, so that tests are.
pub const TERMS: GuardTimeLimits = GuardTimeLimits {
    send_within: Duration::from_secs(2),
    max_execution: Duration::from_secs(3),
    begun_within: Duration::ZERO,
    evict_after: Duration::from_secs(10),
};

impl SharedStore {
    /// On the server that all tests share.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn new() -> Self {
        Self::in_database(spawn_blocking(fresh_database).await.expect("no panic")).await
    }

    /// # Panics
    /// If it cannot be made.
    pub async fn in_database(database: TestDatabase) -> Self {
        let identity = StoreIdentity::new("12121212121212121212121212121212", &SystemRandomness);
        let place = PostgresConfig::parse(&database.url(), None, SCHEMA).expect("a URL");
        PostgresStore::init(&place, &identity, FLOOR).await.expect("a new store");
        Self { database: database.in_schema(SCHEMA), place }
    }

    /// The same behind other addresses.
    ///
    /// # Panics
    /// Never: these are addresses.
    pub fn at_addresses(&self, addresses: &[SocketAddr]) -> Self {
        let url = self.database.url_at(addresses);
        let place = PostgresConfig::parse(&url, None, SCHEMA).expect("a URL");
        Self { place, ..self.clone() }
    }

    /// A guard that has it open.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn guard(&self, clock: SharedClock, name: &str) -> PostgresStore {
        self.try_guard(clock, name).await.expect("it can be opened")
    }

    /// # Errors
    /// It cannot be opened.
    pub async fn try_guard(
        &self,
        clock: SharedClock,
        name: &str,
    ) -> Result<PostgresStore, UnusableDatabaseError> {
        PostgresStore::open(&self.place, TERMS, clock, Arc::new(SystemRandomness), name).await
    }

    /// Statements about its tables.
    ///
    /// # Panics
    /// If one fails.
    pub fn run(&self, statements: &str) -> String {
        self.database.run(statements)
    }
}
