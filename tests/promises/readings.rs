//! Where two servers could read the source of a key differently, the request is refused before a lock is requested.
//!
//! The sources are query, fields and body. They have names in other spellings, broken escapes, or an unusual media
//! type, character set or coding. The conditions of routes are tested in the same way.

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    site::TestSite,
};
use serde_json::json;

async fn gateway(site: &TestSite) -> Gateway {
    let fenced = |name: &str, path: &str, fence: serde_json::Value| {
        let matched = json!({"methods": ["POST"], "path": path});
        json!({"name": name, "upstream": "ledger", "match": matched, "fence": fence})
    };
    let dry = json!({"methods": ["PUT"], "path": "/dry", "query": {"dry_run": "yes"}});
    let dry_field = json!({"methods": ["PUT"], "path": "/dry-field", "headers": {"X-Dry-Run": "yes"}});
    let policy = site
        .policy("gw-1")
        .with_route(fenced("query", "/query", json!({"key": "q/{query.account_id}"})))
        .with_route(fenced("field", "/field", json!({"key": "f/{header.x-account}"})))
        .with_route(fenced("body", "/body", json!({"key": "b/{body:/from}"})))
        .with_route(json!({"name": "dry", "upstream": "ledger", "match": dry, "fence": "none"}))
        .with_route(
            json!({"name": "wet", "upstream": "ledger", "match": {"methods": ["PUT"], "path": "/dry"}, "fence": {"key": "wet"}}),
        )
        .with_route(json!({"name": "dry-field", "upstream": "ledger", "match": dry_field, "fence": "none"}))
        .with_route(
            json!({"name": "wet-field", "upstream": "ledger", "match": {"methods": ["PUT"], "path": "/dry-field"}, "fence": {"key": "wet"}}),
        );
    Gateway::start(&policy).await
}

/// Sends each request, and asserts that it is refused with this reason and does not reach the service.
async fn assert_all_refused(
    site: &TestSite,
    gateway: &Gateway,
    path: &str,
    reason: &str,
    asks: Vec<TestRequest>,
) {
    let before = site.origin.log().records.len();
    for ask in asks {
        let told = format!("{ask:?}");
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (400, reason), "{told}: {answer:?}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{told}");
    }
    assert_eq!(site.origin.log().records.len(), before, "{path}");
}

/// A query parameter that some server reads a second time under another spelling gives no key.
#[tokio::test]
async fn ambiguous_parameter_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let others = [
        "ACCOUNT_ID=2",
        "+account_id=2",
        "%20account_id=2",
        "account_id%00x=2",
        "account_id%00=2",
        "account_id[]=2",
        "account.id=2",
        "account%20id=2",
        "account-id=2",
        "account[id=2",
        "x=%zz",
        "x=%",
    ];
    let asks = others.iter().flat_map(|other| {
        [format!("/query?account_id=1&{other}"), format!("/query?{other}&account_id=1")]
            .map(|path| TestRequest::post(&path))
    });
    assert_all_refused(&site, &gateway, "/query", "key-invalid", asks.collect()).await;
    let found = "/query?account_id=1&account=2&amount=%31";
    let answer = gateway.send(&TestRequest::post(found)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(site.origin.wait_for_request(found, 1).await.key(), Some("q/1"));
}

/// A condition on a parameter that some server reads a second time decides nothing: the request is refused.
#[tokio::test]
async fn ambiguous_condition_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let put = |query: &str| TestRequest::with_method("PUT", &format!("/dry?{query}"));
    let asks =
        ["dry_run=yes&Dry_Run=no", "dry.run=no&dry_run=yes", "dry_run=yes&dry_run[]=no", "dry_run=yes&x=%"];
    assert_all_refused(&site, &gateway, "/dry", "malformed", asks.map(put).into()).await;
    assert_eq!(gateway.send(&put("dry_run=yes&run=no")).await.status, 200);
    assert_eq!(site.origin.wait_for_request("/dry?dry_run=yes&run=no", 1).await.key(), None);
}

