//! Where a process tells about itself, and who is let in there.

use std::{net::SocketAddr, path::PathBuf};

use super::{ClientAuth, ServedTls};
use crate::host::{CanonicalHost, Served};

/// The admin listener. What is set is asked for, and where both a token and a certificate are, both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    pub address: SocketAddr,
    /// Names that requests may come under, beside `localhost` and addresses.
    pub hosts: Vec<Served>,
    /// The file of the token that requests carry as `Authorization: Bearer`.
    pub bearer: Option<PathBuf>,
    /// `None` for plain text.
    pub tls: Option<ServedTls>,
}

impl Admin {
    /// Not everybody who reaches it is let in.
    pub fn asks_who(&self) -> bool {
        self.bearer.is_some() || self.asks_for_certificates()
    }

    fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| matches!(tls.client_auth, ClientAuth::Required(_)))
    }

    /// Whether a request under this host is meant for it. A page of somebody else that has had its name lead here (DNS
    /// rebinding) comes under that name; no such page comes under an address.
    pub fn is_meant_by(&self, host: &CanonicalHost) -> bool {
        let name = host.name();
        name == "localhost" || host.is_address() || self.hosts.iter().any(|served| served.is(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_somebody_else_can_own_is_not_meant() {
        let hosts = ["admin.internal", "*.gw.internal"];
        let admin = Admin {
            address: ([127, 0, 0, 1], 9901).into(),
            hosts: hosts.iter().map(|host| Served::parse(host).expect(host)).collect(),
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
            assert_eq!(admin.is_meant_by(&host), meant, "{}", host.as_str());
        }
    }
}
