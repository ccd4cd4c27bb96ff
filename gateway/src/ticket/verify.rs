//! Checks tickets: signed by a key we know, with that key's algorithm, of our installation, and of now.

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
use tracing::{info, warn};

use super::{
    Bad, BadFile, BadUrl, Flaw, LONGEST, Pace, TYPE, Unfetched, Verified,
    cache::{Cache, Entry},
    claims::Payload,
    fetch::Remote,
    file::{self, Access, Stamp},
    jwks::Set,
    keys::Secret,
};

/// Checks tickets for all threads of a process.
///
/// A ticket that was found good is remembered by its text; its time, and whether its key is still one of ours, are
/// looked at each time.
pub struct Verifier {
    source: Source,
    set: RwLock<Arc<Set>>,
    cache: Mutex<Cache>,
}

#[derive(Debug)]
enum Source {
    File(Watched),
    Url(Remote),
}

/// A file that is read again when it changes.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    kind: Kind,
    /// As last read, well or not: what is wrong with a file is said once.
    stamp: Mutex<Option<Stamp>>,
    /// Second of the last look.
    looked: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Jwks,
    Secret,
}

impl Verifier {
    /// Keys from a file as `fencegate keys public` prints it. A changed file counts within a second of the next
    /// ticket, or at once if that names a key we do not know; a changed file that is bad changes nothing.
    ///
    /// # Errors
    /// [`BadFile`]: there must be good keys to begin with.
    pub fn from_jwks_file(path: &Path) -> Result<Self, BadFile> {
        Self::from_file(path, Kind::Jwks)
    }

    /// The secret of `fencegate keys new --hs256`, read again as above.
    ///
    /// # Errors
    /// As above, also if others can read the file.
    pub fn from_secret_file(path: &Path) -> Result<Self, BadFile> {
        Self::from_file(path, Kind::Secret)
    }

    fn from_file(path: &Path, kind: Kind) -> Result<Self, BadFile> {
        let (set, stamp) = kind.read(path)?;
        let (path, looked) = (path.to_owned(), AtomicU64::new(0));
        Ok(Self::new(Source::File(Watched { path, kind, stamp: Mutex::new(Some(stamp)), looked }), set))
    }

