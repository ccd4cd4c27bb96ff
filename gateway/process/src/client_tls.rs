//! TLS on the side that connects: what the files say that a policy names.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use fencegate_policies::plan;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use crate::pem::{self, BadPem, Stamp, stamp_of};

/// Why TLS cannot be spoken with a server. Quotes nothing of a file.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    #[error(transparent)]
    File(#[from] BadPem),
    #[error("the client certificate in {path} cannot be used")]
    Client { path: PathBuf, source: rustls::Error },
    #[error("the cryptographic library does not do what TLS needs")]
    Library(#[source] rustls::Error),
}

/// Where Debian, and all that follow it, keep the certificates that the system believes.
pub const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What the files say now.
pub fn config(tls: &plan::Tls) -> Result<ClientConfig, BadTls> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(BadTls::Library)?;
    let builder = builder.with_root_certificates(roots(tls)?);
    let Some(client) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let (chain, key) = (pem::certificates(&client.chain)?, pem::private_key(&client.key)?);
    let unfit = |source| BadTls::Client { path: client.chain.clone(), source };
    builder.with_client_auth_cert(chain, key).map_err(unfit)
}

fn roots(tls: &plan::Tls) -> Result<RootCertStore, BadPem> {
    if let Some(path) = &tls.ca_file {
        return pem::roots(path);
    }
    let mut roots = RootCertStore::empty();
    // Among those of a system there may be some that nobody understands.
    roots.add_parsable_certificates(pem::certificates(Path::new(SYSTEM_ROOTS))?);
    Ok(roots)
}

/// What the files are like now; another answer means that one of them was replaced.
pub fn stamps(tls: &plan::Tls) -> Vec<Option<Stamp>> {
    let roots = tls.ca_file.as_deref().unwrap_or(Path::new(SYSTEM_ROOTS));
    let client = tls.client.iter().flat_map(|client| [client.chain.as_path(), client.key.as_path()]);
    [roots].into_iter().chain(client).map(stamp_of).collect()
}
