//! A server that takes TLS connections of clients with a certificate, and refuses all others.

use std::fs;

use super::{PostgresServer, programs::chown_to_nobody, server::init_folder};
use crate::terminator::{SignedCertificate, TestCa};

impl PostgresServer {
    /// Starts a server that takes network connections only with TLS and a client certificate signed by `authority`,
    /// and that presents `signed` itself. Its Unix socket stays open to the test.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn with_tls(authority: &TestCa, signed: &SignedCertificate) -> Self {
        const WHO: &str = "local all all trust\nhostssl all all all trust clientcert=verify-ca\n";
        let state = init_folder();
        let ca = state.join("ca.pem");
        let who = state.join("hba.conf");
        authority.write(&ca);
        fs::write(&who, WHO).expect("our own folder");
        let (chain, key) = signed.write(&state, "server");
        [&ca, &who, &chain, &key].into_iter().for_each(|file| chown_to_nobody(file));
        let setting = |name: &str, file: &std::path::Path| format!("{name}={}", file.display());
        let settings = [
            "ssl=on".to_owned(),
            setting("hba_file", &who),
            setting("ssl_ca_file", &ca),
            setting("ssl_cert_file", &chain),
            setting("ssl_key_file", &key),
        ];
        Self::start_in(state, &settings.each_ref().map(String::as_str))
    }
}
