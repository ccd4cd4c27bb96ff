//! Tickets: signed statements of a gateway, valid for five minutes, that it holds these keys with this token.
//!
//! A ticket is a compact JWS (RFC 7515) of claims (RFC 7519). Begin with `claims`, the content.
//!
//! - `signer`: [`TicketSigner`] and [`TenureTicket`] write a ticket, once per tenure and not per dispatch
//! - `verifier`: [`TicketVerifier`] checks it, with `cache` once per text and not per request; `error`: why it is refused
//! - [`keys`], `key_file`: the keys that sign, as files; [`jwks`], `key_set`: the keys that verify, as a set
//!
//! Times are seconds of the Unix clock, the only clock that gateway and guard share. Callers pass the present time in. This
//! crate sends and fetches nothing: key sets from a URL are fetched by `fencegate-guard-client`.

mod cache;
mod claims;
mod error;
pub mod jwks;
mod key_error;
mod key_file;
mod key_set;
pub mod keys;
mod signer;
#[cfg(test)]
mod tests;
mod verifier;

/// The wall clock, which tickets are dated by. A clock before 1970 gives 0, and then every ticket is from the future.
pub use fencegate_process::clock::unix_seconds;

pub use self::{
    claims::{LEEWAY, LONGEST, TenureOrigin, TicketClaims, VALID, VerifiedTicket},
    error::{ClaimMismatchError, InvalidTenureTicketError, TicketError},
    key_error::TicketJwkError,
    key_file::{KeyFileError, LARGEST, read_secret},
    signer::{TenureTicket, TicketSigner},
    verifier::TicketVerifier,
};
