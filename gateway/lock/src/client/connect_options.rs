//! The settings of a client.

use std::{path::PathBuf, time::Duration};

use fencegate_policies::plan::{AclMode, ClientTls, DigestCredential, ZooKeeperSettings};

/// The settings of a client. [`ConnectOptions::new`] fills all but three with defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The servers, each as `host:port`; at least one, and all of one ensemble.
    pub servers: Vec<String>,
    /// The node below which all nodes of the installation lie, as an absolute path like `/billing`. Processes share
    /// locks if they have the same root.
    pub root: String,
    /// The name of this process, shown to operators in listings of held locks: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The time for which a session lives without a message from this process. If the process dies, others wait that
    /// long for its locks. The servers may cut the time to their own bounds. Default 12 s.
    pub session_timeout: Duration,
    /// The ensemble's `tickTime`: servers notice the end of a session up to one tick late. Default 2 s.
    pub tick: Duration,
    /// The validity of a lock ends this long before its session could expire. Default: a quarter of the granted
    /// timeout, and at least a heartbeat and a tick.
    pub safety_margin: Option<Duration>,
    /// The number of sessions that share the keys, 1 to 64. Default 1: enough for some thousand locks per second.
    pub sessions: usize,
    /// Whether to create the installation if it is missing. Default no: if ZooKeeper was wiped, the tokens of a new
    /// installation would begin at one again, so an operator should check first. Only the very first start needs this.
    pub init: bool,
    /// A folder in which this process stores the highest epoch that it has seen. With the folder a restarted process
    /// still detects that ZooKeeper was wiped or restored. Default none.
    pub state_dir: Option<PathBuf>,
    /// TLS with the servers: the trusted authorities, and the client certificate. Each new connection uses the files as
    /// they are at that time. Default none: plain text.
    pub tls: Option<ClientTls>,
    /// The name and password with which the client authenticates to ZooKeeper. Both cross the network in plain text
    /// unless `tls` is set. Default none.
    pub digest: Option<DigestCredential>,
    /// The clients that may change the installation's nodes. [`AclMode::Closed`]: only clients with the same
    /// certificate or digest as this one, and those in `identities`. Default: every client that reaches ZooKeeper.
    pub acl: AclMode,
    /// Other identities that may change the nodes, such as `x509:CN=billing-2`.
    pub identities: Vec<String>,
}

impl ConnectOptions {
    /// Options with defaults for all but the arguments. `servers`: `host:port`, with commas between them.
    pub fn new(servers: &str, root: &str, name: &str) -> Self {
        Self {
            servers: servers.split(',').map(|server| server.trim().to_owned()).collect(),
            root: root.to_owned(),
            name: name.to_owned(),
            session_timeout: Duration::from_secs(12),
            tick: Duration::from_secs(2),
            safety_margin: None,
            sessions: 1,
            init: false,
            state_dir: None,
            tls: None,
            digest: None,
            acl: AclMode::default(),
            identities: Vec::new(),
        }
    }

    /// The ensemble settings of a policy, with one session: for a program that locks a few keys.
    pub fn from_policy(policy: &ZooKeeperSettings, name: &str) -> Self {
        Self {
            session_timeout: policy.session_timeout,
            tick: policy.tick,
            safety_margin: policy.safety_margin,
            tls: policy.tls.clone(),
            digest: policy.digest.clone(),
            acl: policy.acl,
            identities: policy.identities.clone(),
            servers: policy.servers.clone(),
            ..Self::new("", &policy.root, name)
        }
    }

    /// The same options with [`ConnectOptions::init`] set.
    pub fn with_installation_init(self) -> Self {
        Self { init: true, ..self }
    }

    /// The same settings in the form that sessions take; the error names the invalid setting.
    pub(super) fn to_policy(&self) -> Result<ZooKeeperSettings, String> {
        let wrong = |what: &str, found: &str| Err(format!("{what}, not `{found}`"));
        let named = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !text.is_empty() && text != "." && text != ".." && text.bytes().all(plain)
        };
        if let Some(server) = self.servers.iter().find(|server| !is_address(server)) {
            return wrong("a server has to be a `host:port`", server);
        }
        if self.servers.is_empty() {
            return Err("at least one server is needed".to_owned());
        }
        if !self.root.strip_prefix('/').is_some_and(|rest| rest.split('/').all(named)) {
            return wrong("the root has to be a path like `/billing`", &self.root);
        }
        if !named(&self.name) {
            return wrong("the name has to be of letters, digits, `.`, `_` and `-`", &self.name);
        }
        if !(1..=ZooKeeperSettings::MOST_SESSIONS).contains(&self.sessions) {
            return Err(format!("1 to {} sessions, not {}", ZooKeeperSettings::MOST_SESSIONS, self.sessions));
        }
        let shown = self.digest.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client.is_some());
        if self.acl == AclMode::Closed && !shown {
            return Err("nodes can be kept for us only where `tls` or `digest` show who we are".to_owned());
        }
        Ok(ZooKeeperSettings {
            servers: self.servers.clone(),
            root: self.root.clone(),
            session_timeout: self.session_timeout,
            tick: self.tick,
            safety_margin: self.safety_margin,
            sessions: self.sessions,
            acl: self.acl,
            identities: self.identities.clone(),
            tls: self.tls.clone(),
            digest: self.digest.clone(),
        })
    }
}

fn is_address(server: &str) -> bool {
    let parts = server.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that cannot work are refused before anything is sent.
    #[test]
    fn invalid_options_fail_before_connect() {
        let right = ConnectOptions::new("zk-1:2181, [::1]:2181", "/a/b", "billing-1");
        let policy = right.to_policy().expect("sound");
        assert_eq!(policy.servers, ["zk-1:2181", "[::1]:2181"]);
        for wrong in [
            ConnectOptions { servers: Vec::new(), ..right.clone() },
            ConnectOptions { servers: vec!["zk-1".to_owned()], ..right.clone() },
            ConnectOptions { root: "/".to_owned(), ..right.clone() },
            ConnectOptions { root: "a".to_owned(), ..right.clone() },
            ConnectOptions { root: "/a/".to_owned(), ..right.clone() },
            ConnectOptions { root: "/a/../b".to_owned(), ..right.clone() },
            ConnectOptions { name: "a/b".to_owned(), ..right.clone() },
            ConnectOptions { sessions: 0, ..right.clone() },
            ConnectOptions { acl: AclMode::Closed, tls: Some(ClientTls::default()), ..right.clone() },
        ] {
            assert!(wrong.to_policy().is_err(), "{wrong:?}");
        }
    }
}
