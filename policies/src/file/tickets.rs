//! Reads the keys of tickets: the key that a gateway signs with, and the keys that a guard verifies with.

use std::path::PathBuf;

use super::{mapping::MappingReader, one_of::exactly_one, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    host::CanonicalHost,
    plan::{TicketSigningKey, TicketVerificationKeys},
};

/// Reads the signing key, and the file with the public keys of other gateways. `None` if the gateway sends no
/// tickets.
pub(super) fn parse_ticket_signing(
    policy: &mut MappingReader,
) -> Option<(TicketSigningKey, Option<PathBuf>)> {
    let read = |block: &mut MappingReader| {
        let example = "write `{signing_key_file: /run/secrets/fencegate-ed25519}`";
        let chosen = exactly_one(block, &["signing_key_file", "secret_file"], example);
        let key = block.value("signing_key_file", scalar::file).map(TicketSigningKey::Ed25519);
        let secret = block.value("secret_file", scalar::file).map(TicketSigningKey::Secret);
        let public_keys = block.value("public_keys_file", scalar::file);
        Some((chosen.and(key.or(secret))?, public_keys))
    };
    policy.is_present("tickets").then(|| policy.read_inner("tickets", read)).flatten().flatten()
}

/// Reads the verification keys. `None` if no tickets are required, which gets a warning.
pub(super) fn parse_ticket_verification(guard: &mut MappingReader) -> Option<TicketVerificationKeys> {
    if !guard.is_present("tickets") {
        let message = "without `tickets`, whoever reaches the guard can make up a token and shut others out";
        let remedy = "add `tickets: {public_keys_file: /etc/fencegate/ticket-keys.json}`";
        guard.report("tickets", Diagnostic::new(DiagnosticCode::NoTickets, message).with_remedy(remedy));
        return None;
    }
    guard.read_inner("tickets", |block| {
        let example = "write `{public_keys_file: /etc/fencegate/ticket-keys.json}`";
        let chosen = exactly_one(block, &["public_keys_file", "jwks_url", "secret_file"], example);
        let keys = block.value("public_keys_file", scalar::file).map(TicketVerificationKeys::PublicKeys);
        let jwks = block.value("jwks_url", url).map(TicketVerificationKeys::Jwks);
        let secret = block.value("secret_file", scalar::file).map(TicketVerificationKeys::Secret);
        chosen.and(keys.or(jwks).or(secret))
    })?
}

/// Reads `http://host:port/path`. The URL is kept as written.
fn url(text: &str) -> Result<String, Diagnostic> {
    if text.strip_prefix("http://").is_some_and(is_authority_and_path) {
        return Ok(text.to_owned());
    }
    Err(bad_url(text).with_remedy("write `http://host:port/path`; a file is safer: `public_keys_file`"))
}

/// Reads `https://host:port/path` or `http://host:port/path`. The URL is kept as written.
pub(super) fn key_set_url(text: &str) -> Result<String, Diagnostic> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_some_and(is_authority_and_path) {
        return Ok(text.to_owned());
    }
    Err(bad_url(text).with_remedy("write `https://host:port/path`, without a user and without `#`"))
}

fn bad_url(text: &str) -> Diagnostic {
    Diagnostic::new(DiagnosticCode::BadUrl, format!("`{text}` is not the address of a key set"))
}

/// Whether the rest of a URL is a host, a port and a path. `rest`: the URL without its scheme.
fn is_authority_and_path(rest: &str) -> bool {
    let is_visible = rest.bytes().all(|byte| byte.is_ascii_graphic());
    let (host, path) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or_default();
    let is_reached = CanonicalHost::parse(host).is_ok_and(|host| host.port() != Some(0));
    is_visible && is_reached && !path.contains('#')
}
