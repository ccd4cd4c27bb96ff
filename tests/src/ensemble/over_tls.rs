//! ZooKeeper servers that speak TLS. They accept only clients with a certificate of one authority.
//!
//! Each server also has a plain port, at which the tests themselves read its nodes as ZooKeeper's super user.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, PoisonError},
    thread,
};

use fencegate_testkit::{
    scratch,
    terminator::{SignedCertificate, TestCa},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ensemble, SERVERS, free_ports};

/// The servers, and the authority that signs their certificates and those of their clients.
pub struct TlsEnsemble {
    pub authority: TestCa,
    pub ensemble: Ensemble,
    ports: Vec<u16>,
    /// The folder with the certificates of servers and clients.
    home: TempDir,
    /// Locked while a client's certificate is made, because several tests may request the same name.
    known: Mutex<()>,
}

/// If this environment variable is set, all tests of this process that share a ZooKeeper share three servers with
/// TLS. So promises can be tested there, too.
pub const VARIABLE: &str = "FENCEGATE_TEST_TLS";

/// The digest of the super user's password, with which [`Tree`](crate::zookeeper::ZnodeTree) logs in.
const SUPER_DIGEST: &str = "super:gG7s8t3oDEtIqF6DM9LlI/R+9Ss=";

/// The class path with the jars of Netty, which ZooKeeper needs for TLS. They are listed because the manifest of
/// Debian's `netty-all.jar` is empty.
const WITH_NETTY: &str = "/usr/share/java/slf4j-simple.jar:/usr/share/java/zookeeper.jar:/usr/share/java/netty-buffer.jar:\
    /usr/share/java/netty-codec.jar:/usr/share/java/netty-common.jar:/usr/share/java/netty-handler.jar:\
    /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport.jar:\
    /usr/share/java/netty-transport-native-unix-common.jar:/usr/share/java/netty-transport-native-epoll.jar";

/// The servers that all tests of a process share: three if [`VARIABLE`] is set, otherwise one. They end with the
/// process.
pub fn shared() -> &'static TlsEnsemble {
    static SECURED: LazyLock<TlsEnsemble> = LazyLock::new(|| {
        let count = if is_enabled() { SERVERS } else { 1 };
        // On another thread, because the first caller may run within a runtime, which must not block on a second
        // one.
        let started = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(TlsEnsemble::start(count))
        });
        started.join().expect("ZooKeeper starts")
    });
    &SECURED
}

/// True if [`VARIABLE`] is set.
pub fn is_enabled() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

impl TlsEnsemble {
    /// Starts one or three servers. Returns when all of them serve.
    pub async fn start(count: usize) -> Self {
        let authority = TestCa::new();
        let home = scratch::temp_dir();
        let store = home.path().join("server.pem");
        let trusted = home.path().join("authority.pem");
        authority.sign(&["localhost", "127.0.0.1"]).write_as_one(&store);
        authority.write(&trusted);
        let ports = free_ports(count);
        let more = |n: usize| {
            format!(
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
                 ssl.clientAuth=need\nDigestAuthenticationProvider.superDigest={SUPER_DIGEST}\n",
                ports[n],
                store.display(),
                trusted.display(),
            )
        };
        let ensemble = Ensemble::of(Ipv4Addr::LOCALHOST, count, WITH_NETTY, more).await;
        Self { authority, ensemble, ports, home, known: Mutex::new(()) }
    }

    /// The TLS address of the first server.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[0]).into()
    }

    /// The TLS addresses of all servers, as policies list them.
    pub fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// The plain address of the first server.
    pub fn plain_address(&self) -> SocketAddr {
        self.ensemble.address(0)
    }

    /// The setting `zookeeper.tls` of a client that these servers know by this name.
    pub fn tls_for_client(&self, name: &str) -> Value {
        let _one_at_a_time = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.home.path().join(name);
        fs::create_dir_all(&folder).expect("our own folder");
        if folder.join("client.pem").exists() {
            return self.showing(&folder);
        }
        self.tls(&folder, &self.authority.identify(name))
    }

    /// The setting `zookeeper.tls` of a client with this certificate. It names files in this folder: `client.pem`,
    /// `client.key`, `ca.pem`.
    pub fn tls(&self, folder: &Path, shown: &SignedCertificate) -> Value {
        shown.write(folder, "client");
        self.authority.write(&folder.join("ca.pem"));
        self.showing(folder)
    }

    fn showing(&self, folder: &Path) -> Value {
        let file = |name: &str| -> PathBuf { folder.join(name) };
        json!({
            "ca_file": file("ca.pem"),
            "client_certificate_file": file("client.pem"),
            "client_key_file": file("client.key"),
        })
    }
}
