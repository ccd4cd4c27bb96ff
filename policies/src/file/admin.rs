//! Reads the admin listener, and refuses one that everybody on the network may use.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{block::Block, listener, scalar, served_tls};
use crate::{
    diagnose::{Code, Diagnostic, Place},
    plan::Admin,
};

/// An admin listener, and where its address is written.
pub(super) struct Read {
    pub(super) admin: Admin,
    place: Option<Place>,
}

/// `port`: that of the default address, which is on loopback.
pub(super) fn admin(file: &mut Block, port: u16) -> Read {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let read = file.inner("admin", |block| {
        let address = block.value("address", scalar::address);
        let place = block.is_present("address").then(|| block.place_of("address"));
        let admin = Admin {
            address: address.unwrap_or(default),
            hosts: block.values("hosts", listener::served).unwrap_or_default(),
            bearer: bearer(block),
            tls: served_tls::tls(block),
        };
        open(block, &admin);
        Read { admin, place }
    });
    let nothing = || Admin { address: default, hosts: Vec::new(), bearer: None, tls: None };
    read.unwrap_or_else(|| Read { admin: nothing(), place: None })
}

fn bearer(admin: &mut Block) -> Option<std::path::PathBuf> {
    let written = admin.is_present("auth");
    let read = admin.inner("auth", |auth| {
        if written {
            auth.require("bearer_file", "bearer_file: /run/secrets/fencegate-admin");
        }
        auth.value("bearer_file", scalar::file)
    });
    read.flatten()
}

/// Whoever reaches it can end the process and give the keys of others away.
fn open(block: &mut Block, admin: &Admin) {
    if admin.address.ip().is_loopback() {
        return;
    }
    if !admin.asks_who() {
        // Of a bad part there is a fault already.
        let bad = ["auth", "tls"].into_iter().any(|field| block.is_present(field)) && admin.tls.is_none();
        let message = "the admin listener is open to the network without authentication";
        let remedy = format!(
            "write `127.0.0.1:{}`, or add `auth: {{bearer_file: /run/secrets/fencegate-admin}}` and `tls`",
            admin.address.port()
        );
        if !bad {
            block.fault("address", Diagnostic::new(Code::OpenAdmin, message).remedy(remedy));
        }
    } else if admin.tls.is_none() && !block.is_present("tls") {
        let message =
            "the admin token crosses the network as plain text, and whoever reads it there can use it";
        let remedy = "add `tls: {certificates: [{certificate_file: ..., key_file: ...}]}`";
        block.fault("auth", Diagnostic::new(Code::PlainToken, message).remedy(remedy));
    }
}

impl Read {
    /// Two listeners cannot have one address. `public` is that of the other one, which stands in `field`.
    pub(super) fn clash(&self, file: &mut Block, field: &'static str, public: SocketAddr) {
        let admin = self.admin.address;
        if admin.port() == 0 || admin.port() != public.port() || !overlap(admin.ip(), public.ip()) {
            return;
        }
        let message = format!("the admin listener and `{field}` both listen on port {}", admin.port());
        let fault = Diagnostic::new(Code::SameAddress, message);
        match self.place {
            Some(place) => file.fault_at(place, fault.remedy("give the admin listener a port of its own")),
            None => {
                let remedy = format!(
                    "`admin` is not written, and listens on `{admin}`: give one of them another port"
                );
                file.fault(field, fault.remedy(remedy));
            }
        }
    }
}

fn overlap(one: IpAddr, other: IpAddr) -> bool {
    one == other || one.is_unspecified() || other.is_unspecified()
}
