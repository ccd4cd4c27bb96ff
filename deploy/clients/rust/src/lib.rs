#![doc = include_str!("../README.md")]
//!
//! Reading order: a [`Client`] requests a [`Lease`]. `renewal` renews the lease in the background, `lease_state`
//! has its deadline, and `gateway_connection` connects to the gateway.

mod client;
mod error;
mod gateway_connection;
mod lease;
mod lease_clock;
mod lease_json;
mod lease_state;
mod renewal;

pub use client::{Client, LeaseRequest};
pub use error::{AcquireError, ReleaseError};
pub use gateway_connection::{ClientConfigError, GatewayUrl};
pub use lease::{Lease, Token};
pub use lease_json::FENCING_LEASE;
pub use lease_state::LeaseLostError;

// The former names stay for one version.

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
