//! The claims of a ticket, their serialized form, and its limits.

use std::borrow::Cow;

use fencegate_policies::{key::ResourceKey, not_after::NotAfter, plan::LockMode, token::FencingToken};
use serde::{Deserialize, Serialize};

use super::error::{InvalidTenureTicketError, TicketMismatchError, TicketVerificationError};

/// The validity of a ticket, in seconds. It is short because a ticket cannot be revoked.
pub const VALID: u64 = 300;

/// The tolerated difference between the clocks of gateway and guard, in seconds.
pub const LEEWAY: u64 = 30;

/// The longest ticket, in bytes. A ticket with the most keys and the most bytes of keys
/// ([`ResourceKey::MOST_BYTES_IN_SET`](fencegate_policies::key::ResourceKey::MOST_BYTES_IN_SET)), all escaped in JSON,
/// has 22 KiB.
pub const LONGEST: usize = 32 * 1024;

/// The `typ` of the header: a token made for something else under the same key is no ticket (RFC 8725, 3.11).
pub(super) const TYPE: &str = "fencing-ticket+jwt";

/// The statement of a gateway about a tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketClaims {
    /// All keys of the tenure: at least one, sorted by bytes, each of them once.
    pub keys: Vec<String>,
    /// The token of the tenure, without a dispatch number, which is 0.
    pub tenure: FencingToken,
    pub mode: LockMode,
    pub era: u64,
    /// The id of the installation, as `{root}/meta` has it.
    pub ensemble: String,
    /// The gateway's name.
    pub issuer: String,
    /// The process that holds the tenure, for services that call back.
    pub origin: Option<TenureHolder>,
}

/// The process and the session that hold a tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenureHolder {
    /// A name that no other process ever has.
    pub process: String,
    /// The member node of the session that holds the tenure. It exists as long as the session lives, and has the
    /// gateway's address.
    pub member: String,
}

/// A verified ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedTicket {
    pub claims: TicketClaims,
    /// The time of issue, in seconds since 1970.
    pub issued: u64,
    /// The end of validity, in seconds since 1970, without leeway.
    pub expires: u64,
    /// Milliseconds since 1970 after which no dispatch under the ticket may be begun. `None` in a ticket of a lease or of
    /// an older build.
    pub not_after: Option<u64>,
    /// The time from which the ticket is valid: its `nbf`, or `issued` without one. Seconds since 1970.
    starts: u64,
}

impl TicketClaims {
    /// The claims for a tenure. `keys` may be in any order, and `token` may be of any dispatch of the tenure.
    pub fn new(
        keys: &[ResourceKey],
        token: FencingToken,
        mode: LockMode,
        era: u64,
        ensemble: &str,
        issuer: &str,
    ) -> Self {
        let mut keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        keys.sort_unstable();
        keys.dedup();
        let ensemble = ensemble.to_owned();
        let issuer = issuer.to_owned();
        Self { keys, tenure: strip_dispatch_number(token), mode, era, ensemble, issuer, origin: None }
    }

    /// Adds the process that holds the tenure.
    pub fn with_origin(self, origin: TenureHolder) -> Self {
        Self { origin: Some(origin), ..self }
    }
}

impl VerifiedTicket {
    /// Checks that the ticket is for exactly these keys in their order, for a dispatch of this tenure, and for this
    /// mode.
    ///
    /// # Errors
    /// Returns [`TicketVerificationError::Key`] if the valid ticket was sent along with another claim.
    pub fn check_matches<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a str>,
        token: FencingToken,
        mode: LockMode,
    ) -> Result<(), TicketVerificationError> {
        if !self.claims.keys.iter().map(String::as_str).eq(keys) {
            return Err(TicketVerificationError::Key(TicketMismatchError::Keys));
        }
        if !self.claims.tenure.same_grant(token) {
            return Err(TicketVerificationError::Key(TicketMismatchError::Tenure));
        }
        // A ticket for an exclusive tenure is no ticket for a read either: a read under such a tenure is stamped as
        // exclusive.
        if self.claims.mode != mode {
            return Err(TicketVerificationError::Key(TicketMismatchError::Mode));
        }
        Ok(())
    }

    /// Checks that the ticket allows a dispatch that may begin until `not_after`.
    ///
    /// # Errors
    /// Returns [`TicketVerificationError::Key`] if the ticket only allows dispatches until an earlier moment.
    pub fn check_not_after(&self, not_after: &NotAfter) -> Result<(), TicketVerificationError> {
        match self.not_after {
            Some(bound) if not_after.unix_ms() > bound => {
                Err(TicketVerificationError::Key(TicketMismatchError::NotAfter))
            }
            _ => Ok(()),
        }
    }

    /// Checks the time: a ticket is valid from `LEEWAY` before its issue until `LEEWAY` after its expiry, but not in
    /// that last second itself (RFC 7519, 4.1.4).
    pub(super) fn check_time(&self, now: u64) -> Result<(), TicketVerificationError> {
        if now.saturating_add(LEEWAY) < self.issued.max(self.starts) {
            return Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Future));
        }
        if now >= self.expires.saturating_add(LEEWAY) {
            return Err(TicketVerificationError::Expired { expires: self.expires, now });
        }
        Ok(())
    }
}

