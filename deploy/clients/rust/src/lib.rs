#![doc = include_str!("../README.md")]
//!
//! Reading order: a [`Client`] asks for a [`Lease`]. `renewing` renews it in the background, `standing_word` knows how
//! long it is proven, and `gateway_line` speaks to the gateway.

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
