//! Reads the upstreams, and finds the one that a route names.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::{
    balancing::parse_endpoint_settings,
    delay,
    diagnostics::Diagnostics,
    identities::VerifiedIdentities,
    key::{HOP_BY_HOP, listed_claim_fault},
    mapping::MappingReader,
    one_of::exactly_one,
    scalar::{self, Scheme},
    tls::{EndpointsWithTls, parse_endpoints},
    yaml::{YamlMappingKey, YamlNode},
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    header_name::is_http_token,
    key::JsonPointer,
    plan::{
        FencingLevel, IdentityHeaderNames, InconclusiveStatuses, LoadBalancingSettings, NotAfterEnforcement,
        ReservedHeaderNames, ServiceId, TokenHeaderNames, Upstream, UpstreamId, UpstreamProtocol,
        UpstreamService, group_services, normalize,
    },
};

/// All upstreams of the file. An upstream's index is its id in the plan.
pub(super) struct ParsedUpstreams<'n> {
    all: Vec<UpstreamEntry<'n>>,
    /// The service of each upstream, by the index of the upstream.
    services: Vec<ServiceId>,
}

struct UpstreamEntry<'n> {
    name: &'n str,
    /// The upstream; `None` if its entry is invalid. Its name is known nevertheless, so that a route may refer to it.
    upstream: Option<Upstream>,
    /// The place of `response_timeout`, or of the name if the field is absent.
    place: SourceSpan,
}

impl UpstreamEntry<'_> {
    fn endpoints(&self) -> &[Arc<str>] {
        self.upstream.as_ref().map_or(&[], |upstream| &upstream.endpoints)
    }
}

/// Header fields that have another meaning between client, gateway and upstream, so that they cannot be configured for
/// ours.
const TAKEN: [&str; 13] = [
    "authorization",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "prefer",
    "user-agent",
    "via",
];

impl<'n> ParsedUpstreams<'n> {
    pub(super) fn read(policy: &mut MappingReader<'n>, identities: VerifiedIdentities) -> Self {
        let faults = policy.faults();
        let entries = policy.entries("upstreams").iter();
        let all: Vec<UpstreamEntry> =
            entries.map(|(key, node)| parse_entry(key, node, identities, faults)).collect();
        Self { services: group_services(all.iter().map(UpstreamEntry::endpoints)), all }
    }

    /// Reads the name of an upstream from a field of `block`.
    pub(super) fn named(&self, block: &mut MappingReader, field: &'static str) -> Option<UpstreamId> {
        block.require(field, &format!("{field}: <an upstream>"));
        block.value(field, |name| {
            self.all.iter().position(|entry| entry.name == name).map(UpstreamId).ok_or_else(|| {
                let known: Vec<&str> = self.all.iter().map(|entry| entry.name).collect();
                let fault = Diagnostic::new(
                    DiagnosticCode::UnknownUpstream,
                    format!("there is no upstream `{name}`"),
                );
                match known.is_empty() {
                    true => fault.with_remedy(format!(
                        "add `upstreams: {{{name}: {{endpoints: [...], fencing: ...}}}}`"
                    )),
                    false => fault.suggest(name, &known, str::to_owned),
                }
            })
        })
    }

    /// The fencing level of the upstream; `None` if its entry is invalid.
    pub(super) fn level(&self, id: UpstreamId) -> Option<FencingLevel> {
        self.all[id.0].upstream.as_ref().map(|upstream| upstream.fencing)
    }

    /// Whether the upstream gets header fields with claims of clients.
    pub(super) fn forwards_claims(&self, id: UpstreamId) -> bool {
        let fields = self.all[id.0].upstream.as_ref().map(|upstream| &upstream.identity_fields);
        fields.is_some_and(|fields| !fields.claims.is_empty())
    }

    /// Whether some upstream gets a header field with the name of the client.
    pub(super) fn forwards_client_name(&self) -> bool {
        self.valid_upstreams().any(|(upstream, _)| upstream.identity_fields.client_name.is_some())
    }

