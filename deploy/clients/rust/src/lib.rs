#![doc = include_str!("../README.md")]
//!
//! Reading order: a [`Client`] requests a [`Lease`]. `renewing` renews it in the background, `standing_word` has its
//! deadline, and `gateway_line` connects to the gateway.

mod asking;
mod gateway_line;
mod held_lease;
mod lease_clock;
mod not_leased;
mod renewing;
mod standing_word;
mod told_lease;

pub use asking::{Client, Wanted};
pub use gateway_line::BadGateway;
pub use held_lease::{Lease, Token};
pub use not_leased::{NotLeased, NotReleased};
pub use standing_word::Lost;
pub use told_lease::FENCING_LEASE;
