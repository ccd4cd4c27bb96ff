//! TLS with the endpoints of an upstream, from files that may change while the process runs.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use fencegate_policies::plan;
use fencegate_process::{
    client_tls::{TlsClientConfigError, client_config, file_versions},
    pem::FileVersion,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// TLS with one upstream.
#[derive(Debug)]
pub struct UpstreamTlsConnector {
    tls: plan::ClientTls,
    current: ArcSwap<ClientConfig>,
    /// Incremented whenever changed files are taken over.
    generation: Arc<AtomicU64>,
    /// The versions of the files at the last check.
    seen: Mutex<Vec<Option<FileVersion>>>,
}

/// The generation of the TLS files with which a connection was made.
#[derive(Debug, Clone)]
pub struct TlsFileGeneration {
    mine: u64,
    now: Arc<AtomicU64>,
}

/// The result of a check of the files.
#[derive(Debug)]
pub enum TlsReloadResult {
    Unchanged,
    TakenOver,
    /// The files have changed and cannot be used, so the old ones stay in use.
    Bad(TlsClientConfigError),
}

impl TlsFileGeneration {
    /// True if no changed files were taken over since this connection was made.
    pub fn is_current(&self) -> bool {
        self.mine == self.now.load(Relaxed)
    }
}

impl UpstreamTlsConnector {
    pub fn open(tls: &plan::ClientTls) -> Result<Self, TlsClientConfigError> {
        // The versions are taken before the files are read, so that a change between the two is noticed at the
        // next check.
        let seen = file_versions(tls);
        let config = client_config(tls)?;
        Ok(Self {
            tls: tls.clone(),
            current: ArcSwap::from_pointee(config),
            generation: Arc::default(),
            seen: Mutex::new(seen),
        })
    }

    /// A configuration that trusts no certificate.
    pub fn trusting_none() -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("the library's own versions");
        let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let tls = plan::ClientTls::default();
        let current = ArcSwap::from_pointee(config);
        Self { tls, current, generation: Arc::default(), seen: Mutex::default() }
    }

    /// Checks the files, and takes them over if they have changed and can be used. It may block.
    pub fn reload_if_changed(&self) -> TlsReloadResult {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = file_versions(&self.tls);
        if *seen == now {
            return TlsReloadResult::Unchanged;
        }
        *seen = now;
        match client_config(&self.tls) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                self.generation.fetch_add(1, Relaxed);
                TlsReloadResult::TakenOver
            }
            Err(bad) => TlsReloadResult::Bad(bad),
        }
    }

    /// Does the handshake over `stream` with an endpoint, and negotiates one of `protocols`, in the order of
    /// preference.
    ///
    /// # Cancellation
    /// Dropping the future closes the stream.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        endpoint: &str,
        stream: S,
        protocols: &[&str],
    ) -> io::Result<(TlsStream<S>, TlsFileGeneration)> {
        let name = self.tls.server_name.as_deref().unwrap_or_else(|| host_name(endpoint));
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        // The generation is read before the configuration. If new files are taken over between the two, the
        // connection counts as old, which is safe.
        let generation =
            TlsFileGeneration { mine: self.generation.load(Relaxed), now: self.generation.clone() };
        let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let connector = TlsConnector::from(self.current.load_full());
        let stream = connector.with_alpn(protocols).connect(name, stream).await?;
        Ok((stream, generation))
    }
}

/// The host of an endpoint, without port, and without the brackets of `[::1]:443`.
fn host_name(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate is compared with the host of the endpoint, without port and brackets.
    #[test]
    fn certificate_name_is_endpoint_host() {
        for (endpoint, name) in
            [("a.example:443", "a.example"), ("[::1]:8443", "::1"), ("127.0.0.1:1", "127.0.0.1")]
        {
            assert_eq!(host_name(endpoint), name);
            assert!(ServerName::try_from(name).is_ok());
        }
    }
}
