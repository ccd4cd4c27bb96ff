//! Tickets: a gateway's signed word, five minutes long, that it holds these keys with this token.
//!
//! A ticket is a compact JWS (RFC 7515) of claims (RFC 7519). [`Signer`] and [`Ticket`] write it, once per tenure and
//! not per dispatch; [`Verifier`] reads it, once per text and not per request. Begin with [`claims`], what is said.
//!
//! Times are seconds of the Unix clock, and passed in: the machines that meet here share no other clock.

pub mod bad;
mod cache;
pub mod claims;
mod file;
pub mod jwks;
pub mod keys;
mod sign;
mod verify;

#[cfg(test)]
mod tests;

use std::time::SystemTime;

pub use self::{
    bad::{Bad, Differs, Flaw},
    claims::{Claims, Verified},
    file::{BadFile, LARGEST},
    sign::{Signer, Ticket},
    verify::Verifier,
};

/// How long a ticket is good, in seconds. Short, because nothing takes one back.
pub const VALID: u64 = 300;

/// How far the clocks of gateway and guard may be apart, in seconds.
pub const LEEWAY: u64 = 30;

/// A longer text is no ticket, in bytes. Sixteen keys of 512 bytes, each of them escaped in JSON, are 22 KiB.
pub const LONGEST: usize = 32 * 1024;

/// `typ` of the header: a token made for something else under the same key is no ticket (RFC 8725, 3.11).
const TYPE: &str = "fencing-ticket+jwt";

/// The content of a file that is a secret.
///
/// # Errors
/// [`BadFile`] also where others could read it.
pub fn secret(path: &std::path::Path) -> Result<Vec<u8>, BadFile> {
    file::read(path, file::Access::Secret)
}

/// The wall clock, in seconds since 1970. A clock before 1970 says 0, and then every ticket is from the future.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
