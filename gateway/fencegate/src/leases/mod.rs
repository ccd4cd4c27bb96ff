//! Locks that clients hold themselves, for work that is no request: leases, and elections, which are leases of one
//! key.
//!
//! [`lease_table`] has all of them, each a [`lease`] with an [`id`] and a [`state`]; [`lease_worker`] takes their
//! locks, and queries peers, for each [`command`]. [`compat`] checks whether all peers take the same locks. [`auth`]
//! authenticates callers, [`admin_actions`] are the actions of operators, [`api`] is the HTTP interface, with the
//! JSON of [`lease_json`]. Requests under a lease belong to [`crate::steps::fence`].

pub mod admin_actions;
pub mod api;
pub mod auth;
mod command;
mod compat;
pub mod election_watch;
pub mod id;
pub mod lease;
pub mod lease_json;
pub mod lease_table;
pub mod lease_worker;
mod peer_client;
mod state;

use std::rc::Rc;

use hyper::header::HeaderValue;

/// The lease that a request presents.
pub enum PresentedLease {
    /// A well-formed id, and its text.
    Valid(Rc<id::LeaseId>, HeaderValue),
    /// Not the id of a lease.
    Malformed,
}

pub use self::{
    api::context::{LeaseApi, LeaseCaller, PREFIX},
    auth::LeaseAuth,
    lease_table::{LeaseSettings, LeaseTable, config_switch::ConfigSwitchGuard},
};
