//! The keys that verify tokens now: from a file that is read again when it changes, or from a key set that the caller
//! provides.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use super::{
    key_error::TicketJwkError,
    key_file::{self, FileStamp, KeyFileAccess, KeyFileError},
    key_set::{AccessTokenRules, VerifyingKeySet},
    keys::SharedSecret,
};

/// The keys of tickets, or of one issuer of access tokens, for all threads of a process.
#[derive(Debug)]
pub struct VerifyingKeys {
    form: VerifyingKeyPurpose,
    source: VerifyingKeySource,
    current: RwLock<LoadedVerifyingKeys>,
}

#[derive(Clone, Default)]
struct LoadedVerifyingKeys {
    set: Arc<VerifyingKeySet>,
    /// The key set as text, from which keys for other rules can be parsed: see [`VerifyingKeys::with_keys_of`].
    text: Option<Arc<[u8]>>,
}

/// The purpose of the keys, which decides how their text is parsed.
#[derive(Debug, Clone)]
enum VerifyingKeyPurpose {
    Tickets,
    Secret,
    AccessTokens(AccessTokenRules),
}

#[derive(Debug)]
enum VerifyingKeySource {
    File(WatchedKeyFile),
    /// The caller provides the keys, and is notified when a token names an unknown key.
    Given {
        wanted: Notify,
        fetches: watch::Sender<JwksFetchCounts>,
    },
}

/// A file that is read again when it changes.
#[derive(Debug)]
struct WatchedKeyFile {
    path: PathBuf,
    /// The stamp of the last read, even of a bad file, so that a bad file is logged once.
    stamp: Mutex<Option<FileStamp>>,
    /// The second in which the file was checked last.
    last_check: AtomicU64,
}

/// The number of times that the caller has fetched the keys.
#[derive(Debug, Clone, Copy, Default)]
struct JwksFetchCounts {
    begun: u64,
    ended: u64,
    /// Whether the fetch that ended last got no keys.
    has_failed: bool,
}

/// The source of the keys could not be reached, or has no usable keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key set could not be fetched")]
pub struct VerifyingKeysUnavailableError;

impl VerifyingKeys {
    /// Keys of tickets, from a file as `fencegate keys public` prints it.
    ///
    /// # Errors
    /// Returns [`KeyFileError`] if the file has no valid keys now.
    pub(super) fn from_ticket_file(path: &Path) -> Result<Self, KeyFileError> {
        Self::from_file(path, VerifyingKeyPurpose::Tickets)
    }

    /// The shared secret of tickets, from a file.
    ///
    /// # Errors
    /// Returns [`KeyFileError`], also if others can read the file.
    pub(super) fn from_secret_file(path: &Path) -> Result<Self, KeyFileError> {
        Self::from_file(path, VerifyingKeyPurpose::Secret)
    }

    /// Keys of an issuer of access tokens, from a file that is a key set. A changed file is read within a second, or at
    /// once for a token of an unknown key. A bad file changes nothing; a well-formed set without a usable key means
    /// that the issuer has revoked its last key.
    ///
    /// # Errors
    /// Returns [`KeyFileError`] if the file has no valid keys now.
    pub fn from_issuer_file(path: &Path, rules: AccessTokenRules) -> Result<Self, KeyFileError> {
        Self::from_file(path, VerifyingKeyPurpose::AccessTokens(rules))
    }

    /// Keys of an issuer that the caller provides by [`VerifyingKeys::set_keys`]. There are none before the first call.
    pub fn for_issuer(rules: AccessTokenRules) -> Self {
        Self::with_caller_provided_keys(VerifyingKeyPurpose::AccessTokens(rules))
    }

    /// Keys of tickets that the caller provides.
    pub(super) fn for_tickets() -> Self {
        Self::with_caller_provided_keys(VerifyingKeyPurpose::Tickets)
    }

    fn with_caller_provided_keys(form: VerifyingKeyPurpose) -> Self {
        let source = VerifyingKeySource::Given { wanted: Notify::new(), fetches: watch::Sender::default() };
        Self { form, source, current: RwLock::default() }
    }

