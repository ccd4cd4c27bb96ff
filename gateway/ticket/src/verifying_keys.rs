//! The keys that verify tokens now: a file that is read again when it changes, or a key set that the caller provides.

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
    current: RwLock<CurrentKeys>,
}

#[derive(Clone, Default)]
struct CurrentKeys {
    set: Arc<VerifyingKeySet>,
    /// The key set as text, for other rules: see [`VerifyingKeys::with_keys_of`].
    text: Option<Arc<[u8]>>,
}

/// What a text has to be.
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
        fetches: watch::Sender<KeyFetchCounts>,
    },
}

/// A file that is read again when it changes.
#[derive(Debug)]
struct WatchedKeyFile {
    path: PathBuf,
    /// The stamp of the last read, even of a bad file, so that a bad file is logged once.
    stamp: Mutex<Option<FileStamp>>,
    /// Second of the last check.
    last_check: AtomicU64,
}

/// How often the caller has asked for the keys.
#[derive(Debug, Clone, Copy, Default)]
struct KeyFetchCounts {
    begun: u64,
    ended: u64,
    /// The last one that ended got no keys.
    has_failed: bool,
}

/// The source of keys could not be reached, or has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key set could not be fetched")]
pub struct KeysUnavailableError;

impl VerifyingKeys {
    /// Keys of tickets, from a file as `fencegate keys public` prints it.
    ///
    /// # Errors
    /// [`KeyFileError`]: there must be valid keys at the start.
    pub(super) fn from_ticket_file(path: &Path) -> Result<Self, KeyFileError> {
        Self::from_file(path, VerifyingKeyPurpose::Tickets)
    }

    /// # Errors
    /// [`KeyFileError`], also if others can read the file.
    pub(super) fn from_secret_file(path: &Path) -> Result<Self, KeyFileError> {
        Self::from_file(path, VerifyingKeyPurpose::Secret)
    }

    /// Keys of an issuer of access tokens, from a file that is a key set. A changed file is read within a second, or at
    /// once for a token of an unknown key. A bad file changes nothing; in a key set without a key that counts the last key was
    /// revoked.
    ///
    /// # Errors
    /// [`KeyFileError`]: there must be valid keys at the start.
    pub fn from_issuer_file(path: &Path, rules: AccessTokenRules) -> Result<Self, KeyFileError> {
        Self::from_file(path, VerifyingKeyPurpose::AccessTokens(rules))
    }

    /// Keys of an issuer that the caller provides: [`VerifyingKeys::set_keys`]. There are none before the first call.
    pub fn for_issuer(rules: AccessTokenRules) -> Self {
        Self::given(VerifyingKeyPurpose::AccessTokens(rules))
    }

    /// Keys of tickets that the caller provides.
    pub(super) fn for_tickets() -> Self {
        Self::given(VerifyingKeyPurpose::Tickets)
    }

    fn given(form: VerifyingKeyPurpose) -> Self {
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
        let keys = CurrentKeys { set: Arc::new(set), text: None };
        Self { current: RwLock::new(keys), ..Self::for_tickets() }
    }

    /// Begins with the keys that `before` has, by the rules of these keys, so that they count until they can be fetched.
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
    /// [`TicketJwkError`]; then the keys stay as they were. A set of an issuer without a key that counts is no error after the
    /// first good one: then no key counts.
    pub fn set_keys(&self, text: &[u8], source: &dyn fmt::Display) -> Result<(), TicketJwkError> {
        self.replace(self.parse_successor(text)?, source);
        Ok(())
    }

