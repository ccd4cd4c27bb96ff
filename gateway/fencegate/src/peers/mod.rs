//! How the gateways of one installation reach each other. The gateway that holds a key also serves requests of other
//! gateways for it, so that the key need not be handed over each time.
//!
//! [`header`] has the challenge and the peer secret, [`outcome`] reads an answer, [`pool`] has the connections, and
//! [`local`] is this process as other gateways see it. [`crate::steps::fence`] decides which requests are forwarded.

pub mod header;
pub mod local;
pub mod outcome;
pub mod pool;

pub use self::{
    header::PeerForwardHeader,
    local::{LocalPeerIdentity, NAME, PeerTlsError},
    outcome::PeerReportedOutcome,
};
pub use crate::peers::pool::PeerPool;
