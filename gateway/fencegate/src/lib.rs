//! Fencegate: an HTTP reverse proxy that holds a ZooKeeper lock per resource while a request runs, and stamps the
//! request with a fencing token.
//!
//! Begin with [`stack`], the request path. [`steps`] says what happens at each point of it and what is known of a request
//! afterwards, [`notes`] what all of them share; [`front`] is before the first, [`refusal`] the one place of reasons,
//! statuses and words. [`siblings`] is what the gateways of one installation say to each other, [`trust`] knows which
//! guards to believe, [`unbelieved`] whom a guard did not, `database` where several guards find their store. [`metrics`] counts, [`access`] tells of each request, [`stays`] knows those of each key. [`serve`] starts and stops it all, [`edition`] is
//! what a reload changes, [`agreement`] whether other gateways lock the same, [`leases`] are locks that clients hold themselves, [`in_force`] is the plan that counts now, [`admin`] shows it all. [`backups`] keeps what a guard remembers in files. [`charge`] runs commands under locks. [`verify`] asks services, from outside, whether they compare.

// The request path is one future within another, a few dozen deep, and rustc asks for the layout of all of it.
#![recursion_limit = "256"]
// They panic where nobody reads any more; what a verb says goes through `cli::out`.
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
pub mod edition;
pub mod explain;
pub mod front;
pub mod headers;
pub mod hop_name;
pub mod in_flight;
pub mod in_force;
pub mod json_client;
pub mod leases;
pub mod metrics;
pub mod notes;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod path_segment;
pub mod refusal;
pub mod serve;
pub mod siblings;
pub mod stack;
pub mod stays;
pub mod step;
pub mod steps;
pub mod ticket_keys;
pub mod ticketing;
pub mod trace;
pub mod trust;
pub mod unbelieved;
pub mod verify;
pub mod written;
