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
    cache::{CachedToken, TokenCache, digest_of},
    jws::{JwsError, JwsKind},
    key_set::{AccessTokenRules, VerifyingKeySet},
    verifying_keys::VerifyingKeys,
};

/// The longest access token, in bytes: as much as a head of a request may have on most servers.
pub const LONGEST_ACCESS_TOKEN: usize = 8 * 1024;

/// Verifies access tokens for all threads of a process, by the issuers of one plan.
///
/// A valid token is cached by its text. Its time, and whether its key is still known, are checked each time.
#[derive(Debug)]
pub struct AccessTokenVerifier {
    issuers: Vec<TrustedIssuer>,
    /// The claims that are read.
    claims: Vec<JsonPointer>,
    cache: Mutex<TokenCache<AccessToken>>,
}

/// An issuer, with its keys as they are now.
#[derive(Debug)]
pub struct TrustedIssuer {
    name: String,
    /// In seconds.
    leeway: u64,
    forward: bool,
    keys: Arc<VerifyingKeys>,
}

/// A verified token, as far as it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessToken {
    /// The number of its issuer in the plan.
    pub issuer: usize,
    pub claims: ClaimValues,
    /// The service gets the token.
    pub forward: bool,
    valid: ValidTime,
}

/// When a token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValidTime {
    /// Seconds since 1970, without leeway.
    expires: u64,
    /// Seconds since 1970, without leeway; 0 if the token says nothing.
    not_before: u64,
}

/// Why a token does not count. The text is for the client, and quotes nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessTokenError {
    #[error("the token is longer than 8192 bytes")]
    TooLong,
    /// Also where the algorithm in the header is not known, such as `none`.
    #[error("the token is no signed token")]
    Format,
    #[error("the token is of another type")]
    Type,
    #[error("the token has a critical extension")]
    Critical,
    #[error("the issuer of the token is not trusted")]
    Issuer,
    /// The keys of the issuer with this number may have changed since they were read.
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

/// The types of access tokens (RFC 9068, 2.1). Older issuers write `JWT`, or nothing. A token of any other type is made for
/// something else under the same key (RFC 8725, 3.11).
fn is_access_token_type(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| {
        ["jwt", "at+jwt", "application/at+jwt"].iter().any(|known| typ.eq_ignore_ascii_case(known))
    })
}

const ACCESS_TOKENS: JwsKind = JwsKind { is_type: is_access_token_type, needs_kid: false };

/// The claims that decide whether a token counts. Their values are checked by the library, but for the times.
#[derive(Deserialize)]
struct RegisteredClaims {
    /// A text: the library would take a list of several issuers as well.
    iss: String,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
}

/// The claim that says whose keys have to verify a token. It is believed when they have.
#[derive(Deserialize)]
struct ClaimedIssuer {
    iss: String,
}

impl AccessTokenVerifier {
    /// `claims`: those that are read of a token.
    pub fn new(issuers: Vec<TrustedIssuer>, claims: Vec<JsonPointer>) -> Self {
        Self { issuers, claims, cache: Mutex::default() }
    }

    pub fn issuers(&self) -> &[TrustedIssuer] {
        &self.issuers
    }

