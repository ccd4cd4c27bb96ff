//! Reads the identity of a client from its certificate.

use aws_lc_rs::digest::{SHA256, digest};
use x509_cert::{
    Certificate,
    der::{Decode, oid::ObjectIdentifier},
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use crate::connection_info::ClientCertIdentity;

/// Reads a certificate that was already verified. A field that cannot be read stays empty; the fingerprint is always
/// there.
pub(super) fn parse_identity(certificate: &[u8]) -> ClientCertIdentity {
    let fingerprint =
        digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let read = Certificate::from_der(certificate).ok();
    let subject = read.as_ref().map(|read| read.tbs_certificate.subject.to_string()).unwrap_or_default();
    let common_names = read.as_ref().map(common_names).unwrap_or_default();
    ClientCertIdentity {
        subject,
        common_names,
        names: read.as_ref().map(alternative_names).unwrap_or_default(),
        fingerprint,
    }
}

/// The attribute `commonName` of X.520.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The common names are read from the attributes: in the text of a subject `O=x,CN=y` may be a part of one name.
fn common_names(certificate: &Certificate) -> Vec<String> {
    let parts = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let common = parts.filter(|part| part.oid == COMMON_NAME);
    // If one name is not valid UTF-8, there are none: a certificate with two names must not pass for one with one name,
    // and a name with its bytes replaced could be that of another client.
    let names = common.map(|part| String::from_utf8(part.value.value().to_vec()));
    names.collect::<Result<_, _>>().unwrap_or_default()
}

/// The alternative names of the kinds by which a policy can name a client.
fn alternative_names(certificate: &Certificate) -> Vec<String> {
    let Ok(Some((_, SubjectAltName(names)))) = certificate.tbs_certificate.get::<SubjectAltName>() else {
        return Vec::new();
    };
    let known = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(format!("DNS:{name}")),
        GeneralName::Rfc822Name(name) => Some(format!("email:{name}")),
        GeneralName::UniformResourceIdentifier(name) => Some(format!("URI:{name}")),
        _ => None,
    };
    names.iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use fencegate_process::pem::not_after;

    use super::*;

    #[test]
    fn identity_has_subject_names_and_fingerprint() {
        let key = rcgen::KeyPair::generate().expect("randomness");
        let mut params = rcgen::CertificateParams::new(vec!["pay.example".to_owned()]).expect("a name");
        params.distinguished_name.push(rcgen::DnType::CommonName, "till 7");
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let certificate = params.self_signed(&key).expect("sound");
        let ClientCertIdentity { subject, common_names, names, fingerprint } =
            parse_identity(certificate.der());
        assert!(subject.contains("CN=till 7"), "{subject}");
        assert_eq!(common_names, ["till 7"]);
        assert_eq!(names, ["DNS:pay.example"]);
        assert_eq!(fingerprint.len(), 64);
        assert_eq!(not_after(certificate.der()), Some(1_927_843_200));
    }

    /// A name inside a value of the subject does not count: a client that may choose a part of its subject must not get
    /// the name of another client by that.
    #[test]
    fn name_inside_subject_value_is_ignored() {
        let key = rcgen::KeyPair::generate().expect("randomness");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "x,CN=batch.internal");
        params.distinguished_name.push(rcgen::DnType::CommonName, "guest,CN=batch.internal");
        let certificate = params.self_signed(&key).expect("sound");
        assert_eq!(parse_identity(certificate.der()).common_names, ["guest,CN=batch.internal"]);
    }

    /// If one of two common names cannot be read, the certificate has no name: the other one is not the only one.
    #[test]
    fn unreadable_common_name_voids_the_others() {
        let key = rcgen::KeyPair::generate().expect("randomness");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Qlice");
        params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![2, 5, 4, 11]), "batch.internal");
        let mut certificate = params.self_signed(&key).expect("sound").der().to_vec();
        // This turns the second attribute into a common name, and makes a byte of one name invalid. The signature does
        // not matter, because `parse_identity` gets verified certificates.
        let unit = certificate.windows(5).rposition(|bytes| bytes == [6, 3, 85, 4, 11]).expect("a unit");
        certificate[unit + 4] = 3;
        let both = parse_identity(&certificate);
        assert_eq!(both.common_names, ["Qlice", "batch.internal"]);
        let name = certificate.windows(5).rposition(|bytes| bytes == b"Qlice").expect("a name");
        certificate[name] = 0xff;
        let unreadable = parse_identity(&certificate);
        assert!(unreadable.common_names.is_empty(), "{unreadable:?}");
    }

    #[test]
    fn invalid_certificate_has_only_fingerprint() {
        let ClientCertIdentity { subject, common_names, names, fingerprint } = parse_identity(b"nothing");
        assert_eq!((subject.as_str(), common_names.len(), names.len(), fingerprint.len()), ("", 0, 0, 64));
        assert_eq!(not_after(b"nothing"), None);
    }
}
