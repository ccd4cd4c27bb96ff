//! The secret for the hashes of keys in the log, read from a file that several processes may share.

use std::path::PathBuf;

use fencegate_policies::plan::LogSettings;
use fencegate_process::key_redaction::KeyHashSecret;
use fencegate_ticket::{KeyFileError, read_secret};

/// The least length of the secret in bytes: with a secret that can be guessed, the keys behind the hashes
/// could be guessed.
const LEAST: usize = 16;

/// The reason for which there is no secret. The texts quote nothing of the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadKeyHashSecretError {
    #[error("FG0512: cannot read the secret of `log.keys`")]
    File(#[from] KeyFileError),
    #[error(
        "FG0512: the secret of `log.keys` in {path} has fewer than {LEAST} bytes; write one with `openssl rand -hex 32`"
    )]
    Short { path: PathBuf },
}

/// Reads the secret that the log settings name; `None` if they name none.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub fn load(log: &LogSettings) -> Result<Option<KeyHashSecret>, LoadKeyHashSecretError> {
    let Some(path) = &log.key_secret_file else { return Ok(None) };
    let content = read_secret(path)?;
    let bytes = content.trim_ascii();
    if bytes.len() < LEAST {
        return Err(LoadKeyHashSecretError::Short { path: path.clone() });
    }
    Ok(Some(KeyHashSecret::new(bytes)))
}
