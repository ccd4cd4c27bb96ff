//! Reads the address of a listener: an IP address, or a Unix socket with its permissions.

use std::net::SocketAddr;

use super::{mapping::MappingReader, scalar, socket_path::parse_socket_path};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{BindAddress, UNIX, UnixSocketFile},
};

/// The default mode: only the user and the group of the process may connect.
const MODE: u32 = 0o660;

/// An address as it is written, without the mode of the socket.
enum ParsedAddress {
    Tcp(SocketAddr),
    Unix(String),
}

/// Reads `address` and `socket_mode` of the public listener.
pub(super) fn bind(block: &mut MappingReader) -> Option<BindAddress> {
    block.require("address", "address: 0.0.0.0:8080");
    let written = block.value("address", address);
    let mode = block.value("socket_mode", mode);
    match written? {
        ParsedAddress::Tcp(address) => {
            if block.is_present("socket_mode") {
                let fault = Diagnostic::new(
                    DiagnosticCode::NoEffect,
                    "`socket_mode` has no effect with an IP address",
                );
                block.report(
                    "socket_mode",
                    fault.with_remedy("leave it out, or write `address: unix:/run/...`"),
                );
            }
            Some(BindAddress::Tcp(address))
        }
        ParsedAddress::Unix(path) => {
            if block.is_present("tls") {
                let message = "TLS is not spoken on a unix socket: its bytes never leave this machine";
                let fault = Diagnostic::new(DiagnosticCode::UnixTls, message);
                let remedy =
                    "leave `tls` out: `socket_mode` says who may connect; or listen on an IP address";
                block.report("tls", fault.with_remedy(remedy));
            }
            Some(BindAddress::Unix(UnixSocketFile { path: path.into(), mode: mode.unwrap_or(MODE) }))
        }
    }
}

fn address(text: &str) -> Result<ParsedAddress, Diagnostic> {
    match text.strip_prefix(UNIX) {
        Some(path) => Ok(ParsedAddress::Unix(parse_socket_path(text, path)?.to_owned())),
        None => scalar::address(text).map(ParsedAddress::Tcp),
    }
}

/// Reads a socket mode in octal, as `chmod` takes it. Its owner must be able to connect, because a new process
/// connects to find out whether another process still listens.
fn mode(text: &str) -> Result<u32, Diagnostic> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = if octal { u32::from_str_radix(text, 8).ok() } else { None };
    mode.filter(|mode| *mode <= 0o777 && mode & 0o200 != 0).ok_or_else(|| {
        let message = format!("`{text}` is not the mode of a socket that its own process can reach");
        let remedy = "write `0660` for user and group, `0600` for the user alone, or `0666` for everybody on this machine";
        Diagnostic::new(DiagnosticCode::BadSocketMode, message).with_remedy(remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mode of a socket is octal and permits its owner to write, which a connection needs.
    #[test]
    fn socket_mode_is_octal_with_owner() {
        for (text, good) in
            [("0660", 0o660), ("660", 0o660), ("0600", 0o600), ("0222", 0o222), ("777", 0o777)]
        {
            assert_eq!(mode(text), Ok(good));
        }
        for bad in ["", "0", "66", "0o660", "0680", "1777", "06600", "0060", "rw-rw----", "-660"] {
            assert_eq!(mode(bad).expect_err("bad").code, DiagnosticCode::BadSocketMode, "{bad}");
        }
    }
}
