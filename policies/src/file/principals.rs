//! Reads the principals that may hold leases: the credential of each, and the keys that it may hold.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{mapping::MappingReader, one_of, scalar, yaml::YamlNode};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    plan::{
        BindAddress, ClientCertificateMode, KeyPattern, LeasePrincipal, ListenerSettings,
        ParseKeyPatternError, PrincipalCredential,
    },
};

/// A principal, with the place of its credential.
pub(super) struct ParsedPrincipal {
    pub(super) principal: LeasePrincipal,
    /// The place of the field with the credential.
    shown: SourceSpan,
}

/// The names and credentials of the principals that were read before.
#[derive(Default)]
struct DuplicatePrincipalCheck {
    names: HashSet<String>,
    /// For each credential, the name of its principal.
    shown: HashMap<PrincipalCredential, String>,
}

/// Reads the principals. The list is not empty; `None` if a mistake has been reported.
pub(super) fn principals(leases: &mut MappingReader) -> Option<Vec<ParsedPrincipal>> {
    leases.require(
        "principals",
        "principals: [{name: batch, bearer: {file: /run/secrets/batch}, keys: [\"job/*\"]}]",
    );
    let faults = leases.faults();
    let nodes = leases.list("principals")?;
    if nodes.is_empty() {
        let fault =
            Diagnostic::new(DiagnosticCode::NoPrincipal, "nobody may hold a lease: the list is empty");
        let remedy = "write who may, or leave `leases` out: `{name: batch, bearer: {file: /run/secrets/batch}, keys: [\"job/*\"]}`";
        leases.report("principals", fault.with_remedy(remedy));
        return None;
    }
    let mut taken = DuplicatePrincipalCheck::default();
    let read = |node: &YamlNode| {
        MappingReader::read(Some(node), "a principal", node.place, faults, |block| {
            principal(block, &mut taken)
        })?
    };
    // All principals are read before an invalid one is returned as `None`, so that each mistake is reported.
    let principals: Vec<Option<ParsedPrincipal>> = nodes.iter().map(read).collect();
    principals.into_iter().collect()
}

fn principal(block: &mut MappingReader, taken: &mut DuplicatePrincipalCheck) -> Option<ParsedPrincipal> {
    block.require("name", "name: batch");
    let name = block.value("name", scalar::name);
    if let Some(name) = &name
        && !taken.names.insert(name.clone())
    {
        let fault = Diagnostic::new(
            DiagnosticCode::SamePrincipal,
            format!("there is another principal `{name}` above"),
        );
        block.report("name", fault.with_remedy("logs, limits and `{principal}` need one name for each"));
    }
    let (shows, shown) = parse_credential(block).unzip();
    if let (Some(shows), Some(field), Some(name)) = (&shows, shown, &name) {
        check_duplicate(block, field, shows, name, taken);
    }
    let operator = block.keyword("operator", &[("true", true), ("false", false)]).unwrap_or_default();
    let keys = keys(block, name.as_deref(), operator);
    let shown = shown.map(|field| block.place_of(field))?;
    let principal = LeasePrincipal { name: name?.into(), shows: shows?, keys: keys?, operator };
    Some(ParsedPrincipal { principal, shown })
}

/// The credential of a principal, and the field that has it.
fn parse_credential(block: &mut MappingReader) -> Option<(PrincipalCredential, &'static str)> {
    let example = "add `bearer: {file: /run/secrets/batch}`, or `certificate: {name: batch.internal}`";
    let meant = one_of::exactly_one(block, &["bearer", "certificate"], example);
    let has = |field| meant == Some(field);
    let file = block.read_inner("bearer", |bearer| {
        if has("bearer") {
            bearer.require("file", "file: /run/secrets/batch");
        }
        bearer.value("file", scalar::file)
    });
    let certificate = block.read_inner("certificate", |certificate| {
        if has("certificate") {
            certificate.require("name", "name: batch.internal");
        }
        certificate.value("name", certificate_name)
    });
    let field = meant?;
    let shows = match field {
        "bearer" => PrincipalCredential::Bearer(file.flatten()?),
        _ => PrincipalCredential::Certificate(certificate.flatten()?.into()),
    };
    Some((shows, field))
}

