//! Reads the routes: the requests that each takes, its upstream, and its lock.

use std::{collections::HashSet, ops::Range, sync::Arc};

use super::{
    access,
    body_conditions::{self, RouteByBody},
    bypass::{self, RouteFenceKind, RouteLockCoverage},
    conditions, delay_conflicts,
    fence::{self, FenceDefaults, ParsedFence},
    hold_conflicts,
    identities::VerifiedIdentities,
    key::{TemplateContext, TemplateKind},
    layout_conflicts,
    mapping::MappingReader,
    permit_conflicts, scalar,
    suffixes::{self, KeyedRoute},
    unreachable_routes::{self, RoutePattern},
    upstream::ParsedUpstreams,
    yaml::{YamlNode, YamlNodeValue},
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    header_name::is_http_token,
    path::{PathTemplate, is_variable_name},
    plan::{
        AccessRule, FenceRule, FencingLevel, LargeBodyPolicy, LockModeRule, LockPlacement, MatchConditions,
        RequestLeasePolicy, ReservedHeaderNames, Route, RouteId, UpstreamId,
    },
};

/// A route, as far as it could be read. An invalid part is `None`.
pub(super) struct ParsedRoute {
    name: Option<Arc<str>>,
    upstream: Option<UpstreamId>,
    matching: Option<ParsedMatch>,
    /// The fence; `Some(None)` for `fence: none`.
    fence: Option<Option<ParsedFence>>,
    allow: Option<Vec<AccessRule>>,
    upgrade: Vec<String>,
    /// True if the upstream gets header fields with claims of tokens.
    tells_claims: bool,
}

struct ParsedMatch {
    /// The methods; an empty list means every method.
    methods: Option<Vec<String>>,
    path: Option<PathTemplate>,
    conditions: Option<MatchConditions>,
    /// The place of the path in the file.
    place: SourceSpan,
}

impl ParsedRoute {
    pub(super) fn into_route(self, id: RouteId) -> Option<Route> {
        let ParsedMatch { methods, path, conditions, .. } = self.matching?;
        let fence = self.fence?.map(|fenced| fenced.fence);
        let allow = self.allow?;
        let reads_token = self.tells_claims
            || fence.as_ref().is_some_and(|fence| fence.claims().next().is_some())
            || allow.iter().any(|rule| !rule.claims.is_empty());
        Some(Route {
            id,
            name: self.name?,
            upstream: self.upstream?,
            methods: methods?,
            path: path?,
            conditions: conditions?,
            reads_token,
            fence,
            allow,
            upgrade: self.upgrade,
        })
    }

