//! Reads the ZooKeeper settings. Reports timing with which a session deadline would not be certain.

use std::time::Duration;

use super::{mapping::MappingReader, scalar, tls};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{AclMode, ClientTls, DigestCredential, ZooKeeperSettings},
};

pub(super) fn zookeeper(policy: &mut MappingReader) -> Option<ZooKeeperSettings> {
    policy.require("zookeeper", "zookeeper: {servers: [zk1:2181, zk2:2181, zk3:2181]}");
    // If the section is absent, no mistake in its parts must be reported.
    policy.is_present("zookeeper").then(|| policy.read_inner("zookeeper", parse_zookeeper_settings)).flatten()
}

/// Reads the fields of `zookeeper`. Invalid servers are left out; they were reported, so the file has no
/// plan.
fn parse_zookeeper_settings(block: &mut MappingReader) -> ZooKeeperSettings {
    let servers = servers(block);
    let zookeeper = ZooKeeperSettings {
        servers: servers.unwrap_or_default(),
        root: block.value("root", scalar::root).unwrap_or_else(|| "/fencegate".into()),
        session_timeout: block
            .value("session_timeout", scalar::time_limit)
            .unwrap_or(Duration::from_secs(12)),
        tick: block.value("tick", scalar::time_limit).unwrap_or(Duration::from_secs(2)),
        safety_margin: block.value("safety_margin", scalar::duration),
        sessions: block.value("sessions", sessions).unwrap_or(4),
        acl: block.keyword("acl", AclMode::WORDS).unwrap_or_default(),
        identities: block.values("identities", parse_acl_identity).unwrap_or_default(),
        tls: tls(block),
        digest: parse_digest_credential(block),
    };
    check_acl(block, &zookeeper);
    warn_thin_margin(block, &zookeeper);
    warn_short_session(block, &zookeeper);
    warn_beyond_ticks(block, &zookeeper);
    zookeeper
}

fn servers(block: &mut MappingReader) -> Option<Vec<String>> {
    block.require("servers", "servers: [zk1:2181, zk2:2181, zk3:2181]");
    let servers = block.values("servers", scalar::server)?;
    if servers.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::MissingField, "the list of ZooKeeper servers is empty");
        block.report("servers", fault.with_remedy("write `[zk1:2181, zk2:2181, zk3:2181]`"));
    }
    Some(servers)
}

/// Reads an ACL identity `scheme:id` of a scheme that identifies a client. Only the server interprets the
/// part after the colon.
fn parse_acl_identity(text: &str) -> Result<String, Diagnostic> {
    let known = |scheme, id: &str| match scheme {
        "x509" | "sasl" | "ip" => !id.is_empty(),
        "digest" => id.split_once(':').is_some_and(|(user, digest)| !user.is_empty() && digest.len() == 28),
        _ => false,
    };
    match text.split_once(':') {
        Some((scheme, id)) if known(scheme, id) && !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => {
            let message = format!("`{text}` is not an identity that ZooKeeper has");
            let remedy = "write `x509:CN=gw-2,O=Example`, with the whole name in the order in which ZooKeeper's log has it, or `digest:user:` and 28 characters, `sasl:name`, `ip:10.0.7.0/24`";
            Err(Diagnostic::new(DiagnosticCode::BadIdentity, message).with_remedy(remedy))
        }
    }
}

fn parse_digest_credential(block: &mut MappingReader) -> Option<DigestCredential> {
    let written = block.is_present("digest");
    let read = |block: &mut MappingReader| {
        block.require("user", "user: fencegate");
        block.require("password_file", "password_file: /run/secrets/fencegate-zookeeper");
        let user = block.value("user", scalar::name);
        let password_file = block.value("password_file", scalar::file);
        Some(DigestCredential { user: user?, password_file: password_file? })
    };
    if written { block.read_inner("digest", read).flatten() } else { None }
}

