//! Two requests are one operation if they have the same principal and `Idempotency-Key`, within one scope. The name
//! that the policy gives to an upstream does not count.
//!
//! An operation survives the renaming of its upstream, and is recognised under the name that an earlier build gave
//! it. The answer of one principal decides nothing about the operation of another. A guard resolves a doubt although
//! a client keeps repeating.

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, Http1Client, TestRequest},
    gateway::Gateway,
    guarded::{GuardedSite, with_short_times},
    origin::{OriginAction, OriginReply},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::{Value, json};

use crate::{forwarding::forwarding_policy, once_kept::wait_swept, tls::TlsFiles};

fn pay() -> TestRequest {
    TestRequest::post("/pay/7").field("Idempotency-Key", "op-1").body("ten")
}

#[track_caller]
fn assert_told(answer: &ClientResponse, status: u16, outcome: FencingOutcome) {
    assert_eq!((answer.status, answer.outcome()), (status, Some(outcome)), "{answer:?}");
}

/// Renames the upstream in the policy, and changes nothing else.
fn with_renamed_upstream(policy: TestPolicy) -> TestPolicy {
    let text = policy.to_string();
    assert!(text.contains("\"ledger\""), "{text}");
    TestPolicy::from_yaml(&text.replace("\"ledger\"", "\"ledger-v2\""))
}

/// The guard resolves no operation by a probe that would find the operation of another principal.
///
/// The probe names the operation but not its principal, and the service knows an operation of this name from another
/// principal.
#[tokio::test]
async fn probe_without_principal_is_never_sent() {
    let guarded = GuardedSite::fresh().await;
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404]});
    let guard = with_short_times(guarded.launch().await).with("/journal/probe", probe).start().await;
    let policy = guarded
        .policy("gw-1", &[guard.public])
        .with("/routes/0/fence/once", json!({"principal": "{header.x-shop}"}));
    let gateway = Gateway::start(&policy).await;
    let of = |shop: &str| pay().field("X-Shop", shop);
    let origin = &guarded.site.origin;
    assert_told(&gateway.send(&of("blue")).await, 200, FencingOutcome::Done);
    origin.script("/pay/7", [OriginAction::Reset]);
    assert_told(&gateway.send(&of("red")).await, 502, FencingOutcome::Unknown);
    // The service would answer `done` for the operation of blue, or `not done` without a principal.
    for status in [200, 404] {
        origin.script("/ops/op-1", vec![OriginAction::now(OriginReply::ok().status(status)); 50]);
        assert_told(&gateway.send(&of("red")).await, 409, FencingOutcome::Unknown);
    }
    guard.wait_gauge("fencegate_guard_in_doubt", 0.0).await;
    let repeat = gateway.send(&of("red")).await;
    assert_told(&repeat, 409, FencingOutcome::Unknown);
    assert_eq!(repeat.reason(), "outcome-unknown");
    assert_eq!((origin.count("/pay/7"), origin.count("/ops/op-1")), (2, 0));
    assert_told(&gateway.send(&of("blue")).await, 200, FencingOutcome::Replayed);
}

#[tokio::test]
async fn operation_survives_upstream_rename_at_guard() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).start().await;
    let policy = |name| guarded.policy(name, &[guard.public]).with("/routes/0/fence/once", json!({}));
    let a = policy("gw-1");
    let b = with_renamed_upstream(policy("gw-2"));
    let (one, two) = Gateway::start_both(&a, &b).await;
    assert_told(&one.send(&pay()).await, 200, FencingOutcome::Done);
    assert_told(&two.send(&pay()).await, 200, FencingOutcome::Replayed);
    one.rewrite(&with_renamed_upstream(a));
    one.reload(&[]).await;
    assert_told(&one.send(&pay()).await, 200, FencingOutcome::Replayed);
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);
}

