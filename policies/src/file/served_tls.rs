//! Reads how TLS is spoken on a listener.

use super::{mapping::MappingReader, scalar, yaml::YamlNode};
use crate::{
    client_name::CertificateNameKind,
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{CertificateFiles, ClientCertificateMode, ListenerTls, TlsVersion},
};

/// Reads the TLS settings of a listener whose clients need no names. `None` if the listener speaks plain text, or if a
/// mistake has been reported.
pub(super) fn tls(listener: &mut MappingReader) -> Option<ListenerTls> {
    parse_tls(listener, |_| None)
}

/// Reads the TLS settings of a listener whose client names are read by templates and rules.
pub(super) fn tls_with_client_names(listener: &mut MappingReader) -> Option<ListenerTls> {
    parse_tls(listener, client_name)
}

fn parse_tls(
    listener: &mut MappingReader,
    client_name: fn(&mut MappingReader) -> Option<CertificateNameKind>,
) -> Option<ListenerTls> {
    let written = listener.is_present("tls");
    let read = listener.read_inner("tls", |block| {
        let certificates = certificates(block, written);
        let client_auth = client_auth(block);
        let client_name = client_name(block);
        let min_version = block.keyword("min_version", TlsVersion::WORDS).unwrap_or(TlsVersion::Tls12);
        Some(ListenerTls { certificates: certificates?, client_auth, client_name, min_version })
    });
    read.flatten().filter(|_| written)
}

fn client_name(block: &mut MappingReader) -> Option<CertificateNameKind> {
    let kind = block.keyword("client_name", CertificateNameKind::WORDS);
    if block.is_present("client_name") && !block.is_present("client_auth") {
        let message = "`client_name` has no effect while clients are not asked for a certificate";
        let remedy = "add `client_auth: optional` or `required`, and `client_ca_file`";
        block.report("client_name", Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
    }
    kind
}

fn certificates(block: &mut MappingReader, written: bool) -> Option<Vec<CertificateFiles>> {
    let nodes = block.list("certificates").unwrap_or_default();
    if nodes.is_empty() && written {
        let fault =
            Diagnostic::new(DiagnosticCode::MissingField, "a listener with `tls` shows no certificate");
        let example = "add `certificates: [{certificate_file: /etc/fencegate/tls.pem, key_file: /etc/fencegate/tls.key}]`";
        block.report("certificates", fault.with_remedy(example));
    }
    let pairs: Vec<Option<CertificateFiles>> =
        nodes.iter().map(|node| certificate_files(block, node)).collect();
    pairs.into_iter().collect()
}

fn certificate_files(within: &MappingReader, node: &YamlNode) -> Option<CertificateFiles> {
    MappingReader::read(Some(node), "a certificate", node.place, within.faults(), |block| {
        block.require("certificate_file", "certificate_file: /etc/fencegate/tls.pem");
        block.require("key_file", "key_file: /etc/fencegate/tls.key");
        let certificate = block.value("certificate_file", scalar::file);
        let key = block.value("key_file", scalar::file);
        Some(CertificateFiles { certificate: certificate?, key: key? })
    })?
}

/// Whether clients may or must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientCertificateRequirement {
    Not,
    Optionally,
    Always,
}

fn client_auth(block: &mut MappingReader) -> ClientCertificateMode {
    let words = [
        (ClientCertificateMode::OFF, ClientCertificateRequirement::Not),
        (ClientCertificateMode::OPTIONAL, ClientCertificateRequirement::Optionally),
        (ClientCertificateMode::REQUIRED, ClientCertificateRequirement::Always),
    ];
    let mode = block.keyword("client_auth", &words).unwrap_or(ClientCertificateRequirement::Not);
    let authorities = block.value("client_ca_file", scalar::file);
    match (mode, authorities) {
        (ClientCertificateRequirement::Not, None) => ClientCertificateMode::Off,
        (ClientCertificateRequirement::Not, Some(_)) => {
            let message = "`client_ca_file` has no effect while clients are not asked for a certificate";
            let remedy = "add `client_auth: required`, or `optional`";
            block.report(
                "client_ca_file",
                Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy),
            );
            ClientCertificateMode::Off
        }
        (ClientCertificateRequirement::Optionally, Some(path)) => ClientCertificateMode::Optional(path),
        (ClientCertificateRequirement::Always, Some(path)) => ClientCertificateMode::Required(path),
        (_, None) => {
            // If `client_ca_file` is present but invalid, this was reported already.
            if !block.is_present("client_ca_file") {
                let message =
                    "clients are asked for a certificate, and it is not said whose signature counts";
                let remedy = "add `client_ca_file: /etc/fencegate/clients.pem`";
                block.report(
                    "client_auth",
                    Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(remedy),
                );
            }
            ClientCertificateMode::Off
        }
    }
}
