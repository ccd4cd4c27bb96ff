//! What the gateways of one installation say to each other. The gateway that keeps a key also serves requests of
//! other gateways for it, so that the key need not be handed over each time.
//!
//! [`field`] is how they ask and prove, [`outcome`] reads an answer, [`trunk`] has the connections, and [`ours`] is
//! this process as the others see it. [`crate::steps::fence`] decides what is forwarded.

pub mod field;
pub mod ours;
pub mod outcome;
pub mod trunk;

pub use self::{
    field::ForwardedHeader,
    ours::{LocalPeer, NAME, PeerTlsError},
    outcome::PeerOutcome,
};
pub use crate::siblings::trunk::PeerPool;
