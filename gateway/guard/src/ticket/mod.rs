//! Tickets: a gateway's signed word, five minutes long, that it holds these keys with this token.
//!
//! A ticket is a compact JWS (RFC 7515) of claims (RFC 7519). [`Signer`] and [`Ticket`] write it, once per tenure and
//! not per dispatch; [`Verifier`] reads it, once per text and not per request. Begin with [`claims`], what is said.
//!
//! Times are seconds of the Unix clock, and passed in: the machines that meet here share no other clock.

mod bad;
mod bad_key;
mod cache;
mod claims;
mod file;
mod form;
pub mod jwks;
pub mod keys;
mod set;
mod sign;
#[cfg(test)]
mod tests;
mod verify;

pub use self::{
    bad::{Bad, Differs, Flaw},
    bad_key::BadKey,
    claims::{Claims, Verified},
    file::{BadFile, LARGEST, secret},
    form::{LEEWAY, LONGEST, VALID, now},
    sign::{Signer, Ticket},
    verify::Verifier,
};
