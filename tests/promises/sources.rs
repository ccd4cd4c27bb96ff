//! If a second source of a request has a value of a key as well, it is the same value, or the request is refused
//! before a lock is requested: the service may read either source.
//!
//! The sources are query, form, cookie, path and JSON body, and the policy names the ones that count. Names in XML,
//! in bodies of two types or of none, and in unusual part headers are refused. Ordinary uploads pass.

use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    site::TestSite,
};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const PARTS: &str = "multipart/form-data; boundary=b";

fn fenced(name: &str, path: &str, fence: &Value) -> Value {
    let matched = json!({"methods": ["POST"], "path": path});
    json!({"name": name, "upstream": "ledger", "match": matched, "fence": fence})
}

/// A gateway with the transfers of the README, and with accounts by path and by query.
async fn gateway(site: &TestSite, more: &[Value]) -> Gateway {
    let transfer = json!({"keys": ["account/{body:/from}", "account/{body:/to}"]});
    let mut policy = site
        .policy("gw-1")
        .with_route(fenced("transfer", "/v1/transfers", &transfer))
        .with_route(fenced("account", "/accounts/{id}", &json!({"key": "account/{path.id}"})))
        .with_route(fenced("query", "/query", &json!({"key": "account/{query.id}"})));
    for route in more {
        policy = policy.with_route(route.clone());
    }
    Gateway::start(&policy).await
}

fn request_with_body(kind: &str, target: &str, body: &str) -> TestRequest {
    TestRequest::post(target).field("Content-Type", kind).body(body.to_owned())
}

fn parts(name: &str, value: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n--b--\r\n")
}

async fn assert_all_refused(site: &TestSite, gateway: &Gateway, asks: &[TestRequest]) {
    let before = site.origin.log().records.len();
    let mut passed = Vec::new();
    for ask in asks {
        let answer = gateway.send(ask).await;
        if (answer.status, answer.reason().as_str()) != (400, "key-invalid") {
            passed.push(format!("{ask:?}: {}", answer.status));
        } else {
            assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{ask:?}");
        }
    }
    assert!(passed.is_empty(), "{}", passed.join("\n"));
    assert_eq!(site.origin.log().records.len(), before, "a refused request reached the service");
}

async fn assert_all_pass(gateway: &Gateway, asks: &[TestRequest]) {
    for ask in asks {
        let answer = gateway.send(ask).await;
        assert_eq!(answer.status, 200, "{ask:?}: {answer:?}");
    }
}

/// A query or cookie that contradicts the members of a transfer is refused.
#[tokio::test]
async fn query_conflicting_with_body_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, &[]).await;
    let transfer =
        |query: &str| request_with_body(JSON, &format!("/v1/transfers{query}"), r#"{"from":"A","to":7}"#);
    let bad = [
        "?from=VICTIM",
        "?from=VICTIM&to=C",
        "?to=8",
        "?FROM=VICTIM",
        "?from[]=A&from[]=B",
        "?x=1;from=VICTIM",
    ];
    let mut asks = bad.map(transfer).to_vec();
    asks.push(transfer("").field("Cookie", "from=VICTIM"));
    assert_all_refused(&site, &gateway, &asks).await;
    assert_all_pass(&gateway, &["", "?from=A", "?to=7&from=A", "?froms=VICTIM"].map(transfer)).await;
}