    /// The requests that the route takes; `None` if a part of the `match` is invalid.
    fn pattern(&self) -> Option<RoutePattern<'_>> {
        let ParsedMatch { methods, path, conditions, place } = self.matching.as_ref()?;
        Some(RoutePattern {
            name: self.name.as_deref().unwrap_or("?"),
            methods: methods.as_ref()?,
            path: path.as_ref()?,
            conditions: conditions.as_ref()?,
            place: *place,
        })
    }

    /// Whether any part of the route reads the name in the client's certificate.
    pub(super) fn reads_client_name(&self) -> bool {
        let rules = self.allow.as_deref().unwrap_or_default();
        self.parsed_fence().is_some_and(|(_, fenced)| fenced.fence.reads_client_name())
            || rules.iter().any(|rule| rule.client_name.is_some())
    }

    /// The upstream, if the route has an `allow`.
    pub(super) fn restricted_upstream(&self) -> Option<UpstreamId> {
        self.upstream.filter(|_| self.allow.as_ref().is_some_and(|rules| !rules.is_empty()))
    }

    /// The route for the search for bypasses; `None` if a part of it is invalid.
    fn lock_coverage(&self, upstreams: &ParsedUpstreams) -> Option<RouteLockCoverage<'_>> {
        let passage = match self.fence.as_ref()? {
            None => RouteFenceKind::Open,
            Some(fenced) if fenced.fence.mode == LockModeRule::Shared => RouteFenceKind::Shared,
            Some(_) => RouteFenceKind::Fenced,
        };
        let upstream = self.upstream?;
        Some(RouteLockCoverage {
            pattern: self.pattern()?,
            upstream,
            service: upstreams.service(upstream),
            passage,
            allow: self.allow.as_deref(),
        })
    }

    /// The route with the keys of its fence, for the search for suffixes; `None` if a part of it is invalid.
    fn keyed_route(&self, upstreams: &ParsedUpstreams) -> Option<KeyedRoute<'_>> {
        let RoutePattern { name, path, place, .. } = self.pattern()?;
        let service = upstreams.service(self.upstream?);
        let keys = self.parsed_fence().map_or(&[][..], |(_, fenced)| &fenced.fence.keys);
        Some(KeyedRoute { name, path, place, service, keys })
    }

    /// The route, if it is fenced and has a condition on the body; `None` also if a part of it is invalid.
    fn by_body(&self) -> Option<RouteByBody<'_>> {
        let RoutePattern { conditions, place, .. } = self.pattern()?;
        let (name, fenced) = self.parsed_fence().filter(|_| conditions.reads_body())?;
        Some(RouteByBody { name, conditions, fenced, place })
    }

    /// The placements of the route's locks: the name of the route, the placement, and its place in the file.
    pub(super) fn placements(&self) -> impl Iterator<Item = (&str, &LockPlacement, SourceSpan)> {
        self.parsed_fence().into_iter().flat_map(|(name, fenced)| {
            fenced.fence.locks().map(move |(_, placing)| (name, placing, fenced.placed))
        })
    }

    fn parsed_fence(&self) -> Option<(&str, &ParsedFence)> {
        Some((self.name.as_deref().unwrap_or("?"), self.fence.as_ref()?.as_ref()?))
    }

    /// The name of the route, its fence, and the level of its upstream; `None` for a route without a fence.
    pub(super) fn leasable_route<'r>(
        &'r self,
        upstreams: &ParsedUpstreams,
    ) -> Option<(&'r str, &'r ParsedFence, Option<FencingLevel>)> {
        let (name, fenced) = self.parsed_fence()?;
        Some((name, fenced, self.upstream.and_then(|id| upstreams.level(id))))
    }

    pub(super) fn buffers_bodies(&self) -> bool {
        self.parsed_fence().is_some_and(|(_, fenced)| fenced.fence.large_bodies == LargeBodyPolicy::Refuse)
    }

    pub(super) fn fenced_upstream(&self) -> Option<UpstreamId> {
        matches!(self.fence, Some(Some(_))).then_some(self.upstream).flatten()
    }
}

