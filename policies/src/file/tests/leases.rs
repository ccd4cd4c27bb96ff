//! Tests how a policy grants leases to clients.

use std::time::Duration;

use super::{super::*, MINIMAL, gateway};
use crate::{
    diagnostics::DiagnosticCode,
    key::ResourceKey,
    plan::{LeaseGrantSettings, PrincipalCredential, RequestLeasePolicy},
};

const BATCH: &str =
    r#"{name: batch, bearer: {file: /run/secrets/batch}, keys: ["job/*", "order/{principal}/*"]}"#;

fn policy(leases: &str) -> String {
    format!("{MINIMAL}\nleases: {{{leases}}}\n")
}

fn leases(text: &str) -> LeaseGrantSettings {
    gateway(&policy(text)).leases.expect("leases")
}

/// A field of `leases` that is absent has its documented default.
#[test]
fn absent_lease_fields_have_documented_defaults() {
    assert_eq!(gateway(MINIMAL).leases, None);
    let leases = leases(&format!("principals: [{BATCH}]"));
    let seconds = |seconds| Duration::from_secs(seconds);
    assert_eq!((leases.min_ttl, leases.default_ttl, leases.max_ttl), (seconds(2), seconds(15), seconds(60)));
    assert_eq!((leases.max_wait, leases.max_age), (seconds(60), seconds(86_400)));
    assert_eq!((leases.most, leases.per_principal), (10_000, 1000));
    let [batch] = &*leases.principals else { panic!("one") };
    assert_eq!((&*batch.name, batch.operator), ("batch", false));
    assert_eq!(batch.shows, PrincipalCredential::Bearer("/run/secrets/batch".into()));
    let may = |key: &str| {
        let key = ResourceKey::parse(key).expect("a key");
        batch.keys.iter().any(|pattern| pattern.matches(&key))
    };
    assert!(may("job/nightly") && may("order/batch/7"));
    assert!(!may("order/other/7") && !may("jobs"));
}

/// A default is adjusted to the limits that the policy sets.
#[test]
fn lease_defaults_fit_written_limits() {
    let defaults = |text: &str| {
        let leases = leases(&format!("{text}, principals: [{BATCH}]"));
        (leases.default_ttl.as_secs(), leases.per_principal)
    };
    assert_eq!(defaults("max_ttl: 5s"), (5, 1000));
    assert_eq!(defaults("min_ttl: 30s"), (30, 1000));
    assert_eq!(defaults("most: 7"), (15, 7));
}

/// A fence declares whether its requests may or must run under a lease.
#[test]
fn fence_declares_lease_policy() {
    let with = |lease: &str| {
        let text = policy(&format!("principals: [{}]", BATCH.replace("job/*", "*")));
        let plan = gateway(&text.replace("fence: {", &format!("fence: {{{lease}"))).serving;
        let uses = plan.routes.routes().iter().filter_map(|route| Some(route.fence.as_ref()?.lease));
        uses.collect::<Vec<_>>()
    };
    assert_eq!(with(""), [RequestLeasePolicy::Never]);
    assert_eq!(with("lease: optional, "), [RequestLeasePolicy::Optional]);
    assert_eq!(with("lease: required, "), [RequestLeasePolicy::Required]);
}

/// A plain-text listener with leases gets a warning unless it has trusted peers, because only the operator
/// knows whether a proxy before it speaks TLS.
#[test]
fn plain_text_leases_warn_without_proxy() {
    let codes = |address: &str, more: &str| {
        let text = format!(
            "version: 1\nlisteners: {{one: {{address: {address}{more}}}}}\nzookeeper: {{servers: [zk1:2181]}}\n\
             leases: {{principals: [{BATCH}]}}\nupstreams: {{}}\n"
        );
        load(&text).diagnostics.into_iter().map(|one| one.code).collect::<Vec<_>>()
    };
    assert_eq!(codes("0.0.0.0:8080", ""), [DiagnosticCode::PlainLease]);
    for (address, more) in [
        ("127.0.0.1:8080", ""),
        ("unix:/run/fencegate.sock", ""),
        ("0.0.0.0:8080", ", trusted_peers: [10.0.0.0/8]"),
    ] {
        assert_eq!(codes(address, more), [], "{address}{more}");
    }
}
