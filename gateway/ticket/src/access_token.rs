//! The access tokens of clients: bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519, RFC 9068) of an issuer in the
//! policy.

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use fencegate_policies::{
    key::{ClaimValues, JsonPointer},
    plan::JwtIssuer,
};
use serde::Deserialize;

use super::{
    cache::{CachedToken, VerifiedTokenCache, token_digest},
    jws::{JwsError, JwsKind},
    key_set::{AccessTokenRules, VerifyingKeySet},
    verifying_keys::VerifyingKeys,
};

/// The longest access token, in bytes: most servers accept a request head of this size at most.
pub const LONGEST_ACCESS_TOKEN: usize = 8 * 1024;

/// Verifies access tokens for all threads of a process, by the issuers of one plan.
///
/// A valid token is cached by its text. At each use its time is checked, and whether its key is still known.
#[derive(Debug)]
pub struct AccessTokenVerifier {
    issuers: Vec<TrustedIssuer>,
    /// The claims that are read from a token.
    claims: Vec<JsonPointer>,
    cache: Mutex<VerifiedTokenCache<AccessToken>>,
}

/// An issuer, with the keys that verify its tokens now.
#[derive(Debug)]
pub struct TrustedIssuer {
    name: String,
    /// The tolerated difference of clocks, in seconds.
    leeway: u64,
    forward: bool,
    keys: Arc<VerifyingKeys>,
}

/// A verified token: the parts of it that are read.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessToken {
    /// The number of its issuer in the plan.
    pub issuer: usize,
    pub claims: ClaimValues,
    /// Whether the service gets the token.
    pub forward: bool,
    valid: TokenValidityPeriod,
}

/// The time in which a token is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TokenValidityPeriod {
    /// The end of validity, in seconds since 1970, without leeway.
    expires: u64,
    /// The beginning of validity, in seconds since 1970, without leeway; 0 if the token has no `nbf`.
    not_before: u64,
}

/// The reason for which a token is not valid. The text is for the client, and quotes nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessTokenVerificationError {
    #[error("the token is longer than 8192 bytes")]
    TooLong,
    /// The token is malformed, or the algorithm in its header is not known, such as `none`.
    #[error("the token is no signed token")]
    Format,
    #[error("the token is of another type")]
    Type,
    #[error("the token has a critical extension")]
    Critical,
    #[error("the issuer of the token is not trusted")]
    Issuer,
    /// The token names a key that is not among those of the issuer with this number. These may have changed since they
    /// were read.
    #[error("the token is signed with an unknown key")]
    UnknownKey { issuer: usize },
    #[error("the algorithm of the token is not one of its key")]
    Algorithm,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has no valid claims exp, iss and aud")]
    Claims,
    #[error("the claims of the token can be read in more than one way")]
    AmbiguousClaims,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
}

impl TrustedIssuer {
    pub fn new(issuer: &JwtIssuer, keys: Arc<VerifyingKeys>) -> Self {
        let JwtIssuer { issuer: name, leeway, forward, .. } = issuer;
        Self { name: name.clone(), leeway: leeway.as_secs(), forward: *forward, keys }
    }

    pub fn keys(&self) -> &Arc<VerifyingKeys> {
        &self.keys
    }
}

impl From<&JwtIssuer> for AccessTokenRules {
    fn from(issuer: &JwtIssuer) -> Self {
        let JwtIssuer { issuer, audiences, algorithms, .. } = issuer;
        Self { issuer: issuer.clone(), audiences: audiences.clone(), algorithms: algorithms.clone() }
    }
}

/// Whether a `typ` is that of an access token (RFC 9068, 2.1). Older issuers write `JWT`, or nothing. A token of any
/// other type is made for something else under the same key (RFC 8725, 3.11).
fn is_access_token_type(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| {
        ["jwt", "at+jwt", "application/at+jwt"].iter().any(|known| typ.eq_ignore_ascii_case(known))
    })
}

const ACCESS_TOKENS: JwsKind = JwsKind { is_type: is_access_token_type, needs_kid: false };

/// The claims by which a token is valid or not. The library checks their values, except for the times.
#[derive(Deserialize)]
struct RegisteredClaims {
    /// The issuer as a text: the library would accept a list of several issuers as well.
    iss: String,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
}

/// The issuer that a token claims. It decides whose keys have to verify the token, and is trusted only after they have.
#[derive(Deserialize)]
struct ClaimedIssuer {
    iss: String,
}

impl AccessTokenVerifier {
    /// `claims`: the claims that are read from a token.
    pub fn new(issuers: Vec<TrustedIssuer>, claims: Vec<JsonPointer>) -> Self {
        Self { issuers, claims, cache: Mutex::default() }
    }

    pub fn issuers(&self) -> &[TrustedIssuer] {
        &self.issuers
    }

