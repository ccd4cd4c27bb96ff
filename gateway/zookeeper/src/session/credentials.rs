//! The client certificate of a session for ZooKeeper's servers, and the trusted authorities, from files that may change
//! while the process runs.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_policies::{host::CanonicalHost, plan};
use fencegate_process::{
    client_tls::{SYSTEM_ROOTS, TlsClientConfigError, client_config, file_versions},
    display::error_chain,
    pem::{self, FileSecrecy, FileVersion, PemError, not_after},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tracing::{error, info};
use zookeeper_client::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};

use crate::metrics::SessionMetrics;

/// The TLS files of a policy, as last read, for all sessions of a process. An open connection keeps its certificate;
/// each new connection, also a reconnect, uses the files as last read.
pub(crate) struct ZkTlsCredentials {
    tls: plan::ClientTls,
    /// Used by the client library for its connections.
    certificates: TlsDynamicCerts,
    looked: Mutex<TlsReloadState>,
}

/// The state of the files at the last check.
struct TlsReloadState {
    seen: Vec<Option<FileVersion>>,
    /// The configuration that the library uses, kept for the diagnostic handshake that finds out why the library fails.
    config: Arc<ClientConfig>,
    /// The end of validity of the client certificate, in seconds since 1970.
    until: Option<u64>,
    /// The error if the files could not be used. It is logged only if the next check finds the same files, because two
    /// files are never replaced at the same moment.
    bad: Option<ZkTlsCredentialsError>,
}

