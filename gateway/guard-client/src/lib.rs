//! A gateway's side of guards.
//!
//! - [`guard_identity`]: which guards are trusted, by what each has announced of itself. Begin here
//! - [`ticket_issuer`]: signs the tickets of tenures, and verifies those that services show when they call back
//! - [`dispatch_window`]: the time in which a dispatch may be begun; [`callback`]: the dispatch from which a service calls
//!   back
//!
//! Requests to a guard are sent by the request path (`fencegate-proxy`); the guard itself is `fencegate-guard`.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod callback;
pub mod dispatch_window;
pub mod guard_identity;
pub mod ticket_issuer;
