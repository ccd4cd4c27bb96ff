//! The name of a client whose certificate the listener has verified.

use crate::words::words;

/// Which name in a certificate is the name of its client. A certificate that has no name of the kind, or more than one,
/// gives its client no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientNameKind {
    /// The alternative name that is a URI, such as a SPIFFE ID.
    Uri,
    /// The alternative name that is a DNS name, in lower case.
    Dns,
    /// The common name of the subject.
    CommonName,
}

words! { ClientNameKind { Uri = "uri", Dns = "dns", CommonName = "cn" } }
