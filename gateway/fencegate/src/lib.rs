//! Fencegate: an HTTP reverse proxy that holds a ZooKeeper lock per resource while a request runs, and stamps the
//! request with a fencing token.
//!
//! Begin with [`stack`], the request path. [`steps`] are its parts, with the type of a request after each part;
//! [`notes`] is what all steps share. [`front`] stands before the first step, and [`refusal`] is the one place of
//! reasons, statuses and words.
//!
//! Around the path: [`siblings`] is what the gateways of one installation say to each other. [`trust`] decides which
//! guards to believe, and [`unbelieved`] remembers whom a guard did not believe. [`leases`] are locks that clients
//! hold themselves. [`metrics`] counts, [`access`] reports each request, and [`stays`] knows the requests of each
//! key.
//!
//! The process: [`serve`] starts and stops it all, and [`threads`] knows whether each of its threads still turns. [`edition`] is what a reload replaces, [`in_force`] is the plan
//! that counts now, and [`agreement`] compares it with the plans of other gateways. [`admin`] shows all of it.
//! `database` finds the store that several guards share, and [`backups`] copies the store of one guard to files.
//!
//! Commands: [`charge`] runs a command under a lock. [`verify`] tests from outside whether a service compares tokens.

// The request path is one future within another, a few dozen deep, and rustc asks for the layout of all of it.
#![recursion_limit = "256"]
// `println!` panics when nobody reads any more. Verbs print through `cli::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
pub mod admin;
pub mod agreement;
pub mod backups;
pub mod bearer;
pub mod calling_dispatch;
pub mod charge;
pub mod check;
pub mod cli;
mod database;
pub mod demo;
pub mod dispatch_span;
pub mod edition;
pub mod explain;
pub mod front;
pub mod headers;
pub mod hop_name;
pub mod in_flight;
pub mod in_force;
pub mod intermediary;
pub mod json_client;
pub mod key_secret;
pub mod leases;
pub mod metrics;
pub mod notes;
pub mod one_line;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod path_segment;
pub mod refusal;
pub mod serve;
pub mod shown_clock;
pub mod siblings;
pub mod stack;
pub mod stays;
pub mod step;
pub mod steps;
pub mod threads;
pub mod ticket_keys;
pub mod ticketing;
pub mod trace;
pub mod trust;
pub mod unbelieved;
pub mod verify;
pub mod written;
