//! Tests the plans of valid files, and the faults of invalid ones.

mod guard;
mod leases;
mod reference;
mod schema;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    diagnostics::DiagnosticCode,
    path::CanonicalPath,
    plan::{
        CachedHoldLimits, CommonServingPlan, Enforcement, FenceRule, FencingLevel, IdempotencyStore,
        LargeBodyPolicy, ListenerLimits, ListenerProtocols, ListenerTimeouts, LockModeRule, LockReusePolicy,
        PeerForwardPolicy, TicketSigningKey, UnmatchedRequestPolicy, UpstreamId,
    },
};

const MINIMAL: &str = include_str!("../../examples/minimal.yaml");
const PAYMENTS: &str = include_str!("../../examples/payments.yaml");
const INVENTORY: &str = include_str!("../../examples/inventory.yaml");
const GUARD: &str = include_str!("../../examples/guard.yaml");

fn gateway(text: &str) -> GatewayPlan {
    let LoadedPolicy { plan, diagnostics, .. } = load(text);
    plan.unwrap_or_else(|| panic!("{diagnostics:?}"))
}

fn plan(text: &str) -> CommonServingPlan {
    gateway(text).serving
}

/// A field that is absent has its documented default.
#[test]
fn absent_fields_have_documented_defaults() {
    let plan = plan(MINIMAL);
    let limits = ListenerLimits {
        connections: 4000,
        connections_per_client: None,
        in_flight: 10_000,
        per_client: None,
        streams: 100,
        max_header: 65_536,
        max_fields: 100,
        max_body: 1_048_576,
        buffered: None,
    };
    let timeouts = ListenerTimeouts {
        tls_handshake: Duration::from_secs(5),
        detect: Duration::from_secs(5),
        request_headers: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        request_body: Duration::from_secs(10),
        response_write: Duration::from_secs(30),
        drain: Duration::from_secs(45),
    };
    assert_eq!(plan.listener.protocols, ListenerProtocols::Both);
    assert_eq!((plan.listener.limits, plan.listener.timeouts), (limits, timeouts));
    assert_eq!(plan.admin.address.to_string(), "127.0.0.1:9901");
    assert_eq!((plan.name, plan.unmatched), (None, UnmatchedRequestPolicy::Reject));
    let zookeeper = gateway(MINIMAL).zookeeper;
    assert_eq!(zookeeper.root, "/fencegate");
    assert_eq!(zookeeper.session_timeout, Duration::from_secs(12));
    assert_eq!((zookeeper.tick, zookeeper.safety_margin), (Duration::from_secs(2), None));
    assert_eq!(zookeeper.sessions, 4);
    let upstream = &plan.upstreams[0];
    assert_eq!((&*upstream.fields.token, &*upstream.fields.number), ("fencing-token", "fencing-number"));
    assert_eq!(upstream.connect_timeout, Duration::from_secs(3));
    assert_eq!(upstream.response_body_idle, Duration::from_secs(30));
    assert_eq!(upstream.response_body_total, Duration::from_secs(120));
    assert_eq!(upstream.response_fields, 100);
    assert_eq!(upstream.unfinished.statuses(), [502, 504]);
    assert_eq!(upstream.operation_field, None);
    assert_eq!(upstream.idle, Duration::from_secs(30));
    let fence = plan.routes.routes()[0].fence.as_ref().expect("fenced");
    assert_eq!((fence.keys.len(), fence.set, fence.mode), (1, false, LockModeRule::Exclusive));
    assert_eq!(
        (fence.hold, fence.locked_status),
        (LockReusePolicy::Cached(CachedHoldLimits::default()), 423)
    );
    assert_eq!((fence.wait, fence.queue, fence.max_response), (Duration::from_secs(5), 100, 1_048_576));
    assert_eq!(fence.large_bodies, LargeBodyPolicy::Refuse);
}

