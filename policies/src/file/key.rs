//! Reads the keys of a fence, and reports variables that have no value.

use std::fmt;

use super::{
    diagnostics::Diagnostics,
    identities::VerifiedIdentities,
    mapping::MappingReader,
    only::partial_list_fault,
    yaml::{YamlNode, YamlNodeValue, YamlScalar},
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    key::{
        JsonPointer, KeyTemplate, KeyTemplateErrorKind, ParseKeyTemplateError, ResourceKey,
        TemplateValueFilter, TemplateValueSource, TemplateVariable, format_steps,
    },
    path::PathTemplate,
    plan::{ReservedHeaderNames, is_credential},
};

/// The context in which a template of a route is read.
pub(super) struct TemplateContext<'p> {
    pub(super) what: TemplateKind,
    /// The name of the route in messages.
    pub(super) route: &'p str,
    /// The path of the route; `None` if it is invalid, so that its variables are not known.
    pub(super) path: Option<&'p PathTemplate>,
    /// The header fields that are removed from a request before its key is made.
    pub(super) reserved: &'p ReservedHeaderNames,
    /// The identities that are verified of a client.
    pub(super) identities: VerifiedIdentities,
    /// The most items of a list from which keys are made; `None` if the file has no limit.
    pub(super) only: Option<usize>,
    /// The most keys of one request.
    pub(super) max_keys: usize,
}

/// The kind of text that a template makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateKind {
    Key,
    Operation,
    Principal,
    /// The client whose share of a route a request uses.
    Client,
    LockPath,
}

impl TemplateKind {
    /// The consequence of two different sets of values that give the same text.
    fn collision_consequence(self) -> &'static str {
        match self {
            Self::Key => "two resources can get one key",
            Self::Operation => "two operations can get one name",
            Self::Principal => "two principals can get one name",
            Self::Client => "two clients can get one share",
            Self::LockPath => "two keys can get one lock",
        }
    }
}

impl fmt::Display for TemplateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Operation => "operation",
            Self::Principal => "principal",
            Self::Client => "client",
            Self::LockPath => "lock path",
        })
    }
}

/// The header fields that belong to one connection. They are removed from a request before its key is made (RFC 9110,
/// section 7.6.1).
pub(super) const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Header fields with secrets, other than those that authenticate a client ([`is_credential`]). A key must not contain
/// them.
const SECRET_FIELDS: [&str; 2] = ["x_csrf_token", "x_xsrf_token"];
/// Names of query parameters and body members that hold secrets. `token` is not among them, because it may name a means
/// of payment.
const CREDENTIALS: [&str; 9] = [
    "access_token",
    "refresh_token",
    "id_token",
    "api_key",
    "apikey",
    "client_secret",
    "jwt",
    "passwd",
    "password",
];

/// Reads the keys of a fence: one for the field `key`, or those of the list `keys`. `None` if one of them is invalid.
/// Never an empty list.
pub(super) fn keys(block: &mut MappingReader, naming: &TemplateContext) -> Option<Vec<KeyTemplate>> {
    if !block.is_present("keys") {
        block.require("key", "key: \"order/{path.order_id}\"` or `keys: [...]");
        return single_key(block, naming).map(|key| vec![key]);
    }
    if block.is_present("key") {
        let message = format!("the fence of {} has both `key` and `keys`", naming.route);
        let fault = Diagnostic::new(DiagnosticCode::KeyAndKeys, message);
        block.report("keys", fault.with_remedy("write all of them into `keys`"));
        // `key` is read as well, so that its own mistakes are reported in the same run.
        single_key(block, naming);
    }
    key_set(block, naming)
}

fn single_key(block: &mut MappingReader, naming: &TemplateContext) -> Option<KeyTemplate> {
    key_field(block, "key", naming)
}

