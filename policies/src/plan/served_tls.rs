//! The TLS settings of a listener.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::shown;
use crate::{client_name::CertificateNameKind, words::words};

/// The certificates that a listener shows to its clients, and those that it requires from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerTls {
    /// The certificates, at least one. A client that requests a name without a certificate gets the first.
    #[serde(serialize_with = "shown::count")]
    pub certificates: Vec<CertificateFiles>,
    pub client_auth: ClientCertificateMode,
    /// The kind of name in a client's certificate that is the client's name; `None` if clients have no names.
    pub client_name: Option<CertificateNameKind>,
    pub min_version: TlsVersion,
}

/// Two PEM files: a certificate with its chain, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Whether clients show a certificate, and the file of the CAs that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificateMode {
    Off,
    Optional(PathBuf),
    Required(PathBuf),
}

impl ClientCertificateMode {
    pub(crate) const OFF: &str = "off";
    pub(crate) const OPTIONAL: &str = "optional";
    pub(crate) const REQUIRED: &str = "required";
}

/// Serializes the word of a policy, without the path of the file.
impl Serialize for ClientCertificateMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Off => Self::OFF,
            Self::Optional(_) => Self::OPTIONAL,
            Self::Required(_) => Self::REQUIRED,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

words! { TlsVersion { Tls12 = "1.2", Tls13 = "1.3" } }
