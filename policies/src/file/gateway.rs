//! Reads the policy of a gateway.

use super::{
    admin,
    diagnostics::Diagnostics,
    fence,
    identities::VerifiedIdentities,
    jwt, layout, leased_routes,
    leases::{self, ParsedLeases},
    listener,
    listener_conflicts::{self, ConfiguredListener},
    log,
    mapping::MappingReader,
    peer_listener,
    route::{self, ParsedRoute},
    scalar, tickets,
    upstream::{ParsedUpstreams, gateway_fields},
    version, zookeeper,
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    fnv::fnv1a,
    key::JsonPointer,
    plan::{
        CommonServingPlan, FenceRule, FencingLevel, GatewayPlan, IdempotencyStore, JwtSettings,
        LockPlacement, MixedPlanPolicy, ReservedHeaderNames, Route, RouteId, RouteTable,
        UnmatchedRequestPolicy, Upstream, ZooKeeperSettings,
    },
};

/// Reads the plan of a gateway. `None` if a required part is missing or invalid; this has been reported.
pub(super) fn parse_gateway_plan(block: &mut MappingReader) -> Option<GatewayPlan> {
    version::version(block);
    let name = block.value("name", scalar::name);
    let written = listener::listener(block);
    let listener = written.as_ref().map(|written| &written.listener);
    let admin = admin::admin(block, 9901);
    let reached = block.is_present("peer");
    let peer = peer_listener::peer(block);
    let public = listener
        .and_then(|listener| ConfiguredListener::public_listener(block, "listeners", &listener.address));
    let listeners: Vec<ConfiguredListener> =
        public.into_iter().chain([admin.configured_listener()]).chain(peer.configured_listener()).collect();
    listener_conflicts::report_clashes(&listeners, block.faults());
    let zookeeper = zookeeper::zookeeper(block);
    let issuers = jwt::issuers(block);
    let identities = VerifiedIdentities::new(listener, issuers.count);
    let mut upstreams = ParsedUpstreams::read(block, identities);
    let signs = block.is_present("tickets");
    let defaults = fence::FenceDefaults::read_defaults(block, reached, signs);
    let routes = route::routes(block, &upstreams, &defaults, identities);
    if upstreams.forwards_client_name() || routes.iter().any(ParsedRoute::reads_client_name) {
        peer.warn_plain_client_names(block.faults());
    }
    let granting = leases::leases(block, listener);
    check_leases(&routes, &upstreams, &granting, block.faults());
    let unmatched = unmatched(block, &upstreams);
    let tickets = tickets::parse_ticket_signing(block);
    let mixed = parse_mixed_plans(block);
    let (tickets, siblings) = tickets.map_or((None, None), |(key, siblings)| (Some(key), siblings));
    let state_dir = block.value("state_dir", scalar::file);
    let log = log::log(block);

    if let Some(listener) = written.as_ref().filter(|_| routes.iter().any(ParsedRoute::buffers_bodies)) {
        listener.check_max_body_fits_memory(block.faults());
    }
    upstreams.mark_protected(
        routes.iter().filter_map(ParsedRoute::fenced_upstream),
        routes.iter().filter_map(ParsedRoute::restricted_upstream),
    );
    warn_open_unmatched(block, unmatched, &upstreams);
    if let Some(listener) = &written {
        let fenced = upstreams.valid_upstreams().filter(|(upstream, _)| upstream.has_fenced_routes);
        listener.warn_short_drain(fenced, block.faults());
    }
    if let Some(zookeeper) = &zookeeper {
        warn_lock_loss(&upstreams, zookeeper, block.faults());
        layout::check_reserved_paths(
            &zookeeper.root,
            routes.iter().flat_map(ParsedRoute::placements),
            block.faults(),
        );
    }
    let zookeeper = zookeeper?;
    let upstreams = upstreams.into_upstreams()?;
    let route = |(index, written): (usize, ParsedRoute)| written.into_route(RouteId(index));
    let routes = routes.into_iter().enumerate().map(route).collect::<Option<Vec<_>>>()?;
    let renamed = upstreams.iter().flat_map(gateway_fields);
    let jwt = JwtSettings { issuers: issuers.issuers?, claims: claims(&routes, &upstreams) };
    Some(GatewayPlan {
        fingerprint: fingerprint(&zookeeper, &routes, &upstreams),
        zookeeper,
        peer: peer.peer,
        leases: granting.into_leases(),
        tickets,
        mixed,
        siblings,
        state_dir,
        serving: CommonServingPlan {
            name,
            listener: written?.listener,
            jwt,
            admin: admin.admin,
            unmatched,
            log,
            fields: ReservedHeaderNames::new(renamed),
            upstreams,
            routes: RouteTable::build(routes),
        },
    })
}

