//! Connects to the servers of a policy. If that fails, the servers are probed to find out why: the client library only
//! reports that its time limit has passed.

use std::{pin::pin, sync::Arc, time::Duration};

use fencegate_policies::plan;
use tokio::time::sleep;
use zookeeper_client::Client;

use super::{
    acl::NodeAcls,
    client::{ZkConnector, ZkError},
    credentials::{ZkTlsCredentials, ZkTlsCredentialsError},
    tls_diagnosis::{
        ServerProbeOutcome, TlsHandshakeOutcome, describe_refusals, describe_servers, four_letter_word,
        probe_servers, probe_tls_servers,
    },
    zookeeper::ZkSession,
};
use crate::metrics::SessionMetrics;

/// The servers of a policy, and the credentials for them.
#[derive(Clone)]
pub struct ZkServers {
    servers: Vec<String>,
    session_timeout: Duration,
    /// The credentials for TLS; `None` for plain text.
    credentials: Option<Arc<ZkTlsCredentials>>,
    access: Arc<NodeAcls>,
}

impl ZkServers {
    /// # Errors
    /// Returns an error if the files for TLS, or the password file, cannot be used.
    pub fn from_policy(policy: &plan::ZooKeeperSettings) -> Result<Self, ZkTlsCredentialsError> {
        let servers = policy.servers.clone();
        let credentials = policy.tls.as_ref().map(|tls| ZkTlsCredentials::open(tls, &servers)).transpose()?;
        let access = Arc::new(NodeAcls::from_policy(policy)?);
        Ok(Self { servers, session_timeout: policy.session_timeout, credentials, access })
    }

    /// Watches the TLS files for changes from now on.
    ///
    /// # Errors
    /// Returns an error if no thread could be started.
    pub fn with_file_watch(self, metrics: &SessionMetrics) -> Result<Self, ZkTlsCredentialsError> {
        if let Some(credentials) = &self.credentials {
            credentials.watch_files(metrics.clone())?;
        }
        Ok(self)
    }

    /// Restricts the settings to one server.
    pub fn with_server(self, server: &str) -> Self {
        Self { servers: vec![server.to_owned()], ..self }
    }

    /// The result of a TLS handshake with each server; empty without TLS.
    pub async fn probe_tls(&self) -> Vec<(&str, TlsHandshakeOutcome)> {
        match &self.credentials {
            Some(credentials) => probe_tls_servers(&self.servers, credentials).await,
            None => Vec::new(),
        }
    }

    /// The answer of a server to one of ZooKeeper's four-letter words; `None` if it gives none.
    pub async fn four_letter_word(&self, server: &str, word: &str) -> Option<String> {
        four_letter_word(server, word, self.credentials.as_deref()).await
    }

    /// Describes for each server whether it can be reached, for the error of a caller that has got no session.
    pub async fn describe_reachability(&self) -> String {
        describe_servers(&probe_servers(&self.servers).await)
    }

    async fn connect_client(&self) -> Result<Client, zookeeper_client::Error> {
        let connector =
            self.access.authenticate(Client::connector().with_session_timeout(self.session_timeout));
        let cluster = self.servers.join(",");
        match &self.credentials {
            Some(credentials) => connector.with_tls(credentials.tls_options()).secure_connect(&cluster).await,
            None => connector.connect(&cluster).await,
        }
    }

    /// Returns only when every server refuses TLS. As long as one server is only silent, TLS is not the reason for the
    /// missing session.
    async fn wait_until_all_refuse_tls(&self) -> String {
        let mut pause = PROBE_AFTER;
        loop {
            sleep(pause).await;
            let met = self.probe_tls().await;
            if !met.is_empty() && met.iter().all(|(_, met)| matches!(met, TlsHandshakeOutcome::Refused(_))) {
                return describe_refusals(&met);
            }
            pause *= 2;
        }
    }

    /// Returns only when the system reports for every server that it cannot be reached. As long as one of them accepts
    /// connections or is silent, the client library may use up its own time limit.
    async fn wait_until_none_reachable(&self) -> String {
        let mut pause = PROBE_AFTER;
        loop {
            sleep(pause).await;
            let met = probe_servers(&self.servers).await;
            if met.iter().all(|(_, met)| matches!(met, ServerProbeOutcome::Failed(_))) {
                return describe_servers(&met);
            }
            pause *= 2;
        }
    }
}

/// A connect that takes longer than this probably fails, so the servers are probed.
const PROBE_AFTER: Duration = Duration::from_millis(500);

impl ZkConnector for ZkServers {
    type Client = ZkSession;

    async fn connect(&self) -> Result<ZkSession, ZkError> {
        let client = pin!(self.connect_client());
        let refused = pin!(self.wait_until_all_refuse_tls());
        let unreachable = pin!(self.wait_until_none_reachable());
        let error = tokio::select! {
            biased;
            made = client => match made {
                Ok(client) => return Ok(ZkSession::new(client, self.access.clone())),
                Err(error) => error,
            },
            why = refused => return Err(ZkError::Tls(why)),
            why = unreachable => return Err(ZkError::Unreachable(why)),
        };
        let why = describe_refusals(&self.probe_tls().await);
        if !why.is_empty() {
            return Err(ZkError::Tls(why));
        }
        Err(ZkError::Unreachable(format!("{} ({error})", self.describe_reachability().await)))
    }
}