fn check_duplicate(
    block: &mut MappingReader,
    field: &'static str,
    shows: &PrincipalCredential,
    name: &str,
    taken: &mut DuplicatePrincipalCheck,
) {
    let compared = match shows {
        PrincipalCredential::Bearer(file) => PrincipalCredential::Bearer(file.clone()),
        // Names in certificates may be DNS names, which are equal in upper and lower case.
        PrincipalCredential::Certificate(name) => {
            PrincipalCredential::Certificate(name.to_ascii_lowercase().into())
        }
    };
    if let Some(other) = taken.shown.get(&compared) {
        let message =
            format!("`{name}` and `{other}` show the same credential, so nobody can tell one from the other");
        let remedy = "give each a token or a certificate of its own, or make one principal of both";
        block.report(field, Diagnostic::new(DiagnosticCode::SamePrincipal, message).with_remedy(remedy));
    } else {
        taken.shown.insert(compared, name.to_owned());
    }
}

fn keys(block: &mut MappingReader, name: Option<&str>, operator: bool) -> Option<Vec<KeyPattern>> {
    block.require("keys", "keys: [\"job/*\"]");
    // If the name of the principal is invalid, its patterns are checked with a placeholder.
    let principal: Arc<str> = name.unwrap_or("principal").into();
    let keys = block.values("keys", |text| pattern(text, &principal))?;
    if keys.is_empty() && !operator {
        let fault =
            Diagnostic::new(DiagnosticCode::BadKeyPattern, "a principal without keys can hold no lease");
        let remedy = "write them, `keys: [\"job/*\"]`, or `operator: true` for one who looks after the leases of others";
        block.report("keys", fault.with_remedy(remedy));
        return None;
    }
    Some(keys)
}

fn pattern(text: &str, principal: &str) -> Result<KeyPattern, Diagnostic> {
    KeyPattern::parse(text, principal).map_err(|bad| {
        let remedy = match bad {
            ParseKeyPatternError::Empty => {
                "write a key such as `job/nightly`, or how keys begin: `job/*`".to_owned()
            }
            ParseKeyPatternError::OtherPrincipals => format!("write `{}/*`", text.trim_end_matches('*')),
            ParseKeyPatternError::StarWithin => {
                "a `*` stands for all that follows, and only at the end: `job/*`".to_owned()
            }
            ParseKeyPatternError::Variable => {
                "write `order/{principal}/*`, or the keys as they are".to_owned()
            }
            ParseKeyPatternError::Character | ParseKeyPatternError::TooLong => {
                "write keys as they stand in `Fencing-Key`; a space is `%20` there".to_owned()
            }
        };
        Diagnostic::new(DiagnosticCode::BadKeyPattern, format!("`{text}` is no pattern of keys: {bad}"))
            .with_remedy(remedy)
    })
}

/// Reads a name in a certificate: a common name, or an alternative name of any kind.
fn certificate_name(text: &str) -> Result<String, Diagnostic> {
    let good = (1..=255).contains(&text.len()) && text.trim() == text && !text.contains(char::is_control);
    if good && !text.contains('*') {
        return Ok(text.to_owned());
    }
    Err(Diagnostic::new(DiagnosticCode::BadName, format!("`{text}` is no name in a certificate"))
        .with_remedy(
            "write the whole common name, or one alternative name without its kind: `batch.internal`",
        ))
}

/// Reports credentials that cannot reach the gateway, or that cross the network as plain text.
pub(super) fn check_credentials(
    leases: &mut MappingReader,
    principals: &[ParsedPrincipal],
    listener: Option<&ListenerSettings>,
) {
    let Some(listener) = listener else { return };
    let verifies_clients =
        listener.tls.as_ref().is_some_and(|tls| tls.client_auth != ClientCertificateMode::Off);
    for ParsedPrincipal { principal, shown } in principals {
        if let PrincipalCredential::Certificate(_) = principal.shows
            && !verifies_clients
        {
            let message = format!(
                "`{}` is known by a certificate, and listener `{}` asks clients for none",
                principal.name, listener.name
            );
            let remedy =
                "add `client_auth: optional` and `client_ca_file` to the listener's `tls`, or write `bearer`";
            leases.report_at(
                *shown,
                Diagnostic::new(DiagnosticCode::NoCertificates, message).with_remedy(remedy),
            );
        }
    }
    // With trusted peers, a proxy may speak TLS with clients, so no warning is given.
    let beyond = matches!(listener.address, BindAddress::Tcp(address) if !address.ip().is_loopback());
    if beyond && listener.tls.is_none() && listener.trusted.is_empty() {
        let message = "the tokens of principals, and the secrets of leases, cross the network as plain text";
        let remedy =
            "add `tls` to the listener, or `trusted_peers` if a proxy before it speaks TLS with clients";
        leases.report("principals", Diagnostic::new(DiagnosticCode::PlainLease, message).with_remedy(remedy));
    }
}
