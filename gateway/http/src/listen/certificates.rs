//! TLS with clients, from files that may change while the process runs. A new file that is not valid leaves the old
//! ones in use.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use fencegate_policies::plan::{
    self, CertificateFiles, ClientCertificateMode, ListenerProtocols, ListenerTls,
};
use fencegate_process::pem::{self, FileVersion, PemError, file_version, not_after};
use rustls::{
    ServerConfig,
    client::verify_server_name,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::ServerName,
    server::{
        ClientHello, ParsedCertificate, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{error, info, warn};

use super::{
    detect::{DetectedProtocol, PrefixedIo, begins_with_tls},
    identity::parse_identity,
    metrics::ClientConnectionMetrics,
};
use crate::{connection_info::TlsInfo, network::ResetOnClose};

/// The certificates that a listener shows, and the authorities for its clients. All workers share them.
pub struct ListenerCertificates {
    tls: ListenerTls,
    alpn: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
    looked: Mutex<CertificateReloadState>,
    metrics: ClientConnectionMetrics,
}

/// The state of the files at the last check.
struct CertificateReloadState {
    seen: Vec<Option<FileVersion>>,
    /// The error if the files could not be used. It is logged only if the next check finds the same error:
    /// certificate and key are two files, which are never replaced at the same moment.
    bad: Option<ListenerTlsError>,
}

/// The reason for which TLS with clients is not possible. The texts quote no part of a file.
#[derive(Debug, thiserror::Error)]
pub enum ListenerTlsError {
    #[error(transparent)]
    File(#[from] PemError),
    #[error("the key in {key} cannot be used with the certificate in {certificate}")]
    Pair { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("clients cannot be verified with the certificates in {path}")]
    Clients { path: PathBuf, source: VerifierBuilderError },
    #[error("the cryptographic library lacks a part that TLS needs")]
    Library(#[source] rustls::Error),
}

impl ListenerCertificates {
    /// Opens the certificates of a listener; `None` where the listener speaks plain text.
    pub fn open(
        listener: &plan::ListenerSettings,
        metrics: &ClientConnectionMetrics,
    ) -> Result<Option<Arc<Self>>, ListenerTlsError> {
        let Some(tls) = listener.tls.clone() else { return Ok(None) };
        Self::load(tls, listener.protocols, metrics).map(Some)
    }

    /// # Errors
    /// Returns an error if the files cannot be used.
    pub fn load(
        tls: ListenerTls,
        protocols: ListenerProtocols,
        metrics: &ClientConnectionMetrics,
    ) -> Result<Arc<Self>, ListenerTlsError> {
        let alpn: &[&str] = match protocols {
            ListenerProtocols::Both => &["h2", "http/1.1"],
            ListenerProtocols::Http1 => &["http/1.1"],
            ListenerProtocols::Http2 => &["h2"],
        };
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        // The versions of the files are taken before the files are read, so that a change between the two is noticed
        // at the next check.
        let seen = file_stamps(&tls);
        let config = build_server_config(&tls, &alpn, metrics)?;
        let opened = Arc::new(Self {
            tls,
            alpn,
            current: ArcSwap::from_pointee(config),
            looked: Mutex::new(CertificateReloadState { seen, bad: None }),
            metrics: metrics.clone(),
        });
        let watched = Arc::downgrade(&opened);
        thread::Builder::new()
            .name("certificates".into())
            .spawn(move || run_file_watcher(&watched))
            .map_err(|source| PemError::Read { path: "/proc/self/task".into(), source })?;
        Ok(opened)
    }

    /// Reads the files now, whether they look changed or not. Handshakes that have begun go on with the old files,
    /// and open connections are not affected.
    ///
    /// # Errors
    /// Returns an error, which is also logged, if the files cannot be used. The old ones stay in use.
    pub fn reload(&self) -> Result<(), ListenerTlsError> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        *looked = CertificateReloadState { seen: file_stamps(&self.tls), bad: None };
        self.install().inspect_err(|bad| self.log_error(bad))
    }

    fn reload_if_changed(&self) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = file_stamps(&self.tls);
        if looked.seen != now {
            *looked = CertificateReloadState { seen: now, bad: self.install().err() };
        } else if let Some(bad) = looked.bad.take() {
            self.log_error(&bad);
        }
    }

    fn install(&self) -> Result<(), ListenerTlsError> {
        self.current.store(Arc::new(build_server_config(&self.tls, &self.alpn, &self.metrics)?));
        self.metrics.record_tls_reload(true);
        info!("the listener uses its new certificates");
        Ok(())
    }

    fn log_error(&self, bad: &ListenerTlsError) {
        self.metrics.record_tls_reload(false);
        let source = std::error::Error::source(bad).map(ToString::to_string);
        error!(code = "FG0510", %bad, source, "the listener's new certificates cannot be used; the old ones stay in use");
    }

    /// Does the handshake with a client, and negotiates the protocol if the client supports that.
    ///
    /// # Cancellation
    /// Dropping the future closes the stream.
    async fn accept<I: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: I,
    ) -> Result<(TlsStream<I>, TlsInfo, Option<DetectedProtocol>), (io::Error, I)> {
        let stream = TlsAcceptor::from(self.current.load_full()).accept(stream).into_fallible().await?;
        let (_, session) = stream.get_ref();
        let client =
            session.peer_certificates().and_then(|chain| chain.first()).map(|first| parse_identity(first));
        let client_name = self.tls.client_name.and_then(|kind| client.as_ref()?.name(kind));
        let server_name = session.server_name().map(str::to_owned);
        let handshake = TlsInfo { server_name, client, client_name };
        let protocol = match session.alpn_protocol() {
            Some(b"h2") => Some(DetectedProtocol::Http2),
            Some(b"http/1.1") => Some(DetectedProtocol::Http1),
            _ => None,
        };
        Ok((stream, handshake, protocol))
    }
}

/// The result of a handshake.
#[expect(clippy::large_enum_variant, reason = "nearly all of them are large, and none lives for long")]
pub enum TlsHandshakeResult<I> {
    Secured(TlsStream<PrefixedIo<I>>, TlsInfo, Option<DetectedProtocol>),
    /// The handshake failed. The alert with the reason is written; the client may not have read it.
    Failed(io::Error, PrefixedIo<I>),
    /// The client did not speak TLS.
    Plain(PrefixedIo<I>),
    Closed,
}

pub async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(
    certificates: &ListenerCertificates,
    stream: I,
) -> io::Result<TlsHandshakeResult<I>> {
    Ok(match begins_with_tls(stream).await? {
        None => TlsHandshakeResult::Closed,
        Some((false, stream)) => TlsHandshakeResult::Plain(stream),
        Some((true, stream)) => match certificates.accept(stream).await {
            Ok((stream, handshake, protocol)) => TlsHandshakeResult::Secured(stream, handshake, protocol),
            Err((error, stream)) => TlsHandshakeResult::Failed(error, stream),
        },
    })
}

impl<I: ResetOnClose> ResetOnClose for TlsStream<I> {
    fn reset_on_close(&self) {
        self.get_ref().0.reset_on_close();
    }

    fn flush_on_close(&self) {
        self.get_ref().0.flush_on_close();
    }

    fn set_unacknowledged_timeout(&self, unacknowledged: Option<Duration>) {
        self.get_ref().0.set_unacknowledged_timeout(unacknowledged);
    }

    fn is_fully_closed(&self) -> bool {
        self.get_ref().0.is_fully_closed()
    }

    fn has_hung_up(&self) -> bool {
        self.get_ref().0.has_hung_up()
    }
}

/// Checks the files once a second, until the certificates are dropped.
fn run_file_watcher(certificates: &Weak<ListenerCertificates>) {
    while let Some(certificates) = certificates.upgrade() {
        certificates.reload_if_changed();
        drop(certificates);
        thread::sleep(LOOK);
    }
}

const LOOK: Duration = Duration::from_secs(1);

fn build_server_config(
    tls: &ListenerTls,
    alpn: &[Vec<u8>],
    metrics: &ClientConnectionMetrics,
) -> Result<ServerConfig, ListenerTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions = match tls.min_version {
        plan::TlsVersion::Tls12 => &[&TLS13, &TLS12][..],
        plan::TlsVersion::Tls13 => &[&TLS13][..],
    };
    let keys =
        tls.certificates.iter().map(|pair| certified_key(pair, &provider)).collect::<Result<Vec<_>, _>>()?;
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.map_err(ListenerTlsError::Library)?;
    let verifier = client_verifier(tls, provider)?;
    for (pair, key) in tls.certificates.iter().zip(&keys) {
        record_validity(pair, key, metrics);
    }
    let mut config =
        builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(SniResolver { keys }));
    config.alpn_protocols = alpn.to_vec();
    // Early data is not accepted: an observer could send a copy of it again.
    config.max_early_data_size = 0;
    Ok(config)
}