    /// Parses what replaces the present keys. An issuer revokes its last key by a set without it, so after the first good
    /// set an empty one counts. Before that the policy may have the wrong source or the wrong algorithms.
    fn parse_successor(&self, text: &[u8]) -> Result<CurrentKeys, TicketJwkError> {
        match self.form.parse(text) {
            Err(TicketJwkError::NoKeyOfAlgorithms) if self.current_keys().text.is_some() => {
                Ok(CurrentKeys { set: Arc::default(), text: Some(text.into()) })
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

    /// The caller begins to fetch the keys. Whoever waits for keys from now on waits for the fetch after this one.
    pub fn record_fetch_begin(&self) {
        self.update_fetches(|count| count.begun += 1);
    }

    /// The fetch has ended, and its keys are set if it was good.
    pub fn record_fetch_end(&self, is_good: bool) {
        self.update_fetches(|count| (count.ended, count.has_failed) = (count.begun, !is_good));
    }

    fn update_fetches(&self, change: impl FnOnce(&mut KeyFetchCounts)) {
        if let VerifyingKeySource::Given { fetches, .. } = &self.source {
            fetches.send_modify(change);
        }
    }

    /// Asks for the keys, and returns when they were fetched after that. Returns at once if they are in a file: that was
    /// looked at for the token. It may wait without end where nobody fetches.
    ///
    /// # Errors
    /// They could not be fetched.
    pub async fn wait_refreshed(&self) -> Result<(), KeysUnavailableError> {
        let VerifyingKeySource::Given { wanted, fetches } = &self.source else { return Ok(()) };
        let mut seen = fetches.subscribe();
        // A fetch that has begun already may have missed the key.
        let awaited = seen.borrow().begun + 1;
        wanted.notify_one();
        // Fails when the sender is gone, which is in `self`.
        let count = seen.wait_for(|count| count.ended >= awaited).await.map_err(|_| KeysUnavailableError)?;
        if count.has_failed { Err(KeysUnavailableError) } else { Ok(()) }
    }

    /// The names of the keys that count now, for the log.
    pub fn kids(&self) -> String {
        self.current().kids().join(", ")
    }

    /// The keys, after a look at the file if none was taken within this second.
    pub(super) fn current_at(&self, now: u64) -> Arc<VerifyingKeySet> {
        if let VerifyingKeySource::File(watched) = &self.source
            && watched.last_check.swap(now, Ordering::Relaxed) != now
        {
            self.reload_if_changed(watched);
        }
        self.current()
    }

    /// The keys after another look at the file. Keys that the caller provides stay as they are, and are asked for.
    pub(super) fn refreshed(&self) -> Arc<VerifyingKeySet> {
        match &self.source {
            VerifyingKeySource::File(watched) => self.reload_if_changed(watched),
            VerifyingKeySource::Given { wanted, .. } => wanted.notify_one(),
        }
        self.current()
    }

    /// Reads the file again if it changed. Blocks for as long as a small local file takes.
    fn reload_if_changed(&self, watched: &WatchedKeyFile) {
        // The lock also keeps a slower thread from restoring older keys.
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

    fn replace(&self, keys: CurrentKeys, source: &dyn fmt::Display) {
        let set = Arc::clone(&keys.set);
        let old = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, keys)
        };
        if old.set.kids() == set.kids() {
            return;
        }
        let (kids, was) = (set.kids().join(", "), old.set.kids().join(", "));
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

    fn current_keys(&self) -> CurrentKeys {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn current(&self) -> Arc<VerifyingKeySet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).set)
    }
}

/// The text is not shown.
impl fmt::Debug for CurrentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CurrentKeys").field(&self.set.kids()).finish()
    }
}

impl VerifyingKeyPurpose {
    fn parse(&self, text: &[u8]) -> Result<CurrentKeys, TicketJwkError> {
        let set = match self {
            Self::Tickets => VerifyingKeySet::parse(text)?,
            Self::Secret => VerifyingKeySet::verifying_keys_from_secret(&SharedSecret::parse(text)?),
            Self::AccessTokens(rules) => VerifyingKeySet::parse_issuer(text, rules)?,
        };
        // Only the keys of an issuer are parsed again by other rules, and a secret is kept nowhere else.
        let text = matches!(self, Self::AccessTokens(_)).then(|| text.into());
        Ok(CurrentKeys { set: Arc::new(set), text })
    }

    fn read(&self, path: &Path) -> Result<(CurrentKeys, FileStamp), KeyFileError> {
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