    /// The reason for which a connection to the upstream cannot become a tunnel; `None` if it can.
    pub(super) fn no_tunnel_reason(&self, id: UpstreamId) -> Option<&'static str> {
        let upstream = self.all[id.0].upstream.as_ref()?;
        match (upstream.fencing, upstream.protocol) {
            (FencingLevel::Guard, _) => Some("before a guard, which lets in one request at a time"),
            (_, UpstreamProtocol::Http2 | UpstreamProtocol::Auto) => Some("without `protocol: http1`"),
            (
                FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Upstream,
                UpstreamProtocol::Http1,
            ) => None,
        }
    }

    /// The service that the upstream belongs to.
    pub(super) fn service(&self, id: UpstreamId) -> ServiceId {
        self.services[id.0]
    }

    /// Whether some route to the service of this upstream has a fence or an `allow`.
    pub(super) fn is_protected(&self, id: UpstreamId) -> bool {
        self.all[id.0].upstream.as_ref().is_some_and(|upstream| upstream.service.is_protected)
    }

    /// The upstreams of the plan; `None` if one of them is invalid.
    pub(super) fn into_upstreams(self) -> Option<Vec<Upstream>> {
        self.all.into_iter().map(|entry| entry.upstream).collect()
    }

    /// The valid upstreams, each with the place of its response timeout.
    pub(super) fn valid_upstreams(&self) -> impl Iterator<Item = (&Upstream, SourceSpan)> {
        self.all.iter().filter_map(|entry| Some((entry.upstream.as_ref()?, entry.place)))
    }

    pub(super) fn reserved_fields(&self) -> ReservedHeaderNames {
        ReservedHeaderNames::new(self.valid_upstreams().flat_map(|(upstream, _)| gateway_fields(upstream)))
    }

    /// Marks the upstreams and services that routes protect. `fenced`: the upstreams of the routes with a fence.
    /// `restricted`: the upstreams of the routes with an `allow`.
    pub(super) fn mark_protected(
        &mut self,
        fenced: impl Iterator<Item = UpstreamId>,
        restricted: impl Iterator<Item = UpstreamId>,
    ) {
        let fenced: HashSet<UpstreamId> = fenced.collect();
        let protected: HashSet<ServiceId> =
            fenced.iter().copied().chain(restricted).map(|id| self.service(id)).collect();
        for (index, (entry, id)) in self.all.iter_mut().zip(&self.services).enumerate() {
            if let Some(upstream) = &mut entry.upstream {
                upstream.has_fenced_routes = fenced.contains(&UpstreamId(index));
                upstream.service = UpstreamService { id: *id, is_protected: protected.contains(id) };
            }
        }
    }
}

/// The names of the header fields to the upstream that only the gateway may write.
pub(super) fn gateway_fields(upstream: &Upstream) -> impl Iterator<Item = String> + use<> {
    let TokenHeaderNames { token, number } = upstream.fields.clone();
    let identity: Vec<String> = upstream.identity_fields.names().map(str::to_owned).collect();
    let operation = upstream.operation_field.as_deref().map(str::to_owned);
    [token, number].into_iter().chain(operation).chain(identity)
}

fn parse_entry<'n>(
    key: &'n YamlMappingKey,
    node: &'n YamlNode,
    identities: VerifiedIdentities,
    faults: &'n Diagnostics,
) -> UpstreamEntry<'n> {
    let name = scalar::name(&key.text).map_err(|fault| faults.push(fault.at(key.place))).ok();
    // The place of the response timeout is read here, because checks after the file was read report it.
    let read = |block: &mut MappingReader| {
        (parse_upstream(block, name, identities), block.place_of("response_timeout"))
    };
    let (upstream, place) =
        MappingReader::read(Some(node), format!("upstream `{}`", key.text), key.place, faults, read)
            .unwrap_or((None, key.place));
    UpstreamEntry { name: &key.text, upstream, place }
}

fn parse_upstream(
    block: &mut MappingReader,
    name: Option<String>,
    identities: VerifiedIdentities,
) -> Option<Upstream> {
    block.require("endpoints", "endpoints: [\"http://127.0.0.1:8000\"]");
    let written = endpoints(block);
    let reached = parse_endpoints(block, written.clone().unwrap_or_default(), "endpoints");
    // `fencing` has no default, because the operator has to decide which component compares the tokens: without one,
    // only the lock protects.
    block.require("fencing", "fencing: none");
    let fencing = block.keyword("fencing", &FencingLevel::WORDS);
    let fencing = delay::level(block, fencing);
    let expiry = parse_late_dispatch_policy(block, fencing);
    let direct = parse_direct(block, fencing, expiry);
    let patience = match fencing {
        // 45 seconds, because a guard lets a request wait for older executions before it forwards the request.
        Some(FencingLevel::Guard) => 45,
        // The default session timeout less its safety margin, because only the lock protects where no component
        // compares tokens.
        Some(FencingLevel::None) => 9,
        // At most the delay: a longer timeout is a mistake, which must not come from a default.
        Some(FencingLevel::Delay(delay)) => delay::default_response_timeout_secs(delay),
        Some(FencingLevel::Upstream) | None => 15,
    };
    let terms = UpstreamSettings::parse_upstream_settings(block, patience, Some(identities));
    if let Some(terms) = &terms {
        terms.check_hops(block, fencing);
    }
    written?;
    let upstream = terms?.into_upstream(name?.into(), reached?, fencing?, direct, expiry);
    delay::check_delay_covers_timeout(block, &upstream);
    Some(upstream)
}