/// Reads all files as the start does. Returns each certificate with its end of validity, in seconds since 1970.
///
/// # Errors
/// Returns the errors that would keep the process from starting.
pub fn read_certificate_expiries(tls: &ListenerTls) -> Result<Vec<(PathBuf, Option<u64>)>, ListenerTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let examined = tls.certificates.iter().map(|pair| {
        let key = certified_key(pair, &provider)?;
        Ok((pair.certificate.clone(), key.cert.first().and_then(|first| not_after(first))))
    });
    let examined = examined.collect::<Result<_, ListenerTlsError>>()?;
    client_verifier(tls, provider.clone())?;
    Ok(examined)
}

fn certified_key(
    pair: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, ListenerTlsError> {
    let chain = pem::certificates(&pair.certificate)?;
    let key = pem::private_key(&pair.key)?;
    let unfit = |source| ListenerTlsError::Pair {
        certificate: pair.certificate.clone(),
        key: pair.key.clone(),
        source,
    };
    CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(unfit)
}

fn client_verifier(
    tls: &ListenerTls,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ListenerTlsError> {
    let (required, path) = match &tls.client_auth {
        ClientCertificateMode::Off => return Ok(WebPkiClientVerifier::no_client_auth()),
        ClientCertificateMode::Optional(path) => (false, path),
        ClientCertificateMode::Required(path) => (true, path),
    };
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(pem::roots(path)?), provider);
    let builder = if required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|source| ListenerTlsError::Clients { path: path.clone(), source })
}