/// Each value that a policy sets reaches the plan.
#[test]
fn written_fields_reach_plan() {
    let plan = plan(PAYMENTS);
    assert_eq!(plan.name.as_deref(), Some("gw-1"));
    assert_eq!(plan.listener.limits.max_body, 256 << 10);
    assert_eq!(gateway(PAYMENTS).zookeeper.servers, ["zk1:2181", "zk2:2181", "zk3:2181"]);
    assert_eq!(plan.upstream(UpstreamId(0)).endpoints.len(), 1);
    assert!(plan.upstreams[0].has_fenced_routes);
    let found = |method, path| {
        let id = plan.routes.find(method, &CanonicalPath::parse(path), &()).expect("no conditions")?.route.id;
        let route = plan.routes.get(id);
        Some((&*route.name, route.fence.as_ref()))
    };
    let (name, fence) = found("POST", "/v1/orders/42/capture").expect("routed");
    let fence = fence.expect("fenced");
    assert_eq!((name, fence.wait, fence.queue), ("capture", Duration::from_secs(2), 50));
    let (_, payout) = found("POST", "/v1/payouts").expect("routed");
    let payout = payout.expect("fenced");
    assert_eq!((payout.wait, payout.locked_status), (Duration::from_secs(5), 409));
    assert!(matches!(found("GET", "/v1/orders/42"), Some(("read", None))));
    assert!(found("POST", "/v1/orders/42").is_none());
}

/// The fence of the route with this name.
fn fence(plan: &CommonServingPlan, route: &str) -> FenceRule {
    let routes = plan.routes.routes();
    let route = routes.iter().find(|known| &*known.name == route).expect("a route of that name");
    route.fence.clone().expect("fenced")
}

/// A set has all keys of its list, and its locks are never kept between requests.
#[test]
fn key_set_is_always_strict() {
    let plan = plan(INVENTORY);
    let transfer = fence(&plan, "transfer");
    assert_eq!((transfer.keys.len(), transfer.set, transfer.hold), (2, true, LockReusePolicy::Strict));
    assert!(transfer.reads_body() && !fence(&plan, "reserve").reads_body());
    let modes = ["reserve", "count", "record"].map(|route| fence(&plan, route).mode);
    assert_eq!(modes, [LockModeRule::Exclusive, LockModeRule::Shared, LockModeRule::ByMethod]);
    assert_eq!(fence(&plan, "reserve").hold, LockReusePolicy::Cached(CachedHoldLimits::default()));
    assert_eq!(fence(&plan, "recount").hold, LockReusePolicy::Strict);
}

/// A fence inherits the fields of `hold` that it does not set.
#[test]
fn fence_inherits_unset_hold_fields() {
    let hold = |defaults: &str, own: &str| {
        let fence_ = format!("order/{{path.order_id}}\", hold: {{{own}}}}}");
        let text = MINIMAL.replace("order/{path.order_id | int}\"}", &fence_);
        let plan = plan(&format!("{text}defaults: {{hold: {{{defaults}}}}}\n"));
        plan.routes.routes()[0].fence.as_ref().expect("fenced").hold
    };
    let caching =
        CachedHoldLimits { linger: Duration::from_secs(1), max_local: 8, ..CachedHoldLimits::default() };
    assert_eq!(hold("linger: 1s, max_local: 9", "max_local: 8"), LockReusePolicy::Cached(caching));
    assert_eq!(hold("linger: 1s", "mode: strict"), LockReusePolicy::Strict);
    assert_eq!(hold("mode: strict", ""), LockReusePolicy::Strict);
    assert_eq!(
        hold("mode: strict", "mode: cached, linger: 1s, max_local: 8"),
        LockReusePolicy::Cached(caching)
    );
    let none = CachedHoldLimits { linger: Duration::ZERO, ..CachedHoldLimits::default() };
    assert_eq!(hold("", "linger: 0s"), LockReusePolicy::Cached(none));
}

