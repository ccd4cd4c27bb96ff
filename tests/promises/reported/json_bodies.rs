//! A body is JSON by its type, in all of the ways in which clients write that.

use fencegate_tests::{client::TestRequest, gateway::Gateway, site::TestSite};
use serde_json::json;

/// Reported against many servers: `application/json;charset=UTF-8`, which Java and .NET write by themselves, was not
/// taken for JSON. This test covers spellings of one media type (RFC 9110, 8.3.1). A body that is no JSON, or has a
/// number that two parsers may read differently, is refused with a remedy.
#[tokio::test]
async fn json_is_recognised_in_every_spelling() {
    let site = TestSite::fresh().await;
    let policy =
        site.policy("gw-1").with("/routes/0/fence", json!({"key": "account/{body:/id}", "wait": "5s"}));
    let gateway = Gateway::start(&policy).await;
    for kind in [
        "application/json",
        "application/json;charset=UTF-8",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/merge-patch+json",
        "application/vnd.api+json; profile=x",
    ] {
        let answer =
            gateway.send(&TestRequest::post("/pay/1").field("content-type", kind).body(r#"{"id":7}"#)).await;
        assert_eq!(answer.status, 200, "{kind}: {answer:?}");
    }
    for (kind, body, told) in [
        ("text/plain", r#"{"id":7}"#, "Content-Type"),
        ("application/x-www-form-urlencoded", "id=7", "Content-Type"),
        ("application/json", "{", ""),
        ("application/json", r#"{"id":9007199254740993}"#, ""),
        ("application/json", "{}", "id"),
    ] {
        let answer = gateway.send(&TestRequest::post("/pay/1").field("content-type", kind).body(body)).await;
        assert_eq!(answer.status, 400, "{kind} {body}: {answer:?}");
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("a problem");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(told) && detail.len() > 20, "{kind} {body}: {detail}");
    }
}
