//! Tests the plans of guards' files, and how these files are distinguished from policies.

use std::time::Duration;

use super::{GUARD, MINIMAL, PAYMENTS};
use crate::{
    diagnostics::DiagnosticCode,
    file::{LoadedPolicy, PolicyProcessKind, detect_file_kind, load, load_guard},
    plan::{
        ClientTls, Enforcement, FencingLevel, GuardPlan, GuardStoreLocation, MissingFencingTokenPolicy,
        NotAfterEnforcement, OutcomeProbeSettings, PostgresLocation, TicketVerificationKeys,
        UnmatchedRequestPolicy, UpstreamId,
    },
};

fn guard(text: &str) -> GuardPlan {
    let LoadedPolicy { plan, diagnostics, .. } = load_guard(text);
    plan.unwrap_or_else(|| panic!("{diagnostics:?}"))
}

const LEAST_GUARD: &str = r#"version: 1
listener: {address: 127.0.0.1:8080}
upstream: {endpoint: "http://127.0.0.1:8000"}
store: {redb: /var/lib/guard.redb}
"#;

/// A field that is absent from the file of a guard has its documented default.
#[test]
fn absent_fields_have_documented_defaults() {
    let guard = guard(LEAST_GUARD);
    let seconds = |seconds| Duration::from_secs(seconds);
    assert_eq!((guard.settle, guard.max_execution), (seconds(10), seconds(30)));
    assert_eq!((guard.send_within, guard.evict_after), (seconds(5), seconds(3600)));
    assert_eq!((guard.missing, guard.enforce), (MissingFencingTokenPolicy::Refuse, Enforcement::Refuse));
    assert!(guard.unfenced.is_empty() && guard.tickets.is_none());
    assert_eq!((guard.journal.keep, guard.journal.max_body), (seconds(86_400), 65_536));
    assert!(guard.journal.final_statuses.is_empty() && guard.journal.probe.is_none());
    let serving = guard.serving;
    assert_eq!((&*serving.listener.name, serving.admin.address.port()), ("guard", 9902));
    assert_eq!(serving.unmatched, UnmatchedRequestPolicy::Pass(UpstreamId(0)));
    assert!(serving.routes.routes().is_empty());
    let [upstream] = &serving.upstreams[..] else { panic!("one upstream") };
    assert_eq!(
        (&*upstream.name, upstream.fencing, upstream.direct),
        ("upstream", FencingLevel::Upstream, false)
    );
    assert_eq!((upstream.response_timeout, upstream.has_fenced_routes), (seconds(15), true));
}

/// Each value that the file of a guard sets reaches its plan.
#[test]
fn written_fields_reach_plan() {
    let guard = guard(GUARD);
    assert_eq!(guard.store, GuardStoreLocation::Redb("/var/lib/fencegate-guard/guard.redb".into()));
    assert_eq!((guard.settle, guard.max_execution), (Duration::from_secs(15), Duration::from_secs(25)));
    assert_eq!(guard.unfenced, ["GET", "HEAD"]);
    let keys = TicketVerificationKeys::PublicKeys("/etc/fencegate/ticket-keys.json".into());
    assert_eq!(guard.tickets, Some(keys));
    assert_eq!(guard.journal.final_statuses, [501]);
    let probe = OutcomeProbeSettings {
        path: "/v1/operations/{operation}".into(),
        done: vec![200],
        not_done: vec![404],
        closes: true,
        timeout: Duration::from_secs(3),
    };
    assert_eq!(guard.journal.probe, Some(probe));
    assert_eq!(guard.serving.listener.limits.max_body, 256 << 10);
}

/// A value in the file of a guard replaces the default.
#[test]
fn file_overrides_defaults() {
    let text = LEAST_GUARD.replace(
        "endpoint: \"http://127.0.0.1:8000\"",
        "endpoints: [\"http://a:1\", \"http://b\"], fields: {token: X-Token}, response_timeout: 25s",
    );
    let journal = "journal: {keep: 30days, store_body: none}\n";
    let tickets = "tickets: {jwks_url: \"http://gw-1:9901/keys?all\"}\n";
    let guard = guard(&format!("{text}{journal}{tickets}missing: observe\nenforce: observe\n"));
    assert_eq!((guard.missing, guard.enforce), (MissingFencingTokenPolicy::Observe, Enforcement::Observe));
    assert_eq!(guard.journal.keep, Duration::from_secs(30 * 86_400));
    assert_eq!(guard.journal.max_body, 0);
    assert_eq!(guard.tickets, Some(TicketVerificationKeys::Jwks("http://gw-1:9901/keys?all".into())));
    assert_eq!(guard.serving.upstreams[0].endpoints.len(), 2);
    assert!(guard.serving.fields.is_reserved_header("x_token"));
}

