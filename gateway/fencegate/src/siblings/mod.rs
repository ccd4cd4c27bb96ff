//! What the gateways of one installation say to each other: who keeps a key answers for it, instead of handing it over each
//! time.
//!
//! [`field`] is how they ask and prove, [`outcome`] what an answer of one says, [`trunk`] the connections between them,
//! [`ours`] what this process is to the others. What is sent on, and when, decides [`crate::steps::fence`].

pub mod field;
pub mod ours;
pub mod outcome;
pub mod trunk;

pub use self::{
    field::Forwarded,
    ours::{BadPeerTls, NAME, Ours},
    outcome::Reported,
};
pub use crate::siblings::trunk::Idle;
