//! The keys that verify tickets: a JSON Web Key Set (RFC 7517, 5) of Ed25519 keys, or one shared secret.

use std::{collections::HashMap, fmt};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::Value;

use super::{
    jwks::{Jwk, PublicKey, okp_thumbprint},
    key_error::TicketJwkError,
    keys::SharedSecret,
};

/// Verifying keys, by `kid`.
#[derive(Debug, Default)]
pub(super) struct VerifyingKeySet(HashMap<String, VerifyingKey>);

/// A key with its one algorithm.
pub(super) struct VerifyingKey {
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
    pub(super) validation: Validation,
    /// Distinguishes two keys of one `kid`.
    pub(super) thumbprint: [u8; 32],
}

impl VerifyingKeySet {
    /// Reads a key set. Keys of other kinds are ignored, as RFC 7517, 5 asks. So is a shared secret, which can only be
    /// in a public file by mistake.
    pub(super) fn parse(text: &[u8]) -> Result<Self, TicketJwkError> {
        #[derive(Deserialize)]
        struct JwkSet {
            keys: Vec<Value>,
        }
        let written: JwkSet = serde_json::from_slice(text)
            .map_err(|error| TicketJwkError::Set { line: error.line(), column: error.column() })?;
        let mut set = HashMap::new();
        for jwk in written.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok()) {
            if jwk.d.is_some() {
                return Err(TicketJwkError::Private);
            }
            if jwk.is_other_key_type() {
                continue;
            }
            let (x, kid) = jwk.public_key()?;
            let public = PublicKey::new(x, kid);
            let thumbprint = okp_thumbprint(&x);
            let key = VerifyingKey::new(Algorithm::EdDSA, DecodingKey::from_ed_der(&x), thumbprint);
            if set.insert(public.kid, key).is_some_and(|other: VerifyingKey| other.thumbprint != thumbprint) {
                return Err(TicketJwkError::Duplicate);
            }
        }
        if set.is_empty() { Err(TicketJwkError::NoKey) } else { Ok(Self(set)) }
    }

    pub(super) fn from_secret(secret: &SharedSecret) -> Self {
        let decoding = DecodingKey::from_secret(secret.bytes());
        let key = VerifyingKey::new(Algorithm::HS256, decoding, secret.thumbprint);
        Self(HashMap::from([(secret.kid.clone(), key)]))
    }

    pub(super) fn find(&self, kid: &str) -> Option<&VerifyingKey> {
        self.0.get(kid)
    }

    /// The names of the keys, for the log.
    pub(super) fn kids(&self) -> Vec<&str> {
        let mut kids: Vec<&str> = self.0.keys().map(String::as_str).collect();
        kids.sort_unstable();
        kids
    }
}

impl VerifyingKey {
    fn new(algorithm: Algorithm, decoding: DecodingKey, thumbprint: [u8; 32]) -> Self {
        let mut validation = Validation::new(algorithm);
        // The library's checks of the time are off, because it reads the machine's clock and knows no maximum;
        // `VerifiedTicket::check_time` checks the time. The check of `aud` stays on, so a token for another audience
        // is refused.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Self { algorithm, decoding, validation, thumbprint }
    }
}

/// No key is shown: it may be a secret.
impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
