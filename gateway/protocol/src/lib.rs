//! The fields and documents on the wire between clients, gateways, guards and services. Nothing is sent here, and no
//! policy is applied.
//! - [`headers`]: the names of the fields that Fencegate writes and reads; [`trace`] and [`clock_header`] are the values of
//!   two of them
//! - [`lease_documents`], [`lease_id`]: the JSON of the lease interface, and the id of a lease
//! - [`path_segment`]: a text as one segment of a path
//! - [`intermediary`]: recognises a response that comes from a proxy in front of the service
//!
//! The token is in `policies`, the ticket in `fencegate-ticket`, the reasons of refusals in `fencegate-refusal`.

// `println!` panics when the reader of the output has closed it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod clock_header;
pub mod headers;
pub mod intermediary;
pub mod lease_documents;
pub mod lease_id;
pub mod path_segment;
pub mod trace;
