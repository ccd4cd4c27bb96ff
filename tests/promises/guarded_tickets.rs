//! A guard with `tickets` admits only requests that one of its gateways has signed, and keys are rotated without a request
//! that fails.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fencegate_policies::key::ResourceKey;
use fencegate_testkit::{child::Signal, scratch, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::Guard,
    guarded::{GuardedSite, run_operator},
    history::History,
    load::{AttemptResult, LoadPlan, RunningLoad},
};
use serde_json::json;
use tempfile::TempDir;

/// A folder with private keys, and the file with the public ones that a guard reads.
struct KeyFiles(TempDir);

impl KeyFiles {
    fn new() -> Self {
        Self(scratch::temp_dir())
    }

    async fn make(&self, name: &str) -> PathBuf {
        let file = self.0.path().join(name);
        run_operator(&["keys", "new", text(&file)]).await;
        file
    }

    fn public(&self) -> PathBuf {
        self.0.path().join("public.json")
    }

    /// Replaces the file at once, as tools that distribute secrets do.
    async fn publish(&self, keys: &[&Path]) {
        let mut arguments = vec!["keys", "public"];
        arguments.extend(keys.iter().map(|key| text(key)));
        let next = self.0.path().join("next.json");
        fs::write(&next, run_operator(&arguments).await).expect("the folder can be written");
        fs::rename(next, self.public()).expect("the folder can be written");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our own path")
}

async fn guard(guarded: &GuardedSite, keys: &KeyFiles) -> Guard {
    guarded.launch().await.with("/tickets", json!({"public_keys_file": text(&keys.public())})).start().await
}

async fn start_signing_gateway(guarded: &GuardedSite, name: &str, guard: &Guard, key: &Path) -> Gateway {
    let policy = guarded.policy(name, &[guard.public]);
    Gateway::start(&policy.with("/tickets", json!({"signing_key_file": text(key)}))).await
}

/// A guard admits requests signed with a published key, and refuses those of other gateways.
#[tokio::test]
async fn unknown_signer_is_refused() {
    let guarded = GuardedSite::fresh().await;
    let keys = KeyFiles::new();
    let ours = keys.make("ours").await;
    let strange = keys.make("strange").await;
    keys.publish(&[&ours]).await;
    let guard = guard(&guarded, &keys).await;
    let (gateway, stranger, silent) = tokio::join!(
        start_signing_gateway(&guarded, "gw-1", &guard, &ours),
        start_signing_gateway(&guarded, "gw-2", &guard, &strange),
        guarded.gateway("gw-3", &guard),
    );
    for _ in 0..2 {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    }
    for refused in [&stranger, &silent] {
        let answer = refused.send(&TestRequest::post("/pay/7")).await;
        assert_eq!((answer.status, answer.reason().as_str()), (503, "guard"), "{answer:?}");
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
        refused.wait_line("the end of the tenure", |line| line.message() == "tenure.retired").await;
    }
    assert_eq!(
        (guard.decision_count("ticket-invalid").await, guard.decision_count("ticket-missing").await),
        (1.0, 1.0)
    );
    // The refused requests have moved no watermark, so our own request is admitted.
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(guarded.site.origin.count("/pay/7"), 3);
}

/// A request with the largest set of keys has a ticket, passes the guard, and is replayed from its journal.
#[tokio::test]
async fn largest_set_passes_guard_and_journal() {
    let guarded = GuardedSite::fresh().await;
    let keys = KeyFiles::new();
    let ours = keys.make("ours").await;
    keys.publish(&[&ours]).await;
    let guard = guard(&guarded, &keys).await;
    let route = json!({
        "name": "set",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/set"},
        "fence": {
            "key": "sku/{body:/skus/*}",
            "max_keys": ResourceKey::MOST_IN_SET,
            "once": {"store": "guard"},
        },
    });
    let policy = guarded.policy("gw-1", &[guard.public]).with_route(route);
    let gateway = Gateway::start(&policy.with("/tickets", json!({"signing_key_file": text(&ours)}))).await;
    // Each SKU has 124 bytes, and `sku/` before it makes a key of 128 bytes.
    let skus: Vec<_> = (0..ResourceKey::MOST_IN_SET).map(|number| format!("{number:0124}")).collect();
    let order = TestRequest::post("/set")
        .field("Content-Type", "application/json")
        .field("Idempotency-Key", "1")
        .body(json!({"skus": skus}).to_string());
    for outcome in [FencingOutcome::Done, FencingOutcome::Replayed] {
        let answer = gateway.send(&order).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(outcome)), "{answer:?}");
    }
    let record = guarded.site.origin.wait_for_request("/set", 1).await;
    let separators = 2 * (ResourceKey::MOST_IN_SET - 1);
    assert_eq!(record.key().map(str::len), Some(ResourceKey::MOST_BYTES_IN_SET + separators));
    assert_eq!(guarded.site.origin.count("/set"), 1);
}

