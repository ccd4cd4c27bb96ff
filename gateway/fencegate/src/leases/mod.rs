//! Locks that clients hold themselves, for work that is no request: leases, and elections, which are leases of one key.
//!
//! [`table`] has all of them, each a [`lease`] with an [`id`]; [`desk`] is the thread that takes their locks and runs the
//! [`errand`]s to other gateways. [`authority`] knows who may ask, [`interface`] is what is asked over HTTP, in the JSON of
//! [`document`]. Requests under a lease are a matter of [`crate::steps::fence`].

pub mod authority;
pub mod desk;
pub mod document;
mod errand;
pub mod id;
pub mod interface;
pub mod lease;
pub mod table;

use std::rc::Rc;

use hyper::header::HeaderValue;

/// What a request shows as its lease.
pub enum ShownLease {
    /// Its id, and how that was written.
    Good(Rc<id::LeaseId>, HeaderValue),
    /// No id of a lease.
    Unreadable,
}

pub use self::{
    authority::Authority,
    interface::{Asker, Interface, PREFIX},
    table::{Leases, Terms},
};
