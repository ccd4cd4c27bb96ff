//! Verifies tickets: each has to be signed by a known key with that key's algorithm, be of this installation, and be
//! valid at the time.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    cache::{CachedToken, VerifiedTokenCache, token_digest},
    claims::{LONGEST, TYPE, TicketPayload, VerifiedTicket},
    error::{InvalidTenureTicketError, TicketVerificationError},
    jws::{JwsError, JwsKind},
    key_error::TicketJwkError,
    key_file::KeyFileError,
    key_set::VerifyingKeySet,
    verifying_keys::VerifyingKeys,
};

/// Verifies tickets for all threads of a process.
///
/// A valid ticket is cached by its text. At each use its time is checked, and whether its key is still known.
pub struct TicketVerifier {
    keys: Arc<VerifyingKeys>,
    cache: Mutex<VerifiedTokenCache<VerifiedTicket>>,
}

const TICKETS: JwsKind = JwsKind { is_type: |typ| typ == Some(TYPE), needs_kid: true };

impl TicketVerifier {
    /// A verifier with keys from a file as `fencegate keys public` prints it. A changed file is read at the next
    /// ticket, at most once a second, or at once if the ticket names an unknown key. A bad file changes nothing.
    ///
    /// # Errors
    /// Returns [`KeyFileError`] if the file has no valid keys now.
    pub fn from_jwks_file(path: &Path) -> Result<Self, KeyFileError> {
        VerifyingKeys::from_ticket_file(path).map(Self::new)
    }

    /// A verifier with the secret of `fencegate keys new --hs256`, in a file that is read again when it changes.
    ///
    /// # Errors
    /// Returns [`KeyFileError`], also if others can read the file.
    pub fn from_secret_file(path: &Path) -> Result<Self, KeyFileError> {
        VerifyingKeys::from_secret_file(path).map(Self::new)
    }

    /// A verifier whose keys are set by [`TicketVerifier::set_keys`]. It has none before the first call.
    pub fn without_keys() -> Self {
        Self::new(VerifyingKeys::for_tickets())
    }

    fn new(keys: VerifyingKeys) -> Self {
        Self { keys: Arc::new(keys), cache: Mutex::default() }
    }

    #[cfg(test)]
    pub(super) fn from_set(set: VerifyingKeySet) -> Self {
        Self::new(VerifyingKeys::from_set(set))
    }

    /// Checks a ticket at `now` (seconds since 1970); `ensemble` is the id of this installation.
    /// [`VerifiedTicket::check_matches`] then compares keys, token and mode with the request. The caller compares the
    /// era.
    ///
    /// Never waits for the network. A ticket of a key that is not known yet is refused, and that wakes
    /// [`VerifyingKeys::wait_for_unknown_key`], so that the caller can fetch the key.
    ///
    /// # Errors
    /// Returns [`TicketVerificationError`], but never [`TicketVerificationError::Missing`] or [`TicketVerificationError::Key`].
    pub fn verify(
        &self,
        ticket: &[u8],
        ensemble: &str,
        now: u64,
    ) -> Result<Arc<VerifiedTicket>, TicketVerificationError> {
        if ticket.len() > LONGEST {
            return Err(TicketVerificationError::Invalid(InvalidTenureTicketError::TooLong));
        }
        let set = self.keys.reload_and_get(now);
        let name = token_digest(ticket);
        let known = self.cache().get(&name);
        if let Some(known) = known.filter(|entry| set.has_thumbprint(&entry.thumbprint)) {
            return check_validity(&known.verified, ensemble, now).map(|()| known.verified);
        }
        let checked = match verify_signature(ticket, &set) {
            Err(InvalidTenureTicketError::UnknownKey) => verify_signature(ticket, &self.keys.refreshed()),
            done => done,
        };
        let entry = checked.map_err(TicketVerificationError::Invalid)?;
        check_validity(&entry.verified, ensemble, now)?;
        let verified = Arc::clone(&entry.verified);
        self.cache().insert(name, entry);
        Ok(verified)
    }

    /// Replaces all keys, as [`VerifyingKeys::set_keys`] does.
    ///
    /// # Errors
    /// Returns [`TicketJwkError`] if the keys cannot be used; then the former keys stay.
    pub fn set_keys(&self, text: &[u8], source: &dyn fmt::Display) -> Result<(), TicketJwkError> {
        self.keys.set_keys(text, source)
    }

    /// The keys that verify tickets.
    pub fn keys(&self) -> &Arc<VerifyingKeys> {
        &self.keys
    }

    fn cache(&self) -> MutexGuard<'_, VerifiedTokenCache<VerifiedTicket>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verifies that the text is a ticket that one of these keys signed.
fn verify_signature(
    ticket: &[u8],
    set: &VerifyingKeySet,
) -> Result<CachedToken<VerifiedTicket>, InvalidTenureTicketError> {
    let (payload, key) = TICKETS.verify::<TicketPayload<'_>>(ticket, set).map_err(|error| match error {
        JwsError::Format => InvalidTenureTicketError::Format,
        JwsError::Type => InvalidTenureTicketError::Type,
        JwsError::Critical => InvalidTenureTicketError::Critical,
        JwsError::UnknownKey => InvalidTenureTicketError::UnknownKey,
        JwsError::Algorithm => InvalidTenureTicketError::Algorithm,
        JwsError::Signature => InvalidTenureTicketError::Signature,
        JwsError::Claims | JwsError::Audience => InvalidTenureTicketError::Claims,
    })?;
    Ok(CachedToken { verified: Arc::new(payload.into_verified()?), thumbprint: key.thumbprint })
}

/// Checks the parts that a cached ticket has to pass each time: its installation and its time.
fn check_validity(
    verified: &VerifiedTicket,
    ensemble: &str,
    now: u64,
) -> Result<(), TicketVerificationError> {
    verified.check_time(now)?;
    if verified.claims.ensemble != ensemble {
        return Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Ensemble));
    }
    Ok(())
}

impl fmt::Debug for TicketVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("keys", &self.keys).finish_non_exhaustive()
    }
}