/// The claims of tokens that the plan reads, each once.
fn claims(routes: &[Route], upstreams: &[Upstream]) -> Vec<JsonPointer> {
    let fenced = routes.iter().filter_map(|route| route.fence.as_ref()).flat_map(FenceRule::claims);
    let rules = routes.iter().flat_map(|route| &route.allow).flat_map(|rule| &rule.claims);
    let told = upstreams.iter().flat_map(|upstream| &upstream.identity_fields.claims);
    let mut claims: Vec<JsonPointer> = Vec::new();
    for claim in fenced.chain(rules.map(|(claim, _)| claim)).chain(told.map(|(_, claim)| claim)) {
        if !claims.contains(claim) {
            claims.push(claim.clone());
        }
    }
    claims
}

fn check_leases(
    routes: &[ParsedRoute],
    upstreams: &ParsedUpstreams,
    granting: &ParsedLeases,
    faults: &Diagnostics,
) {
    let fenced: Vec<_> = routes.iter().filter_map(|route| route.leasable_route(upstreams)).collect();
    leased_routes::check_leased_routes(&fenced, granting, faults);
}

fn unmatched(block: &mut MappingReader, upstreams: &ParsedUpstreams) -> UnmatchedRequestPolicy {
    if block.is_mapping("unmatched") {
        let pass = block.read_inner("unmatched", |block| upstreams.named(block, "pass")).flatten();
        return pass.map_or(UnmatchedRequestPolicy::Reject, UnmatchedRequestPolicy::Pass);
    }
    let word = block.value("unmatched", |text| match text {
        "reject" => Ok(UnmatchedRequestPolicy::Reject),
        _ => Err(Diagnostic::new(
            DiagnosticCode::UnknownValue,
            format!("`{text}` is not a value of `unmatched`"),
        )
        .with_remedy("write `reject`, or `{pass: <an upstream>}`")),
    });
    word.unwrap_or(UnmatchedRequestPolicy::Reject)
}

/// Reads `allow_mixed`, and warns if it is set, so that it is not forgotten.
fn parse_mixed_plans(block: &mut MappingReader) -> MixedPlanPolicy {
    let written = block.keyword("allow_mixed", MixedPlanPolicy::WORDS);
    if written == Some(MixedPlanPolicy::Allow) {
        let message = "beside a gateway with other key templates this one serves all the same: one resource has two locks then";
        let remedy = "leave it out once all gateways have one file; `fencegate reload --dry-run --fleet -c FILE` says whether they agree";
        block.report("allow_mixed", Diagnostic::new(DiagnosticCode::MixedPlans, message).with_remedy(remedy));
    }
    written.unwrap_or_default()
}

/// Warns if requests without a route pass to a service with protected routes: a path that no route matches then
/// passes without a lock.
fn warn_open_unmatched(
    block: &mut MappingReader,
    unmatched: UnmatchedRequestPolicy,
    upstreams: &ParsedUpstreams,
) {
    let UnmatchedRequestPolicy::Pass(id) = unmatched else { return };
    if upstreams.is_protected(id) {
        let message = "what no route takes passes without a check, to a service that has routes with a fence or an `allow`";
        let remedy = "write `reject`, and a route with `fence: none` for each path that may pass";
        block
            .report("unmatched", Diagnostic::new(DiagnosticCode::OpenUnmatched, message).with_remedy(remedy));
    }
}

