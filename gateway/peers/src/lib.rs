//! The protocol between the gateways of one installation. The gateway that holds a key also serves requests of other
//! gateways for that key, so that the key need not be handed over each time.
//!
//! - [`header`]: the field between gateways, with the challenge and the peer secret; [`outcome`]: reads an answer
//! - [`pool`]: the connections of one worker; [`local`]: this process as other gateways see it
//! - [`plan_compat`]: which routes and leases each session may serve beside the plans of other gateways
//!
//! The step `fence` in `fencegate-proxy` decides which requests are forwarded; `fencegate-lock` finds the holder of
//! a key.

// `println!` panics when the reader of the output has closed it.
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
