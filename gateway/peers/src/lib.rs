//! How the gateways of one installation reach each other. The gateway that holds a key also serves requests of other
//! gateways for it, so that the key need not be handed over each time.
//!
//! - [`header`]: the field between gateways, with the challenge and the peer secret; [`outcome`]: reads an answer
//! - [`pool`]: the connections of one worker; [`local`]: this process as other gateways see it
//! - [`plan_compat`]: which routes and leases each session may serve beside the plans of other gateways
//!
//! Which requests are forwarded is decided by the step `fence` in `fencegate-proxy`; how the holder is found, by
//! `fencegate-lock`.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod header;
pub mod local;
pub mod outcome;
pub mod plan_compat;
pub mod pool;

pub use self::{
    header::PeerForwardHeader,
    local::{LocalPeerIdentity, NAME, PeerTlsError},
    outcome::PeerReportedOutcome,
};
pub use crate::pool::PeerPool;
