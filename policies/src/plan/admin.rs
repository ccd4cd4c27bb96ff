//! The admin listener of a process, and its credentials.

use std::{net::SocketAddr, path::PathBuf};

use serde::Serialize;

use super::{ClientCertificateMode, ListenerTls, shown};
use crate::host::{CanonicalHost, HostPattern};

/// The admin listener. Each credential that is configured is required; where both a token and a certificate are
/// configured, a request needs both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminListenerSettings {
    pub address: SocketAddr,
    /// Host names under which requests may come, beside `localhost` and IP addresses.
    #[serde(serialize_with = "shown::texts")]
    pub hosts: Vec<HostPattern>,
    /// The file of the token that requests carry as `Authorization: Bearer`.
    #[serde(rename = "auth", serialize_with = "shown::presence")]
    pub bearer: Option<PathBuf>,
    /// `None` for plain text.
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

    /// False for a request under a foreign host name. By DNS rebinding a page of another site can send requests here,
    /// but under the name of that site, and never under an address.
    pub fn accepts_host(&self, host: &CanonicalHost) -> bool {
        let name = host.name();
        name == "localhost" || host.is_address() || self.hosts.iter().any(|served| served.matches(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that another party can own is not accepted as a host of the admin listener.
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