/// Reads one key from a field.
pub(super) fn key_field(
    block: &mut MappingReader,
    field: &'static str,
    naming: &TemplateContext,
) -> Option<KeyTemplate> {
    let faults = block.faults();
    key(block.scalar(field)?, naming, faults)
}

fn key_set(block: &mut MappingReader, naming: &TemplateContext) -> Option<Vec<KeyTemplate>> {
    let faults = block.faults();
    let nodes = block.list("keys")?;
    if nodes.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::MissingField, "the list of keys is empty");
        block.report("keys", fault.with_remedy("write `[\"account/{body:/from}\", \"account/{body:/to}\"]`"));
    }
    if nodes.len() > naming.max_keys {
        let message = format!("a set of {} keys is too large", nodes.len());
        let fault = Diagnostic::new(DiagnosticCode::TooManyKeys, message);
        let most = ResourceKey::MOST_IN_SET;
        let remedy = match nodes.len() <= most {
            true => format!("there may be up to {}: write `max_keys: {}`", naming.max_keys, nodes.len()),
            false => format!("there may be up to {most}, with `max_keys: {most}`"),
        };
        block.report("keys", fault.with_remedy(remedy));
    }
    let read = |node: &YamlNode| match &node.value {
        YamlNodeValue::Scalar(scalar) => key(scalar, naming, faults),
        YamlNodeValue::Unset => None,
        _ => {
            let fault = Diagnostic::new(DiagnosticCode::WrongShape, "`keys` is a list of single values");
            let fault = fault.with_remedy("write each key in quotes: `\"order/{path.order_id}\"`");
            faults.push(fault.at(node.place));
            None
        }
    };
    // All keys are read before an invalid one is returned as `None`, so that each mistake is reported.
    let keys: Vec<Option<KeyTemplate>> = nodes.iter().map(read).collect();
    keys.into_iter().collect()
}

fn key(scalar: &YamlScalar, naming: &TemplateContext, faults: &Diagnostics) -> Option<KeyTemplate> {
    let template = template(scalar, naming, faults)?;
    if !template.can_fit_key_length() {
        let message = format!("the key of {} is too long for any values", naming.route);
        let fault = Diagnostic::new(DiagnosticCode::KeyTooLong, message).at(scalar.place);
        faults.push(fault.with_remedy("a key has at most 512 bytes, and a `/` counts as three"));
    }
    let free = template.variables().filter(|variable| takes_any_text(variable));
    free.for_each(|variable| faults.push(free_text_hint(naming, scalar, variable)));
    Some(template)
}

/// Whether no filter restricts the values of a variable to one spelling each. The host has one spelling already, and
/// the client does not write its verified name.
fn takes_any_text(variable: &TemplateVariable) -> bool {
    use TemplateValueSource::{ClientName, Host, Jwt};
    !matches!(variable.source, Host | ClientName | Jwt(_))
        && !variable.filters.iter().any(TemplateValueFilter::has_canonical_output)
}

fn free_text_hint(naming: &TemplateContext, scalar: &YamlScalar, variable: &TemplateVariable) -> Diagnostic {
    let TemplateContext { what, route, .. } = naming;
    let source = &variable.source;
    let message = format!(
        "the {what} of {route} takes any text of `{{{source}}}`: `42`, `042` and `42x` are three keys"
    );
    let remedy = format!(
        "write what the values are: `{{{source} | int}}`, `uuid`, or `match('[a-z0-9-]{{1,40}}')`; `match('.+')` if the service tells all texts apart"
    );
    let hint = Diagnostic::new(DiagnosticCode::FreeText, message).with_remedy(remedy);
    hint.at(scalar.part(variable.span.clone()))
}