fn strip_dispatch_number(token: FencingToken) -> FencingToken {
    FencingToken::new(token.number(), token.sequence(), 0).expect("the epoch is a token's")
}

/// The serialized form of a ticket. Unknown claims are ignored (RFC 7519, 4), so that later builds can add some.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TicketPayload<'a> {
    /// The version of this form: 1.
    v: u32,
    keys: Cow<'a, [String]>,
    /// The epoch in decimal digits, as a string: readers that take numbers for floats would change it (RFC 8259, 6).
    e: String,
    s: u32,
    mode: TicketLockMode,
    era: u64,
    ensemble: Cow<'a, str>,
    iss: Cow<'a, str>,
    /// `proc` and `addr` are both set, or none of them is. Older builds neither write nor read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proc: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    addr: Option<Cow<'a, str>>,
    iat: u64,
    exp: u64,
    /// Milliseconds since 1970 after which no dispatch under the ticket may be begun. Older builds neither write nor
    /// read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_after: Option<u64>,
    /// Signers of this crate do not write `nbf`, but verifiers check it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<u64>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TicketLockMode {
    Exclusive,
    Shared,
}

const FORMAT: u32 = 1;

/// The most bytes of one name. It is as long as the longest resource key.
const LONGEST_NAME: usize = 512;

impl<'a> TicketPayload<'a> {
    pub(super) fn from_claims(claims: &'a TicketClaims, issued: u64) -> Self {
        Self {
            v: FORMAT,
            keys: Cow::Borrowed(&claims.keys),
            e: claims.tenure.number().to_string(),
            s: claims.tenure.sequence(),
            mode: match claims.mode {
                LockMode::Exclusive => TicketLockMode::Exclusive,
                LockMode::Shared => TicketLockMode::Shared,
            },
            era: claims.era,
            ensemble: Cow::Borrowed(&claims.ensemble),
            iss: Cow::Borrowed(&claims.issuer),
            proc: claims.origin.as_ref().map(|origin| Cow::Borrowed(&*origin.process)),
            addr: claims.origin.as_ref().map(|origin| Cow::Borrowed(&*origin.member)),
            iat: issued,
            exp: issued.saturating_add(VALID),
            not_after: None,
            nbf: None,
        }
    }

    /// Adds the moment after which no dispatch under the ticket may be begun.
    pub(super) fn with_not_after(self, not_after: u64) -> Self {
        Self { not_after: Some(not_after), ..self }
    }

    /// The claims, if they are well-formed. The time is checked by [`VerifiedTicket::check_time`].
    pub(super) fn into_verified(self) -> Result<VerifiedTicket, InvalidTenureTicketError> {
        if self.v != FORMAT {
            return Err(InvalidTenureTicketError::Version);
        }
        let named = self.keys.iter().all(|key| is_loggable_name(key))
            && [&self.ensemble, &self.iss]
                .into_iter()
                .chain(&self.proc)
                .chain(&self.addr)
                .all(|name| is_loggable_name(name));
        let keyed = !self.keys.is_empty()
            && ResourceKey::check_set_size(self.keys.iter().map(String::as_str)).is_ok();
        if !named || !keyed || !self.keys.is_sorted_by(|key, next| key < next) {
            return Err(InvalidTenureTicketError::Claims);
        }
        // Signers of this crate never write a longer validity, so a longer one is refused.
        if !self.exp.checked_sub(self.iat).is_some_and(|valid| (1..=VALID).contains(&valid)) {
            return Err(InvalidTenureTicketError::Lifetime);
        }
        Ok(VerifiedTicket {
            claims: TicketClaims {
                tenure: FencingToken::new(
                    parse_epoch(&self.e).ok_or(InvalidTenureTicketError::Claims)?,
                    self.s,
                    0,
                )
                .map_err(|_| InvalidTenureTicketError::Claims)?,
                keys: self.keys.into_owned(),
                mode: match self.mode {
                    TicketLockMode::Exclusive => LockMode::Exclusive,
                    TicketLockMode::Shared => LockMode::Shared,
                },
                era: self.era,
                ensemble: self.ensemble.into_owned(),
                issuer: self.iss.into_owned(),
                origin: self.proc.zip(self.addr).map(|(process, member)| TenureHolder {
                    process: process.into_owned(),
                    member: member.into_owned(),
                }),
            },
            issued: self.iat,
            expires: self.exp,
            not_after: self.not_after,
            starts: self.nbf.unwrap_or(self.iat),
        })
    }
}

/// Whether a name can be logged: it must not have line feeds or escape sequences.
fn is_loggable_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Reads the epoch, only in the one spelling that [`TicketPayload::from_claims`] writes.
fn parse_epoch(digits: &str) -> Option<u64> {
    let value: u64 = digits.parse().ok()?;
    (value.to_string() == digits).then_some(value)
}
