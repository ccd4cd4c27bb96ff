//! The claims of a client's bearer token.

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    leases::{CLIENT, LeaseTokens},
    policy::TestPolicy,
    site::TestSite,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    AUDIENCE, IssuerKey, assert_refused, claims_of, issuer_with_file, key_set, policy_by_token, unix_now,
    with_bearer, with_claim,
};

/// An issuer whose key set is in a file.
struct FileIssuer {
    key: IssuerKey,
    folder: TempDir,
}

impl FileIssuer {
    fn new() -> Self {
        let issuer = Self { key: IssuerKey::new("one"), folder: scratch::temp_dir() };
        std::fs::write(issuer.file(), key_set(&[&issuer.key])).expect("our own folder");
        issuer
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("jwks.json")
    }

    fn policy(&self, site: &TestSite) -> TestPolicy {
        policy_by_token(site, issuer_with_file(&self.file()))
    }
}

fn pay() -> TestRequest {
    TestRequest::post("/pay/7")
}

/// A token with this header, these claims and this signature, whatever they are.
fn token_by_hand(header: &Value, claims: &Value, signature: &str) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    format!("{header}.{claims}.{signature}")
}

/// A token signed by an HMAC with this secret.
fn forged(kid: Option<&str>, secret: &[u8]) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::HS256) };
    encode(&header, &claims_of("ann"), &EncodingKey::from_secret(secret)).expect("signed")
}

/// Tokens that a client has forged, stolen from elsewhere or kept for too long.
fn forged_tokens(key: &IssuerKey) -> Vec<(&'static str, String)> {
    let good = key.token_of("ann");
    let signature = good.rsplit('.').next().expect("three parts").to_owned();
    let stranger = IssuerKey::new("one");
    let public = key.public();
    let now = unix_now();
    let headed = |change: &dyn Fn(&mut Header)| {
        let mut header = key.header();
        change(&mut header);
        encode(&header, &claims_of("ann"), &key.encoding).expect("signed")
    };
    let mut bringing = stranger.header();
    bringing.jwk = serde_json::from_value(stranger.public()).ok();
    bringing.jku = Some("http://127.0.0.1:1/jwks.json".into());
    let other_subject = {
        let mine = key.token_of("eve");
        let [head, _, signature] = *mine.split('.').collect::<Vec<_>>() else { panic!("three parts") };
        let [_, claims, _] = *good.split('.').collect::<Vec<_>>() else { panic!("three parts") };
        format!("{head}.{claims}.{signature}")
    };
    vec![
        ("none", token_by_hand(&json!({"alg": "none"}), &claims_of("ann"), "")),
        (
            "none, of a key",
            token_by_hand(&json!({"alg": "None", "kid": "one"}), &claims_of("ann"), &signature),
        ),
        ("HS256 with the public key", forged(Some("one"), public.to_string().as_bytes())),
        ("HS256 with the public key in PEM", forged(Some("one"), key.pem.as_bytes())),
        ("HS256 with a coordinate", forged(Some("one"), public["x"].as_str().expect("text").as_bytes())),
        ("HS256 with nothing", forged(None, b"")),
        ("a path as kid", headed(&|header| header.kid = Some("../../../../dev/null".into()))),
        ("a path as kid, HS256", forged(Some("../../../../dev/null"), b"")),
        ("a URL as kid", headed(&|header| header.kid = Some("http://127.0.0.1:1/jwks.json".into()))),
        ("a statement as kid", headed(&|header| header.kid = Some("one' OR '1'='1".into()))),
        ("another type", headed(&|header| header.typ = Some("logout+jwt".into()))),
        ("a critical extension", headed(&|header| header.crit = Some(vec!["exp".into()]))),
        ("another key of that name", stranger.token_of("ann")),
        ("a key that it brings", encode(&bringing, &claims_of("ann"), &stranger.encoding).expect("signed")),
        ("claims of another token", other_subject),
        ("no signature", format!("{}.", good.rsplit_once('.').expect("three parts").0)),
        ("another audience", key.sign(&with_claim("aud", "shipping"))),
        ("no audience", key.sign(&with_claim("aud", Value::Null))),
        ("another issuer", key.sign(&with_claim("iss", "https://login.example.evil"))),
        ("expired", key.sign(&with_claim("exp", now - 61))),
        ("no end", key.sign(&with_claim("exp", Value::Null))),
        ("not valid yet", key.sign(&with_claim("nbf", now + 120))),
        ("huge", key.sign(&with_claim("x", "y".repeat(8192)))),
        ("no token", "x".to_owned()),
        ("dots", "...".to_owned()),
    ]
}

