//! The admin listener of a process, and its credentials.

use std::{net::SocketAddr, path::PathBuf};

use serde::Serialize;

use super::{ClientCertificateMode, ListenerTls, shown};
use crate::host::{CanonicalHost, HostPattern};

/// The admin listener. Each configured credential is required; if both a token and a certificate are configured, a
/// request needs both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminListenerSettings {
    pub address: SocketAddr,
    /// The host names that requests may use, in addition to `localhost` and IP addresses.
    #[serde(serialize_with = "shown::texts")]
    pub hosts: Vec<HostPattern>,
    /// The file with the token that requests send as `Authorization: Bearer`.
    #[serde(rename = "auth", serialize_with = "shown::presence")]
    pub bearer: Option<PathBuf>,
    /// The TLS settings; `None` for plain text.
    pub tls: Option<ListenerTls>,
}

impl AdminListenerSettings {
    /// True if the listener requires a token or a certificate.
    pub fn requires_auth(&self) -> bool {
        self.bearer.is_some() || self.requires_certificate()
    }

    fn requires_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| matches!(tls.client_auth, ClientCertificateMode::Required(_)))
    }

    /// Whether a request may use this host name. By DNS rebinding a page of another site can send requests here, but
    /// only under the name of that site, and never under an IP address.
    pub fn accepts_host(&self, host: &CanonicalHost) -> bool {
        let name = host.name();
        name == "localhost" || host.is_address() || self.hosts.iter().any(|served| served.matches(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The admin listener accepts no host name that another party can own.
    #[test]
    fn foreign_host_name_is_rejected() {
        let hosts = ["admin.internal", "*.gw.internal"];
        let admin = AdminListenerSettings {
            address: ([127, 0, 0, 1], 9901).into(),
            hosts: hosts.iter().map(|host| HostPattern::parse(host).expect(host)).collect(),
            bearer: None,
            tls: None,
        };
        for (host, meant) in [
            ("127.0.0.1:9901", true),
            ("10.2.3.4", true),
            ("[::1]:9901", true),
            ("LocalHost:1", true),
            ("admin.internal:9901", true),
            ("a.gw.internal", true),
            ("evil.example:9901", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("1.2.3", false),
        ] {
            let host = CanonicalHost::parse(host).expect(host);
            assert_eq!(admin.accepts_host(&host), meant, "{}", host.as_str());
        }
    }
}
