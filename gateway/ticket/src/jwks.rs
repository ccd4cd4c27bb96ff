//! Public keys as text: JSON Web Keys, and sets of them (RFC 7517, 5).

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::key_error::TicketJwkError;

/// The fields of a JSON Web Key that tickets use.
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
    /// The public half of an Ed25519 key, and the key's `kid` if it has one.
    pub(super) fn public_key(&self) -> Result<([u8; 32], Option<String>), TicketJwkError> {
        if !self.is_ed25519() {
            return Err(TicketJwkError::Kind);
        }
        let x = self.x.as_deref().and_then(decode_base64url).ok_or(TicketJwkError::Kind)?;
        let kid = self.kid.clone();
        if kid.as_deref().is_some_and(|kid| !(1..=128).contains(&kid.len()) || kid.contains(char::is_control))
        {
            return Err(TicketJwkError::Kid);
        }
        Ok((x, kid))
    }

    fn is_ed25519(&self) -> bool {
        self.kty == "OKP" && self.crv.as_deref() == Some("Ed25519")
    }

    /// Whether the key is for something other than EdDSA signatures (called `Ed25519` in RFC 9864).
    pub(super) fn is_other_key_type(&self) -> bool {
        !self.is_ed25519()
            || !matches!(self.alg.as_deref(), None | Some("EdDSA" | "Ed25519"))
            || !matches!(self.usage.as_deref(), None | Some("sig"))
    }
}

/// The public half of an Ed25519 key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    pub(super) kid: String,
    pub(super) x: [u8; 32],
}

impl PublicKey {
    pub(super) fn new(x: [u8; 32], kid: Option<String>) -> Self {
        Self { kid: kid.unwrap_or_else(|| encode_base64url(&okp_thumbprint(&x))), x }
    }

    /// The name of the key: for a key that was generated here, the thumbprint of RFC 7638.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn jwk(&self) -> Jwk {
        Jwk {
            kty: "OKP".into(),
            crv: Some("Ed25519".into()),
            x: Some(encode_base64url(&self.x)),
            d: None,
            kid: Some(self.kid.clone()),
            alg: Some("EdDSA".into()),
            usage: Some("sig".into()),
        }
    }
}

/// The key set of these keys, as text. A key that occurs twice is written once.
///
/// # Errors
/// Returns [`TicketJwkError::Duplicate`] if two different keys have one name.
pub fn render_key_set(keys: &[&PublicKey]) -> Result<String, TicketJwkError> {
    let mut once: Vec<&PublicKey> = Vec::new();
    for key in keys {
        match once.iter().find(|known| known.kid == key.kid) {
            Some(known) if known.x == key.x => {}
            Some(_) => return Err(TicketJwkError::Duplicate),
            None => once.push(key),
        }
    }
    let keys: Vec<Jwk> = once.into_iter().map(PublicKey::jwk).collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "keys": keys })).expect("keys are plain data"))
}

pub(super) fn okp_thumbprint(x: &[u8; 32]) -> [u8; 32] {
    thumbprint(&format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode_base64url(x)))
}

/// SHA-256 of a key's required members, serialized as RFC 7638, 3, prescribes.
pub(super) fn thumbprint(members: &str) -> [u8; 32] {
    digest(&SHA256, members.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(super) fn encode_base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a text of exactly 32 bytes.
pub(super) fn decode_base64url(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}