/// A header field that some server reads a second time under another spelling gives no key.
#[tokio::test]
async fn ambiguous_field_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let other = |name: &str| TestRequest::post("/field").field("X-Account", "1").field(name, "2");
    let names = ["X_Account", "X.Account", "x~account", "X!ACCOUNT", "x-account"];
    assert_all_refused(&site, &gateway, "/field", "key-invalid", names.map(other).into()).await;
    assert_eq!(gateway.send(&other("X-Accounts")).await.status, 200);
    assert_eq!(site.origin.wait_for_request("/field", 1).await.key(), Some("f/1"));
}

/// A look-alike of a configured header field does not count as that field, because some servers ignore it.
#[tokio::test]
async fn look_alike_field_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let alone = |name: &str| TestRequest::post("/field").field(name, "2");
    let names = ["X_Account", "X.Account", "x~account"];
    assert_all_refused(&site, &gateway, "/field", "key-invalid", names.map(alone).into()).await;
    // If the gateway took the look-alike for the field of the condition, the request would pass without a lock.
    let put = |name: &str| TestRequest::with_method("PUT", "/dry-field").field(name, "yes");
    let names = ["X_Dry_Run", "X.Dry.Run", "x-dry_run"];
    assert_all_refused(&site, &gateway, "/dry-field", "malformed", names.map(put).into()).await;
    assert_eq!(gateway.send(&put("x-dry-RUN")).await.status, 200);
    assert_eq!(site.origin.wait_for_request("/dry-field", 1).await.key(), None);
    assert_eq!(gateway.send(&put("X-Dry-Runs")).await.status, 200);
    assert_eq!(site.origin.wait_for_request("/dry-field", 2).await.key(), Some("wet"));
}

/// A body gives a key only if its content type is the format as which the gateway reads it.
#[tokio::test]
async fn mislabelled_body_names_no_key() {
    const BODY: &str = r#"{"from":"+ADE-","x":"&from=B&"}"#;
    let site = TestSite::fresh().await;
    let gateway = gateway(&site).await;
    let said = |path: &str, kind: &str| TestRequest::post(path).field("Content-Type", kind).body(BODY);
    let mut asks: Vec<TestRequest> = [
        "application/json; charset=utf-7",
        "application/json; charset=\"utf-16\"",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "text/plain",
        "application/json, application/x-www-form-urlencoded",
    ]
    .map(|kind| said("/body", kind))
    .into();
    asks.push(TestRequest::post("/body").body(BODY));
    for (name, value) in [
        ("Content-Encoding", "br"),
        ("content_encoding", "deflate"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content_Type", "application/x-www-form-urlencoded"),
    ] {
        asks.push(said("/body", "application/json").field(name, value));
    }
    for name in ["Content.Type", "content_type"] {
        asks.push(TestRequest::post("/body").field(name, "application/json").body(BODY));
    }
    for cut_short in [
        r#"{"from\u0000x":"2","from":"1"}"#,
        r#"{"from":"1","from\u0000x":"2"}"#,
        r#"{"from":"1","x":{"y\u0000":"2"}}"#,
    ] {
        asks.push(TestRequest::post("/body").field("Content-Type", "application/json").body(cut_short));
    }
    assert_all_refused(&site, &gateway, "/body", "key-invalid", asks).await;
    for (count, kind) in (1..).zip(["application/json", "Application/Vnd.Pay+JSON; Charset=\"UTF-8\""]) {
        assert_eq!(gateway.send(&said("/body", kind)).await.status, 200, "{kind}");
        assert_eq!(site.origin.wait_for_request("/body", count).await.key(), Some("b/%2BADE-"));
    }
}

/// With `body_type: any` every body is read as JSON, whatever its content type.
#[tokio::test]
async fn body_type_any_ignores_content_type() {
    let site = TestSite::fresh().await;
    let policy = site
        .policy("gw-1")
        .with("/routes/0/fence/key", "account/{body:/from}")
        .with("/routes/0/fence/body_type", "any");
    let gateway = Gateway::start(&policy).await;
    let ask = TestRequest::post("/pay/1").body(r#"{"from": 7}"#);
    for (count, ask) in (1..).zip([ask.clone().field("Content-Type", "text/plain"), ask]) {
        assert_eq!(gateway.send(&ask).await.status, 200);
        assert_eq!(site.origin.wait_for_request("/pay/1", count).await.key(), Some("account/7"));
    }
}