/// The fingerprint changes with the locks of a plan and with nothing else.
#[test]
fn fingerprint_covers_locks_only() {
    let fingerprint = |from: &str, to: &str| gateway(&PAYMENTS.replace(from, to)).fingerprint;
    let before = gateway(PAYMENTS).fingerprint;
    // Changes that affect no lock. Routes without a lock count only if one of their methods is locked by
    // another route.
    for (from, to) in [
        ("name: gw-1", "name: gw-2"),
        ("wait: 2s", "wait: 3s"),
        ("[GET, HEAD]", "[GET]"),
        ("/v1/{rest...}", "/v2/{rest...}"),
    ] {
        assert_eq!(fingerprint(from, to), before, "{to}");
    }
    for (from, to) in [
        ("\"order/{", "\"orders/{"),
        ("root: /fencegate/payments", "root: /fencegate/other"),
        ("/v1/payouts", "/v2/payouts"),
        ("[GET, HEAD]", "[GET, POST]"),
        ("methods: [GET, HEAD], ", ""),
        ("| trim | lower |", "| trim |"),
    ] {
        assert_ne!(fingerprint(from, to), before, "{to}");
    }
}

/// The fingerprint of a set depends on its keys, and not on their order.
#[test]
fn set_fingerprint_ignores_key_order() {
    let before = gateway(INVENTORY).fingerprint;
    let one = "sku/{body:/from |";
    let other = "sku/{body:/to |";
    let swapped = INVENTORY.replace(one, "swap").replace(other, one).replace("swap", other);
    assert!(swapped != INVENTORY && gateway(&swapped).fingerprint == before);
    for (from, to) in [(other, one), ("mode: shared", "mode: exclusive"), ("/from", "/source")] {
        assert_ne!(gateway(&INVENTORY.replace(from, to)).fingerprint, before, "{to}");
    }
    let kept = INVENTORY.replace("max_local: 64", "max_local: 8").replace("sessions: 4", "sessions: 2");
    assert_eq!(gateway(&kept).fingerprint, before);
}

/// A renamed token field is reserved in every spelling.
#[test]
fn renamed_token_fields_are_reserved() {
    let renamed = MINIMAL.replace("fencing: none", "fencing: none\n    fields: {token: X-My-Token}");
    let plan = plan(&renamed);
    assert_eq!(plan.upstreams[0].fields.token, "x-my-token");
    assert!(plan.fields.is_reserved_header("X_my-TOKEN") && plan.fields.is_reserved_header("fencing-key"));
}

/// The field for the name of an operation is reserved in every spelling.
#[test]
fn operation_field_is_reserved() {
    let renamed = MINIMAL.replace("fencing: none", "fencing: none\n    operation_field: X-Operation-Id");
    let plan = plan(&renamed);
    assert_eq!(plan.upstreams[0].operation_field.as_deref(), Some("x-operation-id"));
    assert!(plan.fields.is_reserved_header("X_operation-ID"));
}

/// Requests without a route pass only if the policy has `unmatched: {pass: ...}`.
#[test]
fn unmatched_requests_pass_only_if_configured() {
    let text = format!("{MINIMAL}unmatched: {{pass: orders}}\n");
    assert_eq!(plan(&text).unmatched, UnmatchedRequestPolicy::Pass(UpstreamId(0)));
}

/// A field without a value counts as absent.
#[test]
fn null_field_counts_as_absent() {
    let text = format!("{MINIMAL}admin:\ndefaults: ~\nunmatched: null\n");
    assert_eq!(plan(&text).unmatched, UnmatchedRequestPolicy::Reject);
    let emptied = load(&MINIMAL.replace("fence: {key: \"order/{path.order_id | int}\"}", "fence:"));
    assert_eq!(emptied.diagnostics[0].code, DiagnosticCode::MissingField);
}

/// A block of comments does not change the policy, however long it is and wherever it is.
#[test]
fn long_comments_are_skipped() {
    let comments = "  # - name: later\n  #   upstream: orders\n".repeat(500);
    let text = MINIMAL.replace("routes:\n", &format!("routes:\n{comments}\n"));
    assert_eq!(plan(&text).routes.routes().len(), 1);
    let last = format!("{MINIMAL}{comments}");
    assert_eq!(plan(&last).routes.routes().len(), 1);
    let alone = MINIMAL.split_once("routes:").expect("routes").0;
    assert!(plan(&format!("{alone}routes:\n{comments}unmatched: reject\n")).routes.routes().is_empty());
}

