//! Tickets: a gateway's signed word, five minutes long, that it holds these keys with this token.
//!
//! A ticket is a compact JWS (RFC 7515) of claims (RFC 7519). [`Signer`] and [`Ticket`] write it, once per tenure and
//! not per dispatch; [`Verifier`] reads it, once per text and not per request. Begin with [`claims`], what is said.
//!
//! Times are seconds of the Unix clock, and passed in: the machines that meet here share no other clock.

pub mod bad;
mod cache;
pub mod claims;
mod fetch;
mod file;
pub mod jwks;
pub mod keys;
mod sign;
mod ticketing;
mod verify;

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

pub use self::{
    bad::{Bad, Differs, Flaw},
    claims::{Claims, Verified},
    fetch::{BadUrl, Pace, Unfetched},
    file::BadFile,
    sign::{Signer, Ticket},
    ticketing::Ticketing,
    verify::Verifier,
};

pub const FENCING_TICKET: HeaderName = HeaderName::from_static("fencing-ticket");

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

/// The ticket of a request.
///
/// # Errors
/// [`Bad::Missing`], and [`Flaw::Several`]: two readers of such a request could each take another one.
pub fn field(headers: &HeaderMap) -> Result<&HeaderValue, Bad> {
    let mut fields = headers.get_all(FENCING_TICKET).iter();
    match (fields.next(), fields.next()) {
        (None, _) => Err(Bad::Missing),
        (Some(ticket), None) => Ok(ticket),
        (Some(_), Some(_)) => Err(Bad::Invalid(Flaw::Several)),
    }
}

/// The wall clock, in seconds since 1970. A clock before 1970 says 0, and then every ticket is from the future.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