/// Reads `not_after`: whether a late request is refused behind the gateway or guard.
fn late_dispatch_policy(block: &mut MappingReader) -> NotAfterEnforcement {
    block.keyword("not_after", NotAfterEnforcement::WORDS).unwrap_or_default()
}

/// Reads `not_after` for a gateway, and reports it where it has no effect: a guard enforces the deadline in any case,
/// and a service that compares tokens needs none.
fn parse_late_dispatch_policy(
    block: &mut MappingReader,
    fencing: Option<FencingLevel>,
) -> NotAfterEnforcement {
    let written = late_dispatch_policy(block);
    if let Some(fencing @ (FencingLevel::Guard | FencingLevel::Upstream)) = fencing
        && block.is_present("not_after")
    {
        let message = format!("`not_after` has no effect with `fencing: {}`", fencing.as_str());
        let remedy = match fencing {
            FencingLevel::Guard => "leave it out: write it in the guard's file, below `upstream`",
            _ => "leave it out: a service that compares tokens refuses the late ones",
        };
        block.report("not_after", Diagnostic::new(DiagnosticCode::NoEffect, message).with_remedy(remedy));
        return NotAfterEnforcement::Ignored;
    }
    written
}

fn parse_direct(
    block: &mut MappingReader,
    fencing: Option<FencingLevel>,
    expiry: NotAfterEnforcement,
) -> bool {
    let direct = block.keyword("direct", &[("true", true), ("false", false)]);
    if expiry == NotAfterEnforcement::Enforced
        && matches!(fencing, Some(FencingLevel::None | FencingLevel::Delay(_)))
    {
        return direct.unwrap_or(false);
    }
    if let Some(fencing @ (FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Upstream)) = fencing
        && block.is_present("direct")
    {
        let message = format!("`direct` has no effect with `fencing: {}`", fencing.as_str());
        let fault = Diagnostic::new(DiagnosticCode::NoEffect, message);
        block.report(
            "direct",
            fault
                .with_remedy("leave it out: it is about the way to a guard, or to what enforces `not_after`"),
        );
    }
    if fencing == Some(FencingLevel::Guard) && !block.is_present("direct") {
        let message = "`direct` is not written, so a refusal of the guard, such as in its first seconds, reaches clients as `unknown`";
        let fault = Diagnostic::new(DiagnosticCode::NotDirect, message);
        block.report("fencing", fault.with_remedy("write `direct: true` where nothing between here and the guard sends a request twice, else `direct: false`"));
    }
    direct.unwrap_or(false)
}

/// The service behind a guard.
pub(super) struct GuardUpstream {
    pub(super) upstream: Upstream,
    /// The place of `response_timeout`; `None` if the field is absent.
    pub(super) place: Option<SourceSpan>,
}

/// Reads the only upstream of a guard.
pub(super) fn parse_guard_upstream(guard: &mut MappingReader) -> Option<GuardUpstream> {
    guard.require("upstream", "upstream: {endpoint: \"http://127.0.0.1:8000\"}");
    let read = |block: &mut MappingReader| {
        let example = "add `endpoint: \"http://127.0.0.1:8000\"`";
        let chosen = exactly_one(block, &["endpoint", "endpoints"], example);
        let one = block.value("endpoint", |text| Ok(vec![scalar::endpoint(text)?]));
        let written = endpoints(block);
        let written = chosen.and(one.or(written));
        let reached =
            parse_endpoints(block, written.clone().unwrap_or_default(), chosen.unwrap_or("endpoints"));
        let expiry = late_dispatch_policy(block);
        let direct = guard_direct(block, expiry);
        let terms = UpstreamSettings::parse_upstream_settings(block, 15, None);
        if let Some(terms) = &terms {
            terms.check_unfinished_statuses(block);
        }
        let place = block.is_present("response_timeout").then(|| block.place_of("response_timeout"));
        // The guard compares the tokens itself and passes them on, so for its own upstream no further protection is
        // expected from the lock.
        written?;
        let mut upstream =
            terms?.into_upstream("upstream".into(), reached?, FencingLevel::Upstream, direct, expiry);
        upstream.has_fenced_routes = true;
        upstream.service.is_protected = true;
        Some(GuardUpstream { upstream, place })
    };
    guard.is_present("upstream").then(|| guard.read_inner("upstream", read)).flatten()?
}