#[tokio::test]
async fn operation_survives_upstream_rename_in_zookeeper() {
    let site = TestSite::fresh().await;
    let policy = |name| site.policy(name).with("/routes/0/fence/once", json!({}));
    let a = policy("gw-1");
    let b = with_renamed_upstream(policy("gw-2"));
    let (one, two) = Gateway::start_both(&a, &b).await;
    assert_told(&one.send(&pay()).await, 200, FencingOutcome::Done);
    assert_told(&two.send(&pay()).await, 409, FencingOutcome::Done);
    one.rewrite(&with_renamed_upstream(a));
    one.reload(&[]).await;
    assert_told(&one.send(&pay()).await, 409, FencingOutcome::Done);
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// A guard resolves a doubt by its probe although a client repeats the request all the time.
///
/// A repeat claims the operation while it runs, so the guard could find it claimed at each of its own attempts.
#[tokio::test]
async fn guard_probes_despite_repeating_client() {
    let guarded = GuardedSite::fresh().await;
    let probe = json!({"path": "/ops/{operation}", "done": [200], "not_done": [404], "timeout": "1s"});
    let launch = with_short_times(guarded.launch().await).with("/max_execution", "12s");
    let guard = launch.with("/upstream/response_timeout", "8s").with("/journal/probe", probe).start().await;
    let policy = guarded.policy("gw-1", &[guard.public]).with("/routes/0/fence/once", json!({}));
    let gateway = Gateway::start(&policy.with("/upstreams/ledger/response_timeout", "26s")).await;
    let origin = &guarded.site.origin;
    origin.script("/pay/7", [OriginAction::Reset]);
    // The first probe is made for the client, and still runs when the guard would make its own first one.
    let slow = OriginAction::Answer(std::time::Duration::from_millis(600), OriginReply::ok().status(500));
    origin.script("/ops/op-1", [slow]);
    assert_told(&gateway.send(&pay()).await, 502, FencingOutcome::Unknown);
    assert_told(&gateway.send(&pay()).await, 409, FencingOutcome::Unknown);
    let found = guard.wait_gauge("fencegate_guard_in_doubt", 0.0);
    wait_until("the guard to ask by itself", found, || guard.log()).await;
    let resolved = guard.metrics().await.sum("fencegate_guard_in_doubt_resolved_total", &["how=\"probe\""]);
    assert!((resolved - 1.0).abs() < 0.1, "the doubt ended by itself:\n{}", guard.log());
    let repeat = gateway.send(&pay()).await;
    assert_eq!((repeat.status, repeat.reason()), (409, "already-done".to_owned()));
}

/// An earlier build had the upstream's name in the identity. A scope with that name gives the same identity.
#[tokio::test]
async fn legacy_upstream_scope_is_recognised() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).start().await;
    let policy = |name, once| guarded.policy(name, &[guard.public]).with("/routes/0/fence/once", once);
    let (before, now) =
        Gateway::start_both(&policy("gw-1", json!({"scope": "ledger"})), &policy("gw-2", json!({}))).await;
    let origin = &guarded.site.origin;
    assert_told(&before.send(&pay()).await, 200, FencingOutcome::Done);
    assert_told(&now.send(&pay()).await, 200, FencingOutcome::Replayed);
    assert_told(&now.send(&pay().body("other")).await, 422, FencingOutcome::NotDispatched);
    origin.script("/pay/7", [OriginAction::Reset]);
    let lost = TestRequest::post("/pay/7").field("Idempotency-Key", "op-2").body("ten");
    assert_told(&before.send(&lost).await, 502, FencingOutcome::Unknown);
    let repeats = (0..4).map(|_| now.begin(lost.clone()).answer());
    for told in futures_util::future::join_all(repeats).await {
        assert_told(&told, 409, FencingOutcome::Unknown);
    }
    assert_eq!(origin.count("/pay/7"), 2);
}

