//! Verifies tickets: each has to be signed by a known key with that key's algorithm, for our installation, and be
//! valid at the time.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use aws_lc_rs::digest::{SHA256, digest};
use jsonwebtoken::errors::ErrorKind;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::{
    cache::{CachedTicket, TicketCache},
    claims::{LONGEST, TYPE, TicketPayload, VerifiedTicket},
    error::{InvalidTenureTicketError, TicketError},
    key_error::TicketJwkError,
    key_file::{self, FileStamp, KeyFileAccess, KeyFileError},
    key_set::VerifyingKeySet,
    keys::SharedSecret,
};

/// Verifies tickets for all threads of a process.
///
/// A valid ticket is cached by its text. Its time, and whether its key is still known, are checked each time.
pub struct TicketVerifier {
    source: VerifyingKeySource,
    set: RwLock<Arc<VerifyingKeySet>>,
    cache: Mutex<TicketCache>,
}

#[derive(Debug)]
enum VerifyingKeySource {
    File(WatchedKeyFile),
    /// The caller provides the keys, and is notified when a ticket names an unknown key.
    Given {
        wanted: Notify,
    },
}

/// A file that is read again when it changes.
#[derive(Debug)]
struct WatchedKeyFile {
    path: PathBuf,
    kind: KeyFileKind,
    /// The stamp of the last read, even of a bad file, so that a bad file is logged once.
    stamp: Mutex<Option<FileStamp>>,
    /// Second of the last check.
    last_check: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum KeyFileKind {
    Jwks,
    Secret,
}

impl TicketVerifier {
    /// Keys from a file as `fencegate keys public` prints it. A changed file is read at the next ticket, at most once
    /// a second, or at once if the ticket names an unknown key. A bad file changes nothing.
    ///
    /// # Errors
    /// [`KeyFileError`]: there must be valid keys at the start.
    pub fn from_jwks_file(path: &Path) -> Result<Self, KeyFileError> {
        Self::from_file(path, KeyFileKind::Jwks)
    }

    /// The secret of `fencegate keys new --hs256`, in a file that is read again when it changes.
    ///
    /// # Errors
    /// [`KeyFileError`], also if others can read the file.
    pub fn from_secret_file(path: &Path) -> Result<Self, KeyFileError> {
        Self::from_file(path, KeyFileKind::Secret)
    }

    fn from_file(path: &Path, kind: KeyFileKind) -> Result<Self, KeyFileError> {
        let (set, stamp) = kind.read(path)?;
        let path = path.to_owned();
        let looked = AtomicU64::new(0);
        Ok(Self::new(
            VerifyingKeySource::File(WatchedKeyFile {
                path,
                kind,
                stamp: Mutex::new(Some(stamp)),
                last_check: looked,
            }),
            set,
        ))
    }

    /// A verifier whose keys are set by [`TicketVerifier::set_keys`]. It has none before the first call.
    pub fn without_keys() -> Self {
        Self::new(VerifyingKeySource::Given { wanted: Notify::new() }, VerifyingKeySet::default())
    }

    fn new(source: VerifyingKeySource, set: VerifyingKeySet) -> Self {
        Self { source, set: RwLock::new(Arc::new(set)), cache: Mutex::default() }
    }

    /// Checks a ticket at `now` (seconds since 1970); `ensemble` is our installation. [`VerifiedTicket::check_matches`] then
    /// compares keys, token and mode with the request. The caller compares the era.
    ///
    /// Never waits for the network. A ticket of a key that is not known yet is refused, and the key is [wanted][Self::wait_for_unknown_key].
    ///
    /// # Errors
    /// [`TicketError`], but never [`TicketError::Missing`] or [`TicketError::Key`].
    pub fn verify(
        &self,
        ticket: &[u8],
        ensemble: &str,
        now: u64,
    ) -> Result<Arc<VerifiedTicket>, TicketError> {
        if ticket.len() > LONGEST {
            return Err(TicketError::Invalid(InvalidTenureTicketError::TooLong));
        }
        if let VerifyingKeySource::File(watched) = &self.source
            && watched.last_check.swap(now, Ordering::Relaxed) != now
        {
            self.reload_if_changed(watched);
        }
        let name = digest(&SHA256, ticket).as_ref().try_into().expect("SHA-256 has 32 bytes");
        let known = self.cache().get(&name);
        let set = self.current_keys();
        if let Some(CachedTicket { verified, .. }) = known.filter(|entry| set.contains(entry)) {
            return check_validity(&verified, ensemble, now).map(|()| verified);
        }
        let checked = match verify_signature(ticket, &set) {
            Err(InvalidTenureTicketError::UnknownKey) => verify_signature(ticket, &self.refreshed_set()),
            done => done,
        };
        let entry = checked.map_err(TicketError::Invalid)?;
        check_validity(&entry.verified, ensemble, now)?;
        let verified = Arc::clone(&entry.verified);
        self.cache().insert(name, entry);
        Ok(verified)
    }

    /// Replaces all keys by these: a JSON Web Key Set, as text. `source`: its origin, for the log. The caller should
    /// not read texts larger than [`LARGEST`][super::LARGEST].
    ///
    /// # Errors
    /// [`TicketJwkError`]; then the keys stay as they were.
    pub fn set_keys(&self, text: &[u8], source: &dyn fmt::Display) -> Result<(), TicketJwkError> {
        self.replace(VerifyingKeySet::parse(text)?, source);
        Ok(())
    }