/// A filter has no store, and none of the fields that need one.
#[test]
fn filter_has_no_store_fields() {
    let filter = LEAST_GUARD.replace("store: {redb: /var/lib/guard.redb}", "filter: {}");
    let LoadedPolicy { plan, diagnostics, .. } = load_guard(&filter);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    let plan = plan.expect("sound");
    assert_eq!((&plan.store, plan.clock_error), (&GuardStoreLocation::Stateless, Duration::from_millis(500)));
    let exact = guard(&filter.replace("filter: {}", "filter: {clock_error: 0ms}"));
    assert_eq!((exact.store, exact.clock_error), (GuardStoreLocation::Stateless, Duration::ZERO));
    for field in ["settle: 10s", "max_execution: 30s", "clock_error: 1s", "tickets: {secret_file: /b}"] {
        let LoadedPolicy { plan, diagnostics, .. } = load_guard(&format!("{filter}{field}\n"));
        let codes: Vec<DiagnosticCode> = diagnostics.iter().map(|one| one.code).collect();
        assert!(plan.is_none() && codes == [DiagnosticCode::NoEffect], "{field}: {diagnostics:?}");
    }
    let both = load_guard(&format!("{LEAST_GUARD}filter: {{}}\n"));
    assert!(both.plan.is_none() && both.diagnostics.iter().any(|one| one.code == DiagnosticCode::OnlyOne));
}

/// The file of a guard declares whether late requests are refused behind it.
#[test]
fn guard_file_declares_expiry_policy() {
    let with = |fields: &str| {
        let endpoint = "endpoint: \"http://127.0.0.1:8000\"";
        let loaded = load_guard(&LEAST_GUARD.replace(endpoint, &format!("{endpoint}, {fields}")));
        loaded.plan.map(|plan| (plan.serving.upstreams[0].expiry, plan.serving.upstreams[0].direct))
    };
    assert_eq!(with("not_after: ignored"), Some((NotAfterEnforcement::Ignored, false)));
    assert_eq!(with("not_after: enforced"), Some((NotAfterEnforcement::Enforced, false)));
    assert_eq!(with("not_after: enforced, direct: true"), Some((NotAfterEnforcement::Enforced, true)));
    assert_eq!(with("direct: true"), None, "it has no effect");
}

/// Several guards can share one PostgreSQL store.
#[test]
fn guards_share_one_store() {
    let with = |store: &str| guard(&LEAST_GUARD.replace("redb: /var/lib/guard.redb", store)).store;
    let plain = PostgresLocation { url_file: "/run/secrets/database".into(), tls: None };
    for tls in ["", ", tls: ", ", tls: null"] {
        let store = with(&format!("postgres: {{url_file: /run/secrets/database{tls}}}"));
        assert_eq!(store, GuardStoreLocation::Postgres(plain.clone()), "{tls}");
    }
    // With `tls: {}`, the certificates that the system trusts are used.
    let secured = PostgresLocation { tls: Some(ClientTls::default()), ..plain.clone() };
    assert_eq!(
        with("postgres: {url_file: /run/secrets/database, tls: {}}"),
        GuardStoreLocation::Postgres(secured)
    );
    let tls = ClientTls { ca_file: Some("/etc/ca.pem".into()), ..ClientTls::default() };
    let believed = with("postgres: {url_file: /run/secrets/database, tls: {ca_file: /etc/ca.pem}}");
    assert_eq!(believed, GuardStoreLocation::Postgres(PostgresLocation { tls: Some(tls), ..plain }));
}

/// A file is that of a guard if it has a field of guards, and no field of gateways.
#[test]
fn guard_fields_decide_file_kind() {
    for text in [GUARD, LEAST_GUARD, "store:", "upstream: 1"] {
        assert_eq!(detect_file_kind(text), PolicyProcessKind::Guard, "{text}");
    }
    for text in [MINIMAL, PAYMENTS, "", "version: 1", "store: {}\nroutes: []", "{", "[store]"] {
        assert_eq!(detect_file_kind(text), PolicyProcessKind::Gateway, "{text}");
    }
    assert_eq!(load(GUARD).diagnostics[0].code, DiagnosticCode::OtherFile);
    assert_eq!(load_guard(MINIMAL).diagnostics[0].code, DiagnosticCode::OtherFile);
}
