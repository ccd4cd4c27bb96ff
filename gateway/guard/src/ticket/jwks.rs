//! The keys that tickets are checked with: a JSON Web Key Set (RFC 7517, 5) of Ed25519 keys, or one shared secret.

use std::{collections::HashMap, fmt};

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::{BadKey, Secret};

/// A JSON Web Key, what we use of it.
#[derive(Serialize, Deserialize)]
pub(super) struct Jwk {
    pub(super) kty: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crv: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) d: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alg: Option<String>,
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
}

impl Jwk {
    /// The public half of an Ed25519 key, and its own name if it has one.
    pub(super) fn public(&self) -> Result<([u8; 32], Option<String>), BadKey> {
        if !self.is_ed25519() {
            return Err(BadKey::Kind);
        }
        let x = self.x.as_deref().and_then(decode).ok_or(BadKey::Kind)?;
        let kid = self.kid.clone();
        if kid.as_deref().is_some_and(|kid| !(1..=128).contains(&kid.len()) || kid.contains(char::is_control))
        {
            return Err(BadKey::Kid);
        }
        Ok((x, kid))
    }

    fn is_ed25519(&self) -> bool {
        self.kty == "OKP" && self.crv.as_deref() == Some("Ed25519")
    }

    /// Made for something else than EdDSA signatures (`Ed25519` is its name in RFC 9864).
    fn is_foreign(&self) -> bool {
        !self.is_ed25519()
            || !matches!(self.alg.as_deref(), None | Some("EdDSA" | "Ed25519"))
            || !matches!(self.usage.as_deref(), None | Some("sig"))
    }
}

/// The public half of an Ed25519 key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Public {
    pub(super) kid: String,
    pub(super) x: [u8; 32],
}

impl Public {
    pub(super) fn new(x: [u8; 32], kid: Option<String>) -> Self {
        Self { kid: kid.unwrap_or_else(|| encode(&okp_thumbprint(&x))), x }
    }

    /// Names the key: the thumbprint of RFC 7638 for a key that we made.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn jwk(&self) -> Jwk {
        Jwk {
            kty: "OKP".into(),
            crv: Some("Ed25519".into()),
            x: Some(encode(&self.x)),
            d: None,
            kid: Some(self.kid.clone()),
            alg: Some("EdDSA".into()),
            usage: Some("sig".into()),
        }
    }
}

/// The key set of these keys, as text. A key that comes twice is written once.
///
/// # Errors
/// [`BadKey::Twice`] for two keys of one name.
pub fn render(keys: &[&Public]) -> Result<String, BadKey> {
    let mut once: Vec<&Public> = Vec::new();
    for key in keys {
        match once.iter().find(|known| known.kid == key.kid) {
            Some(known) if known.x == key.x => {}
            Some(_) => return Err(BadKey::Twice),
            None => once.push(key),
        }
    }
    let keys: Vec<Jwk> = once.into_iter().map(Public::jwk).collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "keys": keys })).expect("keys are plain data"))
}

/// Keys to check with, by `kid`.
#[derive(Debug, Default)]
pub(super) struct Set(HashMap<String, Key>);

/// A key with its one algorithm.
pub(super) struct Key {
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
    pub(super) validation: Validation,
    /// Tells two keys of one `kid` apart.
    pub(super) thumbprint: [u8; 32],
}

impl Set {
    /// Reads a key set. Keys of other kinds are passed over, as RFC 7517, 5 asks; so is a shared secret, which
    /// nobody puts into a public file on purpose.
    pub(super) fn parse(text: &[u8]) -> Result<Self, BadKey> {
        #[derive(Deserialize)]
        struct Written {
            keys: Vec<Value>,
        }
        let written: Written = serde_json::from_slice(text)
            .map_err(|error| BadKey::Set { line: error.line(), column: error.column() })?;
        let mut set = HashMap::new();
        for jwk in written.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok()) {
            if jwk.d.is_some() {
                return Err(BadKey::Private);
            }
            if jwk.is_foreign() {
                continue;
            }
            let (x, kid) = jwk.public()?;
            let public = Public::new(x, kid);
            let thumbprint = okp_thumbprint(&x);
            let key = Key::new(Algorithm::EdDSA, DecodingKey::from_ed_der(&x), thumbprint);
            if set.insert(public.kid, key).is_some_and(|other: Key| other.thumbprint != thumbprint) {
                return Err(BadKey::Twice);
            }
        }
        if set.is_empty() { Err(BadKey::NoKey) } else { Ok(Self(set)) }
    }

    pub(super) fn of_secret(secret: &Secret) -> Self {
        let decoding = DecodingKey::from_secret(secret.bytes());
        let key = Key::new(Algorithm::HS256, decoding, secret.thumbprint);
        Self(HashMap::from([(secret.kid.clone(), key)]))
    }

    pub(super) fn find(&self, kid: &str) -> Option<&Key> {
        self.0.get(kid)
    }

    /// For the log.
    pub(super) fn kids(&self) -> Vec<&str> {
        let mut kids: Vec<&str> = self.0.keys().map(String::as_str).collect();
        kids.sort_unstable();
        kids
    }
}

impl Key {
    fn new(algorithm: Algorithm, decoding: DecodingKey, thumbprint: [u8; 32]) -> Self {
        let mut validation = Validation::new(algorithm);
        // The library asks the machine's clock and knows no maximum: `Verified::is_current` does it. What stays on
        // is `aud`: a token for somebody else is refused.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Self { algorithm, decoding, validation, thumbprint }
    }
}

/// No key is shown: it may be a secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

fn okp_thumbprint(x: &[u8; 32]) -> [u8; 32] {
    thumbprint(&format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(x)))
}

/// SHA-256 of a key's required members in their one spelling (RFC 7638, 3).
pub(super) fn thumbprint(members: &str) -> [u8; 32] {
    digest(&SHA256, members.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Exactly 32 bytes.
pub(super) fn decode(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}
