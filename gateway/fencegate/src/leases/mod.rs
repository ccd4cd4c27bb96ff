//! Locks that clients hold themselves, for work that is no request: leases, and elections, which are leases of one key.
//!
//! [`lease_table`] has all of them, each a [`lease`] with an [`id`] and a [`state`]; [`lease_worker`] takes their locks, and asks
//! other gateways, as it is given each [`command`]. [`compat`] knows whether all others take the same locks. [`auth`] knows who may ask, [`admin_actions`] is what operators
//! have done, [`api`] is what is asked over HTTP, in the JSON of
//! [`lease_json`]. Requests under a lease are a matter of [`crate::steps::fence`].

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

/// The lease that a request shows.
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
