//! A page of another origin reads what the gateway itself answers, if the policy names the origin, and nothing otherwise.

use fencegate_tests::{
    browser::Browser,
    client::{ClientResponse, Http2Client, TestRequest},
    gateway::Gateway,
    leases::LeaseTokens,
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

const APP: &str = "https://app.example";
const ALLOWED: &str = "access-control-allow-origin";

fn with_cors(policy: TestPolicy, origins: &[&str]) -> TestPolicy {
    policy.with("/listeners/public/cors", json!({ "allow_origins": origins }))
}

/// Opens an empty page whose script sends a request to the gateway. Returns what the script could read: status,
/// `Retry-After`, outcome and reason.
async fn fetch_from_page(browser: &Browser, page: &str, url: &str) -> Value {
    browser.open(&format!("{page}/page")).await;
    let script = r#"
        const done = arguments[arguments.length - 1];
        const headers = {"Content-Type": "application/json", "Idempotency-Key": "a1", "Prefer": "wait=0"};
        fetch("URL", {method: "POST", headers, body: "{}"})
            .then(async (answer) => [answer.status, answer.headers.get("retry-after"),
                answer.headers.get("fencing-outcome"), (await answer.text()).match(/"reason": ?"([a-z-]+)"/)?.[1] ?? null])
            .then(done, (error) => done(error.name));"#;
    browser.run_async(&script.replace("URL", url)).await
}

/// Reported as pelias/api#296, apex/up#274, jamsocket/plane#684 and axios/axios#6723: a proxy's own answers had no CORS
/// fields, so a page saw "network error" in place of 429 or 503. This test covers answers that the service has not
/// made, with a real browser.
#[tokio::test]
async fn page_reads_refusal_of_gateway() {
    let site = TestSite::fresh().await;
    let listed = format!("http://{}", site.origin.open_listener("listed"));
    let other = format!("http://{}", site.origin.open_listener("other"));
    let page = || OriginAction::now(OriginReply::with_body("<p>page</p>").field("content-type", "text/html"));
    site.origin.script("/page", [page(), page(), page()]);
    let gateway = Gateway::start(&with_cors(site.policy("gw-1"), &[&listed])).await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let browser = Browser::start().await;

    let locked = fetch_from_page(&browser, &listed, &format!("http://{}/pay/7", gateway.public)).await;
    let [status, after, outcome, reason] = [&locked[0], &locked[1], &locked[2], &locked[3]];
    assert_eq!((status, reason), (&json!(423), &json!("locked")), "{locked}");
    assert!(after.as_str().is_some_and(|after| after.parse::<u32>().is_ok()), "{locked}");
    assert!(outcome.as_str().is_some_and(|outcome| outcome.starts_with("not-dispatched")), "{locked}");
    let done = fetch_from_page(&browser, &listed, &format!("http://{}/pay/8", gateway.public)).await;
    assert_eq!(done[0], json!(200), "{done}");
    assert!(done[2].as_str().is_some_and(|outcome| outcome.starts_with("done")), "{done}");
    let foreign = fetch_from_page(&browser, &other, &format!("http://{}/pay/9", gateway.public)).await;
    assert_eq!(foreign, json!("TypeError"), "a page that is not listed reads nothing");

    assert_eq!(holder.finish().await.status, 200);
    let sent: Vec<String> = site
        .origin
        .log()
        .latest()
        .iter()
        .map(|record| format!("{} {}", record.method(), record.path()))
        .collect();
    assert!(sent.iter().all(|line| !line.starts_with("OPTIONS")), "the service sees no preflight: {sent:?}");
    assert!(!sent.contains(&"POST /pay/9".to_owned()), "the browser asked first: {sent:?}");
    browser.close().await;
}

/// Every answer of the gateway has the CORS fields, over both protocols: refusals of each step, and answers of the
/// service.
#[tokio::test]
async fn every_own_answer_names_listed_origin() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/listeners/public/limits", json!({"max_body": "1KiB"}));
    let gateway = Gateway::start(&with_cors(policy, &[APP, "https://*.shop.example"])).await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let http2 = Http2Client::connect(gateway.public).await.expect("it listens");
    let asks = || {
        [
            (200, TestRequest::get("/there")),
            (404, TestRequest::with_method("PUT", "/nowhere")),
            (400, TestRequest::post("/pay/7;x=1")),
            (413, TestRequest::post("/pay/1").body("x".repeat(2000))),
            (423, TestRequest::post("/pay/7").field("prefer", "wait=0")),
            (405, TestRequest::post("/pay/1").field("x-http-method-override", "DELETE")),
        ]
    };
    for origin in [APP, "https://a.shop.example"] {
        for (status, ask) in asks() {
            let ask = ask.field("origin", origin);
            for answer in [gateway.send(&ask).await, http2.send(&ask).await.expect("an answer")] {
                assert_eq!(answer.status, status, "{origin}: {answer:?}");
                assert_eq!(answer.field(ALLOWED), Some(origin), "{answer:?}");
                assert_eq!(answer.field("vary"), Some("Origin"), "{answer:?}");
            }
        }
    }
    for origin in ["https://evil.example", "null", "https://shop.example", "https://app.example.evil"] {
        for (status, ask) in asks() {
            let answer = gateway.send(&ask.field("origin", origin)).await;
            assert_eq!((answer.status, answer.field(ALLOWED)), (status, None), "{origin}");
            assert_eq!(answer.field("vary"), Some("Origin"), "a cache must not give it to another page");
        }
    }
    assert_eq!(holder.finish().await.status, 200);
    // This refusal comes before a route is searched.
    let policy = site.policy("gw-2").with("/listeners/public/limits/per_client", 1);
    let busy = Gateway::start(&with_cors(policy, &[APP])).await;
    let holder = site.origin.hold_request(&busy, TestRequest::get("/slow")).await;
    let refused = busy.send(&TestRequest::get("/there").field("origin", APP)).await;
    assert_eq!((refused.status, refused.reason().as_str()), (429, "client-limit"));
    assert_eq!(refused.field(ALLOWED), Some(APP));
    assert_eq!(holder.finish().await.status, 200);
}