    /// Checks a token at `now` (seconds since 1970).
    ///
    /// Never waits for the network. If the token names an unknown key, call [`VerifyingKeys::wait_refreshed`] of its
    /// issuer and verify the token again.
    ///
    /// # Errors
    /// Returns [`AccessTokenVerificationError`] if the token is not valid.
    pub fn verify(&self, token: &[u8], now: u64) -> Result<Arc<AccessToken>, AccessTokenVerificationError> {
        if token.len() > LONGEST_ACCESS_TOKEN {
            return Err(AccessTokenVerificationError::TooLong);
        }
        let name = token_digest(token);
        let known = self.cache().get(&name);
        if let Some(known) = known {
            let issuer = &self.issuers[known.verified.issuer];
            if issuer.keys.reload_and_get(now).has_thumbprint(&known.thumbprint) {
                known.verified.valid.check(issuer.leeway, now)?;
                return Ok(known.verified);
            }
        }
        let payload = decode_payload(token).ok_or(AccessTokenVerificationError::Format)?;
        let ClaimedIssuer { iss } =
            serde_json::from_slice(&payload).map_err(|_| AccessTokenVerificationError::Claims)?;
        let (number, issuer) = self
            .issuers
            .iter()
            .enumerate()
            .find(|(_, known)| known.name == iss)
            .ok_or(AccessTokenVerificationError::Issuer)?;
        let verify = |set: &VerifyingKeySet| self.verify_signature(token, &payload, number, set);
        let entry = match verify(&issuer.keys.reload_and_get(now)) {
            Err(AccessTokenVerificationError::UnknownKey { .. }) => {
                // An expired or not yet valid token is refused before its key is fetched again, because no key would make it valid.
                // Clients that were suspended send many expired tokens, and the issuer no longer publishes their keys.
                let claims: RegisteredClaims =
                    serde_json::from_slice(&payload).map_err(|_| AccessTokenVerificationError::Claims)?;
                TokenValidityPeriod::new(&claims)?.check(issuer.leeway, now)?;
                verify(&issuer.keys.refreshed())?
            }
            done => done?,
        };
        entry.verified.valid.check(issuer.leeway, now)?;
        let verified = Arc::clone(&entry.verified);
        self.cache().insert(name, entry);
        Ok(verified)
    }

    fn verify_signature(
        &self,
        token: &[u8],
        payload: &[u8],
        issuer: usize,
        set: &VerifyingKeySet,
    ) -> Result<CachedToken<AccessToken>, AccessTokenVerificationError> {
        let (claims, key) =
            ACCESS_TOKENS.verify::<RegisteredClaims>(token, set).map_err(|error| match error {
                JwsError::Format => AccessTokenVerificationError::Format,
                JwsError::Type => AccessTokenVerificationError::Type,
                JwsError::Critical => AccessTokenVerificationError::Critical,
                JwsError::UnknownKey => AccessTokenVerificationError::UnknownKey { issuer },
                JwsError::Algorithm => AccessTokenVerificationError::Algorithm,
                JwsError::Signature => AccessTokenVerificationError::Signature,
                JwsError::Claims => AccessTokenVerificationError::Claims,
                JwsError::Audience => AccessTokenVerificationError::Audience,
            })?;
        let TrustedIssuer { name, forward, .. } = &self.issuers[issuer];
        if claims.iss != *name {
            return Err(AccessTokenVerificationError::Issuer);
        }
        let valid = TokenValidityPeriod::new(&claims)?;
        // The claims are read from the same bytes whose signature was verified.
        let claims = ClaimValues::parse(payload, &self.claims)
            .map_err(|_| AccessTokenVerificationError::AmbiguousClaims)?;
        let verified = Arc::new(AccessToken { issuer, claims, forward: *forward, valid });
        Ok(CachedToken { verified, thumbprint: key.thumbprint })
    }

    fn cache(&self) -> MutexGuard<'_, VerifiedTokenCache<AccessToken>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccessToken {
    /// A token that was not verified. It is only for explanations of how a request would be handled.
    pub fn for_display(claims: ClaimValues) -> Self {
        let valid = TokenValidityPeriod { expires: u64::MAX, not_before: 0 };
        Self { issuer: 0, claims, forward: true, valid }
    }
}

impl TokenValidityPeriod {
    /// Reads the times. `exp` is rounded down to a full second and `nbf` up, so that the token is never valid for
    /// longer than its claims say.
    fn new(claims: &RegisteredClaims) -> Result<Self, AccessTokenVerificationError> {
        let expires = parse_numeric_date(claims.exp).ok_or(AccessTokenVerificationError::Claims)?;
        let not_before = match claims.nbf {
            Some(nbf) => parse_numeric_date(nbf.ceil()).ok_or(AccessTokenVerificationError::Claims)?,
            None => 0,
        };
        Ok(Self { expires, not_before })
    }

    /// Checks the time: a token is valid from `leeway` before its `nbf` until `leeway` after its `exp`, but not in that
    /// last second itself (RFC 7519, 4.1.4).
    fn check(self, leeway: u64, now: u64) -> Result<(), AccessTokenVerificationError> {
        if now >= self.expires.saturating_add(leeway) {
            return Err(AccessTokenVerificationError::Expired);
        }
        if now.saturating_add(leeway) < self.not_before {
            return Err(AccessTokenVerificationError::NotYetValid);
        }
        Ok(())
    }
}

/// The claims of a token, as decoded bytes; `None` if the token has not three parts.
fn decode_payload(token: &[u8]) -> Option<Vec<u8>> {
    let mut parts = token.split(|byte| *byte == b'.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    URL_SAFE_NO_PAD.decode(payload).ok()
}

/// Converts a `NumericDate` (RFC 7519, 2) into full seconds since 1970. `None` for a date before 1970 or beyond all
/// calendars.
fn parse_numeric_date(date: f64) -> Option<u64> {
    const LAST: f64 = (1_u64 << 53) as f64;
    (0.0..LAST).contains(&date).then(|| Duration::from_secs_f64(date).as_secs())
}