/// An operation that an earlier build recorded under its upstream's name is still recognised, also after a sweep.
#[tokio::test]
async fn legacy_upstream_scope_recognised_in_zookeeper() {
    let site = TestSite::fresh().await;
    let tree = site.tree().await;
    let policy = |name, once| site.policy(name).with("/routes/0/fence/once", once);
    let before = Gateway::start(&policy("gw-1", json!({"scope": "ledger"}))).await;
    assert_told(&before.send(&pay()).await, 200, FencingOutcome::Done);
    let nodes = tree.paths().await;
    let node = nodes.iter().find(|path| path.starts_with("/ops/") && path.len() > 10).expect("one");
    let mut record: Value = serde_json::from_slice(&tree.data(node).await).expect("JSON");
    record.as_object_mut().expect("members").remove("owner").expect("a build of before wrote none");
    for _ in 0..3 {
        tree.set(node, &serde_json::to_vec(&record).expect("JSON")).await;
    }
    drop(before);
    let now = Gateway::start(&policy("gw-2", json!({}))).await;
    assert_told(&now.send(&pay()).await, 409, FencingOutcome::Done);
    assert_told(&now.send(&pay().body("other")).await, 422, FencingOutcome::NotDispatched);
    // Another operation is looked up under both names. The old operation must survive the sweep that follows.
    assert_told(
        &now.send(&TestRequest::post("/pay/7").field("Idempotency-Key", "op-2")).await,
        200,
        FencingOutcome::Done,
    );
    wait_swept(&tree, node, &now).await;
    assert_told(&now.send(&pay()).await, 409, FencingOutcome::Done);
    assert_eq!(site.origin.count("/pay/7"), 2);
}

/// Requests of other clients, all with the operation name of a client that has used it.
fn foreign_requests() -> [TestRequest; 6] {
    let bearer = |token: &str| pay().field("Authorization", token);
    [
        bearer("Bearer b"),
        pay(),
        bearer("Bearer a").field("Authorization", "Bearer b"),
        bearer("Bearer a").field("Cookie", "sid=b"),
        bearer("Bearer a").field("X_Api_Key", "b"),
        pay().field("Cookie", "sid=a"),
    ]
}

/// A response is not replayed to a client with other credentials.
///
/// The service would have checked the credentials, but a replay does not reach it.
#[tokio::test]
async fn replay_requires_same_credentials() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).start().await;
    let policy = |name| guarded.policy(name, &[guard.public]).with("/routes/0/fence/once", json!({}));
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    let origin = &guarded.site.origin;
    origin.script("/pay/7", [OriginAction::now(OriginReply::with_body("balance of a"))]);
    let owner = pay().field("Authorization", "Bearer a");
    assert_told(&one.send(&owner).await, 200, FencingOutcome::Done);
    for stranger in foreign_requests() {
        let told = two.send(&stranger).await;
        assert!(!String::from_utf8_lossy(&told.body).contains("balance of a"), "{stranger:?}: {told:?}");
        assert_told(&told, 422, FencingOutcome::NotDispatched);
        assert_eq!(told.reason(), "idempotency-mismatch");
    }
    let replayed = two.send(&owner.clone().field("X-Csrf-Token", "other")).await;
    assert_told(&replayed, 200, FencingOutcome::Replayed);
    assert_eq!(replayed.body, "balance of a");
    assert_eq!(origin.count("/pay/7"), 1);
}

/// A client with other credentials gets 422 and does not learn that the operation was done.
#[tokio::test]
async fn repeat_requires_same_credentials() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1").with("/routes/0/fence/once", json!({}))).await;
    let owner = pay().field("Authorization", "Bearer a");
    assert_told(&gateway.send(&owner).await, 200, FencingOutcome::Done);
    for stranger in foreign_requests() {
        assert_told(&gateway.send(&stranger).await, 422, FencingOutcome::NotDispatched);
    }
    let repeat = gateway.send(&owner).await;
    assert_told(&repeat, 409, FencingOutcome::Done);
    assert_eq!((repeat.reason().as_str(), site.origin.count("/pay/7")), ("already-done", 1));
}

/// A principal may repeat an operation with new credentials.
#[tokio::test]
async fn principal_may_rotate_credentials() {
    let guarded = GuardedSite::fresh().await;
    let guard = with_short_times(guarded.launch().await).start().await;
    let once = json!({"principal": "{header.x-shop}"});
    let gateway =
        Gateway::start(&guarded.policy("gw-1", &[guard.public]).with("/routes/0/fence/once", once)).await;
    let with = |token: &str| pay().field("X-Shop", "blue").field("Authorization", token);
    assert_told(&gateway.send(&with("Bearer a")).await, 200, FencingOutcome::Done);
    assert_told(&gateway.send(&with("Bearer b")).await, 200, FencingOutcome::Replayed);
}

