//! TLS on the connecting side: makes the configuration from the files that a policy names.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use fencegate_policies::plan;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use crate::pem::{self, FileVersion, PemError, file_version};

/// Errors of the TLS configuration for connections to a server. The texts quote no part of a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsClientConfigError {
    #[error(transparent)]
    File(#[from] PemError),
    #[error("the client certificate in {path} cannot be used")]
    Client { path: PathBuf, source: rustls::Error },
    #[error("the cryptographic library lacks a part that TLS needs")]
    Library(#[source] rustls::Error),
}

/// The file of trusted authorities on Debian and its derivatives.
pub const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Makes the configuration from the present content of the files.
pub fn client_config(tls: &plan::ClientTls) -> Result<ClientConfig, TlsClientConfigError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsClientConfigError::Library)?;
    let builder = builder.with_root_certificates(roots(tls)?);
    let Some(client) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let chain = pem::certificates(&client.chain)?;
    let key = pem::private_key(&client.key)?;
    let unfit = |source| TlsClientConfigError::Client { path: client.chain.clone(), source };
    builder.with_client_auth_cert(chain, key).map_err(unfit)
}

fn roots(tls: &plan::ClientTls) -> Result<RootCertStore, PemError> {
    if let Some(path) = &tls.ca_file {
        return pem::roots(path);
    }
    let mut roots = RootCertStore::empty();
    // The system's file may have certificates that the library cannot parse, so those are skipped.
    roots.add_parsable_certificates(pem::certificates(Path::new(SYSTEM_ROOTS))?);
    Ok(roots)
}

/// The versions of the files. If they differ from versions that were read earlier, a file was
/// replaced.
pub fn file_versions(tls: &plan::ClientTls) -> Vec<Option<FileVersion>> {
    let roots = tls.ca_file.as_deref().unwrap_or(Path::new(SYSTEM_ROOTS));
    let client = tls.client.iter().flat_map(|client| [client.chain.as_path(), client.key.as_path()]);
    [roots].into_iter().chain(client).map(file_version).collect()
}
