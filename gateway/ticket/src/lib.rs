//! Tickets: signed statements of a gateway, valid for five minutes, that it holds these keys with this token.
//!
//! A ticket is a compact JWS (RFC 7515) of claims (RFC 7519). [`TicketSigner`] and [`TenureTicket`] write it, once per
//! tenure and not per dispatch; [`TicketVerifier`] checks it, once per text and not per request. Begin with `claims`, the
//! content; [`keys`] and [`jwks`] are the keys as files and as a set.
//!
//! Times are seconds of the Unix clock, the only clock that gateway and guard share. Callers pass the present time in. This
//! crate sends and fetches nothing: key sets from a URL are fetched by `fencegate-guard-client`.

mod cache;
mod claims;
mod error;
mod format;
pub mod jwks;
mod key_error;
mod key_file;
mod key_set;
pub mod keys;
mod signer;
#[cfg(test)]
mod tests;
mod verifier;

pub use self::{
    claims::{TenureOrigin, TicketClaims, VerifiedTicket},
    error::{ClaimMismatchError, InvalidTicketError, TicketError},
    format::{LEEWAY, LONGEST, VALID, unix_seconds},
    key_error::TicketKeyError,
    key_file::{KeyFileError, LARGEST, read_secret},
    signer::{TenureTicket, TicketSigner},
    verifier::TicketVerifier,
};