/// A text that looks like a number stays as it was written.
#[test]
fn numeric_text_stays_as_written() {
    let plan = plan(&MINIMAL.replace("\"order/{path.order_id | int}\"", "007"));
    let fence = plan.routes.routes()[0].fence.as_ref().expect("fenced");
    assert_eq!(fence.keys[0].to_string(), "007");
}

/// A file of many megabytes is refused.
#[test]
fn oversized_file_is_rejected() {
    let text = format!("{MINIMAL}{}", "# more\n".repeat(2 << 20));
    assert_eq!(load(&text).diagnostics[0].code, DiagnosticCode::TooMuch);
}

/// An upstream behind a guard has a longer default response timeout.
#[test]
fn guarded_upstream_has_longer_timeout() {
    let guarded = MINIMAL.replace("fencing: none", "fencing: guard");
    let upstream = |text: &str| plan(text).upstreams[0].clone();
    let default = upstream(&guarded.replace("response_timeout: 8s", ""));
    assert_eq!((default.fencing, default.direct), (FencingLevel::Guard, false));
    assert_eq!(default.response_timeout, Duration::from_secs(45));
    let written =
        upstream(&guarded.replace("response_timeout: 8s", "response_timeout: 20s\n    direct: true"));
    assert_eq!((written.response_timeout, written.direct), (Duration::from_secs(20), true));
}

/// The key that signs tickets, and the state directory, are in the plan.
#[test]
fn tickets_and_state_reach_plan() {
    let payments = gateway(PAYMENTS);
    assert_eq!(
        payments.tickets,
        Some(TicketSigningKey::Ed25519("/etc/credstore/fencegate-ticket-key".into()))
    );
    assert_eq!(payments.state_dir, Some("/var/lib/fencegate".into()));
    let secret = gateway(&format!("{MINIMAL}tickets: {{secret_file: /run/secret}}\n"));
    assert_eq!(
        (secret.tickets, secret.state_dir),
        (Some(TicketSigningKey::Secret("/run/secret".into())), None)
    );
    assert_eq!(gateway(MINIMAL).tickets, None);
}

/// Operations are stored in the guard or in ZooKeeper, depending on the fencing level of the upstream.
#[test]
fn operation_store_follows_upstream() {
    let once = |level: &str, once: &str| {
        let fence = format!("order/{{path.order_id}}\", once: {{{once}}}");
        let text = MINIMAL.replace("fencing: none", level).replace("order/{path.order_id | int}\"", &fence);
        let fence = plan(&text).routes.routes()[0].fence.clone().expect("fenced");
        assert!(fence.once_rule("GET").is_some() && fence.once_rule("POST").is_some());
        fence.once.expect("operations")
    };
    let default = once("fencing: none", "");
    assert_eq!((default.store, default.required), (IdempotencyStore::ZooKeeper, true));
    assert_eq!(default.key.to_string(), "{header.idempotency-key}");
    assert_eq!((default.principal, default.keep), (None, Duration::from_secs(86_400)));
    let written = once("fencing: guard", "required: false, keep: 7days, principal: \"{header.x-shop}\"");
    assert_eq!((written.store, written.required), (IdempotencyStore::Guard, false));
    assert_eq!(written.principal.map(|whose| whose.to_string()).as_deref(), Some("{header.x-shop}"));
    assert_eq!(written.keep, Duration::from_secs(7 * 86_400));
}

/// A fence inherits `enforce`: whether it refuses requests or only observes.
#[test]
fn fence_inherits_enforcement() {
    let enforce = |defaults: &str, own: &str| {
        let fence = format!("order/{{path.order_id}}\", {own}");
        let text = MINIMAL.replace("order/{path.order_id | int}\"", &fence);
        let plan = plan(&format!("{text}defaults: {{{defaults}}}\n"));
        plan.routes.routes()[0].fence.as_ref().expect("fenced").enforce
    };
    assert_eq!(enforce("", ""), Enforcement::Refuse);
    assert_eq!(enforce("enforce: observe", ""), Enforcement::Observe);
    assert_eq!(enforce("enforce: observe", "enforce: refuse"), Enforcement::Refuse);
}

