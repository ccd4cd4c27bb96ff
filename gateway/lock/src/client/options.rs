//! What a client is told.

use std::{path::PathBuf, time::Duration};

use fencegate_policies::plan::{Acl, Digest, Tls, ZooKeeper};

/// What a client is told. [`Options::of`] has a default for all that is optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `host:port` each, at least one; all of one ensemble.
    pub servers: Vec<String>,
    /// The node below which everything lies: absolute, as `/billing`. All who are to share locks have the same one.
    pub root: String,
    /// Of this process, for whoever looks at what is held: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// How long a session lives on without a word from us, and how long others wait for what we held when we die. Asked
    /// for; the servers cut it to their own bounds. Default 12 s.
    pub session_timeout: Duration,
    /// The ensemble's `tickTime`: what a server rounds by. Default 2 s.
    pub tick: Duration,
    /// Nothing is done under a lock this long before its session could end. Default: a quarter of what the servers grant, and
    /// a heartbeat and a tick at least.
    pub safety_margin: Option<Duration>,
    /// Sessions that share the keys between them, 1 to 64. Default 1: enough for some thousand locks per second.
    pub sessions: usize,
    /// Make the installation, where nobody has. Default no: an ensemble that was wiped counts its tokens from one, and
    /// somebody should have a look at it first. Only the first start of all needs it.
    pub init: bool,
    /// A folder of this process in which it remembers how far tokens have come, so that it notices after a restart as well
    /// that ZooKeeper was wiped or restored. Default none.
    pub state_dir: Option<PathBuf>,
    /// How TLS is spoken with the servers: whom we believe, and what we show. Files that are replaced are taken over for
    /// the next connection. Default none: plain text.
    pub tls: Option<Tls>,
    /// By which name and password ZooKeeper knows us. They cross the network as they are, so have `tls` as well. Default
    /// none.
    pub digest: Option<Digest>,
    /// [`Acl::Closed`]: the nodes that we make are ours, by what `tls` and `digest` show, and those of `identities`.
    /// Default: everybody's who reaches ZooKeeper.
    pub acl: Acl,
    /// Who else shares the locks, as `x509:CN=billing-2`.
    pub identities: Vec<String>,
}

impl Options {
    /// `servers`: `host:port`, with commas between them.
    pub fn of(servers: &str, root: &str, name: &str) -> Self {
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
            acl: Acl::default(),
            identities: Vec::new(),
        }
    }

    /// What a policy says of the ensemble, for a program that takes the locks of a few keys: one session is enough.
    pub fn of_policy(policy: &ZooKeeper, name: &str) -> Self {
        Self {
            session_timeout: policy.session_timeout,
            tick: policy.tick,
            safety_margin: policy.safety_margin,
            tls: policy.tls.clone(),
            digest: policy.digest.clone(),
            acl: policy.acl,
            identities: policy.identities.clone(),
            servers: policy.servers.clone(),
            ..Self::of("", &policy.root, name)
        }
    }

    /// The same, and the installation is made where nobody has.
    pub fn init(self) -> Self {
        Self { init: true, ..self }
    }

    /// In the form in which sessions are told it; else what is wrong.
    pub(super) fn policy(&self) -> Result<ZooKeeper, String> {
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
        if !(1..=ZooKeeper::MOST_SESSIONS).contains(&self.sessions) {
            return Err(format!("1 to {} sessions, not {}", ZooKeeper::MOST_SESSIONS, self.sessions));
        }
        let shown = self.digest.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client.is_some());
        if self.acl == Acl::Closed && !shown {
            return Err("nodes can be kept for us only where `tls` or `digest` show who we are".to_owned());
        }
        Ok(ZooKeeper {
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

    #[test]
    fn what_cannot_be_is_said_before_anything_is_tried() {
        let right = Options::of("zk-1:2181, [::1]:2181", "/a/b", "billing-1");
        let policy = right.policy().expect("sound");
        assert_eq!(policy.servers, ["zk-1:2181", "[::1]:2181"]);
        for wrong in [
            Options { servers: Vec::new(), ..right.clone() },
            Options { servers: vec!["zk-1".to_owned()], ..right.clone() },
            Options { root: "/".to_owned(), ..right.clone() },
            Options { root: "a".to_owned(), ..right.clone() },
            Options { root: "/a/".to_owned(), ..right.clone() },
            Options { root: "/a/../b".to_owned(), ..right.clone() },
            Options { name: "a/b".to_owned(), ..right.clone() },
            Options { sessions: 0, ..right.clone() },
            Options { acl: Acl::Closed, tls: Some(Tls::default()), ..right.clone() },
        ] {
            assert!(wrong.policy().is_err(), "{wrong:?}");
        }
    }
}
