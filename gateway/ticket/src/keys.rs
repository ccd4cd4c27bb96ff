//! The keys with which tickets are signed, as files: an Ed25519 JSON Web Key (RFC 8037), or a shared secret.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use fencegate_process::randomness::Randomness;
use jsonwebtoken::EncodingKey;

use super::{
    jwks::{Jwk, PublicKey, decode_base64url, encode_base64url, thumbprint},
    key_error::{SHORTEST, TicketJwkError},
    key_file::{self, KeyFileAccess, KeyFileError},
};

/// An Ed25519 key pair.
pub struct SigningKeyPair {
    pub(super) public: PublicKey,
    pub(super) encoding: EncodingKey,
    pub(super) seed: [u8; 32],
}

impl SigningKeyPair {
    pub fn generate(randomness: &dyn Randomness) -> Self {
        let mut seed = [0; 32];
        randomness.fill(&mut seed);
        Self::from_seed(seed, None).expect("any 32 bytes are the seed of a key (RFC 8032, 5.1.5)")
    }

    /// Reads a private JSON Web Key.
    ///
    /// # Errors
    /// Returns [`KeyFileError`], also if others can read the file.
    pub fn read_private_jwk(path: &Path) -> Result<Self, KeyFileError> {
        let text = key_file::read(path, KeyFileAccess::Secret)?;
        Self::parse(&text).map_err(|source| KeyFileError::Key { path: path.into(), source })
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, TicketJwkError> {
        // The parser's message may quote a part of the key, so only the place of the error is kept.
        let jwk: Jwk = serde_json::from_slice(text).map_err(|error| {
            if is_acceptable_secret(text) {
                return TicketJwkError::Shared;
            }
            TicketJwkError::Jwk { line: error.line(), column: error.column() }
        })?;
        if jwk.kty == "oct" {
            return Err(TicketJwkError::Shared);
        }
        let (x, kid) = jwk.public_key()?;
        let seed = decode_base64url(jwk.d.as_deref().ok_or(TicketJwkError::OnlyPublic)?)
            .ok_or(TicketJwkError::Kind)?;
        let pair = Self::from_seed(seed, kid)?;
        if pair.public.x != x {
            return Err(TicketJwkError::Halves);
        }
        Ok(pair)
    }

    fn from_seed(seed: [u8; 32], kid: Option<String>) -> Result<Self, TicketJwkError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| TicketJwkError::Kind)?;
        let x = pair.public_key().as_ref().try_into().map_err(|_| TicketJwkError::Kind)?;
        let document = pair.to_pkcs8().map_err(|_| TicketJwkError::Kind)?;
        let encoding = EncodingKey::from_ed_der(document.as_ref());
        Ok(Self { public: PublicKey::new(x, kid), encoding, seed })
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Writes the private key into a new file that only its owner can read.
    ///
    /// # Errors
    /// Returns [`KeyFileError::Exists`] if the file exists: no file is ever overwritten.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        let mut jwk = self.public.jwk();
        jwk.d = Some(encode_base64url(&self.seed));
        let mut text = serde_json::to_string_pretty(&jwk).expect("a key is plain data");
        text.push('\n');
        create_private_file(path, text.as_bytes())
    }
}

/// A secret that gateway and guard share, for HS256.
pub struct SharedSecret {
    text: Vec<u8>,
    pub(super) kid: String,
    pub(super) thumbprint: [u8; 32],
}

impl SharedSecret {
    pub fn generate(randomness: &dyn Randomness) -> Self {
        let mut bytes = [0; 32];
        randomness.fill(&mut bytes);
        Self::new(encode_base64url(&bytes).into_bytes())
    }

    /// Reads one line of printable text. The line without its end is the secret, because editors and `echo` add an end
    /// of line by themselves.
    ///
    /// # Errors
    /// Returns [`KeyFileError`], also if others can read the file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = key_file::read(path, KeyFileAccess::Secret)?;
        Self::parse(&text).map_err(|source| KeyFileError::Key { path: path.into(), source })
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, TicketJwkError> {
        if !is_acceptable_secret(text) {
            return Err(TicketJwkError::Secret);
        }
        Ok(Self::new(text.trim_ascii_end().to_vec()))
    }

    fn new(text: Vec<u8>) -> Self {
        // The thumbprint of an `oct` key (RFC 7638, 3.2). To somebody who guesses a weak secret it is of no more help
        // than any ticket.
        let thumbprint = thumbprint(&format!(r#"{{"k":"{}","kty":"oct"}}"#, encode_base64url(&text)));
        Self { text, kid: encode_base64url(&thumbprint), thumbprint }
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Writes the secret into a new file that only its owner can read.
    ///
    /// # Errors
    /// Returns [`KeyFileError::Exists`] if the file exists: no file is ever overwritten.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        create_private_file(path, &[&self.text[..], b"\n"].concat())
    }
}

/// Whether a text may be a shared secret. A JSON Web Key may not, because its text would become the password.
fn is_acceptable_secret(text: &[u8]) -> bool {
    let line = text.trim_ascii_end();
    line.len() >= SHORTEST && !line.starts_with(b"{") && line.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

fn create_private_file(path: &Path, text: &[u8]) -> Result<(), KeyFileError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
        _ => KeyFileError::Write { path: path.into(), source },
    };
    // The file is created with its mode. If the mode were set later, others could open the file for a moment.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(|source| {
        // A file with a part of a key is useless and would block the next attempt, so it is removed.
        drop(fs::remove_file(path));
        failed(source)
    })
}

/// Hides the secret half.
impl fmt::Debug for SigningKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("kid", &self.public.kid).finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("kid", &self.kid).finish_non_exhaustive()
    }
}
