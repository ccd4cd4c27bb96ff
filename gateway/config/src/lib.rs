//! The plan in force, from its file to its replacement by the next one.
//!
//! - [`policy_file`]: the file, and the report about its mistakes; [`bearer`], [`key_secret`] and [`store_config`] are the
//!   secrets and the database that it names
//! - [`access_tokens`]: verifies the bearer tokens of clients by the issuers of a plan; [`jwks_fetcher`] keeps keys current
//!   from a URL
//! - [`active_config`]: one plan as all workers serve it, and its replacement while requests run. Begin here
//! - [`current_config`]: answers queries about the plan in force
//! - [`process_context`]: what all parts of a process share beside the plan
//!
//! What a file means is decided in `policies`; a reload is carried out by `fencegate-serve`.

// `println!` panics when the reader is gone.
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