/// Every source that a service may read in place of a query or a path has the same value, or the request is refused.
#[tokio::test]
async fn conflicting_source_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, &[]).await;
    let everywhere = |value: &str| {
        let mut asks = vec![
            TestRequest::post(&format!("/accounts/42?id={value}")),
            request_with_body(JSON, "/query?id=42", &format!(r#"{{"id":{value}}}"#)),
            request_with_body(JSON, "/accounts/42", &format!(r#"{{"id":{value}}}"#)),
            request_with_body(JSON, "/accounts/42", &format!(r#"{{"ID":"{value}"}}"#)),
        ];
        for target in ["/accounts/42", "/query?id=42"] {
            asks.push(request_with_body(FORM, target, &format!("a=1&id={value}")));
            asks.push(TestRequest::post(target).body(format!("id={value}")));
            asks.push(request_with_body(PARTS, target, &parts("id", value)));
            asks.push(TestRequest::post(target).field("Cookie", &format!("sid=1; id={value}")));
        }
        asks
    };
    assert_all_refused(&site, &gateway, &everywhere("43")).await;
    assert_all_pass(&gateway, &everywhere("42")).await;
    // Parsers split this form in two different ways, and a compressed body cannot be compared.
    let twice = parts("x\"; name=\"id", "43");
    let zipped = request_with_body(FORM, "/query?id=42", "\u{1f}").field("Content-Encoding", "gzip");
    assert_all_refused(&site, &gateway, &[request_with_body(PARTS, "/query?id=42", &twice), zipped]).await;
    let zipped = request_with_body(JSON, "/accounts/42", "\u{1f}").field("Content-Encoding", "gzip");
    assert_all_refused(&site, &gateway, &[zipped]).await;
    assert_all_pass(
        &gateway,
        &[request_with_body(JSON, "/accounts/42", r#"{"ids":43,"account":{"id":43}}"#)],
    )
    .await;
}

/// Bodies in XML, of two types or of none count as sources, and ordinary uploads pass.
#[tokio::test]
async fn unusual_bodies_count_uploads_pass() {
    let site = TestSite::fresh().await;
    let gateway = gateway(&site, &[]).await;
    let hidden =
        "X-Content-Disposition: form-data; name=\"id\"\r\nContent-Disposition: form-data; name=\"x\"";
    let bad = [
        request_with_body("application/xml", "/accounts/42", "<a><ID>43</ID></a>"),
        request_with_body(FORM, "/accounts/42", "id=43&x=\u{e9}").field("Content-Type", FORM),
        TestRequest::post("/accounts/42").body("id=43&x=\u{e9}".to_owned()),
        request_with_body(PARTS, "/accounts/42", &format!("--b\r\n{hidden}\r\n\r\n43\r\n--b--\r\n")),
    ];
    assert_all_refused(&site, &gateway, &bad).await;
    let image = "--b\r\nContent-Type: application/json\r\n\r\n{}\r\n\
                 --b\r\nContent-Type: image/png\r\n\r\n\0\\=?\r\n--b--\r\n";
    let fine = [
        request_with_body("application/xml", "/accounts/42", "<a><width>43</width></a>"),
        request_with_body("multipart/related; boundary=b", "/accounts/42", image),
        TestRequest::post("/accounts/42").body("\0\u{e9}&x=43".to_owned()),
    ];
    assert_all_pass(&gateway, &fine).await;
}

/// `sources` and `conflicts` of a route say which sources count.
#[tokio::test]
async fn policy_selects_compared_sources() {
    let site = TestSite::fresh().await;
    let gateway = gateway(
        &site,
        &[
            fenced("strict", "/strict/{id}", &json!({"key": "s/{path.id}", "sources": ["path", "json"]})),
            fenced(
                "body",
                "/body/{id}",
                &json!({"key": "b/{path.id}", "sources": ["query", "form", "cookie"]}),
            ),
            fenced("loose", "/loose/{id}", &json!({"key": "l/{path.id}", "conflicts": "pass"})),
        ],
    )
    .await;
    assert_all_refused(&site, &gateway, &[request_with_body(JSON, "/strict/42", r#"{"id":43}"#)]).await;
    let fine = [
        request_with_body(JSON, "/strict/42?id=43", r#"{"id":42}"#),
        request_with_body(JSON, "/body/42?id=42", r#"{"id":43}"#),
        request_with_body(JSON, "/loose/42?id=43", r#"{"id":44}"#),
        request_with_body(FORM, "/loose/42?id=43", "id=44").field("Cookie", "id=45"),
    ];
    assert_all_pass(&gateway, &fine).await;
    assert_eq!(site.origin.wait_for_request("/loose/42?id=43", 1).await.key(), Some("l/42"));
    let config: Value = serde_json::from_slice(&gateway.admin("/api/v1/config").await.body).expect("JSON");
    let shown = |name: &str| {
        let routes = config["routes"].as_array().expect("routes");
        let fence = routes.iter().find(|route| route["name"] == name).expect(name)["fence"].clone();
        (fence["sources"].clone(), fence["conflicts"].clone())
    };
    assert_eq!(shown("strict"), (json!(["path", "json"]), json!("refuse")));
    assert_eq!(shown("loose"), (json!([]), json!("pass")));
    assert_eq!(
        shown("account"),
        (json!(["path", "query", "form", "json", "xml", "cookie", "wrapped"]), json!("refuse"))
    );
}

/// Names and principals of operations are compared across sources as keys are.
#[tokio::test]
async fn operation_names_are_compared_like_keys() {
    let site = TestSite::fresh().await;
    let once = json!({"key": "{query.op}", "principal": "{query.shop}"});
    let fence = json!({"key": "once/{path.id}", "once": once});
    let gateway = gateway(&site, &[fenced("once", "/once/{id}", &fence)]).await;
    let ask = |op: &str, body: &str| request_with_body(FORM, &format!("/once/1?op={op}&shop=s"), body);
    assert_all_refused(&site, &gateway, &[ask("a", "op=b"), ask("a", "shop=t")]).await;
    assert_all_pass(&gateway, &[ask("a", "op=a&shop=s")]).await;
}
