//! Verifies the signature of a compact JWS (RFC 7515): of tickets, and of the access tokens of clients.

use jsonwebtoken::{Header, errors::ErrorKind};
use serde::de::DeserializeOwned;

use super::key_set::{VerifyingKey, VerifyingKeySet};

/// The reason for which a text is not a token that one of the keys has signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JwsError {
    /// The text has not three parts in base64url, or its header is no JSON object with a known `alg`; `none`
    /// is not known.
    Format,
    /// The `typ` is the one of another kind of token.
    Type,
    /// The header lists critical extensions (RFC 7515, 4.1.11), and no extension is supported.
    Critical,
    /// No key has this `kid`; or the token has no `kid`, and the set has not exactly one key of its
    /// algorithm.
    UnknownKey,
    /// The algorithm belongs to the key, not to the token (RFC 8725, 3.1).
    Algorithm,
    Signature,
    /// A claim is missing or malformed.
    Claims,
    /// The token is for another audience, or of another issuer, than the key.
    Audience,
}

/// The kind of a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct JwsKind {
    /// Whether a header may have this `typ`.
    pub(super) is_type: fn(Option<&str>) -> bool,
    /// Whether a token has to name its key.
    pub(super) needs_kid: bool,
}

impl JwsKind {
    /// Verifies a token, and returns its claims and the key that has signed it.
    pub(super) fn verify<'k, T: DeserializeOwned>(
        self,
        token: &[u8],
        set: &'k VerifyingKeySet,
    ) -> Result<(T, &'k VerifyingKey), JwsError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| JwsError::Format)?;
        let key = self.find_key(&header, set)?;
        let payload = jsonwebtoken::decode::<T>(token, &key.decoding, &key.validation);
        let payload = payload.map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => JwsError::Signature,
            ErrorKind::InvalidAlgorithm => JwsError::Algorithm,
            ErrorKind::Json(_) | ErrorKind::MissingRequiredClaim(_) => JwsError::Claims,
            ErrorKind::InvalidAudience | ErrorKind::InvalidIssuer => JwsError::Audience,
            _ => JwsError::Format,
        })?;
        Ok((payload.claims, key))
    }

    fn find_key<'k>(self, header: &Header, set: &'k VerifyingKeySet) -> Result<&'k VerifyingKey, JwsError> {
        if !(self.is_type)(header.typ.as_deref()) {
            return Err(JwsError::Type);
        }
        if header.crit.is_some() {
            return Err(JwsError::Critical);
        }
        // `jwk`, `jku` and `x5c` in the header are ignored: a token must not bring its own key.
        match header.kid.as_deref() {
            Some(kid) => {
                let mut named = set.keys_with_kid(kid).peekable();
                named.peek().ok_or(JwsError::UnknownKey)?;
                named.find(|key| key.has_algorithm(header.alg)).ok_or(JwsError::Algorithm)
            }
            None if self.needs_kid => Err(JwsError::UnknownKey),
            None => set.only_key_of(header.alg).ok_or(JwsError::UnknownKey),
        }
    }
}