/// Reads a template and checks its variables. The length of a key is checked elsewhere.
pub(super) fn template(
    scalar: &YamlScalar,
    naming: &TemplateContext,
    faults: &Diagnostics,
) -> Option<KeyTemplate> {
    let template = KeyTemplate::parse(&scalar.text)
        .map_err(|bad| faults.push(malformed_diagnostic(naming, scalar, bad)))
        .ok()?;
    if let Some(first) = template.lists().next() {
        for other in template.lists().skip(1).filter(|list| !list.source.is_of_same_list(&first.source)) {
            faults.push(other_list_fault(naming, first, other).at(scalar.part(other.span.clone())));
        }
    }
    let what = format!("the {} of {}", naming.what, naming.route);
    let remedy = "take the issuer as well: `{jwt:/iss}/{jwt:/sub}`; or name `/iss` in each rule of `allow`, with `\"*\"` where the claim means the same to all of them";
    if let Some(fault) = naming.identities.mixed_issuers_fault(&what, template.claims(), remedy) {
        faults.push(fault.at(scalar.place));
    }
    for variable in template.variables() {
        let part = || {
            partial_list_fault(format_args!("the {} of {}", naming.what, naming.route), variable, naming.only)
        };
        let list = || list_fault(naming, variable);
        let commas = || comma_fault(naming, variable);
        if let Some(fault) = check_value_source(naming, variable).or_else(list).or_else(part).or_else(commas)
        {
            faults.push(fault.at(scalar.part(variable.span.clone())));
        }
    }
    Some(template)
}

pub(super) fn malformed_diagnostic(
    naming: &TemplateContext,
    scalar: &YamlScalar,
    bad: ParseKeyTemplateError,
) -> Diagnostic {
    let TemplateContext { what, route, .. } = naming;
    let fault = match &bad.why {
        KeyTemplateErrorKind::Syntax(_) if let Some(member) = suggested_member(scalar, &bad) => {
            let fault =
                Diagnostic::new(DiagnosticCode::BadKey, format!("the {what} of {route} is malformed"));
            fault.with_remedy(format!("did you mean `{{body:/{member}}}`?"))
        }
        KeyTemplateErrorKind::Syntax(reason) => {
            Diagnostic::new(DiagnosticCode::BadKey, format!("the {what} of {route} is malformed"))
                .with_remedy(*reason)
        }
        KeyTemplateErrorKind::UnknownSource(word) if word.starts_with('{') => {
            let fault =
                Diagnostic::new(DiagnosticCode::BadKey, format!("the {what} of {route} is malformed"));
            fault.with_remedy("a variable stands in single braces, such as `{path.id}`")
        }
        // The word is the name of a path variable, written without `path.` before it.
        KeyTemplateErrorKind::UnknownSource(word)
            if naming.path.is_some_and(|path| path.variable_names().any(|name| name == word)) =>
        {
            let message = format!("the {what} of {route} takes a value from `{word}`, which does not exist");
            Diagnostic::new(DiagnosticCode::UnknownSource, message)
                .with_remedy(format!("did you mean `{{path.{word}}}`?"))
        }
        KeyTemplateErrorKind::UnknownSource(word) => {
            let message = format!("the {what} of {route} takes a value from `{word}`, which does not exist");
            Diagnostic::new(DiagnosticCode::UnknownSource, message).suggest(
                word,
                &TemplateValueSource::WORDS,
                str::to_owned,
            )
        }
        KeyTemplateErrorKind::UnknownFilter(word) => {
            let message = format!("the {what} of {route} uses the filter `{word}`, which does not exist");
            let name = word.split('(').next().unwrap_or_default();
            Diagnostic::new(DiagnosticCode::UnknownFilter, message).suggest(
                name,
                &TemplateValueFilter::WORDS,
                str::to_owned,
            )
        }
        KeyTemplateErrorKind::MalformedFilter(reason) => {
            let message = format!("a filter of the {what} of {route} is malformed");
            Diagnostic::new(DiagnosticCode::BadKey, message).with_remedy(reason.clone())
        }
        KeyTemplateErrorKind::NotSeparated => {
            let message = format!(
                "two variables of the {what} of {route} are not separated: {}",
                what.collision_consequence()
            );
            Diagnostic::new(DiagnosticCode::Unseparated, message).with_remedy("put a `/` before it")
        }
    };
    fault.at(scalar.part(bad.span))
}

