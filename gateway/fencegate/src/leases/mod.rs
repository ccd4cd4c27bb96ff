//! Locks that clients hold themselves, for work that is no request: leases, and elections, which are leases of one key.
//!
//! [`holdings`] has all of them, each a [`lease`] with an [`id`] and a [`life`]; [`taker`] takes their locks, and asks
//! other gateways, as it is given each [`task`]. [`locked_alike`] knows whether all others take the same locks. [`authority`] knows who may ask, [`operated`] is what operators
//! have done, [`interface`] is what is asked over HTTP, in the JSON of
//! [`lease_json`]. Requests under a lease are a matter of [`crate::steps::fence`].

pub mod authority;
mod far_question;
pub mod followed;
pub mod holdings;
pub mod id;
pub mod interface;
pub mod lease;
pub mod lease_json;
mod life;
mod locked_alike;
pub mod operated;
pub mod taker;
mod task;

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
    authority::LeaseAuth,
    holdings::{LeaseSettings, LeaseTable, turning::ConfigSwitchGuard},
    interface::setting::{LeaseApi, LeaseCaller, PREFIX},
};