/// Reads the routes, in the order of the file.
pub(super) fn routes(
    policy: &mut MappingReader,
    upstreams: &ParsedUpstreams,
    defaults: &FenceDefaults,
    identities: VerifiedIdentities,
) -> Vec<ParsedRoute> {
    let faults = policy.faults();
    let reserved = upstreams.reserved_fields();
    let mut names = HashSet::new();
    let read = |node| {
        let read = |block: &mut MappingReader| {
            let name = name(block, &mut names);
            let upstream = upstreams.named(block, "upstream");
            let matching = parse_match(block, &reserved);
            let path = matching.as_ref().and_then(|matching| matching.path.as_ref());
            let route = block.mapping_name().to_owned();
            let allow = access::allow(block, &route, identities);
            let identities = identities.with_issuer_named_by(allow.as_deref().unwrap_or_default());
            let naming = TemplateContext {
                what: TemplateKind::Key,
                route: &route,
                path,
                reserved: &reserved,
                identities,
                only: None,
                max_keys: FenceRule::MAX_KEYS,
            };
            let level = upstream.and_then(|id| upstreams.level(id));
            let fence = fence::fence(block, &naming, level, defaults);
            let once = fence.iter().flatten().any(|fenced| fenced.fence.once.is_some());
            let leased = fence.iter().flatten().any(|fenced| fenced.fence.lease != RequestLeasePolicy::Never);
            let reason = if once {
                Some("beside `once`")
            } else if leased {
                Some("beside `lease`")
            } else {
                upstream.and_then(|id| upstreams.no_tunnel_reason(id))
            };
            let upgrade = parse_upgrade_protocols(block, reason);
            let tells_claims = upstream.is_some_and(|id| upstreams.forwards_claims(id));
            ParsedRoute { name, upstream, matching, fence, allow, upgrade, tells_claims }
        };
        MappingReader::read(Some(node), route_title(node), node.place, faults, read)
    };
    let routes: Vec<ParsedRoute> =
        policy.list("routes").unwrap_or_default().iter().filter_map(read).collect();
    unreachable_routes::check_unreachable_routes(
        &routes.iter().filter_map(ParsedRoute::pattern).collect::<Vec<_>>(),
        faults,
    );
    let ways: Vec<_> = routes.iter().filter_map(|route| route.lock_coverage(upstreams)).collect();
    bypass::check_lock_bypasses(&ways, faults);
    bypass::check_allow_bypasses(&ways, faults);
    let by_body = routes.iter().filter_map(ParsedRoute::by_body);
    by_body.for_each(|route| body_conditions::check_fence(&route, faults));
    let suffixed = routes.iter().filter_map(|route| route.keyed_route(upstreams));
    suffixes::check_suffixes(&suffixed.collect::<Vec<_>>(), faults);
    hold_conflicts::check_hold_conflicts(
        &routes.iter().filter_map(ParsedRoute::parsed_fence).collect::<Vec<_>>(),
        faults,
    );
    let lead = routes.iter().filter_map(|route| Some((route.parsed_fence()?, route.upstream?)));
    let fenced: Vec<_> = routes.iter().filter_map(ParsedRoute::parsed_fence).collect();
    layout_conflicts::check_layout_conflicts(&fenced, faults);
    permit_conflicts::check_permit_conflicts(&fenced, faults);
    let delayed = routes.iter().filter_map(|route| {
        let (name, fenced) = route.parsed_fence()?;
        Some((name, fenced, upstreams.level(route.upstream?)?.handover_delay()))
    });
    delay_conflicts::check_delay_conflicts(&delayed.collect::<Vec<_>>(), faults);
    hold_conflicts::check_idempotency_scopes(
        lead.map(|((name, fenced), upstream)| (name, fenced, upstream)),
        faults,
    );
    routes
}

/// Reads the protocols to which requests may switch. `in_vain`: the reason for which no request of this route can
/// switch.
fn parse_upgrade_protocols(route: &mut MappingReader, in_vain: Option<&str>) -> Vec<String> {
    let protocols = route.values("upgrade", parse_upgrade_protocol).unwrap_or_default();
    if let Some(reason) = in_vain
        && !protocols.is_empty()
    {
        let fault = Diagnostic::new(DiagnosticCode::NoEffect, format!("`upgrade` has no effect {reason}"));
        route.report(
            "upgrade",
            fault.with_remedy("leave it out, or give these requests a route of their own"),
        );
    }
    protocols
}

/// Reads a protocol as `Upgrade` names it. The upgrade to HTTP/2 is refused, because it no longer exists (RFC 9113,
/// section 3.1).
fn parse_upgrade_protocol(text: &str) -> Result<String, Diagnostic> {
    if is_http_token(text) && !["h2c", "h2"].contains(&text.to_ascii_lowercase().as_str()) {
        return Ok(text.to_ascii_lowercase());
    }
    let fault =
        Diagnostic::new(DiagnosticCode::BadUpgrade, format!("`{text}` is not a protocol to switch to"));
    Err(fault.with_remedy("write `upgrade: [websocket]`"))
}

/// The name of a route in messages.
fn route_title(node: &YamlNode) -> String {
    let YamlNodeValue::Mapping(entries) = &node.value else { return "a route".into() };
    match entries.iter().find(|(key, _)| key.text == "name").map(|(_, node)| &node.value) {
        Some(YamlNodeValue::Scalar(name)) => format!("route `{}`", name.text),
        _ => "a route".into(),
    }
}

