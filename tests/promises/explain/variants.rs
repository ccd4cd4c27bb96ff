//! For each spelling next to a request, a running gateway does what `explain --variants` reports.

use std::thread;

use bytes::Bytes;
use fencegate_check::explain::{
    self, RequestExplanation, RespelledRequestExplanation, RespellingOutcome, SampleRequest,
};
use fencegate_policies::{file, plan::GatewayPlan};
use fencegate_tests::{gateway::Gateway, policy::TestPolicy, site::TestSite};
use serde_json::json;

use super::{send_bytes, spelled::HOST};

/// Routes with one fence for each kind of key source whose spellings vary, and a route and paths without a lock.
fn routed(policy: &TestPolicy) -> TestPolicy {
    let fenced = |name: &str, path: &str, key: &str| json!({"name": name, "upstream": "ledger", "match": {"methods": ["POST"], "path": path}, "fence": {"keys": [key]}});
    let routes = json!([
        fenced("order", "/orders/{order_id}", "order/{path.order_id | int}"),
        fenced("note", "/notes/{note}", "note/{path.note | lower}/{query.page}"),
        fenced("reserve", "/reservations", "sku/{body:/items/*/sku}"),
        {"name": "read", "upstream": "ledger", "match": {"path": "/files/{rest...}"}, "fence": "none"},
    ]);
    policy.clone().with("/routes", routes).with("/unmatched", json!({"pass": "ledger"}))
}

/// Runs `explain` with variants on a thread of its own, because it starts its own runtime.
fn run_explain(plan: &GatewayPlan, request: &SampleRequest) -> RequestExplanation {
    let explanation =
        thread::scope(|scope| scope.spawn(|| explain::explain_with_variants(plan, request)).join());
    explanation.expect("no panic").expect("a runtime")
}

/// The request of a variant that differs in its method, its target or its body.
fn bytes(line: &str, body: &str, variant: &RespelledRequestExplanation, number: usize) -> Vec<u8> {
    let (method, target) = line.split_once(' ').expect("a method and a target");
    let written = &*variant.written;
    let (method, target, body) = match written.chars().next() {
        Some('/') => (method, written, body),
        Some('{') => (method, target, written),
        _ => (written, target, body),
    };
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nhost: {HOST}\r\nx-number: {number}\r\n{kind}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[tokio::test]
async fn each_variant_matches_gateway() {
    let site = TestSite::fresh().await;
    let policy = routed(&site.policy("gw-1"));
    let plan = file::load(&policy.to_string()).plan.expect("sound");
    let gateway = Gateway::start(&policy).await;
    let items = r#"{"note": 1, "items": [{"sku": "a7"}, {"sku": "0f8fad5b-d9cb-469f-a165-70867728950e"}]}"#;
    let mut number = 0;
    let mut met = Vec::new();
    for (line, body) in [
        ("POST /orders/42", ""),
        ("POST /notes/a7?page=3", ""),
        ("POST /reservations", items),
        ("GET /files/a", ""),
    ] {
        let fields: &[String] =
            if body.is_empty() { &[] } else { &["content-type: application/json".to_owned()] };
        let sample = SampleRequest::new(line, HOST, fields, Bytes::from_static(body.as_bytes()));
        let explanation = run_explain(&plan, &sample.expect("a request"));
        let variants = explanation.variants.expect("they were asked for");
        assert!(variants.len() > 10, "{line}: {variants:#?}");
        for variant in &variants {
            number += 1;
            let is_head = variant.written == "HEAD";
            let answer = send_bytes(&gateway, bytes(line, body, variant, number), !is_head).await;
            let status: u16 = answer.word(1).parse().expect("a status");
            let record = {
                let log = site.origin.log();
                let number = number.to_string();
                log.records
                    .iter()
                    .rev()
                    .find(|record| record.request.field("x-number") == Some(&number))
                    .cloned()
            };
            let context = || format!("{line}: {variant:#?}\ncame {answer:?}\nrecorded {record:?}");
            match &variant.refused {
                Some(refused) => {
                    assert_eq!((status, record.is_none()), (refused.status, true), "{}", context())
                }
                None => {
                    assert_eq!(status, 200, "{}", context());
                    let record = record.as_ref().unwrap_or_else(|| panic!("nothing arrived: {}", context()));
                    let keys = (!variant.keys.is_empty()).then(|| variant.keys.join(", "));
                    assert_eq!(record.key(), keys.as_deref(), "{}", context());
                }
            }
            met.push(variant.gives);
        }
    }
    use RespellingOutcome::{AnotherKey, MoreKeys, Refused, SameKey, Unfenced};
    for outcome in [SameKey, MoreKeys, AnotherKey, Unfenced, Refused] {
        assert!(met.contains(&outcome), "no spelling gives {outcome:?}");
    }
}
