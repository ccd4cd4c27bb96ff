//! Locks that clients hold themselves, for work that is no request: leases, and elections, which are leases of one key.
//!
//! - [`lease_table`]: all leases of this gateway, each a [`lease`] with its `state`. Begin here
//! - [`lease_worker`]: takes the locks of leases, and queries peers with `peer_client`, apart from all workers, by the tasks
//!   of `command`; [`context`]: the parts of the gateway that both work with
//! - [`api`]: the HTTP interface, with the JSON of [`lease_json`]; [`auth`] authenticates callers, [`election_watch`] serves
//!   the followers of elections
//! - [`admin_actions`]: the actions of operators; `compat`: whether all peers take the same locks
//!
//! Requests that run under a lease are in the step `fence` of `fencegate-proxy`, which this crate does not know. The
//! documents and the id of a lease are in `fencegate-protocol`.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod admin_actions;
pub mod api;
pub mod auth;
mod command;
mod compat;
pub mod context;
pub mod election_watch;
pub mod lease;
pub mod lease_json;
pub mod lease_table;
pub mod lease_worker;
mod peer_client;
mod state;

use std::rc::Rc;

use fencegate_protocol::lease_id::LeaseId;
use hyper::header::HeaderValue;

/// The lease that a request presents.
pub enum PresentedLease {
    /// A well-formed id, and its text.
    Valid(Rc<LeaseId>, HeaderValue),
    /// Not the id of a lease.
    Malformed,
}

pub use self::{
    api::context::{LeaseApiState, LeaseCaller, PREFIX},
    auth::LeaseAuth,
    lease_table::{LeaseSettings, LeaseTable, config_switch::ConfigSwitchGuard},
};