fn preflight(path: &str, origin: &str) -> TestRequest {
    TestRequest::with_method("OPTIONS", path)
        .field("origin", origin)
        .field("access-control-request-method", "POST")
        .field("access-control-request-headers", "content-type,idempotency-key")
}

fn assert_allowed(answer: &ClientResponse) {
    assert_eq!(answer.status, 204, "{answer:?}");
    for (name, value) in [
        (ALLOWED, APP),
        ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
        (
            "access-control-allow-headers",
            "Authorization, Content-Type, Idempotency-Key, Prefer, X-Request-Id",
        ),
        ("access-control-max-age", "600"),
        ("vary", "Origin"),
    ] {
        assert_eq!(answer.field(name), Some(value), "{name}: {answer:?}");
    }
    assert_eq!((answer.field("access-control-allow-credentials"), answer.body.len()), (None, 0));
}

/// A preflight of a listed origin waits for no lock and reaches no service, also where a fenced route takes `OPTIONS`
/// and its key is held. A preflight of another origin is a request like any other, and so is an `OPTIONS` that is no
/// preflight.
#[tokio::test]
async fn preflight_takes_no_lock() {
    let site = TestSite::fresh().await;
    let policy =
        with_cors(site.policy("gw-1"), &[APP]).with("/routes/0/match/methods", json!(["POST", "OPTIONS"]));
    let policy = policy.with_route(json!({
        "name": "open", "upstream": "ledger", "fence": "none",
        "match": {"methods": ["OPTIONS"], "path": "/open/{rest...}"},
    }));
    let gateway = Gateway::start(&policy).await;
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let http2 = Http2Client::connect(gateway.public).await.expect("it listens");
    for path in ["/pay/7", "/pay/8", "/open/a", "/no/route"] {
        assert_allowed(&gateway.send(&preflight(path, APP)).await);
        assert_allowed(&http2.send(&preflight(path, APP)).await.expect("an answer"));
        assert_eq!(site.origin.count(path), usize::from(path == "/pay/7"), "{path}: the service sees none");
    }
    // Two preflights that the gateway does not answer itself, and treats as ordinary requests: the first is refused because
    // the lock is held; the second reaches the service, which may accept the origin.
    let refused = gateway.send(&preflight("/pay/7", "https://evil.example").field("prefer", "wait=0")).await;
    assert_eq!((refused.status, refused.field(ALLOWED)), (423, None));
    let passed = gateway.send(&preflight("/open/a", "https://evil.example")).await;
    assert_eq!((passed.status, passed.field(ALLOWED), site.origin.count("/open/a")), (200, None, 1));
    let plain = TestRequest::with_method("OPTIONS", "/open/a").field("origin", APP);
    let passed = gateway.send(&plain).await;
    assert_eq!((passed.status, passed.field(ALLOWED), site.origin.count("/open/a")), (200, Some(APP), 2));
    assert_eq!(holder.finish().await.status, 200);
}

/// CORS fields of the service stay unchanged, because browsers refuse an answer that names two origins.
#[tokio::test]
async fn word_of_service_is_kept() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&with_cors(site.policy("gw-1"), &[APP])).await;
    for said in ["*", "https://other.example", APP] {
        let reply = OriginReply::ok().field(ALLOWED, said).field("access-control-expose-headers", "X-Total");
        site.origin.script("/said", [OriginAction::now(reply)]);
        let answer = gateway.send(&TestRequest::get("/said").field("origin", APP)).await;
        assert_eq!((answer.status, answer.field(ALLOWED)), (200, Some(said)));
        let exposed: Vec<_> = answer.fields.get_all("access-control-expose-headers").iter().collect();
        assert_eq!(exposed, ["X-Total", "Fencing-Outcome, Retry-After, X-Request-Id"]);
    }
}

/// A reload adds and removes the CORS fields. The lease interface never has them, because it is for programs.
#[tokio::test]
async fn cors_follows_reload_and_leaves_leases_alone() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let plain = tokens.policy(&site, "gw-1");
    let gateway = Gateway::start(&plain).await;
    let asked = async || gateway.send(&TestRequest::get("/there").field("origin", APP)).await;
    assert_eq!((asked().await.field(ALLOWED), asked().await.field("vary")), (None, None));
    gateway.rewrite(&with_cors(plain.clone(), &[APP]));
    let (code, changes) = gateway.reload(&[]).await;
    assert_eq!(code, Some(0), "{changes}");
    assert_eq!(asked().await.field(ALLOWED), Some(APP));
    for path in ["leases", "keys/job/1", "elections/a", "auth"] {
        let answer = gateway.send(&preflight(&format!("/.fencegate/v1/{path}"), APP)).await;
        assert_eq!((answer.status, answer.reason().as_str()), (403, "lease-forbidden"), "{path}");
        assert_eq!(answer.field("access-control-allow-methods"), None, "{path}");
    }
    gateway.rewrite(&plain);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    assert_eq!(asked().await.field(ALLOWED), None);
}