/// The advertised address of a gateway is the address of its peer listener, unless `advertise` is set.
#[test]
fn peer_address_defaults_to_listener() {
    let peer = |written: &str| gateway(&format!("{MINIMAL}peer: {{{written}}}\n")).peer.expect("a peer");
    let advertised = |written: &str| peer(written).advertise;
    assert_eq!(advertised("address: 127.0.0.1:9910"), "127.0.0.1:9910");
    assert_eq!(advertised("address: \"[::1]:9910\""), "[::1]:9910");
    assert_eq!(advertised("address: 0.0.0.0:9910, advertise: Gw-1.Internal.:9911"), "gw-1.internal:9911");
    assert_eq!(advertised("address: 127.0.0.1:0, advertise: 127.0.0.1:9910"), "127.0.0.1:9910");
    let tls = "tls: {certificate_file: /a, key_file: /b, ca_file: /c}";
    let secured = peer(&format!("address: 127.0.0.1:9910, {tls}")).tls.expect("TLS");
    assert_eq!((secured.pair.key, secured.ca_file), ("/b".into(), "/c".into()));
    assert_eq!((peer("address: 127.0.0.1:9910").tls, gateway(MINIMAL).peer), (None, None));
}

/// A fence that does not keep its key inherits no `forward`.
#[test]
fn uncached_fence_inherits_no_forwarding() {
    let forward = |own: &str| {
        let text =
            MINIMAL.replace("order/{path.order_id | int}\"", &format!("order/{{path.order_id}}\", {own}"));
        let more = "peer: {address: 127.0.0.1:9910}\ndefaults: {forward: holder}\n";
        plan(&format!("{text}{more}")).routes.routes()[0].fence.as_ref().expect("fenced").forward
    };
    for own in ["", "mode: by-method", "hold: {linger: 1s}", "large_bodies: stream"] {
        assert_eq!(forward(own), PeerForwardPolicy::Holder, "{own}");
    }
    for own in ["forward: never", "hold: {mode: strict}", "mode: shared", "enforce: observe"] {
        assert_eq!(forward(own), PeerForwardPolicy::Never, "{own}");
    }
}

fn loads_consistently(text: &str) -> bool {
    has_plan_or_errors(text, load(text)) && has_plan_or_errors(text, load_guard(text))
}

fn has_plan_or_errors<P>(text: &str, LoadedPolicy { plan, diagnostics, .. }: LoadedPolicy<P>) -> bool {
    let rendered = diagnostics.iter().all(|diagnostic| !diagnostic.render("a.yaml", text).is_empty());
    let errors = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    rendered && plan.is_some() != errors && diagnostics.is_sorted_by_key(|diagnostic| diagnostic.place)
}

proptest! {
    #[test]
    fn any_text_parses_without_panic(text: String) {
        prop_assert!(loads_consistently(&text));
    }

    #[test]
    fn yaml_like_text_parses_without_panic(text in "([a-z]{1,3}|[\\[\\]{}:,&*!|>'\"%@#? \n-]|: |\n  |é){0,60}") {
        prop_assert!(loads_consistently(&text));
    }

    /// A valid file in which one piece was replaced by arbitrary text yields a plan or an error, and never a
    /// panic.
    #[test]
    fn damaged_file_has_plan_or_error(
        good in prop_oneof![Just(PAYMENTS), Just(INVENTORY), Just(GUARD)],
        at: prop::sample::Index,
        length in 0..40_usize,
        piece in "|[a-z{}\\[\\]:,\"' \n./|-]{0,12}|~|5|\u{fffd}\u{1f512}",
    ) {
        let at = at.index(good.len());
        let kept: String = good.chars().skip(at + length).collect();
        let text = good.chars().take(at).chain(piece.chars()).collect::<String>() + &kept;
        prop_assert!(loads_consistently(&text), "{}", text);
    }
}