fn record_validity(pair: &CertificateFiles, key: &CertifiedKey, metrics: &ClientConnectionMetrics) {
    let Some(until) = key.cert.first().and_then(|first| not_after(first)) else { return };
    metrics.set_certificate_expiry(&pair.certificate, until);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if until < now {
        // An expired certificate is used all the same: clients then see the reason, and not only a failed handshake.
        warn!(code = "FG0511", certificate = %pair.certificate.display(), "the listener's certificate has expired");
    }
}

/// Chooses the certificate for the name that the client requests; otherwise the first one.
#[derive(Debug)]
struct SniResolver {
    keys: Vec<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable =
            || self.keys.iter().filter(|key| key.key.choose_scheme(hello.signature_schemes()).is_some());
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| usable().find(|key| has_name(key, &name)));
        named.or_else(|| usable().next()).cloned()
    }
}

fn has_name(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = key.cert.first().and_then(|first| ParsedCertificate::try_from(first).ok());
    parsed.is_some_and(|parsed| verify_server_name(&parsed, name).is_ok())
}

fn file_stamps(tls: &ListenerTls) -> Vec<Option<FileVersion>> {
    let pairs = tls.certificates.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    let clients = match &tls.client_auth {
        ClientCertificateMode::Off => None,
        ClientCertificateMode::Optional(path) | ClientCertificateMode::Required(path) => Some(path),
    };
    pairs.chain(clients).map(|path| file_version(path)).collect()
}
