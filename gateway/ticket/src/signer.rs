//! Signs tickets: one per tenure, and again when half of its validity is over. A ticket with a moment until which
//! dispatches may begin is signed anew when a quarter of the time until that moment is over.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jsonwebtoken::{Algorithm, EncodingKey, Header};

use super::{
    claims::{TYPE, TicketClaims, TicketPayload, VALID},
    key_file::KeyFileError,
    keys::{SharedSecret, SigningKeyPair},
};

/// A key that signs tickets.
pub struct TicketSigner {
    key: EncodingKey,
    header: Header,
    kid: String,
}

impl TicketSigner {
    /// Signs with EdDSA (RFC 8037). A verifier has only the public half, so it cannot sign.
    pub fn with_key(pair: &SigningKeyPair) -> Self {
        Self::new(Algorithm::EdDSA, pair.encoding.clone(), pair.public.kid())
    }

    /// Signs with HS256. A verifier has the same secret, so it could sign as well.
    pub(crate) fn with_secret(secret: &SharedSecret) -> Self {
        Self::new(Algorithm::HS256, EncodingKey::from_secret(secret.bytes()), secret.kid())
    }

    /// Reads the private key from a file.
    ///
    /// # Errors
    /// Returns the same errors as [`SigningKeyPair::read_private_jwk`].
    pub fn from_key_file(path: &Path) -> Result<Self, KeyFileError> {
        SigningKeyPair::read_private_jwk(path).map(|pair| Self::with_key(&pair))
    }

    /// Reads the shared secret from a file.
    ///
    /// # Errors
    /// Returns the same errors as [`SharedSecret::read`].
    pub fn from_secret_file(path: &Path) -> Result<Self, KeyFileError> {
        SharedSecret::read(path).map(|secret| Self::with_secret(&secret))
    }

    fn new(algorithm: Algorithm, key: EncodingKey, kid: &str) -> Self {
        let mut header = Header::new(algorithm);
        header.typ = Some(TYPE.into());
        header.kid = Some(kid.into());
        Self { key, header, kid: kid.into() }
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The value of `Fencing-Ticket`, valid from `now` (seconds since 1970) for [`VALID`] seconds. Signing takes some
    /// tens of microseconds; [`TenureTicket`] keeps the result. Keep the value out of logs: a reader of the log could
    /// present it.
    pub fn sign(&self, claims: &TicketClaims, now: u64) -> String {
        self.encode(&TicketPayload::from_claims(claims, now))
    }

    /// Like [`TicketSigner::sign`]. `not_after`: milliseconds since 1970 after which no dispatch under the ticket may
    /// be begun.
    pub fn sign_until(&self, claims: &TicketClaims, now: u64, not_after: u64) -> String {
        self.encode(&TicketPayload::from_claims(claims, now).with_not_after(not_after))
    }

    fn encode(&self, payload: &TicketPayload<'_>) -> String {
        jsonwebtoken::encode(&self.header, payload, &self.key)
            .expect("the key was read as one of this algorithm, and claims are plain data")
    }
}

impl fmt::Debug for TicketSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// The ticket of one tenure.
pub struct TenureTicket {
    signer: Arc<TicketSigner>,
    claims: TicketClaims,
    signed: Mutex<Option<CachedTicketText>>,
    /// The last text that was signed with a moment until which dispatches may begin, and that moment in milliseconds
    /// since 1970.
    bounded: Mutex<Option<(CachedTicketText, u64)>>,
}

struct CachedTicketText {
    text: Arc<str>,
    /// The time of signing, in seconds since 1970.
    at: u64,
}

impl TenureTicket {
    /// Signs nothing yet, so a tenure without a dispatch needs no signature.
    pub fn new(signer: Arc<TicketSigner>, claims: TicketClaims) -> Self {
        Self { signer, claims, signed: Mutex::new(None), bounded: Mutex::new(None) }
    }

    pub fn claims(&self) -> &TicketClaims {
        &self.claims
    }

    /// The value of `Fencing-Ticket` at `now` (seconds since 1970). The ticket then has at least half of its validity
    /// left.
    pub fn text(&self, now: u64) -> Arc<str> {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signed) = signed.as_ref().filter(|signed| signed.is_fresh(now)) {
            return signed.text.clone();
        }
        let text: Arc<str> = self.signer.sign(&self.claims, now).into();
        *signed = Some(CachedTicketText { text: text.clone(), at: now });
        text
    }

    /// Like [`TenureTicket::text`], for a dispatch that must not begin after `wanted` milliseconds since 1970, which is
    /// `left` from now. Also returns the moment in the ticket. Dispatches share a ticket, so that moment may be later
    /// than `wanted`, or earlier by up to a quarter of `left`.
    pub fn signed_text_until(&self, now: u64, wanted: u64, left: Duration) -> (Arc<str>, u64) {
        let mut bounded = self.bounded.lock().unwrap_or_else(PoisonError::into_inner);
        let early = u64::try_from(left.as_millis() / 4).unwrap_or(u64::MAX);
        if let Some((signed, not_after)) = bounded.as_ref()
            && signed.is_fresh(now)
            && not_after.saturating_add(early) >= wanted
        {
            return (signed.text.clone(), *not_after);
        }
        let text: Arc<str> = self.signer.sign_until(&self.claims, now, wanted).into();
        *bounded = Some((CachedTicketText { text: text.clone(), at: now }, wanted));
        (text, wanted)
    }
}

impl CachedTicketText {
    fn is_fresh(&self, now: u64) -> bool {
        // A time in the future means that the clock was set back. Guards would refuse such a ticket, so it is not
        // fresh.
        self.at <= now && now - self.at < VALID / 2
    }
}

/// Hides the text, which is as good as a key for some minutes.
impl fmt::Debug for TenureTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenureTicket")
            .field("signer", &self.signer)
            .field("claims", &self.claims)
            .finish_non_exhaustive()
    }
}
