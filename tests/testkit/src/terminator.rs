//! TLS before a plain origin: a certificate authority of the test's own, and a terminator in front of a listener.

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

/// Signs certificates.
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
        // A name of its own: some clients take what has the name of its issuer for signed by itself.
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("the kernel has randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("sound parameters"))
    }

    /// A certificate for these names and addresses.
    ///
    /// # Panics
    /// If one of them is no name.
    pub fn sign(&self, names: &[&str]) -> SignedCertificate {
        self.sign_as(names, |_| ())
    }

    /// A certificate of a client with this name.
    ///
    /// # Panics
    /// Never: the name is text.
    pub fn identify(&self, common_name: &str) -> SignedCertificate {
        self.sign_as(&[], |params| params.distinguished_name.push(DnType::CommonName, common_name))
    }

    /// A certificate of a client with this URI as its name.
    ///
    /// # Panics
    /// If it is not ASCII.
    pub fn identify_uri(&self, uri: &str) -> SignedCertificate {
        let name = SanType::URI(uri.try_into().expect("ASCII"));
        self.sign_as(&[], |params| params.subject_alt_names.push(name))
    }

    /// A certificate for these names and addresses, or for none in particular, that was valid years ago.
    ///
    /// # Panics
    /// If one of them is no name.
    pub fn sign_expired(&self, names: &[&str]) -> SignedCertificate {
        self.sign_as(names, |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        })
    }

    /// A certificate for these names that is valid for so long yet.
    ///
    /// # Panics
    /// If a name is none.
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

    /// Writes its own certificate, over an older one.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write(&self, file: &Path) {
        replace(file, &self.0.pem(), 0o644);
    }

    /// Itself alone.
    ///
    /// # Panics
    /// Never: its certificate is sound.
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

    /// Both in one file, as Java reads them.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write_as_one(&self, file: &Path) {
        replace(file, &(self.key.serialize_pem() + &self.certificate.pem()), 0o600);
    }

    /// Writes certificate and key, over older ones: `name.pem` and `name.key`.
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

/// As a tool should do it: no reader gets half of a file.
fn replace(file: &Path, text: &str, mode: u32) {
    let made = file.with_extension("new");
    fs::write(&made, text).expect("the folder can be written");
    fs::set_permissions(&made, fs::Permissions::from_mode(mode)).expect("our own file");
    fs::rename(&made, file).expect("one folder");
}

/// Takes TLS off, and passes on what is inside. Dropping it ends its connections.
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
    /// The requested name, unless it was an address.
    pub name: Option<String>,
    pub protocol: Option<String>,
    /// The client has shown a certificate.
    pub client: bool,
}

/// What a terminator demands of its clients.
pub enum ClientAuthMode<'a> {
    Anybody,
    SignedBy(&'a TestCa),
}

impl TlsTerminator {
    /// Speaks each of `protocols` with every client that offers it.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start(
        signed: &SignedCertificate,
        clients: &ClientAuthMode<'_>,
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

    /// From the next connection on.
    pub fn set_certificate(
        &self,
        signed: &SignedCertificate,
        clients: &ClientAuthMode<'_>,
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
    // Connections break in tests on purpose.
    drop(copy_bidirectional(&mut inside, &mut outside).await);
}

fn config(signed: &SignedCertificate, clients: &ClientAuthMode<'_>, protocols: &[&str]) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the library's own versions");
    let builder = match clients {
        ClientAuthMode::Anybody => builder.with_no_client_auth(),
        ClientAuthMode::SignedBy(authority) => {
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
