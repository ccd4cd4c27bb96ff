//! Who a client says it is, and has proven to be, with its certificate.

use aws_lc_rs::digest::{SHA256, digest};
use x509_cert::{
    Certificate,
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use crate::peer::Identity;

/// Reads a certificate that was verified already. What cannot be read of it stays empty: the fingerprint names it all
/// the same.
pub(super) fn identity(certificate: &[u8]) -> Identity {
    let fingerprint =
        digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let read = Certificate::from_der(certificate).ok();
    let subject = read.as_ref().map(|read| read.tbs_certificate.subject.to_string()).unwrap_or_default();
    Identity { subject, names: read.as_ref().map(names).unwrap_or_default(), fingerprint }
}

/// Of the kinds that a client can be known by.
fn names(certificate: &Certificate) -> Vec<String> {
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
    fn a_client_is_known_by_subject_names_and_fingerprint() {
        let key = rcgen::KeyPair::generate().expect("randomness");
        let mut params = rcgen::CertificateParams::new(vec!["pay.example".to_owned()]).expect("a name");
        params.distinguished_name.push(rcgen::DnType::CommonName, "till 7");
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let certificate = params.self_signed(&key).expect("sound");
        let Identity { subject, names, fingerprint } = identity(certificate.der());
        assert!(subject.contains("CN=till 7"), "{subject}");
        assert_eq!(names, ["DNS:pay.example"]);
        assert_eq!(fingerprint.len(), 64);
        assert_eq!(not_after(certificate.der()), Some(1_927_843_200));
    }

    #[test]
    fn what_is_no_certificate_has_a_fingerprint_and_nothing_else() {
        let Identity { subject, names, fingerprint } = identity(b"nothing");
        assert_eq!((subject.as_str(), names.len(), fingerprint.len()), ("", 0, 64));
        assert_eq!(not_after(b"nothing"), None);
    }
}
