//! What the gateways of one installation say to each other. The gateway that keeps a key also serves requests of
//! other gateways for it, so that the key need not be handed over each time.
//!
//! [`header`] is how they ask and prove, [`outcome`] reads an answer, [`pool`] has the connections, and [`local`] is
//! this process as the others see it. [`crate::steps::fence`] decides what is forwarded.

pub mod header;
pub mod local;
pub mod outcome;
pub mod pool;

pub use self::{
    header::ForwardedHeader,
    local::{LocalPeer, NAME, PeerTlsError},
    outcome::PeerOutcome,
};
pub use crate::peers::pool::PeerPool;