/// Each of the usual forged tokens is refused before a lock is taken: no node is made, and the service gets no request.
#[tokio::test]
async fn forged_tokens_reach_nothing() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let once = json!({"principal": "{jwt:/sub}"});
    let gateway = Gateway::start(&issuer.policy(&site).with("/routes/0/fence/once", once)).await;
    let tree = site.tree().await;
    let before = tree.persistent_nodes().await;
    let followed = tree.follow_locks().await;
    let ask = || pay().field("Idempotency-Key", "op-1").body("ten");
    for (what, token) in forged_tokens(&issuer.key) {
        // Each token is sent twice, because an answer about a token could be cached.
        for _ in 0..2 {
            let refused = gateway.send(&with_bearer(ask(), &token)).await;
            assert_refused(&refused, 401, "bearer-invalid", what);
            assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{what}");
            let challenge = refused.field("www-authenticate").expect("a challenge");
            let begin = "Bearer realm=\"gateway\", error=\"invalid_token\", error_description=\"";
            assert!(challenge.starts_with(begin), "{what}: {challenge}");
            let parts = token.split('.').filter(|part| part.len() > 3);
            for part in parts {
                assert!(!challenge.contains(part), "{what}: {challenge} quotes the token");
            }
        }
    }
    let good = issuer.key.token_of("ann");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    for (what, request, status, reason) in [
        ("two", with_bearer(with_bearer(ask(), &good), &good), 400, "bearer-malformed"),
        ("a good one and a bad one", with_bearer(with_bearer(ask(), &good), "x"), 400, "bearer-malformed"),
        (
            "two in one field",
            ask().field("Authorization", &format!("Bearer {good}, Bearer {good}")),
            401,
            "bearer-invalid",
        ),
        (
            "two schemes",
            with_bearer(ask().field("Authorization", "Basic YTpi"), &good),
            400,
            "bearer-malformed",
        ),
        ("no text", ask().field("Authorization", "Bearer"), 400, "bearer-malformed"),
        ("nothing", ask(), 401, "bearer-missing"),
        ("another scheme", ask().field("Authorization", "Basic YTpi"), 401, "bearer-missing"),
        ("in a cookie", ask().field("Cookie", &format!("access_token={good}")), 401, "bearer-missing"),
        (
            "in a form",
            ask().field(form.0, form.1).body(format!("access_token={good}")),
            401,
            "bearer-missing",
        ),
        (
            "in the query",
            TestRequest::post(&format!("/pay/7?access_token={good}")).field("Idempotency-Key", "op-1"),
            401,
            "bearer-missing",
        ),
        ("no sub", with_bearer(ask(), &issuer.key.sign(&with_claim("sub", Value::Null))), 400, "key-missing"),
    ] {
        let refused = gateway.send(&request).await;
        assert_refused(&refused, status, reason, what);
        let challenge = refused.field("www-authenticate");
        assert_eq!(challenge.is_some(), reason.starts_with("bearer"), "{what}: {challenge:?}");
    }
    assert!(followed.stop().await.is_empty(), "a lock was taken");
    assert!(site.origin.log().records.is_empty(), "{:?}", site.origin.log().latest());
    tree.delete("/locks/made-last").await.expect("ours");
    assert_eq!(tree.persistent_nodes().await, before, "something was recorded");

    // This shows that the watch sees the locks of a valid request.
    let followed = tree.follow_locks().await;
    assert_eq!(gateway.send(&with_bearer(ask(), &good)).await.status, 200);
    assert!(!followed.stop().await.is_empty());
    // A token that has expired within the leeway is still valid.
    let late = issuer.key.sign(&with_claim("exp", unix_now() - 5));
    assert_eq!(gateway.send(&with_bearer(pay().field("Idempotency-Key", "op-2"), &late)).await.status, 200);
}

/// The service gets the token unchanged and the claims in their fields, and none of these fields from a client. With
/// `forward: false` it gets no token.
#[tokio::test]
async fn service_is_told_who_asks() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let fields = json!({"claims": {"X-User": "/sub", "X-Team": "/team"}});
    let policy = issuer.policy(&site).with("/upstreams/ledger/fields", fields);
    let gateway = Gateway::start(&policy).await;
    let good = issuer.key.sign(&with_claim("team", "caf\u{e9} & co"));
    let lying = |request: TestRequest| {
        request.field("X-User", "root").field("X_User", "root").field("x-team", "admins")
    };
    assert_eq!(gateway.send(&lying(with_bearer(pay(), &good))).await.status, 200);
    // The fields are also set on a route without a fence.
    assert_eq!(gateway.send(&lying(with_bearer(TestRequest::get("/told"), &good))).await.status, 200);
    assert_eq!(gateway.send(&lying(TestRequest::get("/untold"))).await.status, 200);
    let plain = issuer.key.token_of("bob");
    assert_eq!(gateway.send(&lying(with_bearer(TestRequest::get("/other"), &plain))).await.status, 200);
    gateway.rewrite(&policy.with("/jwt/0/forward", false));
    assert_eq!(gateway.reload(&[]).await.0, Some(0), "{}", gateway.log());
    assert_eq!(gateway.send(&with_bearer(TestRequest::get("/kept"), &good)).await.status, 200);

    let log = site.origin.log();
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    for (path, user, team, authorization) in [
        ("/pay/7", Some("ann"), Some("caf%C3%A9%20&%20co"), bearer(&good)),
        ("/told", Some("ann"), Some("caf%C3%A9%20&%20co"), bearer(&good)),
        ("/untold", None, None, None),
        ("/other", Some("bob"), None, bearer(&plain)),
        ("/kept", Some("ann"), Some("caf%C3%A9%20&%20co"), None),
    ] {
        let record = log.requests_for(path).next().expect(path);
        let field = |name: &str| record.request.field(name);
        assert_eq!((field("x-user"), field("x-team"), field("x_user")), (user, team, None), "{path}");
        assert_eq!(field("authorization"), authorization.as_deref(), "{path}");
    }
}