/// The gateway that holds the key sees no client certificate, so the forwarding gateway names the client.
#[tokio::test]
async fn certificates_separate_clients_across_gateways() {
    let site = TestSite::fresh().await;
    let keys = TlsFiles::new();
    keys.authority.write(&keys.path("clients.pem"));
    let tls = json!({
        "certificates": [keys.write("a", "pay.example")],
        "client_ca_file": keys.path("clients.pem"),
        "client_auth": "optional",
    });
    let policy = |name| {
        let policy = forwarding_policy(&site, name).with("/listeners/public/tls", tls.clone());
        policy.with("/routes/0/fence/once", json!({}))
    };
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    tokio::join!(one.wait_ready(), two.wait_ready());
    let send = async |gateway: &Gateway, name: Option<&str>, ask: &TestRequest| {
        let secure = match name.map(|name| keys.authority.sign(&[name])) {
            Some(signed) => keys.client().with_certificate(signed.certificate(), signed.key()),
            None => keys.client(),
        };
        let stream = secure.connect(gateway.public, "pay.example").await.expect("accepted");
        let mut client = Http1Client::on_stream(stream, gateway.public).await.expect("speaks HTTP/1.1");
        client.send(&ask.clone().field("host", "pay.example")).await.expect("answered")
    };
    let other = Some("till-8.example");
    let till = Some("till-7.example");
    // The first gateway keeps this key, so that requests at the second one are forwarded.
    let first = send(&one, till, &pay()).await;
    assert_told(&first, 200, FencingOutcome::Done);
    for gateway in [&one, &two] {
        assert_told(&send(gateway, other, &pay()).await, 422, FencingOutcome::NotDispatched);
        assert_told(&send(gateway, None, &pay()).await, 422, FencingOutcome::NotDispatched);
        // This client has a new certificate of the same name.
        assert_told(&send(gateway, till, &pay()).await, 409, FencingOutcome::Done);
    }
    let forwarded = two.metrics().await.sum("fencegate_forwarded_total", &["result=\"answered\""]);
    assert!(forwarded > 0.0, "not exercised: nothing was sent on");
}

/// One name at two routes names two operations if the policy gives them different scopes.
#[tokio::test]
async fn scopes_share_no_idempotency_keys() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({"scope": "pay"})).with_route(json!({
        "name": "refund", "upstream": "ledger", "match": {"methods": ["POST"], "path": "/refund/{account}"},
        "fence": {"key": "account/{path.account}", "once": {"scope": "refund"}},
    }));
    let gateway = Gateway::start(&policy).await;
    assert_told(&gateway.send(&pay()).await, 200, FencingOutcome::Done);
    let refund = TestRequest::post("/refund/7").field("Idempotency-Key", "op-1").body("ten");
    assert_told(&gateway.send(&refund).await, 200, FencingOutcome::Done);
    assert_told(&gateway.send(&refund).await, 409, FencingOutcome::Done);
}

/// A reload that changes the identity of operations reports that earlier operations are not recognised.
#[tokio::test]
async fn reload_reports_forgotten_operations() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/routes/0/fence/once", json!({}));
    let gateway = Gateway::start(&policy).await;
    gateway.rewrite(&with_renamed_upstream(policy.clone()));
    let (_, report) = gateway.reload(&[]).await;
    assert_eq!(report["difference"]["forgets"], json!([]), "{report}");
    gateway.rewrite(&policy.with("/routes/0/fence/once/scope", "ledger"));
    let (_, report) = gateway.reload(&["--dry-run"]).await;
    assert_eq!(report["difference"]["forgets"], json!(["pay"]), "{report}");
    gateway.wait_line("a warning", |line| line.message().starts_with("config.operations_forgotten")).await;
}