/// Reports an ACL mode that does not fit the credentials.
fn check_acl(block: &mut MappingReader, zookeeper: &ZooKeeperSettings) {
    let certificate = zookeeper.tls.as_ref().is_some_and(|tls| tls.client.is_some());
    if zookeeper.acl == AclMode::Closed && !certificate && !block.is_present("digest") {
        let message = "`acl: closed` lets in who we are, and nothing says who that is";
        let remedy =
            "add `tls` with a `client_certificate_file`, or `digest` with `user` and `password_file`";
        block.report("acl", Diagnostic::new(DiagnosticCode::MissingField, message).with_remedy(remedy));
    }
    if zookeeper.acl != AclMode::Closed && block.is_present("identities") {
        let message = "`identities` has no effect while everybody may write";
        let remedy = "write `acl: closed`, or leave `identities` out";
        block.report("identities", Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
    }
    if block.is_present("digest") && !block.is_present("tls") {
        let message =
            "the password of `digest` goes over the wire with every connection, and TLS is not spoken";
        let remedy = "add `tls` with the `ca_file` of who signs the certificates of the servers";
        block.report("digest", Diagnostic::new(DiagnosticCode::PlainDigest, message).with_remedy(remedy));
    }
}

fn tls(block: &mut MappingReader) -> Option<ClientTls> {
    let secured = block.is_present("tls");
    // The field is read even if the section is absent, so that the schema contains it.
    block.read_inner("tls", tls::parse_host_verified_tls).filter(|_| secured)
}

fn sessions(text: &str) -> Result<usize, Diagnostic> {
    match scalar::count(text)? {
        sessions @ 1..=ZooKeeperSettings::MOST_SESSIONS => Ok(sessions),
        _ => Err(scalar::out_of_range(
            text,
            &format!("there may be 1 to {}", ZooKeeperSettings::MOST_SESSIONS),
        )),
    }
}

/// Warns of a margin that is smaller than two delays: a follower may expire a session one tick early, and a
/// heartbeat may be late by its own period.
fn warn_thin_margin(block: &mut MappingReader, zookeeper: &ZooKeeperSettings) {
    let session = zookeeper.session_timeout;
    let tick = zookeeper.tick;
    let least = ZooKeeperSettings::least_margin(session, tick);
    if let Some(margin) = zookeeper.safety_margin
        && margin < least
    {
        let message = format!(
            "a safety margin of {} is smaller than a heartbeat of {} and a tick of {}",
            scalar::format_duration(margin),
            scalar::format_duration(ZooKeeperSettings::heartbeat_interval(session)),
            scalar::format_duration(tick),
        );
        let fault = Diagnostic::new(DiagnosticCode::ThinMargin, message);
        block.report(
            "safety_margin",
            fault.with_remedy(format!("it has to be at least `{}`", round_up(least))),
        );
    }
}

fn warn_short_session(block: &mut MappingReader, zookeeper: &ZooKeeperSettings) {
    let session = zookeeper.session_timeout;
    let margin = zookeeper.margin(session);
    let heartbeat = ZooKeeperSettings::heartbeat_interval(session);
    let usable = session.saturating_sub(margin);
    if usable < heartbeat * 2 {
        let message = format!(
            "a session of {} less its safety margin of {} leaves {}: not two heartbeats of {}",
            scalar::format_duration(session),
            scalar::format_duration(margin),
            scalar::format_duration(usable),
            scalar::format_duration(heartbeat),
        );
        let fault = Diagnostic::new(DiagnosticCode::ShortSession, message);
        block.report(
            "session_timeout",
            fault.with_remedy("ask for a longer session, or lower the margin or the tick"),
        );
    }
}

/// Warns of a session timeout outside of the bounds that ZooKeeper has by default.
fn warn_beyond_ticks(block: &mut MappingReader, zookeeper: &ZooKeeperSettings) {
    let session = zookeeper.session_timeout;
    let tick = zookeeper.tick;
    let least = tick * 2;
    let most = tick * 20;
    if (least..=most).contains(&session) {
        return;
    }
    let message = format!(
        "a session of {} is asked for, and with a tick of {} ZooKeeper grants {} to {}, unless it is set up otherwise",
        scalar::format_duration(session),
        scalar::format_duration(tick),
        scalar::format_duration(least),
        scalar::format_duration(most),
    );
    let fault = Diagnostic::new(DiagnosticCode::BeyondTicks, message);
    let field = if block.is_present("session_timeout") { "session_timeout" } else { "tick" };
    block.report(
        field,
        fault.with_remedy("ask for a session between these, or write the ensemble's own `tick`"),
    );
}

/// The duration, rounded up to whole milliseconds, so that the value in a remedy is large enough.
fn round_up(duration: Duration) -> String {
    scalar::format_duration(duration + Duration::from_nanos(999_999))
}
