//! An explanation shows every field that a route and an upstream can have in a policy.

use std::collections::BTreeSet;

use bytes::Bytes;
use fencegate_policies::{file, schema::PolicySchema};

use super::{RequestExplanation, SampleRequest, explain};

/// A policy that sets every field but [`LIST`].
const COMPLETE: &str = include_str!("../../../../policies/tests/complete.yaml");
const MINIMAL: &str = include_str!("../../../../policies/examples/minimal.yaml");
/// A fence with keys of list items, which need the length of the list or are of all items.
const LIST: &str = r#"fence: {keys: ["sku/{body:/items/0/sku}", "tag/{body:/tags/*}"], only: 1}"#;

fn explain_request(policy: &str, line: &str, body: &'static str) -> RequestExplanation {
    let plan = file::load(policy).plan.expect("a sound policy");
    let mut fields = vec!["host: pay.example", "x-tenant: acme", "x-shop: a", "idempotency-key: b"];
    fields.extend((!body.is_empty()).then_some("content-type: application/json"));
    let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
    let sample = SampleRequest::new(line, "pay.example", &fields, Bytes::from_static(body.as_bytes()));
    explain(&plan, &sample.expect("a request")).expect("a runtime")
}

/// An explanation shows every field but the paths of files, and `match` and `fields`, which stand before names
/// in the JSON.
#[test]
fn explanation_shows_every_route_and_upstream_field() {
    // No route of the file leads to the upstream with a delay.
    let delayed = COMPLETE.replace(
        "    upstream: plain\n    match: {path: /chat}",
        "    upstream: delayed\n    match: {path: /chat}",
    );
    let with_list = MINIMAL.replace(r#"fence: {key: "order/{path.order_id | int}"}"#, LIST);
    let mut shown = BTreeSet::new();
    for (policy, line, body) in [
        (&*delayed, "POST /a/1?dry_run=true", ""),
        (&delayed, "GET /b/1", ""),
        (&delayed, "GET /c/1", ""),
        (&delayed, "POST /d/1", ""),
        (&delayed, "GET /e/1", ""),
        (&delayed, "GET /f/1", ""),
        (&delayed, "GET /permits/1", ""),
        (&delayed, "GET /j/1", ""),
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
    let table = PolicySchema::for_gateway();
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

/// The identity of a sample's client is checked by the rules of its route. It takes the place of the values that
/// the client has written itself, in keys and in the fields for the service.
#[test]
fn identity_of_sample_is_explained() {
    let plan = file::load(COMPLETE).plan.expect("a sound policy");
    let explained = |name: Option<&str>, claims: Option<&str>| {
        let fields = ["X-Client-Name: root", "x_user: root"].map(str::to_owned);
        let sample = SampleRequest::new("GET /j/7", "pay.example", &fields, Bytes::new()).expect("a request");
        let sample = sample.with_client_name(name).with_claims(claims).expect("an object");
        explain(&plan, &sample).expect("a runtime")
    };
    let till = Some("spiffe://shop.example/till 7");
    let paying = Some(r#"{"iss": "https://login.example", "sub": "till 7", "scope": "read pay"}"#);
    let served = explained(till, paying);
    let lock = served.lock.expect("a lock");
    assert_eq!(lock.keys[0].key, "j/spiffe%3A%2F%2Fshop.example%2Ftill%207/7");
    assert_eq!(lock.share_client.as_deref(), Some("spiffe%3A%2F%2Fshop.example%2Ftill%207"));
    let sent = served.sent.expect("it is sent");
    for (name, value) in [
        ("x-client-name", "spiffe://shop.example/till 7"),
        ("x-user", "till%207"),
        ("x-issuer", "https://login.example"),
    ] {
        assert!(sent.added.contains(&(name.to_owned(), value.to_owned())), "{name}: {:?}", sent.added);
    }
    assert_eq!(sent.removed, ["x_user"]);
    let reading = Some(r#"{"iss": "https://login.example", "scope": "read"}"#);
    for (name, claims, reason, status) in [
        (till, None, "bearer-missing", 401),
        (None, paying, "certificate-required", 403),
        (till, reading, "access-denied", 403),
        (Some("spiffe://shop.example.evil/a"), paying, "access-denied", 403),
    ] {
        let refused = explained(name, claims).refused.expect("refused");
        assert_eq!((refused.reason, refused.status), (Some(reason), status));
    }
}
