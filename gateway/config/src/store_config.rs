//! Reads the address of the database that several guards share, from the files that the policy of a guard
//! names.

use std::{path::PathBuf, sync::Arc};

use fencegate_guard_postgres::postgres::{PostgresConfig, SCHEMA, UnusableDatabaseError};
use fencegate_policies::plan;
use fencegate_process::client_tls::{self, TlsClientConfigError};
use fencegate_ticket::{KeyFileError, read_secret};

/// The reason for which the address of the database is not known. The texts quote nothing of a file.
#[derive(Debug, thiserror::Error)]
pub enum PostgresConfigError {
    #[error("cannot read the address of the database")]
    File(#[from] KeyFileError),
    #[error("FG0540: {path} holds more than one line with the address of a database")]
    Lines { path: PathBuf },
    #[error("FG0540: the address of the database in {path} cannot be used")]
    Url { path: PathBuf, source: UnusableDatabaseError },
    #[error("cannot use TLS with the database")]
    Tls(#[from] TlsClientConfigError),
}

/// Reads the address of the database, and the files for TLS, that the policy names.
pub fn load_store_config(from: &plan::PostgresLocation) -> Result<PostgresConfig, PostgresConfigError> {
    let path = || from.url_file.clone();
    let text = String::from_utf8(read_secret(&from.url_file)?)
        .map_err(|_| PostgresConfigError::Lines { path: path() })?;
    let url = text.trim();
    if url.is_empty() || url.contains(char::is_whitespace) {
        return Err(PostgresConfigError::Lines { path: path() });
    }
    let secured = from.tls.as_ref().map(client_tls::client_config).transpose()?.map(Arc::new);
    PostgresConfig::parse(url, secured, SCHEMA)
        .map_err(|source| PostgresConfigError::Url { path: path(), source })
}
