//! The keys that verify tokens: a JSON Web Key Set (RFC 7517, 5), or one shared secret.

use std::{collections::HashSet, fmt, sync::Arc};

use fencegate_policies::plan::JwtAlgorithm;
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{self, AlgorithmParameters, EllipticCurve, KeyOperations, PublicKeyUse, ThumbprintHash},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    jwks::{Jwk, PublicKey, okp_thumbprint, thumbprint},
    key_error::TicketJwkError,
    keys::SharedSecret,
};

/// Verifying keys. For each `kid` there is at most one key of each algorithm.
#[derive(Debug, Default)]
pub(super) struct VerifyingKeySet(Vec<VerifyingKey>);

/// A key with its algorithms.
pub(super) struct VerifyingKey {
    /// The name of the key; `None` for a key that no token can name.
    pub(super) kid: Option<Arc<str>>,
    pub(super) decoding: DecodingKey,
    /// The checks of the library for this key. They include its algorithms, which are all of one family.
    pub(super) validation: Validation,
    /// Distinguishes different keys with the same `kid`.
    pub(super) thumbprint: [u8; 32],
}

/// The rules by which tokens of an issuer are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessTokenRules {
    pub issuer: String,
    pub audiences: Vec<String>,
    pub algorithms: Vec<JwtAlgorithm>,
}

#[derive(Deserialize)]
struct RawJwkSet {
    keys: Vec<Value>,
}

fn parse_jwks_members(text: &[u8]) -> Result<Vec<Value>, TicketJwkError> {
    let written: Result<RawJwkSet, _> = serde_json::from_slice(text);
    let written =
        written.map_err(|error| TicketJwkError::Set { line: error.line(), column: error.column() })?;
    Ok(written.keys)
}

impl VerifyingKeySet {
    /// Reads the keys of tickets. Keys of other kinds are ignored, as RFC 7517, 5, demands. A shared secret is ignored,
    /// too: it can only be in a public file by mistake.
    pub(super) fn parse(text: &[u8]) -> Result<Self, TicketJwkError> {
        let mut set = Self::default();
        let members = parse_jwks_members(text)?.into_iter();
        for jwk in members.filter_map(|key| serde_json::from_value::<Jwk>(key).ok()) {
            if jwk.d.is_some() {
                return Err(TicketJwkError::Private);
            }
            if jwk.is_other_key_type() {
                continue;
            }
            let (x, kid) = jwk.public_key()?;
            let public = PublicKey::new(x, kid);
            let decoding = DecodingKey::from_ed_der(&x);
            let kid = Some(public.kid.into());
            set.add(VerifyingKey::for_tickets(kid, Algorithm::EdDSA, decoding, okp_thumbprint(&x)))?;
        }
        if set.0.is_empty() { Err(TicketJwkError::NoKey) } else { Ok(set) }
    }

    /// Reads the keys of an issuer of access tokens. Ignored are keys that are not public keys of the listed
    /// algorithms, keys for encryption, and shared secrets.
    pub(super) fn parse_issuer(text: &[u8], rules: &AccessTokenRules) -> Result<Self, TicketJwkError> {
        let mut set = Self::default();
        for member in parse_jwks_members(text)? {
            let is_secret = member.get("kty").and_then(Value::as_str) == Some("oct");
            if member.get("d").is_some() && !is_secret {
                return Err(TicketJwkError::PrivateInSet);
            }
            let Ok(jwk) = serde_json::from_value::<jwk::Jwk>(member) else { continue };
            if let Some(key) = VerifyingKey::for_issuer(&jwk, rules) {
                set.add(key)?;
            }
        }
        if set.0.is_empty() { Err(TicketJwkError::NoKeyOfAlgorithms) } else { Ok(set) }
    }

    pub(super) fn verifying_keys_from_secret(secret: &SharedSecret) -> Self {
        let decoding = DecodingKey::from_secret(secret.bytes());
        let kid = Some(secret.kid.as_str().into());
        Self(vec![VerifyingKey::for_tickets(kid, Algorithm::HS256, decoding, secret.thumbprint)])
    }

