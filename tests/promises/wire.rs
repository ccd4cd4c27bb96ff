//! The HTTP face, byte for byte: every case of `tests/wire/*.case` holds.

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

async fn holds(file: &str) {
    let site = TestSite::fresh().await;
    let service = ScriptedService::start().await;
    let gateway = gateway(&site, &service).await;
    let (mut wrong, mut requests) = (String::new(), 0);
    for case in case::load(file) {
        let played = run::play(&case, gateway.public, &service).await;
        requests += played.requests.len();
        let complaints = judge::complaints(&case, &played);
        if !complaints.is_empty() {
            wrong.push_str(&judge::report(&case, &played, &complaints));
        }
    }
    // A request that arrived late belongs to no case, and is an error.
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(
        service.requests().len(),
        requests,
        "a request arrived behind its case: {:?}",
        service.requests()
    );
}

macro_rules! files {
    ($($promise:ident: $file:literal;)*) => {
        $(
            #[tokio::test]
            async fn $promise() {
                holds($file).await;
            }
        )*

        #[test]
        fn every_file_of_cases_is_played() {
            assert_eq!(case::files(), [$($file),*]);
        }
    };
}

files! {
    bodies_pass_whole_or_not_at_all: "bodies.case";
    connections_are_kept_and_ended_as_the_client_may_expect: "connections.case";
    expectations_are_met_here_or_refused: "expect.case";
    fields_of_one_hop_and_of_ours_never_pass: "fields.case";
    two_servers_cannot_read_the_end_of_a_request_differently: "framing.case";
    there_is_exactly_one_host: "hosts.case";
    limits_are_told_with_their_own_status: "limits.case";
    methods_and_targets_have_one_meaning: "methods.case";
    every_path_has_one_spelling_or_is_refused: "paths.case";
    answers_pass_as_they_are_but_for_what_only_we_may_say: "responses.case";
}
