//! Signed tokens. A ticket is the statement of a gateway, valid for five minutes, that it holds these keys with this
//! token. An access token is the statement of an issuer in the policy about a client.
//!
//! Both are a compact JWS (RFC 7515) of claims (RFC 7519). Begin with `claims`, the content of a ticket.
//!
//! - `signer`: [`TicketSigner`] and [`TenureTicket`] write a ticket, once per tenure and not per dispatch
//! - `verifier`: [`TicketVerifier`] checks it; `error`: why it is refused
//! - `access_token`: [`AccessTokenVerifier`] checks the token of a client
//! - `jws`: the signature of both; `cache`: it is verified once per text and not per request
//! - [`keys`], `key_file`: the keys that sign, as files; [`jwks`], `key_set`, `verifying_keys`: the keys that verify, as sets
//!
//! Times are seconds of the Unix clock, the only clock that all sides share. Callers pass the present time in. This
//! crate sends and fetches nothing: key sets from a URL are fetched by `fencegate-config`.

mod access_token;
mod cache;
mod claims;
mod error;
pub mod jwks;
mod jws;
mod key_error;
mod key_file;
mod key_set;
pub mod keys;
mod signer;
#[cfg(test)]
mod tests;
mod verifier;
mod verifying_keys;

/// The wall clock, by which tickets are dated. A clock before 1970 gives 0, and then every ticket is from the future.
pub use fencegate_process::clock::unix_seconds;

pub use self::{
    access_token::{
        AccessToken, AccessTokenVerificationError, AccessTokenVerifier, LONGEST_ACCESS_TOKEN, TrustedIssuer,
    },
    claims::{LEEWAY, LONGEST, TenureHolder, TicketClaims, VALID, VerifiedTicket},
    error::{InvalidTenureTicketError, TicketMismatchError, TicketVerificationError},
    key_error::TicketJwkError,
    key_file::{KeyFileError, LARGEST, read_secret},
    key_set::AccessTokenRules,
    signer::{TenureTicket, TicketSigner},
    verifier::TicketVerifier,
    verifying_keys::{VerifyingKeys, VerifyingKeysUnavailableError},
};