    /// Adds a key. A key that occurs twice is kept once. Two different keys with one `kid` and one algorithm are an
    /// error, because a token could not tell which one it means.
    fn add(&mut self, key: VerifyingKey) -> Result<(), TicketJwkError> {
        let mut same_name = self.0.iter().filter(|known| key.kid.is_some() && known.kid == key.kid);
        if same_name.clone().any(|known| known.thumbprint == key.thumbprint) {
            return Ok(());
        }
        if same_name.any(|known| known.validation.algorithms.iter().any(|known| key.has_algorithm(*known))) {
            return Err(TicketJwkError::Duplicate);
        }
        self.0.push(key);
        Ok(())
    }

    pub(super) fn keys_with_kid(&self, kid: &str) -> impl Iterator<Item = &VerifyingKey> {
        self.0.iter().filter(move |key| key.kid.as_deref() == Some(kid))
    }

    /// The key for a token that names none; `None` if several keys, or none, have the algorithm.
    pub(super) fn only_key_of(&self, algorithm: Algorithm) -> Option<&VerifyingKey> {
        let mut fitting = self.0.iter().filter(|key| key.has_algorithm(algorithm));
        fitting.next().filter(|_| fitting.next().is_none())
    }

    pub(super) fn has_thumbprint(&self, thumbprint: &[u8; 32]) -> bool {
        self.0.iter().any(|key| key.thumbprint == *thumbprint)
    }

    /// The names of the keys, for the log.
    pub(super) fn kids(&self) -> Vec<&str> {
        let mut kids: Vec<&str> =
            self.0.iter().map(|key| key.kid.as_deref().unwrap_or("(unnamed)")).collect();
        kids.sort_unstable();
        kids
    }
}

impl VerifyingKey {
    fn for_tickets(
        kid: Option<Arc<str>>,
        algorithm: Algorithm,
        decoding: DecodingKey,
        thumbprint: [u8; 32],
    ) -> Self {
        let mut validation = Validation::new(algorithm);
        // The library's checks of the time are off, because it reads the machine's clock and knows no maximum;
        // `VerifiedTicket::check_time` checks the time. The check of `aud` stays on, so a token for another audience
        // is refused.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Self { kid, decoding, validation, thumbprint }
    }

    /// Reads a key of an issuer; `None` for a key that verifies no token under these rules.
    fn for_issuer(jwk: &jwk::Jwk, rules: &AccessTokenRules) -> Option<Self> {
        let common = &jwk.common;
        // The names of keys get into logs, so they must not have control characters.
        if common.key_id.as_ref().is_some_and(|kid| kid.contains(char::is_control)) {
            return None;
        }
        let is_for_signatures = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
            && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let own = match common.key_algorithm {
            Some(algorithm) => Some(Algorithm::try_from(algorithm).ok()?),
            None => None,
        };
        let fits = |algorithm: &Algorithm| {
            can_sign(&jwk.algorithm, *algorithm) && own.is_none_or(|own| own == *algorithm)
        };
        let algorithms: Vec<Algorithm> =
            rules.algorithms.iter().map(|algorithm| library_algorithm(*algorithm)).filter(fits).collect();
        let mut validation = Validation::new(*algorithms.first().filter(|_| is_for_signatures)?);
        validation.algorithms = algorithms;
        validation.set_audience(&rules.audiences);
        validation.set_issuer(std::slice::from_ref(&rules.issuer));
        validation.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(str::to_owned));
        // The times are checked by this crate with the caller's clock: `TokenValidityPeriod::check`.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        let decoding = DecodingKey::from_jwk(jwk).ok()?;
        let thumbprint = thumbprint(&jwk.thumbprint(ThumbprintHash::SHA256).ok()?);
        Some(Self { kid: common.key_id.as_deref().map(Arc::from), decoding, validation, thumbprint })
    }

    pub(super) fn has_algorithm(&self, algorithm: Algorithm) -> bool {
        self.validation.algorithms.contains(&algorithm)
    }
}

fn library_algorithm(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

/// Whether a key of this type can have signed with this algorithm. This is never true for a shared secret.
fn can_sign(key: &AlgorithmParameters, algorithm: Algorithm) -> bool {
    match (key, algorithm) {
        (
            AlgorithmParameters::RSA(_),
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512,
        ) => true,
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES384) => key.curve == EllipticCurve::P384,
        (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
        _ => false,
    }
}

/// Hides the key, which may be a secret.
impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("algorithms", &self.validation.algorithms).finish_non_exhaustive()
    }
}