    fn from_file(path: &Path, form: VerifyingKeyPurpose) -> Result<Self, KeyFileError> {
        let (keys, stamp) = form.read(path)?;
        let source = VerifyingKeySource::File(WatchedKeyFile {
            path: path.to_owned(),
            stamp: Mutex::new(Some(stamp)),
            last_check: AtomicU64::new(0),
        });
        Ok(Self { form, source, current: RwLock::new(keys) })
    }

    #[cfg(test)]
    pub(super) fn from_set(set: VerifyingKeySet) -> Self {
        let keys = LoadedVerifyingKeys { set: Arc::new(set), text: None };
        Self { current: RwLock::new(keys), ..Self::for_tickets() }
    }

    /// Starts with the keys of `before`, parsed by the rules of these keys, so that they are used until keys can be
    /// fetched.
    #[must_use]
    pub fn with_keys_of(self, before: &Self) -> Self {
        let text = before.current_keys().text;
        if let Some(text) = &text
            && let Ok(keys) = self.form.parse(text)
        {
            return Self { current: RwLock::new(keys), ..self };
        }
        self
    }

    /// Replaces all keys by these: a key set, as text. `source`: its origin, for the log. The caller should not read
    /// texts larger than [`LARGEST`][super::LARGEST].
    ///
    /// # Errors
    /// Returns [`TicketJwkError`] if the text cannot be used; then the keys stay as they were. After the first good
    /// set, an issuer's set without a usable key is no error: then no key is valid.
    pub fn set_keys(&self, text: &[u8], source: &dyn fmt::Display) -> Result<(), TicketJwkError> {
        self.replace(self.parse_successor(text)?, source);
        Ok(())
    }

    /// Parses the successor of the present keys. An issuer revokes its last key by a set without it, so after the first
    /// good set an empty set is accepted. Before that it is an error, because the policy may name the wrong source or
    /// the wrong algorithms.
    fn parse_successor(&self, text: &[u8]) -> Result<LoadedVerifyingKeys, TicketJwkError> {
        match self.form.parse(text) {
            Err(TicketJwkError::NoKeyOfAlgorithms) if self.current_keys().text.is_some() => {
                Ok(LoadedVerifyingKeys { set: Arc::default(), text: Some(text.into()) })
            }
            parsed => parsed,
        }
    }

    /// Returns when a token has named an unknown key, even if that was before the call. Never returns if the keys are
    /// in a file.
    pub async fn wait_for_unknown_key(&self) {
        match &self.source {
            VerifyingKeySource::File(_) => std::future::pending().await,
            VerifyingKeySource::Given { wanted, .. } => wanted.notified().await,
        }
    }

    /// Records that the caller begins to fetch the keys. A call of [`VerifyingKeys::wait_refreshed`] from now on waits
    /// for the fetch after this one.
    pub fn record_fetch_begin(&self) {
        self.update_fetches(|count| count.begun += 1);
    }

    /// Records that the fetch has ended. If it was good, its keys have to be set before this call.
    pub fn record_fetch_end(&self, is_good: bool) {
        self.update_fetches(|count| (count.ended, count.has_failed) = (count.begun, !is_good));
    }

    fn update_fetches(&self, change: impl FnOnce(&mut JwksFetchCounts)) {
        if let VerifyingKeySource::Given { fetches, .. } = &self.source {
            fetches.send_modify(change);
        }
    }

    /// Requests the keys, and returns when a fetch that began after this call has ended. Returns at once if the keys
    /// are in a file, because the file was checked for the token. If nobody fetches the keys, this waits for ever.
    ///
    /// # Errors
    /// Returns an error if the keys could not be fetched.
    pub async fn wait_refreshed(&self) -> Result<(), VerifyingKeysUnavailableError> {
        let VerifyingKeySource::Given { wanted, fetches } = &self.source else { return Ok(()) };
        let mut seen = fetches.subscribe();
        // A fetch that has begun already may have missed the key, so the next one is awaited.
        let awaited = seen.borrow().begun + 1;
        wanted.notify_one();
        // This fails only if the sender is gone, but the sender is in `self`.
        let count =
            seen.wait_for(|count| count.ended >= awaited).await.map_err(|_| VerifyingKeysUnavailableError)?;
        if count.has_failed { Err(VerifyingKeysUnavailableError) } else { Ok(()) }
    }

    /// The names of the present keys, for the log.
    pub fn kids(&self) -> String {
        self.current().kids().join(", ")
    }

