//! TLS for clients: the roots that it trusts, the certificate that it presents, and the protocols that it offers.

use std::{net::SocketAddr, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::dial::connect;

/// The TLS configuration of a client.
#[derive(Clone)]
pub struct TestTlsClient {
    roots: RootCertStore,
    shown: Option<(CertificateDer<'static>, Arc<PrivateKeyDer<'static>>)>,
    versions: &'static [&'static SupportedProtocolVersion],
    protocols: Vec<Vec<u8>>,
}

impl TestTlsClient {
    /// Trusts certificates signed by these roots, presents none, and offers no protocol by ALPN.
    pub fn new(roots: RootCertStore) -> Self {
        Self { roots, shown: None, versions: rustls::ALL_VERSIONS, protocols: Vec::new() }
    }

    /// Presents this certificate if the server requests one.
    #[must_use]
    pub fn with_certificate(self, certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Self {
        Self { shown: Some((certificate, Arc::new(key))), ..self }
    }

    #[must_use]
    pub fn with_versions(self, versions: &'static [&'static SupportedProtocolVersion]) -> Self {
        Self { versions, ..self }
    }

    #[must_use]
    pub fn with_alpn(self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Self { protocols, ..self }
    }

    /// The configuration for a client that uses rustls.
    ///
    /// # Errors
    /// Returns an error if certificate and key do not belong to each other.
    pub fn config(&self) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(self.versions).map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(self.roots.clone());
        let mut config = match &self.shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
                .map_err(|error| error.to_string())?,
        };
        config.alpn_protocols.clone_from(&self.protocols);
        Ok(config)
    }

    /// Connects, requests `name` (SNI), and checks that the certificate is for this name.
    ///
    /// # Errors
    /// Returns an error if no process listens, or one side does not accept the other. With TLS 1.3 a client learns
    /// only from its first response that the server refused its certificate.
    ///
    /// # Panics
    /// If `name` is not a valid name.
    pub async fn connect(&self, address: SocketAddr, name: &str) -> Result<TlsStream<TcpStream>, String> {
        self.on_stream(connect(address).await?, name).await
    }

    /// Makes the TLS handshake over an existing connection, as [`Self::connect`] does.
    ///
    /// # Errors
    /// Returns an error if one side does not accept the other.
    ///
    /// # Panics
    /// If `name` is not a valid name.
    pub async fn on_stream(&self, stream: TcpStream, name: &str) -> Result<TlsStream<TcpStream>, String> {
        let config = self.config()?;
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.map_err(|error| format!("handshake: {error}"))
    }
}
