//! Finds the database that several guards share, by the files that the policy of a guard names.

use std::{path::PathBuf, sync::Arc};

use fencegate_guard::{
    postgres::{NotUsable, Place, SCHEMA},
    ticket::{BadFile, secret},
};
use fencegate_policies::plan;
use fencegate_process::client_tls::{self, BadTls};

/// Why the address of the database is not known. Contains nothing of a file.
#[derive(Debug, thiserror::Error)]
pub enum NoPlace {
    #[error("read the address of the database")]
    File(#[from] BadFile),
    #[error("FG0540: {path} has more in it than one line with the address of a database")]
    Lines { path: PathBuf },
    #[error("FG0540: in {path}")]
    Url { path: PathBuf, source: NotUsable },
    #[error("speak TLS with the database")]
    Tls(#[from] BadTls),
}

/// Reads the files.
pub(crate) fn place(from: &plan::Postgres) -> Result<Place, NoPlace> {
    let path = || from.url_file.clone();
    let text = String::from_utf8(secret(&from.url_file)?).map_err(|_| NoPlace::Lines { path: path() })?;
    let url = text.trim();
    if url.is_empty() || url.contains(char::is_whitespace) {
        return Err(NoPlace::Lines { path: path() });
    }
    let secured = from.tls.as_ref().map(client_tls::config).transpose()?.map(Arc::new);
    Place::parse(url, secured, SCHEMA).map_err(|source| NoPlace::Url { path: path(), source })
}
