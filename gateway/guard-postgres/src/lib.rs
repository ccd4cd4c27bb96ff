//! The store that several guards of one upstream share, in PostgreSQL.
//!
//! - [`postgres`]: decides and remembers in the database. The decision is SQL: `src/postgres/sql/act.sql` does what
//!   [`fencegate_guard_store::admission`] does in memory, and a test sends the same requests to both
//! - [`migration`]: moves the store of a single guard from its file into a database
//!
//! How a guard joins such a store is in `fencegate-guard`.

pub mod migration;
pub mod postgres;