/// Warns if the lock can be lost during a request to a service that compares no tokens, where only the lock keeps
/// requests apart. While heartbeats succeed, the last byte is sent at most a safety margin after the newest
/// heartbeat. So a request ends before the session if it takes no longer than the session timeout less the margin.
fn warn_lock_loss(upstreams: &ParsedUpstreams, zookeeper: &ZooKeeperSettings, faults: &Diagnostics) {
    let session = zookeeper.session_timeout;
    let margin = zookeeper.margin(zookeeper.session_timeout);
    let most = session.saturating_sub(margin);
    for (upstream, place) in upstreams.valid_upstreams() {
        let outlives = upstream.response_timeout > most;
        if outlives && upstream.has_fenced_routes && upstream.fencing == FencingLevel::None {
            let message = format!(
                "the lock can be lost while a request to `{}` is still allowed to run: it may take {}, and a session of \
                 {} less its margin of {} is {}",
                upstream.name,
                scalar::format_duration(upstream.response_timeout),
                scalar::format_duration(session),
                scalar::format_duration(margin),
                scalar::format_duration(most),
            );
            let remedy = format!(
                "make `response_timeout` at most `{}`, or `zookeeper.session_timeout` longer",
                scalar::format_duration(most)
            );
            faults
                .push(Diagnostic::new(DiagnosticCode::LockCanBeLost, message).at(place).with_remedy(remedy));
        }
    }
}

/// A hash of everything that decides which lock a request takes, and which operation it is. Other fields, such as
/// timeouts, may differ between gateways and do not count. Neither do routes without a lock whose methods no fenced
/// route takes.
fn fingerprint(zookeeper: &ZooKeeperSettings, routes: &[Route], upstreams: &[Upstream]) -> u64 {
    let fenced = || routes.iter().filter(|route| route.fence.is_some());
    let counts = |route: &&Route| route.fence.is_some() || fenced().any(|fenced| share_method(fenced, route));
    let mut text = format!("1\n{}\n", zookeeper.root);
    for route in routes.iter().filter(counts) {
        let delayed = match upstreams[route.upstream.0].fencing {
            FencingLevel::Delay(_) => " delay",
            FencingLevel::None | FencingLevel::Guard | FencingLevel::Upstream => "",
        };
        let fence = route.fence.as_ref().map_or("none".to_owned(), |fence| lock_fingerprint(fence) + delayed);
        text.push_str(&format!("{} {}{} {fence}\n", route.methods.join(","), route.path, route.conditions));
    }
    fnv1a(text.as_bytes())
}

/// Whether one request can have a method that both routes take. An empty list means every method.
fn share_method(one: &Route, other: &Route) -> bool {
    let every = one.methods.is_empty() || other.methods.is_empty();
    every || one.methods.iter().any(|method| other.methods.contains(method))
}

/// The part of the fingerprint for one fence. Sets with the same keys give the same text, in any order.
fn lock_fingerprint(fence: &FenceRule) -> String {
    let mut keys: Vec<String> = fence.keys.iter().map(ToString::to_string).collect();
    keys.sort_unstable();
    keys.dedup();
    // Gateways that name operations by different rules do not recognise each other's operations.
    let operations = fence.once.as_ref().map_or_else(String::new, |once| {
        let (store, scope, key, principal) = once.identity();
        let store = match store {
            IdempotencyStore::Guard => "Guard",
            IdempotencyStore::ZooKeeper => "ZooKeeper",
        };
        format!(" once {store} {scope} {key} {}", principal.unwrap_or_default())
    });
    let place = match &fence.placing {
        LockPlacement::Native => String::new(),
        LockPlacement::Semaphore { permits } => format!(" permits {permits}"),
        LockPlacement::Foreign { layout, path } => format!(" {} {path}", layout.as_str()),
    };
    let former = fence.former.as_ref().map_or_else(String::new, |former| match &former.placing {
        LockPlacement::Native | LockPlacement::Semaphore { .. } => format!(" from {}", former.key),
        LockPlacement::Foreign { layout, path } => format!(" from {} {} {path}", former.key, layout.as_str()),
    });
    let named = fence.client_name.map_or_else(String::new, |kind| format!(" name {}", kind.published()));
    // No key contains a tab, so tabs separate the keys unambiguously.
    format!("{} {}{place}{former}{operations}{named}", fence.mode.as_str(), keys.join("\t"))
}