    /// Returns when a ticket has named an unknown key, even if that was before the call. Never returns if the keys are
    /// in a file.
    pub async fn wait_for_unknown_key(&self) {
        match &self.source {
            VerifyingKeySource::File(_) => std::future::pending().await,
            VerifyingKeySource::Given { wanted } => wanted.notified().await,
        }
    }

    /// The names of the keys that count now, for the log.
    pub fn kids(&self) -> String {
        self.current_keys().kids().join(", ")
    }

    /// The keys after another check of the file. Keys set by the caller stay as they are.
    fn refreshed_set(&self) -> Arc<VerifyingKeySet> {
        match &self.source {
            VerifyingKeySource::File(watched) => self.reload_if_changed(watched),
            VerifyingKeySource::Given { wanted } => wanted.notify_one(),
        }
        self.current_keys()
    }

    /// Reads the file again if it changed. Blocks for as long as a small local file takes.
    fn reload_if_changed(&self, watched: &WatchedKeyFile) {
        // The lock also keeps a slower thread from restoring older keys.
        let mut stamp = watched.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = FileStamp::read_from(&watched.path);
        if seen == *stamp {
            return;
        }
        match watched.kind.read(&watched.path) {
            Ok((set, read)) => {
                *stamp = Some(read);
                self.replace(set, &watched.path.display());
            }
            Err(error) => {
                *stamp = seen;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                warn!(%error, cause, kids = self.kids(), "bad key file, kept the old keys");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn from_set(set: VerifyingKeySet) -> Self {
        Self::new(VerifyingKeySource::Given { wanted: Notify::new() }, set)
    }

    fn replace(&self, set: VerifyingKeySet, source: &dyn fmt::Display) {
        let set = Arc::new(set);
        let old = {
            let mut current = self.set.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::clone(&set))
        };
        if old.kids() != set.kids() {
            info!(%source, kids = set.kids().join(", "), was = old.kids().join(", "), "keys of tickets");
        }
    }

    fn current_keys(&self) -> Arc<VerifyingKeySet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn cache(&self) -> MutexGuard<'_, TicketCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyFileKind {
    fn read(self, path: &Path) -> Result<(VerifyingKeySet, FileStamp), KeyFileError> {
        let bad = |source| KeyFileError::Key { path: path.into(), source };
        Ok(match self {
            Self::Jwks => {
                let (text, stamp) = key_file::read_stamped(path, KeyFileAccess::Public)?;
                (VerifyingKeySet::parse(&text).map_err(bad)?, stamp)
            }
            Self::Secret => {
                let (text, stamp) = key_file::read_stamped(path, KeyFileAccess::Secret)?;
                (VerifyingKeySet::from_secret(&SharedSecret::parse(&text).map_err(bad)?), stamp)
            }
        })
    }
}

impl VerifyingKeySet {
    fn contains(&self, entry: &CachedTicket) -> bool {
        self.find(&entry.kid).is_some_and(|key| key.thumbprint == entry.thumbprint)
    }
}

/// Whether the text is a ticket that one of these keys signed.
fn verify_signature(ticket: &[u8], set: &VerifyingKeySet) -> Result<CachedTicket, InvalidTenureTicketError> {
    let header = jsonwebtoken::decode_header(ticket).map_err(|_| InvalidTenureTicketError::Format)?;
    if header.typ.as_deref() != Some(TYPE) {
        return Err(InvalidTenureTicketError::Type);
    }
    if header.crit.is_some() {
        return Err(InvalidTenureTicketError::Critical);
    }
    let kid = header.kid.ok_or(InvalidTenureTicketError::UnknownKey)?;
    // `jwk`, `jku` and `x5c` in the header are ignored: a token must not bring its own key.
    let key = set.find(&kid).ok_or(InvalidTenureTicketError::UnknownKey)?;
    if header.alg != key.algorithm {
        return Err(InvalidTenureTicketError::Algorithm);
    }
    let payload = jsonwebtoken::decode::<TicketPayload<'_>>(ticket, &key.decoding, &key.validation);
    let payload = payload.map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature => InvalidTenureTicketError::Signature,
        ErrorKind::InvalidAlgorithm => InvalidTenureTicketError::Algorithm,
        ErrorKind::Json(_) | ErrorKind::InvalidAudience => InvalidTenureTicketError::Claims,
        _ => InvalidTenureTicketError::Format,
    })?;
    let verified = Arc::new(payload.claims.into_verified()?);
    Ok(CachedTicket { verified, kid: kid.into(), thumbprint: key.thumbprint })
}

/// Checks the parts that a cached ticket has to pass each time: its installation and its time.
fn check_validity(verified: &VerifiedTicket, ensemble: &str, now: u64) -> Result<(), TicketError> {
    verified.check_time(now)?;
    if verified.claims.ensemble != ensemble {
        return Err(TicketError::Invalid(InvalidTenureTicketError::Ensemble));
    }
    Ok(())
}

impl fmt::Debug for TicketVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("source", &self.source)
            .field("kids", &self.current_keys().kids())
            .finish_non_exhaustive()
    }
}
