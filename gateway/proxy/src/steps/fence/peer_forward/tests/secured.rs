//! Tests with TLS, which writes bytes that belong to no request.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::mpsc as blocking, thread};

use fencegate_http_client::upstream::tls::UpstreamTlsConnector;
use fencegate_policies::plan::{ClientCertificateFiles, ClientTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A certificate authority, for the certificates of one side.
struct TestCa(CertifiedIssuer<'static, KeyPair>);

impl TestCa {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let key = KeyPair::generate().expect("randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("sound"))
    }

    fn sign(&self) -> (rcgen::Certificate, KeyPair) {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        let key = KeyPair::generate().expect("randomness");
        (params.signed_by(&key, &self.0).expect("sound"), key)
    }

    /// Returns an acceptor that requires client certificates signed by `clients`.
    fn tls_acceptor(&self, clients: &Self) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(clients.0.der().clone()).expect("its own certificate");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let (certificate, key) = self.sign();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("its own versions")
            .with_client_cert_verifier(verifier.expect("roots"))
            .with_single_cert(vec![certificate.der().clone()], key);
        TlsAcceptor::from(Arc::new(config.expect("a pair")))
    }

    /// A forwarder that shows a certificate of this authority.
    fn peer_forwarder(&self) -> (PeerForwarder<OsNetwork>, TempDir) {
        let folder = TempDir::new().expect("a folder");
        let write = |name: &str, text: String| -> PathBuf {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            // A key file that others may read is rejected.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
            path
        };
        let (certificate, key) = self.sign();
        let client = ClientCertificateFiles {
            chain: write("chain.pem", certificate.pem()),
            key: write("key.pem", key.serialize_pem()),
        };
        let ca_file = Some(write("ca.pem", self.0.pem()));
        let tls = ClientTls { ca_file, server_name: None, client: Some(client) };
        let mut forwarder = peer_forwarder();
        forwarder.local_peer.secured = Some(Arc::new(UpstreamTlsConnector::open(&tls).expect("files")));
        (forwarder, folder)
    }
}

/// If a client certificate is rejected after the handshake, the request has not failed: it goes back to the
/// queue.
#[tokio::test(flavor = "current_thread")]
async fn rejected_certificate_requeues_request() {
    LocalSet::new()
        .run_until(async {
            let ours = TestCa::new();
            let others = TestCa::new();
            let served = ours.tls_acceptor(&others);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            let refuses = async {
                let (stream, _) = listener.accept().await.expect("a connection");
                assert!(served.accept(stream).await.is_err(), "a stranger");
            };
            let (forwarder, _files) = ours.peer_forwarder();
            let ((answer, _), ()) = tokio::join!(forward_request(&forwarder, address, 1000), refuses);
            assert!(is_requeued(&answer));
        })
        .await;
}

/// Starts a thread that serves two connections with one request each, and reports when it has closed the first
/// one.
fn start_closing_server(served: TlsAcceptor, closed: blocking::Sender<()>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("a socket");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a socket");
            for _ in 0..2 {
                let (stream, _) = listener.accept().await.expect("a connection");
                let mut stream = served.accept(stream).await.expect("a gateway");
                assert!(answer_challenge(&mut stream).await && read_request(&mut stream).await.is_some());
                stream.write_all(DONE.as_bytes()).await.expect("written");
                stream.shutdown().await.expect("said");
                drop(stream);
                closed.send(()).ok();
            }
        });
    });
    address
}

/// The TLS alert at the end of an idle connection does not count as a sent byte of the request, so the request is
/// sent again.
#[tokio::test(flavor = "current_thread")]
async fn tls_alert_is_no_sent_request() {
    LocalSet::new()
        .run_until(async {
            let ours = TestCa::new();
            let (closed, is_closed) = blocking::channel();
            let address = start_closing_server(ours.tls_acceptor(&ours), closed);
            let (forwarder, _files) = ours.peer_forwarder();
            let (answer, _) = forward_request(&forwarder, address, 1000).await;
            let PeerForwardOutcome::Answered(reply) = answer else { panic!("not answered") };
            reply.into_body().buffer_if_short().await.expect("complete");
            // This wait blocks the thread, so that no task sees the end of the connection before the next request
            // uses it.
            is_closed.recv_timeout(Duration::from_secs(10)).expect("closed");
            let (answer, _) = forward_request(&forwarder, address, 1000).await;
            assert!(matches!(answer, PeerForwardOutcome::Answered(_)), "once more, over a fresh one");
        })
        .await;
}
