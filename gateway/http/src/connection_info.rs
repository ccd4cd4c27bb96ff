//! The facts about the remote end of a client's connection.

use std::{
    cell::OnceCell,
    net::{IpAddr, SocketAddr},
};

use fencegate_policies::client_name::{CertificateNameKind, ClientName};
use hyper::header::HeaderValue;

/// The remote end of a connection, as the connection itself shows it. Header fields in which a proxy names its client
/// are not considered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The remote address.
    pub address: SocketAddr,
    /// The local address that the client has connected to.
    pub local: SocketAddr,
    /// The facts of the TLS handshake; `None` for plain text.
    pub tls: Option<Box<TlsInfo>>,
    /// The IP address as the value of a field. It is created once, because every request of the connection needs it.
    written: OnceCell<HeaderValue>,
}

/// The facts from a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    /// The server name that the client requested.
    pub server_name: Option<String>,
    /// The client's verified certificate, if the listener requests one and the client has shown one.
    pub client: Option<ClientCertIdentity>,
    /// The client's name in that certificate, if the policy sets the kind of name that counts: see
    /// [`ClientCertIdentity::name`].
    pub client_name: Option<ClientName>,
}

/// The identity in a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertIdentity {
    /// The subject in the form of RFC 4514. For display only, because a part of it may look like another part.
    pub subject: String,
    /// The common names of the subject, unchanged.
    pub common_names: Vec<String>,
    /// The alternative names of the certificate, each with its kind: `DNS:`, `URI:` or `email:`.
    pub names: Vec<String>,
    /// SHA-256 of the certificate, in lower-case hex.
    pub fingerprint: String,
}

impl ClientCertIdentity {
    /// The name of the client. `None` if the certificate has no name of this kind, several, or one that is not valid.
    pub fn name(&self, kind: CertificateNameKind) -> Option<ClientName> {
        let alternative =
            |prefix: &str| only_one(self.names.iter().filter_map(|name| name.strip_prefix(prefix)));
        let name = match kind {
            CertificateNameKind::Uri => alternative("URI:"),
            CertificateNameKind::Dns => alternative("DNS:"),
            CertificateNameKind::CommonName => only_one(self.common_names.iter().map(String::as_str)),
        }?;
        ClientName::new(kind, name)
    }
}

/// Returns the value of an iterator that yields exactly one; `None` for any other number.
fn only_one<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

impl ConnectionInfo {
    /// Makes the info of a connection without TLS; [`Self::with_tls`] adds TLS.
    pub fn new(address: SocketAddr, local: SocketAddr) -> Self {
        Self { address, local, tls: None, written: OnceCell::new() }
    }

    /// Replaces the address by that of the client that a trusted proxy names.
    #[must_use]
    pub(crate) fn with_client_address(self, client: SocketAddr) -> Self {
        Self { tls: self.tls, ..Self::new(client, self.local) }
    }

    /// Adds the facts of a TLS handshake.
    #[must_use]
    pub fn with_tls(self, handshake: TlsInfo) -> Self {
        Self { tls: Some(Box::new(handshake)), ..self }
    }

    /// The identity in the client's certificate, if the client has shown one.
    pub fn certificate(&self) -> Option<&ClientCertIdentity> {
        self.tls.as_ref()?.client.as_ref()
    }

    /// The client's name in its certificate, if the policy sets the kind of name that counts.
    pub fn client_name(&self) -> Option<&ClientName> {
        self.tls.as_ref()?.client_name.as_ref()
    }

    /// The remote IP address. An IPv4-mapped IPv6 address is returned as IPv4.
    pub fn ip(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// The remote IP address as the value of a header field.
    pub fn ip_header(&self) -> &HeaderValue {
        self.written.get_or_init(|| {
            HeaderValue::try_from(self.ip().to_string()).expect("an address is visible ASCII")
        })
    }

    /// The scheme: `https` with TLS, otherwise `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(common_names: &[&str], names: &[&str]) -> ClientCertIdentity {
        let texts = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        ClientCertIdentity {
            subject: String::new(),
            common_names: texts(common_names),
            names: texts(names),
            fingerprint: String::new(),
        }
    }

    /// A client's name is the single name of the kind that counts, whatever other names its certificate has.
    #[test]
    fn client_has_only_name_of_kind() {
        let all =
            identity(&["till 7"], &["DNS:Till-7.Shop.Example", "URI:spiffe://shop/Till/7", "email:a@b"]);
        for (kind, name) in [
            (CertificateNameKind::Uri, "spiffe://shop/Till/7"),
            (CertificateNameKind::Dns, "till-7.shop.example"),
            (CertificateNameKind::CommonName, "cn:till 7"),
        ] {
            assert_eq!(all.name(kind).as_ref().map(ClientName::as_str), Some(name), "{kind:?}");
            assert_eq!(identity(&[], &[]).name(kind), None, "{kind:?}");
        }
        // A DNS name in the form of a URI is not a name of the kind URI.
        assert_eq!(identity(&["URI:a"], &["DNS:URI:a"]).name(CertificateNameKind::Uri), None);
    }

    /// A certificate with two names of the kind, or with a name that two readers may read differently, gives no name.
    #[test]
    fn ambiguous_name_is_none() {
        for names in [
            &["URI:spiffe://a", "URI:spiffe://b"][..],
            &["URI:spiffe://a", "URI:spiffe://a"],
            &["URI:"],
            &["URI: spiffe://a"],
            &["URI:spiffe://a/\r\nb"],
            &["URI:a"],
        ] {
            assert_eq!(identity(&[], names).name(CertificateNameKind::Uri), None, "{names:?}");
        }
        assert_eq!(identity(&[], &["DNS:*.shop.example"]).name(CertificateNameKind::Dns), None);
        assert_eq!(identity(&["a", "b"], &[]).name(CertificateNameKind::CommonName), None);
    }
}
