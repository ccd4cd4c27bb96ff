//! Reads the listener for other gateways.

use std::net::SocketAddr;

use super::{
    diagnostics::Diagnostics,
    listener_conflicts::{ConfiguredListener, ListenerAddressOrigin},
    mapping::MappingReader,
    scalar,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, Severity, SourceSpan},
    host::CanonicalHost,
    plan::{CertificateFiles, PeerListenerSettings, PeerTls},
};

/// The peer listener, as far as it could be read.
#[derive(Default)]
pub(super) struct ParsedPeerListener {
    /// The listener; `None` if the file has no `peer`, or if a mistake in it has been reported.
    pub(super) peer: Option<PeerListenerSettings>,
    address: Option<(SocketAddr, SourceSpan)>,
    /// The place of the address, if the listener speaks plain text on the network.
    plain: Option<SourceSpan>,
}

impl ParsedPeerListener {
    pub(super) fn configured_listener(&self) -> Option<ConfiguredListener> {
        let (address, place) = self.address?;
        Some(ConfiguredListener {
            what: "the peer listener".into(),
            field: "peer",
            address,
            at: ListenerAddressOrigin::Written(place),
        })
    }

    /// Warns if another gateway sends the name of a client as plain text. Called if some route reads such names.
    pub(super) fn warn_plain_client_names(&self, faults: &Diagnostics) {
        let Some(place) = self.plain else { return };
        let message = "with the pass that crosses the network here as plain text, anybody sends requests in the name of any client";
        let remedy = "add `tls: {certificate_file: ..., key_file: ..., ca_file: ...}`";
        faults.push(Diagnostic::new(DiagnosticCode::PlainClientName, message).at(place).with_remedy(remedy));
    }
}

pub(super) fn peer(file: &mut MappingReader) -> ParsedPeerListener {
    // If the section is absent, no mistake in its parts must be reported.
    let written = file.is_present("peer");
    written.then(|| file.read_inner("peer", parse_peer_listener)).flatten().unwrap_or_default()
}

fn parse_peer_listener(block: &mut MappingReader) -> ParsedPeerListener {
    block.require("address", "address: 0.0.0.0:9910");
    let address = block.value("address", scalar::address);
    let written = block.value("advertise", advertised);
    let advertise = advertised_address(block, address, written);
    let tls = tls(block);
    let place = block.place_of("address");
    let is_plain = address.is_some_and(|address| !address.ip().is_loopback()) && !block.is_present("tls");
    if is_plain {
        warn_plain_text(block);
    }
    let peer = || Some(PeerListenerSettings { address: address?, advertise: advertise?, tls: tls? });
    ParsedPeerListener {
        peer: peer(),
        address: address.map(|address| (address, place)),
        plain: is_plain.then_some(place),
    }
}

/// Reads the address to which other gateways connect: a host name or an IP address, and a port.
fn advertised(text: &str) -> Result<CanonicalHost, Diagnostic> {
    let bad = |remedy: String| {
        let message = format!("`{text}` is not a host and a port, which other gateways could connect to");
        Err(Diagnostic::new(DiagnosticCode::BadAdvertise, message).with_remedy(remedy))
    };
    let bare = text.split_once("://").map_or(text, |(_, bare)| bare);
    let bare = bare.split('/').next().unwrap_or_default();
    match CanonicalHost::parse(bare) {
        Ok(host) if host.port() == Some(0) => bad("write the port that they reach, not `0`".into()),
        Ok(host) if host.port().is_none() => bad(format!("add the port: `{}:9910`", host.name())),
        Ok(host) if bare != text => bad(format!("write `{}`, without a scheme and a path", host.as_str())),
        Ok(host) => Ok(host),
        Err(_) if bare.matches(':').count() > 1 && !bare.contains('[') => {
            bad("an IPv6 address stands in brackets: `\"[fd00::7]:9910\"`".into())
        }
        Err(_) => bad("write `gw-1.internal:9910`".into()),
    }
}

/// The address for other gateways: `advertise`, or `address` if other gateways can connect to it.
fn advertised_address(
    block: &mut MappingReader,
    address: Option<SocketAddr>,
    written: Option<CanonicalHost>,
) -> Option<String> {
    if let Some(written) = written {
        if let Some(address) = address {
            warn_unreachable(block, address, &written);
        }
        return Some(written.as_str().to_owned());
    }
    let address = address?;
    if block.is_present("advertise") {
        return None;
    }
    if !address.ip().is_unspecified() && address.port() != 0 {
        return Some(address.to_string());
    }
    let port = if address.port() == 0 { 9910 } else { address.port() };
    let message = format!("`peer` has no `advertise`, and other gateways cannot connect to `{address}`");
    let remedy =
        format!("add `advertise: gw-1.internal:{port}`, with the name by which they reach this machine");
    block.report("address", Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(remedy));
    None
}

/// Reports an advertised address that leads other gateways to themselves, or nowhere.
fn warn_unreachable(block: &mut MappingReader, address: SocketAddr, written: &CanonicalHost) {
    let ip = written.ip();
    let nowhere = ip.is_some_and(|ip| ip.is_unspecified());
    let itself = written.name() == "localhost"
        || written.name().ends_with(".localhost")
        || ip.is_some_and(|ip| ip.is_loopback());
    let port = written.port().unwrap_or_default();
    let (reason, remedy) = if nowhere {
        ("is no address that one could connect to", format!("write `gw-1.internal:{port}`"))
    } else if itself && !address.ip().is_loopback() {
        let remedy =
            format!("write `gw-1.internal:{port}`, or an `address` on loopback where all run on one machine");
        ("leads every other machine to itself", remedy)
    } else {
        return;
    };
    let message = format!("other gateways cannot reach this one: `{}` {reason}", written.as_str());
    let mut fault = Diagnostic::new(DiagnosticCode::NotReached, message);
    if nowhere {
        fault.severity = Severity::Error;
    }
    block.report("advertise", fault.with_remedy(remedy));
}

/// Warns of a plain-text listener on the network: forwarded requests contain bodies, and the secret that admits
/// peers.
fn warn_plain_text(block: &mut MappingReader) {
    let message =
        "requests from other gateways, and the pass that lets them in, cross the network as plain text";
    let remedy = "add `tls: {certificate_file: ..., key_file: ..., ca_file: ...}`";
    block.report("address", Diagnostic::new(DiagnosticCode::PlainPeer, message).with_remedy(remedy));
}

/// Reads `tls`: `Some(None)` if it is absent, `None` if it is invalid, which has been reported.
fn tls(peer: &mut MappingReader) -> Option<Option<PeerTls>> {
    if !peer.is_present("tls") {
        return Some(None);
    }
    let read = peer.read_inner("tls", |block| {
        block.require("certificate_file", "certificate_file: /etc/fencegate/peer.pem");
        block.require("key_file", "key_file: /etc/fencegate/peer.key");
        block.require("ca_file", "ca_file: /etc/fencegate/peers.pem");
        let certificate = block.value("certificate_file", scalar::file);
        let key = block.value("key_file", scalar::file);
        let ca_file = block.value("ca_file", scalar::file);
        Some(PeerTls { pair: CertificateFiles { certificate: certificate?, key: key? }, ca_file: ca_file? })
    });
    read.flatten().map(Some)
}
