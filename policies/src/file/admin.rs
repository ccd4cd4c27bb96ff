//! Reads the admin listener, and warns of one that is open to the network.

use std::net::{Ipv4Addr, SocketAddr};

use super::{
    listener,
    listener_conflicts::{ConfiguredListener, ListenerAddressOrigin},
    mapping::MappingReader,
    scalar, served_tls,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    plan::AdminListenerSettings,
};

/// An admin listener, and the place of its address in the file.
pub(super) struct ParsedAdminListener {
    pub(super) admin: AdminListenerSettings,
    place: Option<SourceSpan>,
}

/// Reads the admin listener. `port`: the port of the default address, which is on loopback.
pub(super) fn admin(file: &mut MappingReader, port: u16) -> ParsedAdminListener {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let read = file.read_inner("admin", |block| {
        let address = block.value("address", scalar::address);
        let place = block.is_present("address").then(|| block.place_of("address"));
        let admin = AdminListenerSettings {
            address: address.unwrap_or(default),
            hosts: block.values("hosts", listener::served).unwrap_or_default(),
            bearer: bearer(block),
            tls: served_tls::tls(block),
        };
        warn_unauthenticated_admin(block, &admin);
        ParsedAdminListener { admin, place }
    });
    let nothing = || AdminListenerSettings { address: default, hosts: Vec::new(), bearer: None, tls: None };
    read.unwrap_or_else(|| ParsedAdminListener { admin: nothing(), place: None })
}

fn bearer(admin: &mut MappingReader) -> Option<std::path::PathBuf> {
    let written = admin.is_present("auth");
    let read = admin.read_inner("auth", |auth| {
        if written {
            auth.require("bearer_file", "bearer_file: /run/secrets/fencegate-admin");
        }
        auth.value("bearer_file", scalar::file)
    });
    read.flatten()
}

/// Warns of an admin listener on the network without authentication or without TLS, because a caller of it
/// can end the process and take locks away from their holders.
fn warn_unauthenticated_admin(block: &mut MappingReader, admin: &AdminListenerSettings) {
    if admin.address.ip().is_loopback() {
        return;
    }
    if !admin.requires_auth() {
        // A mistake in `auth` or `tls` was reported already; no second report is needed.
        let bad = ["auth", "tls"].into_iter().any(|field| block.is_present(field)) && admin.tls.is_none();
        let message = "the admin listener is open to the network without authentication";
        let remedy = format!(
            "write `127.0.0.1:{}`, or add `auth: {{bearer_file: /run/secrets/fencegate-admin}}` and `tls`",
            admin.address.port()
        );
        if !bad {
            block.report("address", Diagnostic::new(DiagnosticCode::OpenAdmin, message).with_remedy(remedy));
        }
    } else if admin.tls.is_none() && !block.is_present("tls") {
        let message =
            "the admin token crosses the network as plain text, and whoever reads it there can use it";
        let remedy = "add `tls: {certificates: [{certificate_file: ..., key_file: ...}]}`";
        block.report("auth", Diagnostic::new(DiagnosticCode::PlainToken, message).with_remedy(remedy));
    }
}

impl ParsedAdminListener {
    pub(super) fn configured_listener(&self) -> ConfiguredListener {
        let at = self.place.map_or(ListenerAddressOrigin::Default, ListenerAddressOrigin::Written);
        ConfiguredListener {
            what: "the admin listener".into(),
            field: "admin",
            address: self.admin.address,
            at,
        }
    }
}