    /// The keys, after a check of the file if it was not checked within this second.
    pub(super) fn reload_and_get(&self, now: u64) -> Arc<VerifyingKeySet> {
        if let VerifyingKeySource::File(watched) = &self.source
            && watched.last_check.swap(now, Ordering::Relaxed) != now
        {
            self.reload_if_changed(watched);
        }
        self.current()
    }

    /// The keys after another check of the file. If the caller provides the keys, they stay as they are, and a fetch is
    /// requested.
    pub(super) fn refreshed(&self) -> Arc<VerifyingKeySet> {
        match &self.source {
            VerifyingKeySource::File(watched) => self.reload_if_changed(watched),
            VerifyingKeySource::Given { wanted, .. } => wanted.notify_one(),
        }
        self.current()
    }

    /// Reads the file again if it changed. This blocks for as long as a small local file takes.
    fn reload_if_changed(&self, watched: &WatchedKeyFile) {
        // The lock also keeps a slower thread from putting older keys in place of newer ones.
        let mut stamp = watched.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = FileStamp::read_from(&watched.path);
        if seen == *stamp {
            return;
        }
        let successor = self.form.read_text(&watched.path).and_then(|(text, read)| {
            let bad = |source| KeyFileError::Key { path: watched.path.as_path().into(), source };
            Ok((self.parse_successor(&text).map_err(bad)?, read))
        });
        match successor {
            Ok((keys, read)) => {
                *stamp = Some(read);
                self.replace(keys, &watched.path.display());
            }
            Err(error) => {
                *stamp = seen;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                warn!(%error, cause, kids = self.kids(), "the key file cannot be used; the old keys stay in use");
            }
        }
    }

    fn replace(&self, keys: LoadedVerifyingKeys, source: &dyn fmt::Display) {
        let set = Arc::clone(&keys.set);
        let old = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, keys)
        };
        if old.set.kids() == set.kids() {
            return;
        }
        let was = old.set.kids().join(", ");
        let kids = set.kids().join(", ");
        match &self.form {
            VerifyingKeyPurpose::Tickets | VerifyingKeyPurpose::Secret => {
                info!(%source, kids, was, "the keys of tickets have changed")
            }
            VerifyingKeyPurpose::AccessTokens(rules) if kids.is_empty() => {
                error!(%source, issuer = rules.issuer, was, "an issuer of tokens has no key any more: no token of it counts");
            }
            VerifyingKeyPurpose::AccessTokens(rules) => {
                info!(%source, issuer = rules.issuer, kids, was, "the keys of an issuer of tokens have changed");
            }
        }
    }

    fn current_keys(&self) -> LoadedVerifyingKeys {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn current(&self) -> Arc<VerifyingKeySet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).set)
    }
}

/// Shows the names of the keys in place of the text.
impl fmt::Debug for LoadedVerifyingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadedVerifyingKeys").field(&self.set.kids()).finish()
    }
}

impl VerifyingKeyPurpose {
    fn parse(&self, text: &[u8]) -> Result<LoadedVerifyingKeys, TicketJwkError> {
        let set = match self {
            Self::Tickets => VerifyingKeySet::parse(text)?,
            Self::Secret => VerifyingKeySet::verifying_keys_from_secret(&SharedSecret::parse(text)?),
            Self::AccessTokens(rules) => VerifyingKeySet::parse_issuer(text, rules)?,
        };
        // Only an issuer's keys are parsed again by other rules. The text of a secret is not kept.
        let text = matches!(self, Self::AccessTokens(_)).then(|| text.into());
        Ok(LoadedVerifyingKeys { set: Arc::new(set), text })
    }

    fn read(&self, path: &Path) -> Result<(LoadedVerifyingKeys, FileStamp), KeyFileError> {
        let (text, stamp) = self.read_text(path)?;
        let keys = self.parse(&text).map_err(|source| KeyFileError::Key { path: path.into(), source })?;
        Ok((keys, stamp))
    }

    fn read_text(&self, path: &Path) -> Result<(Vec<u8>, FileStamp), KeyFileError> {
        let access = match self {
            Self::Tickets | Self::AccessTokens(_) => KeyFileAccess::Public,
            Self::Secret => KeyFileAccess::Secret,
        };
        key_file::read_stamped(path, access)
    }
}
