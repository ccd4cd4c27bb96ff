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

pub use asking::{Client, LeaseRequest};
pub use gateway_line::ClientConfigError;
pub use held_lease::{Lease, Token};
pub use not_leased::{AcquireError, ReleaseError};
pub use standing_word::LeaseLostError;
pub use told_lease::FENCING_LEASE;

// The former names, for one version.

/// The former name of [`LeaseRequest`].
#[deprecated(since = "0.1.0", note = "renamed to `LeaseRequest`")]
pub type Wanted = LeaseRequest;

/// The former name of [`AcquireError`].
#[deprecated(since = "0.1.0", note = "renamed to `AcquireError`")]
pub type NotLeased = AcquireError;

/// The former name of [`ReleaseError`].
#[deprecated(since = "0.1.0", note = "renamed to `ReleaseError`")]
pub type NotReleased = ReleaseError;

/// The former name of [`ClientConfigError`].
#[deprecated(since = "0.1.0", note = "renamed to `ClientConfigError`")]
pub type BadGateway = ClientConfigError;

/// The former name of [`LeaseLostError`].
#[deprecated(since = "0.1.0", note = "renamed to `LeaseLostError`")]
pub type Lost = LeaseLostError;