fn name(block: &mut MappingReader, names: &mut HashSet<String>) -> Option<Arc<str>> {
    block.require("name", "name: <a name>");
    let name = block.value("name", scalar::name)?;
    if !names.insert(name.clone()) {
        let fault =
            Diagnostic::new(DiagnosticCode::DuplicateRoute, format!("there is another route `{name}` above"));
        block.report("name", fault.with_remedy("logs and metrics need one name per route"));
    }
    Some(name.into())
}

/// Reads `match`. If it is absent, only that is reported, and no mistake in its parts.
fn parse_match(route: &mut MappingReader, reserved: &ReservedHeaderNames) -> Option<ParsedMatch> {
    route.require("match", "match: {methods: [POST], path: \"/v1/orders/{order_id}\"}");
    let read = |block: &mut MappingReader| {
        let methods = methods(block);
        block.require("path", "path: \"/{rest...}\"");
        let path = path(block);
        let conditions = conditions::conditions(block, reserved);
        ParsedMatch { methods, path, conditions, place: block.place_of("path") }
    };
    route.is_present("match").then(|| route.read_inner("match", read)).flatten()
}

fn methods(block: &mut MappingReader) -> Option<Vec<String>> {
    if !block.is_present("methods") {
        return Some(Vec::new());
    }
    let methods = block.values("methods", scalar::method)?;
    if methods.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::BadMethod, "a route without a method takes no request");
        block.report("methods", fault.with_remedy("leave `methods` out to take them all"));
        return None;
    }
    Some(methods)
}

fn path(block: &mut MappingReader) -> Option<PathTemplate> {
    let scalar = block.scalar("path")?;
    let parsed = PathTemplate::parse(&scalar.text);
    if let (Ok(_), Some((span, remedy))) = (&parsed, foreign_syntax(&scalar.text)) {
        let sign = &scalar.text[span.clone()];
        let message = format!("`{sign}` means only itself in a path template");
        let fault = Diagnostic::new(DiagnosticCode::ForeignPattern, message).at(scalar.part(span));
        block.faults().push(fault.with_remedy(remedy));
    }
    parsed
        .map_err(|bad| {
            let place = scalar.part(bad.at..bad.at + bad.width);
            let message = format!("`{}` is not a path template", scalar.text);
            let segment = scalar.text.get(bad.at..bad.at + bad.width).unwrap_or_default();
            let name = segment.strip_prefix('<').and_then(|open| open.strip_suffix('>'));
            let remedy = match name.filter(|name| is_variable_name(name)) {
                Some(name) => format!("write `{{{name}}}` for a segment of any text"),
                None if scalar.text.starts_with(['^', '~']) || segment.contains(['(', '[', '|', '\\']) => {
                    "a path is a template, not a regular expression: `/skus/{sku}`, `/static/{rest...}`"
                        .into()
                }
                None => bad.why.to_owned(),
            };
            block
                .faults()
                .push(Diagnostic::new(DiagnosticCode::BadPath, message).at(place).with_remedy(remedy));
        })
        .ok()
}

/// Finds a segment in the pattern syntax of another product, and the remedy. Segments that are invalid anyway are
/// reported by the parser of templates.
fn foreign_syntax(path: &str) -> Option<(Range<usize>, String)> {
    let mut at = 0;
    for segment in path.split('/') {
        let span = at..at + segment.len();
        at = span.end + 1;
        let last = span.end == path.len();
        let named = segment.strip_prefix(':').filter(|name| is_variable_name(name));
        let remedy = match named {
            Some(name) => format!("write `{{{name}}}` for a segment of any text"),
            None if segment.contains('*') && last => "write `{rest...}` for all that follows".to_owned(),
            None if segment.contains('*') => "write `{name}` for a segment of any text".to_owned(),
            None if segment.starts_with('(') && segment.ends_with(')') => {
                "write `{name}` for a segment of any text, and a route for each one that is meant".to_owned()
            }
            None => continue,
        };
        return Some((span, remedy));
    }
    None
}
