//! The ACLs of the nodes that a session creates, and its identity in ZooKeeper.

use std::{collections::BTreeSet, path::Path};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use fencegate_policies::plan;
use fencegate_process::pem::{FileSecrecy, PemError, read_text};
use zookeeper_client::{Acl, AuthId, Connector, Permission};

/// The ACLs of the nodes that this process creates, and its identity. They are the same for all sessions of the
/// process, from start to end, because existing nodes were created with them.
pub(super) struct NodeAcls {
    acls: Vec<Acl>,
    /// The ACL of nodes that this process creates among those of other programs. Every client may read such a node,
    /// because other programs read the node that they wait for.
    beside: Vec<Acl>,
    root: String,
    /// The identities of other clients that the policy admits.
    identities: Vec<String>,
    closed: bool,
    /// User and password for digest authentication, as `user:password`.
    shown: Option<String>,
}

impl NodeAcls {
    /// # Errors
    /// Returns an error if the password file cannot be read, or if other users can read it.
    pub(super) fn from_policy(policy: &plan::ZooKeeperSettings) -> Result<Self, PemError> {
        let closed = policy.acl == plan::AclMode::Closed;
        let shown = policy.digest.as_ref().map(|digest| {
            read_password(&digest.password_file).map(|password| format!("{}:{password}", digest.user))
        });
        let everybody = AuthId::anyone();
        let listed = policy.identities.iter().filter_map(|identity| identity.split_once(':'));
        let acls = match closed {
            false => vec![Acl::new(Permission::ALL, everybody)],
            // `auth` stands for the session: the server replaces it by every identity under which the session is
            // authenticated.
            true => std::iter::once(AuthId::authed())
                .chain(listed.map(|(scheme, id)| AuthId::new(scheme, id)))
                .map(|id| Acl::new(Permission::ALL, id))
                .collect(),
        };
        let reading = closed.then(|| Acl::new(Permission::READ, AuthId::anyone()));
        let beside = acls.iter().cloned().chain(reading).collect();
        let root = policy.root.clone();
        Ok(Self {
            acls,
            beside,
            root,
            identities: policy.identities.clone(),
            closed,
            shown: shown.transpose()?,
        })
    }

    pub(super) fn acls(&self) -> &[Acl] {
        &self.acls
    }

    /// The ACL of a node that is created at `path`.
    pub(super) fn acl_for(&self, path: &str) -> &[Acl] {
        let within = |lower: &str, upper: &str| {
            lower.strip_prefix(upper).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // The nodes above the root belong to the installation, too, so they get the same ACL.
        if within(path, &self.root) || within(&self.root, path) { &self.acls } else { &self.beside }
    }

    pub(super) fn is_restricted(&self) -> bool {
        self.closed
    }

    /// Adds name and password to a connection.
    pub(super) fn authenticate(&self, connector: Connector) -> Connector {
        match &self.shown {
            Some(shown) => connector.with_auth("digest", shown.as_bytes()),
            None => connector,
        }
    }

    /// The identities that are meant to write the nodes, in the form of ACLs; empty if the server knows no identity of
    /// this session. `known`: schemes and names under which the session is authenticated.
    pub(super) fn intended_writers<'u>(
        &self,
        known: impl Iterator<Item = (&'u str, &'u str)>,
    ) -> Vec<String> {
        // An `ip` identity may belong to other clients as well, so it is left out. Of a digest the server reports only
        // the user, so that identity is computed from the password.
        let known = known.filter(|(scheme, _)| !matches!(*scheme, "ip" | "world" | "digest"));
        let ours = known.map(|(scheme, name)| format!("{scheme}:{name}")).chain(self.credential_digest());
        let mut all: BTreeSet<String> = ours.collect();
        if !all.is_empty() {
            all.extend(self.identities.iter().cloned());
        }
        all.into_iter().collect()
    }

    /// The digest of user and password, in the form that ZooKeeper writes into ACLs.
    fn credential_digest(&self) -> Option<String> {
        let shown = self.shown.as_ref()?;
        let (user, _) = shown.split_once(':')?;
        let made = digest(&SHA1_FOR_LEGACY_USE_ONLY, shown.as_bytes());
        Some(format!("digest:{user}:{}", base64(made.as_ref())))
    }
}

/// Reads the password: one line, without its end.
fn read_password(path: &Path) -> Result<String, PemError> {
    let unfit = |why: &str| PemError::Content { path: path.into(), why: why.to_owned() };
    let read = read_text(path, FileSecrecy::Secret)?;
    match read.trim_end_matches(['\r', '\n']) {
        "" => Err(unfit("it has no password")),
        one if one.contains(char::is_control) => Err(unfit("it has more than one line with a password")),
        one => Ok(one.to_owned()),
    }
}

/// Base64 of a few bytes; too little to add a crate for.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut written = String::new();
    for three in bytes.chunks(3) {
        let number =
            (0..3).fold(0, |number, at| number << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = char::from(LETTERS[number >> shift & 63]);
            written.push(if at <= three.len() { letter } else { '=' });
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_acls(shown: Option<&str>, identities: &[&str]) -> NodeAcls {
        let identities = identities.iter().map(|&one| one.to_owned()).collect();
        NodeAcls {
            acls: Vec::new(),
            beside: Vec::new(),
            root: "/r".into(),
            identities,
            closed: true,
            shown: shown.map(str::to_owned),
        }
    }

    /// The digest for `super:super` is the one in ZooKeeper's own documentation.
    #[test]
    fn digest_identity_matches_zookeeper() {
        let meant = node_acls(Some("super:super"), &["x509:CN=b"])
            .intended_writers([("ip", "127.0.0.1"), ("digest", "super")].into_iter());
        assert_eq!(meant, ["digest:super:gG7s8t3oDEtIqF6DM9LlI/R+9Ss=", "x509:CN=b"]);
    }

    /// Nodes of this process are readable by everyone only outside the root, among the nodes of other programs.
    #[test]
    fn public_read_only_outside_root() {
        let reading = vec![Acl::new(Permission::READ, AuthId::anyone())];
        let access = NodeAcls { beside: reading, ..node_acls(None, &[]) };
        for (path, beside) in [("/r", 0), ("/r/locks/5c", 0), ("/app/7", 1), ("/ra", 1), ("/rx/r", 1)] {
            assert_eq!(access.acl_for(path).len(), beside, "{path}");
        }
    }

    #[test]
    fn base64_pads_every_length() {
        for (bytes, written) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), written);
        }
    }

    /// The identity of this process is the one that the server reports for its certificate; without a certificate
    /// there are no intended writers.
    #[test]
    fn x509_identity_comes_from_server() {
        let meant = node_acls(None, &[]).intended_writers([("x509", "CN=gw-1,O=Example")].into_iter());
        assert_eq!(meant, ["x509:CN=gw-1,O=Example"]);
        let nobody = node_acls(None, &["x509:CN=b"]).intended_writers([("ip", "127.0.0.1")].into_iter());
        assert_eq!(nobody, [""; 0]);
    }
}