/// The pointer that was meant by `{body.name}`, the syntax of other products.
fn suggested_member(scalar: &YamlScalar, bad: &ParseKeyTemplateError) -> Option<String> {
    let written = scalar.text.get(bad.span.clone())?.strip_prefix("body.")?;
    let is_name = written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    (is_name && !written.is_empty()).then(|| written.replace('.', "/"))
}

/// The diagnostic for a variable that no request has a value for, or whose value cannot be trusted or must not be in a
/// key.
fn check_value_source(naming: &TemplateContext, variable: &TemplateVariable) -> Option<Diagnostic> {
    if let Some(name) = credential_name(&variable.source).filter(|_| naming.what == TemplateKind::Key) {
        let TemplateContext { what, route, .. } = naming;
        let message = format!("the {what} of {route} is made of `{name}`, a credential");
        let fault = Diagnostic::new(DiagnosticCode::CredentialKey, message);
        return Some(
            fault.with_remedy("take what names the resource: keys are seen in ZooKeeper and in logs"),
        );
    }
    match &variable.source {
        TemplateValueSource::Path(name) => {
            let bound: Vec<&str> = naming.path?.variable_names().collect();
            (!bound.contains(&&**name)).then(|| unbound_diagnostic(naming, name, &bound))
        }
        TemplateValueSource::Header(name) | TemplateValueSource::HeaderList(name) if &**name == "host" => {
            let fault = unfit_diagnostic(naming, name, "it has many spellings for one host");
            Some(fault.with_remedy("use `{host}`, which has one"))
        }
        TemplateValueSource::Header(name) | TemplateValueSource::HeaderList(name)
            if naming.reserved.is_reserved_header(name) =>
        {
            let fault = unfit_diagnostic(naming, name, "only the gateway writes it");
            Some(fault.with_remedy("use a field that clients send, such as `{header.x-order-id}`"))
        }
        TemplateValueSource::Header(name) | TemplateValueSource::HeaderList(name)
            if HOP_BY_HOP.contains(&&**name) =>
        {
            let fault = unfit_diagnostic(naming, name, "it belongs to a connection, not to a request");
            Some(fault.with_remedy("use a field that clients send end to end, such as `{header.x-order-id}`"))
        }
        TemplateValueSource::ClientName => {
            naming.identities.client_name_fault(format_args!("the {} of {}", naming.what, naming.route))
        }
        TemplateValueSource::Jwt(claim) => {
            let what = format!("the {} of {}", naming.what, naming.route);
            naming.identities.claim_fault(&what, claim).or_else(|| listed_claim_fault(&what, claim))
        }
        _ => None,
    }
}

/// The diagnostic for a claim that is one item of a list, or every item of a list.
pub(super) fn listed_claim_fault(what: &str, claim: &JsonPointer) -> Option<Diagnostic> {
    let is_listed = claim.is_list() || claim.items().next().is_some() || claim.foreign_wildcard().is_some();
    let message = format!("{what} takes the claim `{claim}`, which leads into a list");
    let remedy = "take a claim with one value, such as `jwt:/sub`";
    is_listed.then(|| Diagnostic::new(DiagnosticCode::BadClaim, message).with_remedy(remedy))
}

/// The diagnostic for a variable with several values in a template that makes a single text.
fn list_fault(naming: &TemplateContext, variable: &TemplateVariable) -> Option<Diagnostic> {
    if naming.what == TemplateKind::Key || !variable.source.is_list() {
        return None;
    }
    let TemplateContext { what, route, .. } = naming;
    let message = format!("the {what} of {route} is one, and `{{{}}}` has several values", variable.source);
    let remedy = "take one value; only `key`, `keys` and the key of `migrate_from` are made for each item";
    Some(Diagnostic::new(DiagnosticCode::ListUnfit, message).with_remedy(remedy))
}