/// Errors of the TLS setup for ZooKeeper. The texts quote nothing of a file.
#[derive(Debug, thiserror::Error)]
pub enum ZkTlsCredentialsError {
    #[error(transparent)]
    Tls(#[from] TlsClientConfigError),
    #[error("{path} cannot be used with ZooKeeper: {why}")]
    Content { path: PathBuf, why: String },
    #[error("the host of `{server}` cannot stand in a certificate")]
    Name { server: String },
    #[error("cannot start the thread that watches the TLS files of ZooKeeper")]
    Thread(#[from] io::Error),
}

impl From<PemError> for ZkTlsCredentialsError {
    fn from(bad: PemError) -> Self {
        Self::Tls(bad.into())
    }
}

impl ZkTlsCredentials {
    /// # Errors
    /// Returns an error if the files cannot be used, or if a server has no name that a certificate can have. At such a
    /// name the client library would panic.
    pub(super) fn open(
        tls: &plan::ClientTls,
        servers: &[String],
    ) -> Result<Arc<Self>, ZkTlsCredentialsError> {
        if let Some(server) = servers.iter().find(|server| server_name(server).is_none()) {
            return Err(ZkTlsCredentialsError::Name { server: server.clone() });
        }
        // The file versions are taken before the files are read, so that a change in between is noticed later.
        let seen = file_versions(tls);
        let (config, certificates) = load_tls_files(tls)?;
        let looked =
            TlsReloadState { seen, config: Arc::new(config), until: certificate_expiry(tls), bad: None };
        let certificates = TlsDynamicCerts::new(certificates);
        Ok(Arc::new(Self { tls: tls.clone(), certificates, looked: Mutex::new(looked) }))
    }

    /// Watches the files from now on, until these credentials are dropped.
    ///
    /// # Errors
    /// Returns an error if no thread could be started.
    pub(super) fn watch_files(
        self: &Arc<Self>,
        metrics: SessionMetrics,
    ) -> Result<(), ZkTlsCredentialsError> {
        let watched = Arc::downgrade(self);
        thread::Builder::new()
            .name("zk-certificates".into())
            .spawn(move || run_file_watch(&watched, &metrics))?;
        Ok(())
    }

    pub(super) fn tls_options(&self) -> TlsOptions {
        TlsOptions::new().with_certs(self.certificates.clone())
    }

    pub(super) fn client_config(&self) -> Arc<ClientConfig> {
        self.lock_loaded_files().config.clone()
    }

    /// The file of the client certificate, if the certificate has expired.
    pub(super) fn expired_certificate(&self) -> Option<&Path> {
        let until = self.lock_loaded_files().until?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.tls.client.as_ref().filter(|_| until < now).map(|client| client.chain.as_path())
    }

    pub(super) fn has_no_client_certificate(&self) -> bool {
        self.tls.client.is_none()
    }

    /// Reads the files again if they have changed. They are read without the lock: the sessions' thread takes that
    /// lock, and must not wait for a disk.
    fn reload_if_changed(&self, metrics: &SessionMetrics) {
        let now = file_versions(&self.tls);
        let mut looked = self.lock_loaded_files();
        if looked.seen == now {
            if let Some(bad) = looked.bad.take() {
                metrics.record_tls_reload(false);
                let bad = error_chain(&bad);
                error!(code = "FG0510", bad, "zookeeper.tls_files_bad: the old ones stay in use");
            }
            return;
        }
        looked.seen = now;
        drop(looked);
        match load_tls_files(&self.tls) {
            Ok((config, certificates)) => {
                let config = Arc::new(config);
                let until = certificate_expiry(&self.tls);
                let mut looked = self.lock_loaded_files();
                (looked.config, looked.until, looked.bad) = (config, until, None);
                self.certificates.update(certificates);
                metrics.record_tls_reload(true);
                info!("zookeeper.tls_files_taken_over: for the next connection");
            }
            Err(bad) => self.lock_loaded_files().bad = Some(bad),
        }
    }

    fn lock_loaded_files(&self) -> MutexGuard<'_, TlsReloadState> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often files are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

fn run_file_watch(credentials: &Weak<ZkTlsCredentials>, metrics: &SessionMetrics) {
    while let Some(credentials) = credentials.upgrade() {
        credentials.reload_if_changed(metrics);
        drop(credentials);
        thread::sleep(POLL_INTERVAL);
    }
}

/// Reads the files twice: for handshakes of this process itself, and for the client library, which parses PEM by
/// itself. Files that one of the two cannot parse are used by neither.
fn load_tls_files(tls: &plan::ClientTls) -> Result<(ClientConfig, TlsCerts), ZkTlsCredentialsError> {
    let config = client_config(tls)?;
    let unfit = |path: &Path, why: &zookeeper_client::Error| ZkTlsCredentialsError::Content {
        path: path.into(),
        why: error_chain(why),
    };
    let path = tls.ca_file.as_deref().unwrap_or(Path::new(SYSTEM_ROOTS));
    let roots =
        TlsCa::from_pem(&pem::read_text(path, FileSecrecy::Public)?).map_err(|bad| unfit(path, &bad))?;
    let mut certificates = TlsCerts::builder().with_ca(roots);
    if let Some(client) = &tls.client {
        let chain = pem::read_text(&client.chain, FileSecrecy::Public)?;
        let key = pem::read_text(&client.key, FileSecrecy::Secret)?;
        let identity = TlsIdentity::from_pem(&chain, &key).map_err(|bad| unfit(&client.chain, &bad))?;
        certificates = certificates.with_identity(identity);
    }
    Ok((config, certificates.build().map_err(|bad| unfit(path, &bad))?))
}

fn certificate_expiry(tls: &plan::ClientTls) -> Option<u64> {
    let chain = pem::certificates(&tls.client.as_ref()?.chain).ok()?;
    not_after(chain.first()?)
}

/// The name that the certificate of a server has to have; `None` if a certificate can have no such name.
pub(super) fn server_name(server: &str) -> Option<ServerName<'static>> {
    let host = CanonicalHost::parse(server).ok()?;
    let bare = host.ip().map_or_else(|| host.name().to_owned(), |ip| ip.to_string());
    ServerName::try_from(bare).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's certificate is verified against the host of its configured address.
    #[test]
    fn server_name_is_host_without_port() {
        for (server, host) in
            [("zk-1.internal:2281", "zk-1.internal"), ("[::1]:2281", "::1"), ("127.0.0.1:1", "127.0.0.1")]
        {
            assert_eq!(server_name(server), ServerName::try_from(host).ok(), "{server}");
        }
    }
}
