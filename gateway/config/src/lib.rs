//! The plan in force, from its file to its replacement by the next one.
//!
//! - [`policy_file`]: the file, and the report about its mistakes; [`bearer`], [`key_secret`] and [`store_config`] are
//!   the secrets and the database that it names
//! - [`access_tokens`]: verifies the bearer tokens of clients by the issuers of a plan; [`jwks_fetcher`] keeps keys
//!   current from a URL
//! - [`active_config`]: one plan as all workers serve it, and its replacement while requests run. Begin here
//! - [`current_config`]: answers queries about the plan in force
//! - [`process_context`]: the state that all parts of a process share beside the plan
//!
//! The crate `policies` decides the meaning of a file; `fencegate-serve` carries out a reload.

// `println!` panics when the reader of the output has closed it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod access_tokens;
pub mod active_config;
pub mod bearer;
pub mod current_config;
pub mod jwks_fetcher;
pub mod key_secret;
pub mod policy_file;
pub mod process_context;
pub mod store_config;
