//! Fencegate: an HTTP reverse proxy that holds a ZooKeeper lock per resource while a request runs, and stamps the
//! request with a fencing token.
//!
//! Begin with [`pipeline`], the request path. [`steps`] are its parts, with the type of a request after each part;
//! [`request_context`] is shared by all steps. [`frontend`] is before the first step, and [`refusal`] is the one
//! place of reasons, statuses and words.
//!
//! Around the path: [`peers`] is the protocol between the gateways of one installation. [`guard_identity`] decides
//! which guards to trust, and [`rejected_callers`] records the callers that a guard rejected. [`leases`] are locks
//! that clients hold themselves. [`metrics`] counts, [`telemetry`] reports each request, and [`request_tracker`] has
//! the requests of each key.
//!
//! The process: [`serve`] starts and stops it all, and [`liveness`] checks whether each of its threads still runs its
//! tasks. [`active_config`] is the part that a reload replaces, [`current_config`] is the plan in force, and
//! [`plan_compat`] compares it with the plans of peers. [`admin`] shows all of it. [`store_config`] finds the store
//! that several guards share, and [`backups`] copies the store of one guard to files.
//!
//! Commands: [`run_locked`] runs a command under a lock. [`verify`] tests from outside whether a service compares tokens.

// The request path is one future within another, a few dozen deep, and rustc computes the layout of all of it.
#![recursion_limit = "256"]
// `println!` panics when the reader is gone. Verbs print through `cli::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod active_config;
pub mod admin;
pub mod backups;
pub mod bearer;
pub mod callback;
pub mod check;
pub mod cli;
pub mod clock_header;
pub mod concurrency_limit;
pub mod current_config;
pub mod demo;
pub mod dispatch_window;
pub mod explain;
pub mod frontend;
pub mod guard_identity;
pub mod handler;
pub mod headers;
pub mod intermediary;
pub mod json_client;
pub mod jwks_fetcher;
pub mod key_secret;
pub mod leases;
pub mod liveness;
pub mod metrics;
pub mod one_line;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod path_segment;
pub mod peers;
pub mod pipeline;
pub mod plan_compat;
pub mod policy_file;
pub mod refusal;
pub mod rejected_callers;
pub mod request_context;
pub mod request_tracker;
pub mod run_locked;
pub mod serve;
pub mod steps;
mod store_config;
pub mod telemetry;
pub mod ticket_issuer;
pub mod trace;
pub mod verify;
pub mod via;