    /// Keys from `http://` only. There are none before the first [`Verifier::fetch`]; somebody must run
    /// [`Verifier::refresh`]. Whoever can change what this URL answers can sign tickets: it belongs on the same
    /// host, or on a network that is trusted as a whole.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub fn from_jwks_url(url: &str, pace: Pace) -> Result<Self, BadUrl> {
        Ok(Self::new(Source::Url(Remote::new(url, pace)?), Set::default()))
    }

    fn new(source: Source, set: Set) -> Self {
        Self { source, set: RwLock::new(Arc::new(set)), cache: Mutex::default() }
    }

    /// Checks a ticket at `now` (seconds since 1970); `ensemble` is our installation. Whether it is for the keys,
    /// the token and the mode of the request: [`Verified::covers`]. The era is for the caller to compare.
    ///
    /// Never waits for the network. A ticket of a key that is not known yet is refused, and the key set is fetched.
    ///
    /// # Errors
    /// [`Bad`], but never [`Bad::Missing`] or [`Bad::Key`].
    pub fn verify(&self, ticket: &[u8], ensemble: &str, now: u64) -> Result<Arc<Verified>, Bad> {
        if ticket.len() > LONGEST {
            return Err(Bad::Invalid(Flaw::Long));
        }
        if let Source::File(watched) = &self.source
            && watched.looked.swap(now, Ordering::Relaxed) != now
        {
            self.look(watched);
        }
        let name = digest(&SHA256, ticket).as_ref().try_into().expect("SHA-256 has 32 bytes");
        let known = self.cache().get(&name);
        let set = self.set();
        if let Some(Entry { verified, .. }) = known.filter(|entry| set.still_has(entry)) {
            return belongs(&verified, ensemble, now).map(|()| verified);
        }
        let checked = match check(ticket, &set) {
            Err(Flaw::UnknownKey) => check(ticket, &self.newest()),
            done => done,
        };
        let entry = checked.map_err(Bad::Invalid)?;
        belongs(&entry.verified, ensemble, now)?;
        let verified = Arc::clone(&entry.verified);
        self.cache().add(name, entry);
        Ok(verified)
    }

    /// Fetches the key set now. Does nothing where the keys come from a file.
    ///
    /// # Errors
    /// [`Unfetched`]; then the keys are those of before.
    pub async fn fetch(&self) -> Result<(), Unfetched> {
        if let Source::Url(remote) = &self.source {
            self.replace(remote.fetch().await?, &remote.url);
        }
        Ok(())
    }

    /// Fetches the key set at once and then in time, for as long as it is polled. Ends where the keys come from a
    /// file. One task per verifier runs this.
    pub async fn refresh(&self) {
        let Source::Url(remote) = &self.source else { return };
        loop {
            let fetched = self.fetch().await;
            if let Err(error) = &fetched {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                warn!(url = %remote.url, %error, cause, kids = self.set().kids().join(", "), "keys not fetched, kept the old");
            }
            remote.wait(fetched.is_ok()).await;
        }
    }

    /// The keys after another look at the file; those of a URL come later.
    fn newest(&self) -> Arc<Set> {
        match &self.source {
            Source::File(watched) => self.look(watched),
            Source::Url(remote) => remote.want(),
        }
        self.set()
    }

    /// Reads the file again if it changed. Blocks for as long as a small local file takes.
    fn look(&self, watched: &Watched) {
        // Also keeps a slower thread from putting older keys back.
        let mut stamp = watched.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = Stamp::look(&watched.path);
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
                warn!(%error, cause, kids = self.set().kids().join(", "), "bad key file, kept the old keys");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn of_set(set: Set) -> Self {
        Self::new(Source::Url(Remote::new("http://localhost/", Pace::default()).expect("a URL")), set)
    }

    fn replace(&self, set: Set, source: &dyn fmt::Display) {
        let set = Arc::new(set);
        let old = {
            let mut current = self.set.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::clone(&set))
        };
        if old.kids() != set.kids() {
            info!(%source, kids = set.kids().join(", "), was = old.kids().join(", "), "keys of tickets");
        }
    }

    fn set(&self) -> Arc<Set> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn read(self, path: &Path) -> Result<(Set, Stamp), BadFile> {
        let bad = |source| BadFile::Key { path: path.into(), source };
        Ok(match self {
            Self::Jwks => {
                let (text, stamp) = file::read_stamped(path, Access::Public)?;
                (Set::parse(&text).map_err(bad)?, stamp)
            }
            Self::Secret => {
                let (text, stamp) = file::read_stamped(path, Access::Secret)?;
                (Set::of_secret(&Secret::parse(&text).map_err(bad)?), stamp)
            }
        })
    }
}

impl Set {
    fn still_has(&self, entry: &Entry) -> bool {
        self.find(&entry.kid).is_some_and(|key| key.thumbprint == entry.thumbprint)
    }
}

/// Whether the text is a ticket that one of these keys signed.
fn check(ticket: &[u8], set: &Set) -> Result<Entry, Flaw> {
    let header = jsonwebtoken::decode_header(ticket).map_err(|_| Flaw::Form)?;
    if header.typ.as_deref() != Some(TYPE) {
        return Err(Flaw::Type);
    }
    if header.crit.is_some() {
        return Err(Flaw::Critical);
    }
    let kid = header.kid.ok_or(Flaw::UnknownKey)?;
    // `jwk`, `jku` and `x5c` in the header are not looked at: a token does not bring its own key.
    let key = set.find(&kid).ok_or(Flaw::UnknownKey)?;
    if header.alg != key.algorithm {
        return Err(Flaw::Algorithm);
    }
    let payload = jsonwebtoken::decode::<Payload<'_>>(ticket, &key.decoding, &key.validation);
    let payload = payload.map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature => Flaw::Signature,
        ErrorKind::InvalidAlgorithm => Flaw::Algorithm,
        ErrorKind::Json(_) | ErrorKind::InvalidAudience => Flaw::Claims,
        _ => Flaw::Form,
    })?;
    let verified = Arc::new(payload.claims.read()?);
    Ok(Entry { verified, kid: kid.into(), thumbprint: key.thumbprint })
}

/// What changes with the time and with who asks.
fn belongs(verified: &Verified, ensemble: &str, now: u64) -> Result<(), Bad> {
    verified.is_current(now)?;
    if verified.claims.ensemble != ensemble {
        return Err(Bad::Invalid(Flaw::Ensemble));
    }
    Ok(())
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("source", &self.source)
            .field("kids", &self.set().kids())
            .finish_non_exhaustive()
    }
}