/// Reads `direct`: whether no proxy between the guard and the component that refuses late requests repeats a request.
fn guard_direct(block: &mut MappingReader, expiry: NotAfterEnforcement) -> bool {
    let direct = block.keyword("direct", &[("true", true), ("false", false)]);
    if expiry == NotAfterEnforcement::Ignored && block.is_present("direct") {
        let message = "`direct` has no effect without `not_after: enforced`";
        let fault = Diagnostic::new(DiagnosticCode::NoEffect, message);
        block.report(
            "direct",
            fault.with_remedy("leave it out: it is about the way to what refuses late requests"),
        );
    }
    direct.unwrap_or(false)
}

/// The settings that the upstreams of gateways and guards have in common.
struct UpstreamSettings {
    fields: TokenHeaderNames,
    identity_fields: IdentityHeaderNames,
    operation_field: Option<Arc<str>>,
    unfinished: InconclusiveStatuses,
    connect_timeout: Duration,
    response_timeout: Duration,
    response_body_idle: Duration,
    response_body_total: Duration,
    response_fields: usize,
    idle: Duration,
    tunnel_idle: Duration,
    sharing: LoadBalancingSettings,
}

/// The most header fields of a response. Other proxies have the same limit.
const RESPONSE_FIELDS: usize = 100;
const TUNNEL_IDLE: Duration = Duration::from_secs(10 * 60);

impl UpstreamSettings {
    /// Reads the common settings. `patience`: the default of `response_timeout` in seconds. `identities`: the
    /// identities that are verified of clients; `None` if all clients are gateways.
    fn parse_upstream_settings(
        block: &mut MappingReader,
        patience: u64,
        identities: Option<VerifiedIdentities>,
    ) -> Option<Self> {
        let what = block.mapping_name().to_owned();
        let fields = block.read_inner("fields", |block| {
            let fields = token_fields(block);
            (
                fields,
                identities.map_or_else(
                    || Some(IdentityHeaderNames::default()),
                    |known| identity_fields(block, &what, known),
                ),
            )
        });
        let (fields, identity_fields) = fields.unzip();
        let operation_field = block.value("operation_field", parse_operation_header).map(Arc::from);
        if let (Some(fields), Some(Some(identity))) = (&fields, &identity_fields) {
            check_distinct_fields(block, fields, identity, operation_field.as_deref());
        }
        let unfinished = block.values("unfinished", inconclusive_status);
        let unfinished = unfinished.map_or_else(InconclusiveStatuses::default, InconclusiveStatuses::new);
        let mut limit =
            |name, seconds| block.value(name, scalar::time_limit).unwrap_or(Duration::from_secs(seconds));
        let connect_timeout = limit("connect_timeout", 3);
        let response_timeout = limit("response_timeout", patience);
        let response_body_idle = limit("response_body_idle", 30);
        let response_body_total = limit("response_body_total", 120);
        let idle = limit("idle", 30);
        let tunnel_idle = block.value("tunnel_idle", scalar::time_limit).unwrap_or(TUNNEL_IDLE);
        let response_fields = block.value("response_fields", scalar::limit).unwrap_or(RESPONSE_FIELDS);
        let sharing = parse_endpoint_settings(block)?;
        Some(Self {
            fields: fields?,
            identity_fields: identity_fields??,
            operation_field,
            unfinished,
            connect_timeout,
            response_timeout,
            response_body_idle,
            response_body_total,
            response_fields,
            idle,
            tunnel_idle,
            sharing,
        })
    }