/// The diagnostic for a filter about commas that has no effect: only a parameter that may be repeated can contain
/// several values between commas.
fn comma_fault(naming: &TemplateContext, variable: &TemplateVariable) -> Option<Diagnostic> {
    let declaring: Vec<_> = variable.filters.iter().filter(|filter| filter.commas().is_some()).collect();
    let filter = match (&*declaring, &variable.source) {
        ([], _) | ([_], TemplateValueSource::QueryList(_) | TemplateValueSource::FormList(_)) => return None,
        ([.., last], _) => last,
    };
    let TemplateContext { what, route, .. } = naming;
    let message = format!("`{filter}` of the {what} of {route} has no effect");
    let remedy = "leave it out: it says what a comma means in a parameter that may be there several times, `{query.sku* | split(',')}` or `{query.sku* | whole}`";
    Some(Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy))
}

/// The diagnostic for a second list in one key. Values of one list belong together by their item; it is not known which
/// items of two lists do.
fn other_list_fault(
    naming: &TemplateContext,
    first: &TemplateVariable,
    other: &TemplateVariable,
) -> Diagnostic {
    let TemplateContext { what, route, .. } = naming;
    let message = format!(
        "the {what} of {route} has two lists, `{{{}}}` and `{{{}}}`: which of their items belong together is not known",
        first.source, other.source
    );
    let remedy = match (first.pointer(), other.pointer()) {
        (Some(first), Some(_)) => format!(
            "take both values of an item of one list, `{}/...`, or write a key for each list, in `keys`",
            format_steps(first.steps_to_items())
        ),
        _ => {
            "write a key for each list, in `keys`: a request then takes the keys of all items of both".into()
        }
    };
    Diagnostic::new(DiagnosticCode::ListUnfit, message).with_remedy(remedy)
}

/// The name of the field, parameter or member, if it holds a secret.
fn credential_name(source: &TemplateValueSource) -> Option<&str> {
    let (name, known) = match source {
        TemplateValueSource::Header(name) | TemplateValueSource::HeaderList(name) if is_credential(name) => {
            return Some(name);
        }
        TemplateValueSource::Header(name) | TemplateValueSource::HeaderList(name) => {
            (&**name, &SECRET_FIELDS[..])
        }
        TemplateValueSource::Query(name)
        | TemplateValueSource::QueryList(name)
        | TemplateValueSource::Form(name)
        | TemplateValueSource::FormList(name) => (&**name, &CREDENTIALS[..]),
        TemplateValueSource::Body(pointer) => (pointer.last_json_member()?, &CREDENTIALS[..]),
        // A claim is a statement about the client, and no secret.
        TemplateValueSource::Path(_)
        | TemplateValueSource::Host
        | TemplateValueSource::ClientName
        | TemplateValueSource::Jwt(_) => return None,
    };
    let plain = name.to_ascii_lowercase().replace('-', "_");
    known.contains(&&*plain).then_some(name)
}

fn unbound_diagnostic(naming: &TemplateContext, name: &str, bound: &[&str]) -> Diagnostic {
    let TemplateContext { what, route, .. } = naming;
    let message = format!("the {what} of {route} uses `{{path.{name}}}`, which its path does not bind");
    let fault = Diagnostic::new(DiagnosticCode::UnboundVariable, message);
    match bound {
        [] => fault.with_remedy(format!(
            "its path binds no variable: write `{{{name}}}` where the value stands in it"
        )),
        _ => fault.suggest(name, bound, |name| format!("{{path.{name}}}")),
    }
}

fn unfit_diagnostic(naming: &TemplateContext, name: &str, reason: &str) -> Diagnostic {
    let TemplateContext { what, route, .. } = naming;
    Diagnostic::new(
        DiagnosticCode::UnfitField,
        format!("the {what} of {route} uses the field `{name}`: {reason}"),
    )
}