/// Rules about claims decide before a lock is taken, and also on routes without a lock.
#[tokio::test]
async fn rules_about_claims_decide_before_lock() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let rules = json!([{"claims": {"/scope": "refund"}}, {"claims": {"/groups/*": "owners"}}]);
    let policy = issuer.policy(&site).with("/routes/0/allow", rules.clone()).with("/routes/1/allow", rules);
    let gateway = Gateway::start(&policy).await;
    let tree = site.tree().await;
    let followed = tree.follow_locks().await;
    let requests = || [pay(), TestRequest::get("/open")];
    for request in requests() {
        assert_refused(&gateway.send(&request).await, 401, "bearer-missing", "nobody");
        for (what, claims) in [
            ("no scope", claims_of("ann")),
            ("other scopes", with_claim("scope", "read refunds refund:own")),
            ("another case", with_claim("scope", "Refund")),
            ("other groups", with_claim("groups", json!(["owner", "staff"]))),
            ("a group as text", with_claim("groups", "owners")),
        ] {
            let refused = gateway.send(&with_bearer(request.clone(), &issuer.key.sign(&claims))).await;
            assert_refused(&refused, 403, "access-denied", what);
        }
    }
    assert!(followed.stop().await.is_empty(), "a lock was taken");
    assert!(site.origin.log().records.is_empty());
    for request in requests() {
        for claims in [with_claim("scope", "read refund"), with_claim("groups", json!(["staff", "owners"]))] {
            let answer = gateway.send(&with_bearer(request.clone(), &issuer.key.sign(&claims))).await;
            assert_eq!(answer.status, 200, "{claims}: {answer:?}");
        }
    }
}

/// A request that matches an open route is refused if the service may read it as a request for a route with rules, also
/// where no route of the service is fenced.
#[tokio::test]
async fn rules_cannot_be_gone_round_by_second_reading() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let admin = json!({"name": "admin", "upstream": "ledger", "match": {"path": "/admin/{rest...}"},
        "allow": [{"claims": {"/sub": "root"}}], "fence": "none"});
    let status = json!({"name": "status", "upstream": "ledger", "match": {"path": "/status"},
        "allow": [{"claims": {"/sub": "root"}}], "fence": "none"});
    let read = json!({"name": "reads", "upstream": "ledger", "match": {"methods": ["GET"], "path": "/read"},
        "allow": [{"claims": {"/sub": "root"}}], "fence": "none"});
    let open =
        json!({"name": "open", "upstream": "ledger", "match": {"path": "/{rest...}"}, "fence": "none"});
    let routed = issuer
        .policy(&site)
        .without_route("pay")
        .without_route("read")
        .with_route(admin)
        .with_route(status)
        .with_route(read);
    let unmatched = routed.clone().with("/unmatched", json!({"pass": "ledger"}));
    for policy in [routed.with_route(open), unmatched] {
        let gateway = Gateway::start(&policy).await;
        let before = site.origin.log().records.len();
        for request in [TestRequest::get("/admin/x"), TestRequest::get("/status"), TestRequest::get("/read")]
        {
            assert_refused(&gateway.send(&request).await, 401, "bearer-missing", "the route itself");
        }
        for (request, reason) in [
            (TestRequest::get("/x").field("X-Original-URL", "/admin/x"), "ambiguous-path"),
            (TestRequest::get("/x").field("X_Rewrite_URL", "/admin/x"), "ambiguous-path"),
            (TestRequest::post("/x").field("X-HTTP-Method-Override", "DELETE"), "method"),
            (TestRequest::with_method("post", "/x"), "method"),
            (TestRequest::get("//admin/x"), "ambiguous-path"),
            (TestRequest::get("/x/..%2fadmin/x"), "ambiguous-path"),
            (TestRequest::get("/status.json"), "ambiguous-path"),
            (TestRequest::get("/status."), "ambiguous-path"),
            (TestRequest::get("/Status"), "ambiguous-path"),
            (TestRequest::get("/status/"), "ambiguous-path"),
            (TestRequest::get("/ADMIN/x"), "ambiguous-path"),
            (TestRequest::get("/%41dmin/x/"), "ambiguous-path"),
            (TestRequest::get("/STATUS.json"), "ambiguous-path"),
        ] {
            let what = format!("{request:?}");
            let status = if reason == "method" { 405 } else { 400 };
            assert_refused(&gateway.send(&request).await, status, reason, &what);
        }
        // A service handles HEAD like GET. The answer to HEAD has no body with the reason.
        for (target, status) in [("/read", 405), ("/READ", 405), ("/read/", 400)] {
            let refused = gateway.send(&TestRequest::with_method("HEAD", target)).await;
            assert_eq!(refused.status, status, "{target}: {refused:?}");
            assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{target}: {refused:?}");
        }
        assert_eq!(site.origin.log().records.len(), before, "{:?}", site.origin.log().latest());
        assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200);
        let root = with_bearer(TestRequest::get("/admin/x"), &issuer.key.token_of("root"));
        assert_eq!(gateway.send(&root).await.status, 200);
    }
}

