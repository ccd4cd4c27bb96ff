//! A form names the resource that every service reads out of it, a body picks the one route that it says, or the request is
//! refused; nothing that may be a GraphQL mutation passes as a query.
//!
//! Forms are urlencoded or multipart. A body that cannot be read selects no route. A client that sends a
//! route-selecting body slowly delays no reload, and its request does not overlap with a request under the new key.

use std::time::Duration;

use fencegate_tests::{
    client::{FencingOutcome, RawClient, TestRequest},
    gateway::Gateway,
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const PARTS: &str = "multipart/form-data; boundary=b";

fn route(name: &str, matched: Value, fence: Value) -> Value {
    json!({"name": name, "upstream": "ledger", "match": matched, "fence": fence})
}

fn post(path: &str) -> Value {
    json!({"methods": ["POST"], "path": path})
}

fn request(target: &str, kind: &str, body: impl Into<String>) -> TestRequest {
    TestRequest::post(target).field("Content-Type", kind).body(body.into())
}

/// Sends each request, and asserts that it is answered with this status and reason and does not reach the service.
async fn assert_all_refused(
    site: &TestSite,
    gateway: &Gateway,
    refusal: (u16, &str),
    asks: impl IntoIterator<Item = TestRequest>,
) {
    let before = site.origin.log().records.len();
    for ask in asks {
        let answer = gateway.send(&ask).await;
        assert_eq!(answer.status, refusal.0, "{ask:?}: {answer:?}");
        assert_eq!(answer.reason(), refusal.1, "{ask:?}: {answer:?}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{ask:?}");
    }
    assert_eq!(site.origin.log().records.len(), before, "a refused request reached the service");
}

/// Sends a request that is served, and returns the keys under which the service received it.
async fn served_keys(site: &TestSite, gateway: &Gateway, ask: &TestRequest) -> Option<String> {
    let before = site.origin.log().records.len();
    let answer = gateway.send(ask).await;
    assert_eq!(answer.status, 200, "{ask:?}: {answer:?}");
    let log = site.origin.log();
    assert_eq!(log.records.len(), before + 1, "{ask:?}");
    log.records[before].key().map(str::to_owned)
}

fn parts(parts: &[(&str, &str)]) -> String {
    let part = |(name, value): &(&str, &str)| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    parts.iter().map(part).collect::<String>() + "--b--\r\n"
}

/// Heads of a part of a form in which different parsers find different field names.
const UNCLEAR_HEADS: [&str; 22] = [
    "Content-Disposition: form-data; name=\"a\"; foo; name=\"to\"",
    "Content-Disposition: form-data; name=\"a\"; foo bar=\"; name=\"to\"",
    "Content-Disposition: form-data; name='to'",
    "Content-Disposition: form-data; name=t'o",
    "Content-Disposition: form-data; name=to x",
    "Content-Disposition: form-data; name=\"a\"\r\nX; name=to: 1",
    "Content-Disposition: form-data; name=\"a\"\r\nX y: 1",
    "Content-Disposition: form-data; name=\"a\"\r\nX: \u{1}",
    "Content-Disposition: form-data; name=\"a\"\r\nX: \u{85}Y: 1",
    "Content-Disposition: form-data;\r\n name=\"to\"",
    "Content-Disposition: form-data; name=\"a\"\rContent-Disposition: form-data; name=\"to\"",
    "Content-Disposition: form-data; name=\"a\"\nContent-Disposition: form-data; name=\"to\"",
    "Content-Disposition: form-data; name=\"a\"; filename=\"x; name=to\"",
    "Content-Disposition: form-data; filename=\"x; Name = to\"; name=\"a\"",
    "Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"to\"",
    "Content-Disposition: form-data; name*=utf-8''to",
    "Content-Disposition: form-data; name*0=t; name*1=o",
    "Content-Disposition: form-data; name=\"t%6f\"",
    "Content-Disposition: form-data; name=\"t\\o\"",
    "Content-Disposition: form-data; name=\"\u{feff}to\"",
    "Content-ID: to",
    "Content-Disposition: form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=c",
];

/// A path with a dot is served where routes of one path differ in their bodies, and the text behind the dot belongs to
/// the key: without it the path would match the same routes.
#[tokio::test]
async fn dotted_path_is_served_where_body_decides() {
    let site = TestSite::fresh().await;
    let by_kind = |kind: &str| json!({"methods": ["POST"], "path": "/orders/{id}", "body": {"/kind": kind}});
    let policy = site
        .policy("gw-1")
        .with_route(route("ship", by_kind("ship"), json!({"key": "order/{path.id}"})))
        .with_route(route("refund", by_kind("refund"), json!({"key": "refund/{path.id}"})));
    let gateway = Gateway::start(&policy).await;
    for (kind, key) in [("ship", "order/4.2"), ("refund", "refund/4.2")] {
        let ask = request("/orders/4.2", JSON, json!({"kind": kind}).to_string());
        assert_eq!(served_keys(&site, &gateway, &ask).await.as_deref(), Some(key), "{kind}");
    }
    let neither = request("/orders/4.2", JSON, r#"{"kind":"other"}"#);
    assert_all_refused(&site, &gateway, (404, "no-route"), [neither]).await;
}

/// The key of a request comes from the fields of its form, of either content type and with each value of a list. A form
/// that two parsers can read in different ways is refused.
#[tokio::test]
async fn form_field_names_locked_resource() {
    let site = TestSite::fresh().await;
    let transfer = json!({"keys": ["account/{form.from}", "account/{form.to}"]});
    let policy = site
        .policy("gw-1")
        .with_route(route("transfer", post("/transfers"), transfer))
        .with_route(route("reserve", post("/skus"), json!({"key": "sku/{form.sku[]*}"})));
    let gateway = Gateway::start(&policy).await;
    let two = parts(&[("from", "B"), ("note", "x\r\ny"), ("to", "A/1")]);
    for (ask, keys) in [
        (request("/transfers", FORM, "from=B&to=A%2F1"), "account/A%2F1, account/B"),
        (request("/transfers?from=B", PARTS, two.clone()), "account/A%2F1, account/B"),
        (request("/skus", FORM, "sku%5B%5D=b&sku[]=a&qty[]=2"), "sku/a, sku/b"),
        (request("/skus", PARTS, parts(&[("sku[]", "b"), ("sku[]", "b")])), "sku/b"),
    ] {
        assert_eq!(served_keys(&site, &gateway, &ask).await.as_deref(), Some(keys), "{ask:?}");
    }
    let good = "from=B&to=A";
    let refused = [
        request("/transfers", JSON, r#"{"from":"B","to":"A"}"#),
        request("/transfers", "text/plain", good),
        TestRequest::post("/transfers").body(good),
        request("/transfers", "application/x-www-form-urlencoded; charset=utf-16", good),
        request("/transfers", FORM, good).field("Content-Type", FORM),
        request("/transfers", FORM, good).field("Content_Type", PARTS),
        request("/transfers", FORM, good).field("Content-Encoding", "gzip"),
        request("/transfers", FORM, "from=B&to=A&from=C"),
        request("/transfers", FORM, "from=B&to=A&FROM=C"),
        request("/transfers", FORM, "from=B&to=A;from=C"),
        request("/transfers?from=C", FORM, good),
        request("/transfers", FORM, good).field("Cookie", "to=C"),
        request("/transfers", PARTS, two.replace("name=\"to\"", "name=\"to\"; filename=\"to\"")),
        request("/transfers", PARTS, two.replace("\r\n", "\n")),
        request("/transfers?sku=C", FORM, "from=B&to[]=A"),
        request("/transfers", FORM, "\u{feff}from=B&to=A"),
        request("/transfers", FORM, "from=B&to=A&\u{feff}from=C"),
        request("/transfers", FORM, "from=B&to=A&_charset_=utf-8"),
        request("/transfers", PARTS, parts(&[("from", "B"), ("to", "A"), ("_charset_", "utf-8")])),
        request("/transfers", PARTS, parts(&[("from", "\u{feff}B"), ("to", "A")])),
        request("/transfers", PARTS, format!("\r\n{two}")),
        request("/transfers", PARTS, format!("{two}from=C")),
        request("/transfers", PARTS, format!("{two}{two}")),
        request("/transfers", &format!("{PARTS}; boundary=c"), two.clone()),
        request("/transfers", "multipart/form-data; boundary='b'", two.replace("--b", "--'b'")),
    ];
    assert_all_refused(&site, &gateway, (400, "key-invalid"), refused).await;
    // Each head takes the place of the head of `note`. Some parser finds another field `to` in it.
    let heads = UNCLEAR_HEADS.map(|head| {
        let plain = "Content-Disposition: form-data; name=\"note\"";
        request("/transfers", PARTS, two.replace(plain, head))
    });
    assert_all_refused(&site, &gateway, (400, "key-invalid"), heads).await;
    let missing = [request("/transfers", FORM, "from=B"), request("/skus", FORM, "skus[]=a")];
    assert_all_refused(&site, &gateway, (400, "key-missing"), missing).await;
}

/// Routes for payments by their kind: quotes need no lock, refunds lock a payment, and all others lock an account.
fn payments(site: &TestSite) -> TestPolicy {
    let by_kind = |kinds: Value| json!({"methods": ["POST"], "path": "/payments", "body": {"/kind": kinds}});
    site.policy("gw-1")
        .with("/listeners/public/limits/max_body", "4KiB")
        .with_route(route("quote", by_kind(json!("quote")), json!("none")))
        .with_route(route("refund", by_kind(json!(["refund", "void"])), json!({"key": "payment/{body:/id}"})))
        .with_route(route("other", post("/payments"), json!({"key": "account/{body:/account}"})))
        .with_route(route("open", post("/payments/quotes"), json!("none")))
}

/// The body picks the route of a request. A request whose body can be read in two ways, or not at all, is refused.
#[tokio::test]
async fn unreadable_body_goes_on_to_no_route() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&payments(&site)).await;
    let pay = |body: &str| request("/payments", JSON, body);
    for (body, key) in [
        (r#"{"kind":"quote","account":"A"}"#, None),
        (r#"{"kind":"refund","id":7}"#, Some("payment/7")),
        (r#"{"id":"8","k\u0069nd":"void"}"#, Some("payment/8")),
        (r#"{"kind":"sale","account":"A"}"#, Some("account/A")),
        (r#"{"kind":null,"account":"A"}"#, Some("account/A")),
        (r#"{"account":"A"}"#, Some("account/A")),
    ] {
        assert_eq!(served_keys(&site, &gateway, &pay(body)).await.as_deref(), key, "{body}");
    }
    // A query that gives the same value as the body does not contradict the body.
    let same = request("/payments?kind=quote", JSON, r#"{"kind":"quote"}"#);
    assert_eq!(served_keys(&site, &gateway, &same).await, None);
    // The path alone decides this route, so its body is not read and may exceed `max_body`.
    let large = request("/payments/quotes", JSON, "x".repeat(8 << 10));
    assert_eq!(served_keys(&site, &gateway, &large).await, None);

    let quote = r#"{"kind":"quote","account":"A"}"#;
    let refused = [
        pay(""),
        pay("kind=quote"),
        pay(r#"{"kind":"quote","kind":"sale"}"#),
        pay(r#"{"kind":"quote","Kind":"sale"}"#),
        pay(r#"{"kind":"quote","kind\u0000":"sale"}"#),
        pay(r#"{"kind":"Quote"}"#),
        pay(r#"{"kind":" quote"}"#),
        pay(r#"{"kind":["quote"]}"#),
        pay(r#"{"kind":"quote\u0000"}"#),
        pay(r#"{"kind":"other\u0008"}"#),
        pay(r#"{"kind":"\ufeffquote"}"#),
        pay(r#"{"kind":"quote","\ufeffkind":"sale"}"#),
        pay(r#"{"kind":"quote","order":{"kind":"sale"}}"#),
        pay("\u{feff}{\"kind\":\"quote\"}"),
        pay(r#"{"kind":true}"#),
        pay(r#"[{"kind":"quote"}]"#),
        pay(&format!("{}1{}", "[".repeat(40), "]".repeat(40))),
        request("/payments", "text/plain", quote),
        request("/payments", JSON, quote).field("Content-Encoding", "gzip"),
        request("/payments", JSON, quote).field("Content_Type", FORM),
        request("/payments?kind=sale", JSON, quote),
        request("/payments?kind=quote", JSON, r#"{"account":"A"}"#),
        request("/payments", JSON, quote).field("Cookie", "KIND=sale"),
    ];
    assert_all_refused(&site, &gateway, (400, "malformed"), refused).await;
    let large = pay(&format!(r#"{{"kind":"quote","x":"{}"}}"#, "x".repeat(4 << 10)));
    assert_all_refused(&site, &gateway, (413, "body-too-large"), [large]).await;
    let config: Value = serde_json::from_slice(&gateway.admin("/api/v1/config").await.body).expect("JSON");
    let shown = config["routes"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "refund"));
    let wanted = json!([{"pointer": "/kind", "values": ["refund", "void"]}]);
    assert_eq!(shown.expect("a route")["body"], wanted, "{config}");
}

/// A GraphQL request that may be a mutation takes the lock, whatever the client names it. A request that can only be a
/// query passes without a lock.
#[tokio::test]
async fn no_mutation_passes_as_query() {
    let site = TestSite::fresh().await;
    let by_kind = |kind: &str| json!({"methods": ["POST"], "path": "/graphql", "graphql": kind});
    let policy = site
        .policy("gw-1")
        // Without this, `read` would take every GET before a GraphQL route is tried.
        .without_route("read")
        .with_route(route("query", by_kind("query"), json!("none")))
        .with_route(route("mutation", by_kind("mutation"), json!({"key": "all-mutations"})))
        .with_route(route("any-query", json!({"path": "/any", "graphql": "query"}), json!("none")))
        .with_route(route(
            "any-mutation",
            json!({"path": "/any", "graphql": "mutation"}),
            json!({"key": "any"}),
        ));
    let gateway = Gateway::start(&policy).await;
    let send = |target: &str, body: &Value| request(target, JSON, body.to_string());
    for body in [
        json!({"query": "{ order(id: 7) { total } }"}),
        json!({"query": "query Get { a } query List { b }", "operationName": "List", "variables": {"mutation": 1}}),
        json!({"query": "{ __schema { mutationType { name } } }", "extensions": {"clientLibrary": {"name": "x"}}}),
    ] {
        assert_eq!(served_keys(&site, &gateway, &send("/graphql", &body)).await, None, "{body}");
    }
    for (target, body) in [
        ("/graphql", json!({"query": "mutation Get { pay }", "operationName": "Get"})),
        ("/graphql", json!({"query": "query Get { a } mutation Pay { pay }", "operationName": "Get"})),
        ("/graphql", json!({"query": "{ f(x: [\"\"\"a \" ]) } mutation M { pay } #\"\"\"]) }"})),
        ("/graphql", json!({"query": "{ a }", "extensions": {"persistedQuery": {"sha256Hash": "0"}}})),
        ("/graphql", json!({"query": "{ a }", "documentId": "pay"})),
        ("/graphql", json!({"id": "pay"})),
        ("/graphql", json!({"query": "pay"})),
        ("/graphql", json!({"query": "query Get { a } query List { b }"})),
        ("/graphql", json!({"query": "query Get { a }", "operationName": "Pay"})),
        ("/graphql", json!({"query": "{ a }", "variables": [{}, {}]})),
        ("/graphql?op=Get", json!({"query": "{ a }"})),
    ] {
        let key = served_keys(&site, &gateway, &send(target, &body)).await;
        assert_eq!(key.as_deref(), Some("all-mutations"), "{target} {body}");
    }
    let refused = [
        send("/graphql", &json!([{"query": "{ a }"}, {"query": "mutation { pay }"}])),
        send("/graphql", &json!([{"query": "{ a }"}])),
        send("/graphql?query=mutation{pay}", &json!({"query": "{ a }"})),
        request("/graphql", JSON, r#"{"query":"{ a }","query":"mutation { pay }"}"#),
        request("/graphql", JSON, r#"{"query":"{ a }","Query":"mutation { pay }"}"#),
        request("/graphql", "application/graphql", "{ a }"),
        request("/graphql", FORM, "query={ a }"),
        TestRequest::get("/any?query=mutation{pay}"),
        TestRequest::get("/any?query={a}"),
        TestRequest::get("/any"),
    ];
    assert_all_refused(&site, &gateway, (400, "malformed"), refused).await;
}

/// A client that sends the body slowly by which its route is chosen delays no reload. Its request never overlaps with a
/// request under the new key of its resource.
#[tokio::test]
async fn slow_deciding_body_holds_up_no_reload() {
    let site = TestSite::fresh().await;
    let policy = payments(&site).with("/listeners/public/timeouts/request_body", "60s");
    let gateway = Gateway::start(&policy).await;
    let body = r#"{"kind":"sale","account":"A"}"#;
    let head = format!(
        "POST /payments HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut slow = RawClient::connect(gateway.public).await.expect("it listens");
    slow.send(&head).await.expect("connected");
    // The gateway answers 100 when it begins to read the body.
    assert!(slow.read_head().await.expect("an answer").start.contains(" 100 "));
    let other = json!({"key": "konto/{body:/account}", "wait": "30s"});
    let rekeyed =
        payments(&site).with("/listeners/public/timeouts/request_body", "60s").with("/routes/4/fence", other);
    gateway.rewrite(&rekeyed);
    let reloaded = tokio::time::timeout(Duration::from_secs(10), gateway.reload(&[])).await;
    assert_eq!(reloaded.expect("no wait for the body").1["result"], "applied");
    let new = gateway.begin(request("/payments", JSON, body));
    assert_eq!(gateway.send(&TestRequest::get("/other")).await.status, 200, "unfenced requests do not wait");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(site.origin.count("/payments"), 0, "the new key waits for the old one");
    slow.send(body).await.expect("connected");
    assert!(slow.read_response().await.expect("an answer").start.contains(" 200 "));
    assert_eq!(new.answer().await.status, 200);
    let log = site.origin.log();
    let keys: Vec<_> = log.requests_for("/payments").filter_map(|record| record.key()).collect();
    assert_eq!(keys, ["account/A", "konto/A"]);
}