    /// Checks a token at `now` (seconds since 1970).
    ///
    /// Never waits for the network. For a token of a key that is not known, [`VerifyingKeys::wait_refreshed`] of its issuer
    /// may help.
    ///
    /// # Errors
    /// [`AccessTokenError`].
    pub fn verify(&self, token: &[u8], now: u64) -> Result<Arc<AccessToken>, AccessTokenError> {
        if token.len() > LONGEST_ACCESS_TOKEN {
            return Err(AccessTokenError::TooLong);
        }
        let name = digest_of(token);
        let known = self.cache().get(&name);
        if let Some(known) = known {
            let issuer = &self.issuers[known.verified.issuer];
            if issuer.keys.current_at(now).has_thumbprint(&known.thumbprint) {
                known.verified.valid.check(issuer.leeway, now)?;
                return Ok(known.verified);
            }
        }
        let payload = decode_payload(token).ok_or(AccessTokenError::Format)?;
        let ClaimedIssuer { iss } = serde_json::from_slice(&payload).map_err(|_| AccessTokenError::Claims)?;
        let (number, issuer) = self
            .issuers
            .iter()
            .enumerate()
            .find(|(_, known)| known.name == iss)
            .ok_or(AccessTokenError::Issuer)?;
        let verify = |set: &VerifyingKeySet| self.verify_signature(token, &payload, number, set);
        let entry = match verify(&issuer.keys.current_at(now)) {
            Err(AccessTokenError::UnknownKey { .. }) => {
                // No key would help a token that is over, whoever has signed it: clients that sleep send many of these, whose
                // keys are gone since long.
                let claims: RegisteredClaims =
                    serde_json::from_slice(&payload).map_err(|_| AccessTokenError::Claims)?;
                ValidTime::new(&claims)?.check(issuer.leeway, now)?;
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
    ) -> Result<CachedToken<AccessToken>, AccessTokenError> {
        let (claims, key) =
            ACCESS_TOKENS.verify::<RegisteredClaims>(token, set).map_err(|error| match error {
                JwsError::Format => AccessTokenError::Format,
                JwsError::Type => AccessTokenError::Type,
                JwsError::Critical => AccessTokenError::Critical,
                JwsError::UnknownKey => AccessTokenError::UnknownKey { issuer },
                JwsError::Algorithm => AccessTokenError::Algorithm,
                JwsError::Signature => AccessTokenError::Signature,
                JwsError::Claims => AccessTokenError::Claims,
                JwsError::Audience => AccessTokenError::Audience,
            })?;
        let TrustedIssuer { name, forward, .. } = &self.issuers[issuer];
        if claims.iss != *name {
            return Err(AccessTokenError::Issuer);
        }
        let valid = ValidTime::new(&claims)?;
        // The bytes whose signature was verified.
        let claims =
            ClaimValues::parse(payload, &self.claims).map_err(|_| AccessTokenError::AmbiguousClaims)?;
        let verified = Arc::new(AccessToken { issuer, claims, forward: *forward, valid });
        Ok(CachedToken { verified, thumbprint: key.thumbprint })
    }

    fn cache(&self) -> MutexGuard<'_, TokenCache<AccessToken>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccessToken {
    /// A token that was not verified, for explanations.
    pub fn for_display(claims: ClaimValues) -> Self {
        let valid = ValidTime { expires: u64::MAX, not_before: 0 };
        Self { issuer: 0, claims, forward: true, valid }
    }
}

impl ValidTime {
    /// By the time of a claim the token counts until the second in which it is, and from the second after it on.
    fn new(claims: &RegisteredClaims) -> Result<Self, AccessTokenError> {
        let expires = unix_time(claims.exp).ok_or(AccessTokenError::Claims)?;
        let not_before = match claims.nbf {
            Some(nbf) => unix_time(nbf.ceil()).ok_or(AccessTokenError::Claims)?,
            None => 0,
        };
        Ok(Self { expires, not_before })
    }

    /// A token is good from `leeway` before its `nbf` until `leeway` after its `exp`, without the last second (RFC 7519,
    /// 4.1.4).
    fn check(self, leeway: u64, now: u64) -> Result<(), AccessTokenError> {
        if now >= self.expires.saturating_add(leeway) {
            return Err(AccessTokenError::Expired);
        }
        if now.saturating_add(leeway) < self.not_before {
            return Err(AccessTokenError::NotYetValid);
        }
        Ok(())
    }
}

/// The claims of a token, as bytes.
fn decode_payload(token: &[u8]) -> Option<Vec<u8>> {
    let mut parts = token.split(|byte| *byte == b'.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    URL_SAFE_NO_PAD.decode(payload).ok()
}

/// The last moment of a `NumericDate` (RFC 7519, 2), in seconds since 1970. `None` before 1970 and in no calendar.
fn unix_time(date: f64) -> Option<u64> {
    const LAST: f64 = (1_u64 << 53) as f64;
    (0.0..LAST).contains(&date).then(|| Duration::from_secs_f64(date).as_secs())
}