/// A share of a route belongs to the subject of the token, though all requests come from one address.
#[tokio::test]
async fn share_belongs_to_identity() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let policy = issuer
        .policy(&site)
        .with("/routes/0/fence/client_share", 1)
        .with("/routes/0/fence/client_share_by", "{jwt:/sub}");
    let gateway = Gateway::start(&policy).await;
    let of = |subject: &str, path: &str| with_bearer(TestRequest::post(path), &issuer.key.token_of(subject));
    let latch = site.origin.hold("/pay/7");
    let first = gateway.begin(of("ann", "/pay/7"));
    site.origin.wait_for_request("/pay/7", 1).await;
    assert_refused(&gateway.send(&of("ann", "/pay/8")).await, 429, "client-limit", "the share is used up");
    assert_eq!(gateway.send(&of("bob", "/pay/8")).await.status, 200);
    latch.release();
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(gateway.send(&of("ann", "/pay/8")).await.status, 200);
}

/// On a route that only observes, a request with a bad token passes without a lock, as a request without a token does.
#[tokio::test]
async fn observing_route_reports_bad_token() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let policy = issuer.policy(&site).with("/routes/0/fence/enforce", "observe");
    let gateway = Gateway::start(&policy).await;
    let expired = issuer.key.sign(&with_claim("exp", unix_now() - 600));
    for request in [pay(), with_bearer(pay(), &expired), with_bearer(pay(), &issuer.key.token_of("ann"))] {
        assert_eq!(gateway.send(&request).await.status, 200);
    }
    assert_eq!(site.origin.count("/pay/7"), 3);
}

/// An auth query of a proxy carries no identity of the client, so it is refused for routes that need one.
#[tokio::test]
async fn asking_proxy_has_no_identity() {
    let site = TestSite::fresh().await;
    let issuer = FileIssuer::new();
    let tokens = LeaseTokens::default();
    let open = json!({"name": "open", "upstream": "ledger", "match": {"methods": ["POST"], "path": "/open/{account}"},
        "fence": {"key": "account/{path.account}"}});
    let ruled = json!({"name": "ruled", "upstream": "ledger", "match": {"methods": ["POST"], "path": "/ruled/{account}"},
        "allow": [{"claims": {"/aud": AUDIENCE}}], "fence": {"key": "account/{path.account}"}});
    let rest =
        json!({"name": "rest", "upstream": "ledger", "match": {"path": "/{rest...}"}, "fence": "none"});
    let policy = tokens.add_to(issuer.policy(&site)).with_route(open).with_route(ruled).with_route(rest);
    let gateway = Gateway::start(&policy).await;
    let ask = |path: &str| {
        TestRequest::get("/.fencegate/v1/auth")
            .field("Fencing-Authorization", &format!("Bearer {CLIENT}"))
            .field("X-Original-Method", "POST")
            .field("X-Original-URI", path)
    };
    let good = issuer.key.token_of("ann");
    assert_eq!(gateway.send(&with_bearer(ask("/open/7"), &good)).await.status, 200);
    for path in ["/pay/8", "/ruled/8"] {
        let refused = gateway.send(&with_bearer(ask(path), &good)).await;
        assert_refused(&refused, 401, "bearer-missing", path);
    }
    assert_eq!(gateway.send(&ask("/rest/8")).await.status, 200);
    for path in ["/Ruled/8", "/ruled/8/"] {
        assert_refused(&gateway.send(&ask(path)).await, 400, "ambiguous-path", path);
    }
}
