//! A token that clients must present. It is read from a file that may change while the process runs.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, digest},
};
use tracing::{error, info};

use fencegate_ticket::{KeyFileError, read_secret};

/// A token that callers must present. Clones share it.
#[derive(Clone)]
pub struct ExpectedBearerToken {
    file: PathBuf,
    /// The digest of the token. All digests have one length, so a comparison reveals nothing about the length
    /// of the token.
    digest: Arc<RwLock<Digest>>,
}

type Digest = [u8; 32];

/// The least length of a token in bytes, so that it cannot be guessed.
pub const LEAST: usize = 16;

/// The reason for which there is no token. The texts quote nothing of the file.
#[derive(Debug, thiserror::Error)]
pub enum BearerTokenFileError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error(
        "FG0512: the token in {path} has fewer than {LEAST} bytes, or is no single line of visible ASCII; write one with `openssl rand -hex 32`"
    )]
    Token { path: PathBuf },
}

impl fmt::Debug for ExpectedBearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ExpectedBearerToken {
    pub fn open(file: &Path) -> Result<Self, BearerTokenFileError> {
        let digest = Arc::new(RwLock::new(read_digest(file)?));
        Ok(Self { file: file.to_owned(), digest })
    }

    /// Compares a token in constant time.
    pub fn matches(&self, shown: &[u8]) -> bool {
        let known = *self.digest.read().unwrap_or_else(PoisonError::into_inner);
        verify_slices_are_equal(&known, &digest_token(shown)).is_ok()
    }

    /// Follows changes of the file. If the new content cannot be used, the old token stays in force.
    pub async fn watch_token_file(self) {
        let mut reported = false;
        loop {
            tokio::time::sleep(LOOK).await;
            let file = self.file.clone();
            // The file is read on another thread: a disk that hangs must not block the listener.
            let Ok(found) = tokio::task::spawn_blocking(move || read_digest(&file)).await else { continue };
            match found {
                Ok(found) => {
                    reported = false;
                    let mut known = self.digest.write().unwrap_or_else(PoisonError::into_inner);
                    if *known != found {
                        *known = found;
                        info!(file = %self.file.display(), "bearer.changed");
                    }
                }
                Err(bad) if !reported => {
                    reported = true;
                    error!(error = %bad, "bearer.unusable: the old token stays in force");
                }
                Err(_) => {}
            }
        }
    }
}

/// The interval in which the file is checked for changes.
const LOOK: Duration = Duration::from_secs(2);

fn read_digest(file: &Path) -> Result<Digest, BearerTokenFileError> {
    let text = read_secret(file)?;
    let token = text.trim_ascii();
    let good = token.len() >= LEAST && token.iter().all(u8::is_ascii_graphic);
    if good { Ok(digest_token(token)) } else { Err(BearerTokenFileError::Token { path: file.to_owned() }) }
}

fn digest_token(token: &[u8]) -> Digest {
    let mut known = Digest::default();
    known.copy_from_slice(digest(&SHA256, token).as_ref());
    known
}
