//! An explanation shows every field that a route and an upstream can have in a policy.

use std::collections::BTreeSet;

use bytes::Bytes;
use fencegate_policies::{file, schema::PolicyFields};

use super::{RequestExplanation, SampleRequest, explain};

/// Sets every field but [`LIST`].
const COMPLETE: &str = include_str!("../../../../policies/tests/complete.yaml");
const MINIMAL: &str = include_str!("../../../../policies/examples/minimal.yaml");
/// Keys of items of a list need its length, or are of all of them.
const LIST: &str = r#"fence: {keys: ["sku/{body:/items/0/sku}", "tag/{body:/tags/*}"], only: 1}"#;

fn explain_request(policy: &str, line: &str, body: &'static str) -> RequestExplanation {
    let plan = file::load(policy).plan.expect("a sound policy");
    let mut fields = vec!["host: pay.example", "x-tenant: acme", "x-shop: a", "idempotency-key: b"];
    fields.extend((!body.is_empty()).then_some("content-type: application/json"));
    let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
    let sample = SampleRequest::new(line, "pay.example", &fields, Bytes::from_static(body.as_bytes()));
    explain(&plan, &sample.expect("a request")).expect("a runtime")
}

/// Missing are only the paths of files, and `match` and `fields` stand before names in the JSON.
#[test]
fn explanation_shows_every_route_and_upstream_field() {
    // No route of the file leads to the upstream with a delay.
    let delayed = COMPLETE.replace(
        "    upstream: plain\n    match: {path: /chat}",
        "    upstream: delayed\n    match: {path: /chat}",
    );
    let with_list = MINIMAL.replace(r#"fence: {key: "order/{path.order_id}"}"#, LIST);
    let mut shown = BTreeSet::new();
    for (policy, line, body) in [
        (&*delayed, "POST /a/1?dry_run=true", ""),
        (&delayed, "GET /b/1", ""),
        (&delayed, "GET /c/1", ""),
        (&delayed, "POST /d/1", ""),
        (&delayed, "GET /e/1", ""),
        (&delayed, "GET /f/1", ""),
        (&delayed, "GET /permits/1", ""),
        (&delayed, "GET /chat", ""),
        (&delayed, "POST /members", r#"{"kind": "refund", "id": 7}"#),
        (&delayed, "POST /graphql", r#"{"query": "{ order { total } }"}"#),
        (&with_list, "POST /orders/1", ""),
    ] {
        let explanation = explain_request(policy, line, body);
        let json = serde_json::to_value(explanation.policy.as_ref().expect(line)).expect("JSON");
        collect_names(&json, &mut shown);
        let text = explanation.to_string();
        assert!(text.contains("route.name ") && text.contains("upstream.dns.refresh 30s"), "{text}");
    }
    let table = PolicyFields::for_gateway();
    let missing = |part: &str| {
        table.names_below(&[part]).into_iter().filter(|name| !shown.contains(*name)).collect::<Vec<_>>()
    };
    assert_eq!(missing("routes"), ["match"]);
    assert_eq!(missing("upstreams"), ["ca_file", "client_certificate_file", "client_key_file"]);
}

fn collect_names(document: &serde_json::Value, names: &mut BTreeSet<String>) {
    match document {
        serde_json::Value::Object(object) => {
            names.extend(object.keys().cloned());
            object.values().for_each(|value| collect_names(value, names));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| collect_names(value, names)),
        _ => {}
    }
}
