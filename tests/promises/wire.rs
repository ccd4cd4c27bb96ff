//! The HTTP interface, byte for byte: every case of `tests/wire/*.case` holds.

use std::net::SocketAddr;

use fencegate_tests::{
    case::{self, judge, run, service::ScriptedService},
    gateway::Gateway,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

/// One gateway for the cases of a file: `/fenced/{key}` holds a lock, `/mixed/` leads to the same upstream without one,
/// `/shared/` to the same service by another name, and `/open/` to a service that has no fenced route.
pub(crate) async fn gateway(site: &TestSite, service: &ScriptedService) -> Gateway {
    Gateway::start(&policy(site, service.address, service.other)).await
}

pub(crate) fn policy(site: &TestSite, service: SocketAddr, open: SocketAddr) -> TestPolicy {
    let upstream = |endpoint: &str, fencing: &str| {
        json!({
            "endpoints": [format!("http://{endpoint}")],
            "fencing": fencing,
            "response_timeout": "2s",
            "response_body_idle": "2s",
        })
    };
    let route = |name: &str, upstream: &str, path: &str, fence: Value| json!({"name": name, "upstream": upstream, "match": {"path": path}, "fence": fence});
    site.policy("wire")
        .with("/upstreams/ledger", upstream(&service.to_string(), "upstream"))
        .with("/upstreams/alias", upstream(&format!("localhost:{}", service.port()), "none"))
        .with("/upstreams/files", upstream(&open.to_string(), "none"))
        .with("/listeners/public/timeouts", json!({"request_headers": "2s", "request_body": "2s"}))
        .with("/routes", json!([]))
        .with_route(route("fenced", "ledger", "/fenced/{key}", json!({"key": "wire/{path.key}"})))
        .with_route(route("mixed", "ledger", "/mixed/{rest...}", json!("none")))
        .with_route(route("shared", "alias", "/shared/{rest...}", json!("none")))
        .with_route(route("open", "files", "/open/{rest...}", json!("none")))
}

async fn assert_cases_hold(file: &str) {
    let site = TestSite::fresh().await;
    let service = ScriptedService::start();
    let gateway = gateway(&site, &service).await;
    let mut wrong = String::new();
    let mut requests = 0;
    for case in case::load(file) {
        let played = run::play(&case, gateway.public, &service).await;
        requests += played.requests.len();
        let complaints = judge::complaints(&case, &played);
        if !complaints.is_empty() {
            wrong.push_str(&judge::report(&case, &played, &complaints));
        }
    }
    // A request that arrives after its case is an error.
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(
        service.request_count(),
        requests,
        "a request arrived behind its case: {:?}",
        service.requests_since(0)
    );
}

macro_rules! files {
    ($($promise:ident: $file:literal;)*) => {
        $(
            #[tokio::test]
            async fn $promise() {
                assert_cases_hold($file).await;
            }
        )*

        #[test]
        fn every_case_file_is_played() {
            assert_eq!(case::files(), [$($file),*]);
        }
    };
}

files! {
    bodies_pass_whole_or_not_at_all: "bodies.case";
    connections_persist_and_close_as_expected: "connections.case";
    expect_header_is_answered_or_refused: "expect.case";
    hop_and_fencing_fields_never_pass: "fields.case";
    request_framing_is_unambiguous: "framing.case";
    request_has_exactly_one_host: "hosts.case";
    each_limit_has_own_status: "limits.case";
    methods_and_targets_have_one_meaning: "methods.case";
    every_path_has_one_spelling: "paths.case";
    responses_pass_except_reserved_fields: "responses.case";
}
