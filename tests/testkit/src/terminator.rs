//! TLS for a plain origin in tests: a certificate authority, and a terminator that decrypts and passes on to a
//! listener.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::copy_bidirectional,
    net::TcpStream,
    task::{AbortHandle, JoinHandle},
};
use tokio_rustls::TlsAcceptor;

/// A certificate authority that signs the certificates of a test.
pub struct TestCa(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct SignedCertificate {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl TestCa {
    /// # Panics
    /// Never: the names are fixed.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // The authority has a name of its own: some clients take a certificate that has the name of its issuer for
        // self-signed.
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("the kernel has randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("sound parameters"))
    }

    /// Signs a certificate for these DNS names and IP addresses.
    ///
    /// # Panics
    /// If one of the names is not valid.
    pub fn sign(&self, names: &[&str]) -> SignedCertificate {
        self.sign_as(names, |_| ())
    }

    /// Signs a client certificate with this common name.
    ///
    /// # Panics
    /// Never: the name is text.
    pub fn identify(&self, common_name: &str) -> SignedCertificate {
        self.sign_as(&[], |params| params.distinguished_name.push(DnType::CommonName, common_name))
    }

    /// Signs a client certificate with this URI as its subject alternative name.
    ///
    /// # Panics
    /// If the URI is not ASCII.
    pub fn identify_uri(&self, uri: &str) -> SignedCertificate {
        let name = SanType::URI(uri.try_into().expect("ASCII"));
        self.sign_as(&[], |params| params.subject_alt_names.push(name))
    }

    /// Signs a certificate that expired years ago, for these names and addresses; `names` may be empty.
    ///
    /// # Panics
    /// If one of the names is not valid.
    pub fn sign_expired(&self, names: &[&str]) -> SignedCertificate {
        self.sign_as(names, |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        })
    }

    /// Signs a certificate for these names that expires after `valid`.
    ///
    /// # Panics
    /// If one of the names is not valid.
    pub fn sign_for(&self, names: &[&str], valid: Duration) -> SignedCertificate {
        self.sign_as(names, |params| params.not_after = (SystemTime::now() + valid).into())
    }

    fn sign_as(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> SignedCertificate {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("the kernel has randomness");
        let certificate = params.signed_by(&key, &self.0).expect("sound parameters");
        SignedCertificate { certificate, key }
    }

    /// Writes the authority's own certificate to a file, over an older one.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write(&self, file: &Path) {
        replace(file, &self.0.pem(), 0o644);
    }

    /// The certificates that a client has to trust: only that of this authority.
    ///
    /// # Panics
    /// Never: the authority's certificate is sound.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("its own certificate");
        roots
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl SignedCertificate {
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Writes key and certificate into one file, as Java reads them.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write_as_one(&self, file: &Path) {
        replace(file, &(self.key.serialize_pem() + &self.certificate.pem()), 0o600);
    }

    /// Writes the certificate to `name.pem` and the key to `name.key`, over older ones, and returns both paths.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let chain = folder.join(format!("{name}.pem"));
        let key = folder.join(format!("{name}.key"));
        replace(&chain, &self.certificate.pem(), 0o644);
        replace(&key, &self.key.serialize_pem(), 0o600);
        (chain, key)
    }
}

/// Replaces a file by a rename, so that no reader gets half of it.
fn replace(file: &Path, text: &str, mode: u32) {
    let made = file.with_extension("new");
    fs::write(&made, text).expect("the folder can be written");
    fs::set_permissions(&made, fs::Permissions::from_mode(mode)).expect("our own file");
    fs::rename(&made, file).expect("one folder");
}

/// Decrypts TLS connections, and passes their content to a plain listener. Dropping it ends its connections.
pub struct TlsTerminator {
    pub address: SocketAddr,
    shown: Arc<Mutex<Arc<ServerConfig>>>,
    seen: Arc<Mutex<Vec<TlsHandshake>>>,
    listening: JoinHandle<()>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

/// A handshake that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsHandshake {
    /// The requested server name (SNI); `None` if the client asked for an address.
    pub name: Option<String>,
    pub protocol: Option<String>,
    /// True if the client has presented a certificate.
    pub client: bool,
}

/// The client certificate that a terminator demands.
pub enum ClientCertificatePolicy<'a> {
    Anybody,
    SignedBy(&'a TestCa),
}

impl TlsTerminator {
    /// Starts a terminator that passes connections to `door`. It offers `protocols` by ALPN, in their order.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(
        signed: &SignedCertificate,
        clients: &ClientCertificatePolicy<'_>,
        protocols: &[&str],
        door: SocketAddr,
    ) -> Self {
        let shown = Arc::new(Mutex::new(config(signed, clients, protocols)));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("our own socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let seen = Arc::<Mutex<Vec<TlsHandshake>>>::default();
        let connections = Arc::<Mutex<Vec<AbortHandle>>>::default();
        let listening = {
            let shown = shown.clone();
            let seen = seen.clone();
            let connections = connections.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let config = lock(&shown).clone();
                    let task = tokio::spawn(pass(config, stream, door, seen.clone()));
                    lock(&connections).push(task.abort_handle());
                }
            })
        };
        Self { address, shown, seen, listening, connections }
    }

    /// Replaces certificate, client authentication and protocols, from the next connection on.
    pub fn set_certificate(
        &self,
        signed: &SignedCertificate,
        clients: &ClientCertificatePolicy<'_>,
        protocols: &[&str],
    ) {
        *lock(&self.shown) = config(signed, clients, protocols);
    }

    pub fn handshakes(&self) -> Vec<TlsHandshake> {
        lock(&self.seen).clone()
    }
}

impl Drop for TlsTerminator {
    fn drop(&mut self) {
        self.listening.abort();
        for connection in lock(&self.connections).iter() {
            connection.abort();
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn pass(
    config: Arc<ServerConfig>,
    stream: TcpStream,
    door: SocketAddr,
    seen: Arc<Mutex<Vec<TlsHandshake>>>,
) {
    let Ok(mut inside) = TlsAcceptor::from(config).accept(stream).await else { return };
    let (_, session) = inside.get_ref();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    lock(&seen).push(TlsHandshake {
        name: session.server_name().map(str::to_owned),
        protocol: session.alpn_protocol().map(text),
        client: session.peer_certificates().is_some(),
    });
    let Ok(mut outside) = TcpStream::connect(door).await else { return };
    // An error is ignored: tests break connections on purpose.
    drop(copy_bidirectional(&mut inside, &mut outside).await);
}

fn config(
    signed: &SignedCertificate,
    clients: &ClientCertificatePolicy<'_>,
    protocols: &[&str],
) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the library's own versions");
    let builder = match clients {
        ClientCertificatePolicy::Anybody => builder.with_no_client_auth(),
        ClientCertificatePolicy::SignedBy(authority) => {
            let roots = Arc::new(authority.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.expect("there is a root"))
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.key.serialize_der()));
    let chain = vec![signed.certificate.der().clone()];
    let mut config = builder.with_single_cert(chain, key).expect("a certificate and its key");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}
