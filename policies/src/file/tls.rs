//! Reads the endpoints of an upstream, and the TLS settings for an upstream, ZooKeeper or a database.

use std::sync::Arc;

use super::{
    mapping::MappingReader,
    scalar::{self, Scheme},
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    host::CanonicalHost,
    plan::{ClientCertificateFiles, ClientTls, UpstreamProtocol},
};

/// The endpoints of an upstream, and the TLS settings for them.
pub(super) struct EndpointsWithTls {
    pub(super) endpoints: Vec<Arc<str>>,
    pub(super) tls: Option<ClientTls>,
    pub(super) protocol: UpstreamProtocol,
}

/// Reads the TLS settings for `endpoints`. `field`: the field with the endpoints.
pub(super) fn parse_endpoints(
    block: &mut MappingReader,
    endpoints: Vec<(Scheme, String)>,
    field: &'static str,
) -> Option<EndpointsWithTls> {
    let https = endpoints.iter().filter(|(scheme, _)| *scheme == Scheme::Https).count();
    if https > 0 && https < endpoints.len() {
        let message = "some endpoints are `https://` and others are not";
        let fault = Diagnostic::new(DiagnosticCode::MixedSchemes, message);
        // Endpoints with and without TLS, or with and without sockets, are not mixed, because a request or
        // lock does not choose its endpoint.
        block.report(field, fault.with_remedy("make an upstream of each kind"));
    }
    let secured = https > 0;
    if !secured && block.is_present("tls") {
        let fault =
            Diagnostic::new(DiagnosticCode::NoEffect, "`tls` has no effect without an `https://` endpoint");
        block.report("tls", fault.with_remedy("write `https://` in the endpoints, or leave `tls` out"));
    }
    let tls = block.read_inner("tls", tls)?;
    let protocol = block.keyword("protocol", UpstreamProtocol::WORDS).unwrap_or_default();
    let endpoints = endpoints.into_iter().map(|(_, authority)| authority.into()).collect();
    Some(EndpointsWithTls { endpoints, tls: secured.then_some(tls), protocol })
}

fn tls(block: &mut MappingReader) -> ClientTls {
    let ca_file = block.value("ca_file", scalar::file);
    let server_name = block.value("server_name", server_name);
    ClientTls { ca_file, server_name, client: parse_client_certificate(block) }
}

/// Reads the TLS settings for a server whose certificate must always name the host of its address.
pub(super) fn parse_host_verified_tls(block: &mut MappingReader) -> ClientTls {
    let ca_file = block.value("ca_file", scalar::file);
    ClientTls { ca_file, server_name: None, client: parse_client_certificate(block) }
}

fn parse_client_certificate(block: &mut MappingReader) -> Option<ClientCertificateFiles> {
    let chain = block.value("client_certificate_file", scalar::file);
    let key = block.value("client_key_file", scalar::file);
    for (one, other) in
        [("client_certificate_file", "client_key_file"), ("client_key_file", "client_certificate_file")]
    {
        if block.is_present(one) && !block.is_present(other) {
            let message = format!("`{one}` is there without `{other}`");
            let fault = Diagnostic::new(DiagnosticCode::MissingField, message);
            block.report(one, fault.with_remedy(format!("add `{other}`: neither is of use alone")));
        }
    }
    chain.zip(key).map(|(chain, key)| ClientCertificateFiles { chain, key })
}

/// Reads a host as a certificate contains it: a name, or an IP address.
fn server_name(text: &str) -> Result<String, Diagnostic> {
    let host = CanonicalHost::parse(text).ok().filter(|host| host.port().is_none());
    host.map(|host| host.name().to_owned()).ok_or_else(|| {
        let fault =
            Diagnostic::new(DiagnosticCode::BadServerName, format!("`{text}` is not the name of a server"));
        fault.with_remedy("write the host as it stands in the certificate, such as `orders.internal`")
    })
}