    /// Checks the fields of a gateway's policy about proxies between the gateway and the service.
    fn check_hops(&self, block: &mut MappingReader, fencing: Option<FencingLevel>) {
        match fencing {
            Some(FencingLevel::Guard) => {
                for field in ["unfinished", "operation_field"] {
                    if block.is_present(field) {
                        let message = format!("`{field}` has no effect with `fencing: guard`");
                        let fault = Diagnostic::new(DiagnosticCode::NoEffect, message);
                        block.report(
                            field,
                            fault.with_remedy("write it below `upstream` in the file of the guard: it is about the way to the service"),
                        );
                    }
                }
            }
            Some(FencingLevel::None | FencingLevel::Delay(_)) => self.check_unfinished_statuses(block),
            // The service compares tokens, so it refuses an old request that a proxy has answered in its place.
            Some(FencingLevel::Upstream) | None => {}
        }
    }

    /// Reports statuses that are left out of `unfinished`. No component behind the gateway compares tokens, so an
    /// execution that still runs after such an answer could overlap the next one.
    fn check_unfinished_statuses(&self, block: &mut MappingReader) {
        let left_out =
            InconclusiveStatuses::DEFAULT.into_iter().filter(|status| !self.unfinished.contains(*status));
        let left_out: Vec<String> = left_out.map(|status| status.to_string()).collect();
        if left_out.is_empty() {
            return;
        }
        let message = format!(
            "an answer with {} ends an execution: where a proxy made it, the service may still be at work",
            left_out.join(" or "),
        );
        let remedy = "leave `unfinished` out, unless the service alone answers with that status and nothing stands before it";
        block.report(
            "unfinished",
            Diagnostic::new(DiagnosticCode::HopEndsExecution, message).with_remedy(remedy),
        );
    }

    fn into_upstream(
        self,
        name: Arc<str>,
        reached: EndpointsWithTls,
        fencing: FencingLevel,
        direct: bool,
        expiry: NotAfterEnforcement,
    ) -> Upstream {
        Upstream {
            name,
            endpoints: reached.endpoints,
            tls: reached.tls,
            protocol: reached.protocol,
            fencing,
            direct,
            expiry,
            fields: self.fields,
            identity_fields: self.identity_fields,
            operation_field: self.operation_field,
            unfinished: self.unfinished,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            deliver_within: self.response_timeout,
            response_body_idle: self.response_body_idle,
            response_body_total: self.response_body_total,
            response_fields: self.response_fields,
            idle: self.idle,
            tunnel_idle: self.tunnel_idle,
            sharing: self.sharing,
            has_fenced_routes: false,
            service: UpstreamService { id: ServiceId(0), is_protected: false },
        }
    }
}

fn endpoints(block: &mut MappingReader) -> Option<Vec<(Scheme, String)>> {
    let endpoints = block.values("endpoints", scalar::endpoint)?;
    if endpoints.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::MissingField, "the list of endpoints is empty");
        block.report("endpoints", fault.with_remedy("write `[\"http://127.0.0.1:8000\"]`"));
    }
    if let Some(twice) = endpoints.iter().enumerate().find(|(index, one)| endpoints[..*index].contains(one)) {
        let message = format!("`{}` is there twice", twice.1.1);
        let fault = Diagnostic::new(DiagnosticCode::SameEndpoint, message);
        block.report(
            "endpoints",
            fault.with_remedy("name each endpoint once: this one would get twice its share"),
        );
    }
    Some(endpoints)
}

fn token_fields(block: &mut MappingReader) -> TokenHeaderNames {
    let default = TokenHeaderNames::default();
    let token = block.value("token", field_name).unwrap_or(default.token);
    let number = block.value("number", field_name).unwrap_or(default.number);
    if normalize(&token) == normalize(&number) {
        let field = if block.is_present("number") { "number" } else { "token" };
        let message = format!("`{token}` cannot carry both the token and the number");
        let fault = Diagnostic::new(DiagnosticCode::OneFieldForTwo, message);
        block.report(field, fault.with_remedy("give them different names"));
    }
    TokenHeaderNames { token, number }
}

/// Reads the header fields for verified identities of clients; `None` if one of them is invalid.
fn identity_fields(
    block: &mut MappingReader,
    what: &str,
    identities: VerifiedIdentities,
) -> Option<IdentityHeaderNames> {
    let client_name = block.value("client_name", parse_identity_header);
    if block.is_present("client_name")
        && let Some(fault) = identities.client_name_fault(what)
    {
        block.report("client_name", fault);
    }
    let claims = block.text_entries("claims", |name, claim| {
        let name = parse_identity_header(name)?;
        let claim = JsonPointer::parse(claim).map_err(|_| {
            let message = format!("`{claim}` names no claim");
            Diagnostic::new(DiagnosticCode::BadClaim, message).with_remedy("write a pointer such as `/sub`")
        })?;
        match identities.claim_fault(what, &claim).or_else(|| listed_claim_fault(what, &claim)) {
            Some(fault) => Err(fault),
            None => Ok((name, claim)),
        }
    });
    let claims = claims?;
    let told = claims.iter().map(|(_, claim)| claim);
    let remedy = "tell the service of the issuer as well: `X-Issuer: /iss`";
    if let Some(fault) = identities.mixed_issuers_fault(what, told, remedy) {
        block.report("claims", fault);
    }
    (client_name.is_some() || !block.is_present("client_name"))
        .then_some(IdentityHeaderNames { client_name, claims })
}