/// A signing key is accepted from the moment on that it is published.
#[tokio::test]
async fn published_key_is_accepted_at_once() {
    let guarded = GuardedSite::fresh().await;
    let keys = KeyFiles::new();
    let ours = keys.make("ours").await;
    let strange = keys.make("strange").await;
    keys.publish(&[&strange]).await;
    let guard = guard(&guarded, &keys).await;
    let gateway = start_signing_gateway(&guarded, "gw-1", &guard, &ours).await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "guard"), "{answer:?}");
    keys.publish(&[&strange, &ours]).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);
}

/// A guard can fetch the public keys from the gateway's admin listener, which shows no private key.
#[tokio::test]
async fn guard_fetches_keys_from_gateway() {
    let guarded = GuardedSite::fresh().await;
    let keys = KeyFiles::new();
    let key = keys.make("ours").await;
    let launch = guarded.launch().await;
    // The gateway is ready before the guard requires tickets.
    let unguarded = launch.start().await;
    let gateway = start_signing_gateway(&guarded, "gw-1", &unguarded, &key).await;
    let launch = unguarded.stop().await;
    let url = format!("http://{}/jwks.json", gateway.admin);
    let _guard = launch.with("/tickets", json!({"jwks_url": url})).start().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    let published = gateway.admin("/jwks.json").await;
    let private = fs::read_to_string(&key).expect("our own file");
    let private: serde_json::Value = serde_json::from_str(&private).expect("JSON");
    let secret = private["d"].as_str().expect("the private half");
    assert!(!String::from_utf8_lossy(&published.body).contains(secret));
}

fn load(name: &str, gateway: &Gateway) -> RunningLoad {
    let plan = LoadPlan {
        gateways: vec![gateway.public],
        paths: (0..3).map(|key| format!("/pay/{key}")).collect(),
        clients: 3,
        requests: 5000,
        pause: std::time::Duration::from_millis(5),
    };
    RunningLoad::start(name, &plan)
}

async fn wait_more_requests(guarded: &GuardedSite, count: usize) {
    let before = guarded.site.origin.log().records.len();
    guarded.site.origin.wait_for("more requests", |log| log.records.get(before + count).map(drop)).await;
}

/// Keys are rotated under load without a request that fails, and the old key is refused afterwards.
#[tokio::test]
async fn key_rotation_fails_no_request() {
    let guarded = GuardedSite::fresh().await;
    let keys = KeyFiles::new();
    let old = keys.make("old").await;
    let new = keys.make("new").await;
    keys.publish(&[&old]).await;
    let guard = guard(&guarded, &keys).await;
    let first = start_signing_gateway(&guarded, "gw-1", &guard, &old).await;
    let on_first = load("first", &first);
    wait_more_requests(&guarded, 30).await;

    keys.publish(&[&old, &new]).await;
    let second = start_signing_gateway(&guarded, "gw-2", &guard, &new).await;
    let on_second = load("second", &second);
    wait_more_requests(&guarded, 60).await;
    let mut results: Vec<AttemptResult> = on_first.stop().await;
    first.signal(Signal::TERM);
    assert!(first.exit().await.success());

    keys.publish(&[&new]).await;
    let third = start_signing_gateway(&guarded, "gw-3", &guard, &new).await;
    let on_third = load("third", &third);
    wait_more_requests(&guarded, 60).await;
    results.extend(on_second.stop().await);
    results.extend(on_third.stop().await);

    let failed: Vec<_> =
        results.iter().filter(|result| !result.answer.as_ref().is_ok_and(|a| a.status == 200)).collect();
    assert!(failed.is_empty(), "{failed:?}");
    History::from_log(&guarded.site.origin.log()).with_results(&results).assert_holds();
    // The guard reads the file once a second, so it soon rejects the old key.
    let late = start_signing_gateway(&guarded, "gw-4", &guard, &old).await;
    let refused = async { while late.send(&TestRequest::post("/pay/7")).await.status == 200 {} };
    wait_until("the end of the old key", refused, || guard.log()).await;
    assert_eq!(late.send(&TestRequest::post("/pay/7")).await.reason(), "guard");
}
