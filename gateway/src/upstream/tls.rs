//! TLS with the endpoints of an upstream, out of files that may change while the process runs.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use fencegate_policies::plan;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How an upstream is spoken with.
#[derive(Debug)]
pub struct Secured {
    tls: plan::Tls,
    current: ArcSwap<ClientConfig>,
    /// Grows whenever other files take over.
    generation: Arc<AtomicU64>,
    /// What the files were like when they were last looked at.
    seen: Mutex<Vec<Option<Stamp>>>,
}

/// The files that a connection was made with.
#[derive(Debug, Clone)]
pub struct Generation {
    mine: u64,
    now: Arc<AtomicU64>,
}

/// A file that TLS cannot be spoken with. Quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    #[error("read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is no file, or larger than 16 MiB")]
    Shape { path: PathBuf },
    #[error("{path} is not PEM, or has nothing of what belongs there: {why}")]
    Pem { path: PathBuf, why: String },
    #[error(
        "{path} has mode {mode:04o}: others can read this key; run `chmod 600 {path}`, and make a new one"
    )]
    Readable { path: PathBuf, mode: u32 },
    #[error("the client certificate in {path} cannot be used")]
    Client { path: PathBuf, source: rustls::Error },
    #[error("the cryptographic library does not do what TLS needs")]
    Library(#[source] rustls::Error),
}

/// What came of looking at the files.
#[derive(Debug)]
pub enum Refreshed {
    Unchanged,
    TakenOver,
    /// The old ones stay.
    Bad(BadTls),
}

/// Tells one state of a file from another: device and inode, size, times of modification and of change.
pub(crate) type Stamp = [i128; 4];

/// Where Debian, and all that follow it, keep the certificates that the system believes.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
const LARGEST: u64 = 16 << 20;

impl Generation {
    /// No other files have taken over since.
    pub fn is_current(&self) -> bool {
        self.mine == self.now.load(Relaxed)
    }
}

impl Secured {
    pub fn open(tls: &plan::Tls) -> Result<Self, BadTls> {
        // Looked at before they are read, so that a later change shows.
        let seen = stamps(tls);
        let config = config(tls)?;
        Ok(Self {
            tls: tls.clone(),
            current: ArcSwap::from_pointee(config),
            generation: Arc::default(),
            seen: Mutex::new(seen),
        })
    }

    /// Believes nobody.
    pub fn closed() -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("the library's own versions");
        let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let (tls, current) = (plan::Tls::default(), ArcSwap::from_pointee(config));
        Self { tls, current, generation: Arc::default(), seen: Mutex::default() }
    }

    /// Looks at the files, and takes them over if they have changed and are good. It may block.
    pub fn refresh(&self) -> Refreshed {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.tls);
        if *seen == now {
            return Refreshed::Unchanged;
        }
        *seen = now;
        match config(&self.tls) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                self.generation.fetch_add(1, Relaxed);
                Refreshed::TakenOver
            }
            Err(bad) => Refreshed::Bad(bad),
        }
    }

    /// Speaks TLS over `stream` with an endpoint, and then one of `protocols`, in the order of preference.
    ///
    /// # Cancellation
    /// Dropping the future closes the stream.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        endpoint: &str,
        stream: S,
        protocols: &[&str],
    ) -> io::Result<(TlsStream<S>, Generation)> {
        let name = self.tls.server_name.as_deref().unwrap_or_else(|| host(endpoint));
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        // Before the files are taken: where others take over in between, the connection counts as old.
        let generation = Generation { mine: self.generation.load(Relaxed), now: self.generation.clone() };
        let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let connector = TlsConnector::from(self.current.load_full());
        let stream = connector.with_alpn(protocols).connect(name, stream).await?;
        Ok((stream, generation))
    }
}

/// `[::1]:443` without port and brackets.
fn host(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn config(tls: &plan::Tls) -> Result<ClientConfig, BadTls> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(BadTls::Library)?;
    let builder = builder.with_root_certificates(roots(tls)?);
    let Some(client) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(&client.chain)?;
    let bytes = read(&client.key, Secrecy::Secret)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|why| not_pem(&client.key, &why))?;
    let unfit = |source| BadTls::Client { path: client.chain.clone(), source };
    builder.with_client_auth_cert(chain, key).map_err(unfit)
}

fn roots(tls: &plan::Tls) -> Result<RootCertStore, BadTls> {
    let mut roots = RootCertStore::empty();
    match &tls.ca_file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|why| not_pem(path, &why))?;
            }
        }
        // Among those of a system there may be some that nobody understands.
        None => drop(roots.add_parsable_certificates(certificates(Path::new(SYSTEM_ROOTS))?)),
    }
    Ok(roots)
}

/// At least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let bytes = read(path, Secrecy::Public)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read.map_err(|why| not_pem(path, &why))? {
        none if none.is_empty() => Err(not_pem(path, &"it has no certificate")),
        certificates => Ok(certificates),
    }
}

fn not_pem(path: &Path, why: &impl ToString) -> BadTls {
    BadTls::Pem { path: path.into(), why: why.to_string() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    Public,
    /// The group may read it: that is how a container is given a secret.
    Secret,
}

pub(crate) fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, BadTls> {
    let failed = |source| BadTls::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    // Of the open file, not of the name: what is checked is what is read.
    let seen = file.metadata().map_err(failed)?;
    let mode = seen.mode() & 0o7777;
    if secrecy == Secrecy::Secret && mode & 0o027 != 0 {
        return Err(BadTls::Readable { path: path.into(), mode });
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if !seen.is_file() || bytes.len() as u64 > LARGEST {
        return Err(BadTls::Shape { path: path.into() });
    }
    Ok(bytes)
}

fn stamps(tls: &plan::Tls) -> Vec<Option<Stamp>> {
    let roots = tls.ca_file.as_deref().unwrap_or(Path::new(SYSTEM_ROOTS));
    let client = tls.client.iter().flat_map(|client| [client.chain.as_path(), client.key.as_path()]);
    [roots].into_iter().chain(client).map(stamp_of).collect()
}

/// `None` while there is no such file.
pub(crate) fn stamp_of(path: &Path) -> Option<Stamp> {
    std::fs::metadata(path).ok().map(|seen| stamp(&seen))
}

fn stamp(seen: &Metadata) -> Stamp {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let identity = (i128::from(seen.dev()) << 64) + i128::from(seen.ino());
    let (modified, changed) =
        (nanos(seen.mtime(), seen.mtime_nsec()), nanos(seen.ctime(), seen.ctime_nsec()));
    [identity, seen.size().into(), modified, changed]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_compared_with_the_host_of_the_endpoint() {
        for (endpoint, name) in
            [("a.example:443", "a.example"), ("[::1]:8443", "::1"), ("127.0.0.1:1", "127.0.0.1")]
        {
            assert_eq!(host(endpoint), name);
            assert!(ServerName::try_from(name).is_ok());
        }
    }
}