/// Reads the name of a header field for an identity of the client. The name is returned in lower case.
fn parse_identity_header(text: &str) -> Result<String, Diagnostic> {
    let remedy = "take a name such as `X-Client-Name`";
    let name = parse_field_name(text, "what was verified of a client", remedy)?;
    if [TokenHeaderNames::TOKEN, TokenHeaderNames::NUMBER].contains(&normalize(&name).as_str()) {
        return Err(reserved_field_error(text, "what was verified of a client", remedy));
    }
    Ok(name)
}

/// Reports header fields that would have two meanings.
fn check_distinct_fields(
    block: &mut MappingReader,
    fields: &TokenHeaderNames,
    identity: &IdentityHeaderNames,
    operation: Option<&str>,
) {
    let mut taken: Vec<String> = [&fields.token, &fields.number].map(|name| normalize(name)).into();
    let identity = identity.names().map(|name| (name, "fields", "what was verified of a client"));
    let operation = operation.map(|name| (name, "operation_field", "the name of the operation"));
    for (name, field, what) in operation.into_iter().chain(identity) {
        if taken.contains(&normalize(name)) {
            let message = format!("`{name}` cannot carry both {what} and something else");
            let fault = Diagnostic::new(DiagnosticCode::OneFieldForTwo, message);
            block.report(field, fault.with_remedy("give them different names"));
        }
        taken.push(normalize(name));
    }
}

/// Reads a status with which a proxy may answer in place of the service.
fn inconclusive_status(text: &str) -> Result<u16, Diagnostic> {
    scalar::status(text, 400..=599, "a status from 400 to 599 can be a proxy's own, such as 504")
}

/// Reads the name of a header field for the name of an operation. The name is returned in lower case.
fn parse_operation_header(text: &str) -> Result<String, Diagnostic> {
    let remedy = "take a name such as `X-Operation-Id`";
    let name = parse_field_name(text, "the name of an operation", remedy)?;
    // Go's HTTP client repeats a request with `X-Idempotency-Key` by itself, as it does with `Idempotency-Key`.
    if ["x-idempotency-key", TokenHeaderNames::TOKEN, TokenHeaderNames::NUMBER]
        .contains(&normalize(&name).as_str())
    {
        return Err(reserved_field_error(text, "the name of an operation", remedy));
    }
    Ok(name)
}

/// Reads the name of a header field for a token. The name is returned in lower case.
fn field_name(text: &str) -> Result<String, Diagnostic> {
    parse_field_name(text, "a token", "take a name such as `X-Fencing-Token`")
}

fn reserved_field_error(text: &str, what: &str, remedy: &str) -> Diagnostic {
    let message = format!("`{text}` already has a meaning, and cannot carry {what}");
    Diagnostic::new(DiagnosticCode::TakenField, message).with_remedy(remedy)
}

/// Reads the name of a header field for `what`. The name is returned in lower case.
fn parse_field_name(text: &str, what: &str, remedy: &str) -> Result<String, Diagnostic> {
    if !is_http_token(text) {
        let message = format!("`{text}` is not the name of a header field");
        let fault = Diagnostic::new(DiagnosticCode::BadFieldName, message);
        return Err(fault.with_remedy("letters, digits and hyphens, such as `X-Fencing-Token`"));
    }
    // Some servers take `_` and `-` for the same character, so both spellings are checked.
    let folded = normalize(text);
    let ours = folded.starts_with("fencing-")
        && ![TokenHeaderNames::TOKEN, TokenHeaderNames::NUMBER].contains(&folded.as_str());
    let taken = TAKEN.contains(&folded.as_str()) || HOP_BY_HOP.contains(&folded.as_str());
    if ours || taken || folded.starts_with("x-forwarded-") {
        return Err(reserved_field_error(text, what, remedy));
    }
    Ok(text.to_ascii_lowercase())
}
