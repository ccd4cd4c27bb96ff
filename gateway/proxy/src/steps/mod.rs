//! The steps of the request path, one file each; their order is in [`crate::pipeline`].
//!
//! Beside each step stands the type of the request after the step, with the facts that the step has found. Only
//! that step makes the type, so two steps in the wrong order do not compile. The parts of a step are in its
//! folder. Several steps share [`bufferable`], [`authorized`], [`client_liveness`], [`parameters`], [`answer`] and
//! [`upgrade`].

pub mod answer;
pub mod authenticate;
pub mod authorized;
pub mod buffer;
pub mod bufferable;
pub mod callback_ticket;
pub mod client_limit;
pub mod client_liveness;
pub mod detach;
pub mod extract_claim;
pub mod fence;
pub mod filter;
pub mod forward;
pub mod forward_auth;
pub mod guard_admission;
pub mod hop;
pub mod key;
pub mod lease_api;
pub mod limit;
pub mod parameters;
pub mod peer_auth;
pub mod peer_challenge;
pub mod preflight;
pub mod route;
pub mod strip_headers;
pub mod trace;
pub mod upgrade;
pub mod validate_head;
