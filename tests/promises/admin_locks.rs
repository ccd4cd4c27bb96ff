//! The admin API shows the holder of each key and why requests wait, and breaks a lock only after an explicit
//! confirmation. A broken holder writes nothing once it has noticed the break; what it writes before has an older token
//! than the next holder, by which a comparing service refuses it.
//!
//! The API lists 10,000 keys in pages, and never shows keys that the policy hides.

use std::time::Duration;

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    process::TestProcess,
    site::TestSite,
};
use serde_json::{Value, json};

async fn get_json(process: &TestProcess, path: &str) -> Value {
    let answer = process.admin(path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_slice(&answer.body).expect("JSON")
}

async fn post_json(process: &TestProcess, path: &str, body: &Value) -> (u16, Value) {
    let answer =
        TestRequest::post(path).body(body.to_string()).send_to(process.admin).await.expect("an answer");
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// Polls the admin API, because it has no event for a change of locks.
async fn wait_for_json(
    process: &TestProcess,
    path: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let reached = async {
        loop {
            let told = get_json(process, path).await;
            if wanted(&told) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until(what, reached, || process.log()).await
}

/// The admin API shows the holder of a key, its queue, and for each gateway why requests wait.
#[tokio::test]
async fn locks_show_holder_queue_and_reason() {
    let site = TestSite::fresh().await;
    let policy = |name: &str| site.policy(name).with_cached_hold();
    let policies = (policy("gw-1"), policy("gw-2"));
    let latch = site.origin.hold("/pay/7");
    let (one, two) = Gateway::start_both(&policies.0, &policies.1).await;
    let holder = one.begin(TestRequest::post("/pay/7"));
    let token = site.origin.wait_for_request("/pay/7", 1).await.expect_token();
    let waiting = [one.begin(TestRequest::post("/pay/7")), two.begin(TestRequest::post("/pay/7"))];

    let locks = wait_for_json(&one, "/api/v1/locks", "a waiter", |told| told["waiting"] == 1).await;
    assert_eq!((&locks["gateway"], &locks["held"], &locks["wanted"]), (&json!("gw-1"), &json!(1), &json!(1)));
    let lock = &locks["locks"][0];
    assert_eq!((&lock["key"], &lock["why"]), (&json!("account/7"), &json!("held-here")), "{lock}");
    let held = &lock["held"][0];
    assert_eq!(held["token"], json!(token), "{held}");
    assert_eq!(
        (&held["route"], &held["mode"], &held["keeping"]),
        (&json!("pay"), &json!("exclusive"), &json!("cached"))
    );
    assert_eq!((&held["in_flight"], &held["proven"]), (&json!(1), &json!(true)));
    assert_eq!(lock["line"][0]["route"], json!("pay"));

    // The waiter's own node appears shortly after the waiter has found the other node.
    let elsewhere = |told: &Value| {
        let line = told["line"].as_array().map_or(0, Vec::len);
        told["here"]["why"] == "held-elsewhere" && line == 2
    };
    let seen = wait_for_json(&two, "/api/v1/locks/account%2F7", "the holder elsewhere", elsewhere).await;
    assert!(seen["says"].as_str().is_some_and(|says| says.starts_with("gw-1 holds it")), "{seen}");
    let line = seen["line"].as_array().expect("a line");
    let places: Vec<_> = line.iter().map(|one| (one["gateway"].as_str(), one["holds"].as_bool())).collect();
    assert_eq!(places, [(Some("gw-1"), Some(true)), (Some("gw-2"), Some(false))]);
    assert_eq!(line[0]["number"], json!(token.number()));
    assert_eq!(line[1]["behind"], line[0]["node"]);

    latch.release();
    for request in waiting.into_iter().chain([holder]) {
        assert_eq!(request.answer().await.status, 200);
    }
    for gateway in [&one, &two] {
        let nothing = |told: &Value| told["held"] == 0 && told["locks"] == json!([]);
        wait_for_json(gateway, "/api/v1/locks", "nothing to be held", nothing).await;
    }
    let hot = get_json(&two, "/api/v1/contention?top=1").await;
    assert_eq!(hot["hot"][0]["key"], json!("account/7"), "{hot}");
    assert!(hot["hot"][0]["waited_ms"].as_f64().is_some_and(|waited| waited > 1.0), "{hot}");
    let members = get_json(&one, "/api/v1/members").await;
    let names: std::collections::BTreeSet<_> = members["members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["gateway"].as_str())
        .collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["gw-1", "gw-2"]);
    let config = get_json(&one, "/api/v1/config").await;
    assert_eq!(config["routes"][0]["fence"]["keys"], json!(["account/{path.account}"]), "{config}");
}

/// A request that locks several keys is shown as the holder of each of them, beside the waiters of each key.
#[tokio::test]
async fn multi_key_request_appears_under_each_key() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with_route(json!({
        "name": "move", "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/move/{from}/{to}"},
        "fence": {"keys": ["account/{path.from}", "account/{path.to}"]},
    }));
    let gateway = Gateway::start(&policy).await;
    let set = site.origin.hold_request(&gateway, TestRequest::post("/move/1/2")).await;
    let token = set.record.expect_token();
    let behind = gateway.begin(TestRequest::post("/pay/2"));
    let locks = wait_for_json(&gateway, "/api/v1/locks", "a waiter", |told| told["waiting"] == 1).await;
    let keys: Vec<_> =
        locks["locks"].as_array().into_iter().flatten().map(|lock| lock["key"].as_str()).collect();
    assert_eq!(keys, [Some("account/1"), Some("account/2")], "{locks}");
    for lock in locks["locks"].as_array().into_iter().flatten() {
        assert_eq!(
            (&lock["held"][0]["token"], &lock["held"][0]["keeping"]),
            (&json!(token), &json!("strict"))
        );
    }
    assert_eq!(locks["locks"][1]["line"][0]["route"], json!("pay"));
    assert_eq!((set.finish().await.status, behind.answer().await.status), (200, 200));
}

/// With ten thousand held keys each page of 1,000 locks is returned within a second, and the pages list every key.
#[tokio::test]
async fn ten_thousand_locks_are_paged_quickly() {
    const KEYS: usize = 10_000;
    let site = TestSite::alone().await;
    let policy = site.policy("gw-1").with_linger("60s");
    let gateway = Gateway::start(&policy).await;
    let all: Vec<_> = (0..16)
        .map(|client| {
            let address = gateway.public;
            tokio::spawn(async move {
                let mut connection =
                    fencegate_tests::client::Http1Client::connect(address).await.expect("listens");
                for key in (client..KEYS).step_by(16) {
                    let answer = connection
                        .send(&TestRequest::post(&format!("/pay/{key:05}")))
                        .await
                        .expect("an answer");
                    assert_eq!(answer.status, 200);
                }
            })
        })
        .collect();
    for client in all {
        client.await.expect("no panic");
    }
    let mut known = 0;
    let mut after = String::new();
    loop {
        let began = std::time::Instant::now();
        let page = get_json(&gateway, &format!("/api/v1/locks?limit=1000{after}")).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(page["held"], json!(KEYS));
        let locks = page["locks"].as_array().expect("a list");
        known += locks.len();
        if page["more"] == json!(false) {
            break;
        }
        assert_eq!(locks.len(), 1000);
        after = format!("&after={}", locks[999]["key"].as_str().expect("a key").replace('/', "%2F"));
    }
    assert_eq!(known, KEYS);
    let usual = get_json(&gateway, "/api/v1/locks").await;
    assert_eq!(usual["locks"].as_array().map(Vec::len), Some(100));
}

/// A break needs the key as confirmation, the current holder, and `force` where the upstream of the holder compares
/// no tokens.
#[tokio::test]
async fn break_requires_confirmation_and_force() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with("/upstreams/ledger/fencing", "none");
    let gateway = Gateway::start(&policy).await;
    let path = "/api/v1/locks/account%2F7/break";
    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    for (body, status, reason) in [
        (json!({}), 400, "malformed"),
        (json!({"confirm": "account/7", "unknown": 1}), 400, "malformed"),
        (json!({"confirm": "account/8"}), 400, "confirm"),
        (json!({"confirm": "account/7"}), 409, "force"),
        (json!({"confirm": "account/7", "force": true, "holder": "somebody-else"}), 409, "changed"),
    ] {
        let (answered, told) = post_json(&gateway, path, &body).await;
        assert_eq!((answered, told["reason"].as_str()), (status, Some(reason)), "{body}: {told}");
    }
    let (answered, told) = post_json(
        &gateway,
        "/api/v1/locks/account%2F8/break",
        &json!({"confirm": "account/8", "force": true}),
    )
    .await;
    assert_eq!((answered, told["reason"].as_str()), (409, Some("changed")), "{told}");
    // The request runs to its end under the plan with which it came. A later name of the route, or a later level,
    // changes nothing for the request.
    let renamed = policy.clone().with("/routes/0/name", "other");
    let unfenced = renamed.clone().with("/routes/0/fence", "none");
    let comparing = policy.clone().with("/upstreams/ledger/fencing", "upstream");
    for later in [renamed, unfenced, comparing] {
        gateway.rewrite(&later);
        let (code, report) = gateway.reload(&[]).await;
        assert_eq!((code, &report["result"]), (Some(0), &json!("applied")), "{report}");
        let (answered, told) = post_json(&gateway, path, &json!({"confirm": "account/7"})).await;
        assert_eq!((answered, told["reason"].as_str()), (409, Some("force")), "{told}");
    }
    assert_eq!(held_locks(&gateway).await, json!(1));
    assert_eq!(holder.finish().await.status, 200);
}

/// With `enforce: observe` a request may pass without a lock or token, so the service cannot compare tokens, and a break
/// needs `force`.
#[tokio::test]
async fn break_under_observe_requires_force() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1").with_route(json!({
        "name": "look", "upstream": "ledger", "match": {"methods": ["PUT"], "path": "/look/{account}"},
        "fence": {"key": "look/{path.account}", "enforce": "observe"},
    }));
    let gateway = Gateway::start(&policy).await;
    for (key, reason) in [("look/7", "force"), ("account/7", "changed")] {
        let path = format!("/api/v1/locks/{}/break", key.replace('/', "%2F"));
        let (answered, told) = post_json(&gateway, &path, &json!({"confirm": key})).await;
        assert_eq!((answered, told["reason"].as_str()), (409, Some(reason)), "{key}: {told}");
    }
}

async fn held_locks(gateway: &Gateway) -> Value {
    get_json(gateway, "/api/v1/locks").await["held"].clone()
}

/// Breaks the lock of `/pay/7` through `by`.
async fn break_lock(by: &Gateway) {
    let path = "/api/v1/locks/account%2F7/break";
    let (status, told) = post_json(by, path, &json!({"confirm": "account/7"})).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["broken"][0]["gateway"], json!("victim"), "{told}");
    by.wait_line("who broke it", |line| {
        line.message() == "audit" && line.field("asked").starts_with("broke account/7")
    })
    .await;
}

async fn bytes_written_by(site: &TestSite, gateway: &str) -> usize {
    site.origin.log().pieces.iter().filter(|piece| piece.gateway == gateway).count()
}

/// The holder is paused before its write while its lock is broken. When the holder wakes, it has noticed the break.
async fn assert_broken_holder_writes_nothing(cached: bool) {
    let site = TestSite::fresh().await;
    let policy = |name: &str| if cached { site.policy(name).with_cached_hold() } else { site.policy(name) };
    // The pause is longer than it takes to notice the break: a strict request watches its own node only after a while.
    let victim =
        site.gateway_paused_at(&policy("victim"), "before_upstream_write", Duration::from_millis(3500)).await;
    let next = GatewayLaunch::new(&policy("next")).start().await;
    next.wait_ready().await;
    let pending = victim.begin(TestRequest::post("/pay/7"));
    victim.wait_at_failpoint("before_upstream_write").await;
    break_lock(&next).await;
    let answer = next.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
    let answer: ClientResponse = pending.answer().await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "suspended"), "cached: {cached}");
    assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched));
    assert_eq!(bytes_written_by(&site, "victim").await, 0, "written under a broken lock");
    // The session of the victim lives on: it serves again, with a larger token.
    let later = victim.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(later.status, 200);
    assert!(later.token() > answer.token());
}

/// A strict holder that has noticed the break of its lock sends nothing to the upstream and answers 503 `suspended`.
#[tokio::test]
async fn strict_holder_stops_after_noticing_break() {
    assert_broken_holder_writes_nothing(false).await;
}

/// A cached holder that has noticed the break of its lock sends nothing to the upstream and answers 503 `suspended`.
#[tokio::test]
async fn cached_holder_stops_after_noticing_break() {
    assert_broken_holder_writes_nothing(true).await;
}

/// Between the break and the moment when the holder notices it, only the token distinguishes the old holder from the new
/// one: the comparing service refuses the older token.
#[tokio::test]
async fn unnoticed_break_is_fenced_by_token() {
    let site = TestSite::fresh().await.with_comparison();
    let victim = site
        .gateway_paused_at(&site.policy("victim"), "after_proof_check", Duration::from_millis(1500))
        .await;
    let next = site.gateway("next").await;
    let pending = victim.begin(TestRequest::post("/pay/7"));
    victim.wait_at_failpoint("after_proof_check").await;
    break_lock(&next).await;
    let newer = next.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((newer.status, newer.outcome()), (200, Some(FencingOutcome::Done)));
    let answer = pending.answer().await;
    let late = site.origin.wait_for_request("/pay/7", 2).await;
    assert_eq!(late.gateway, "victim");
    assert!(late.stale && Some(late.expect_token()) < newer.token(), "{late:?}");
    assert_eq!(answer.status, 412);
}

/// The admin API shows keys as `log.keys` allows: in plain text, as a hash, or not at all.
#[tokio::test]
async fn keys_are_redacted_like_log() {
    let site = TestSite::fresh().await;
    for (shown, visible) in [("hash", false), ("off", false), ("plain", true)] {
        let policy = site.policy("gw-1").with_cached_hold().with("/log", json!({"keys": shown}));
        let policy = policy.with("/defaults/hold/linger", "5s");
        let gateway = Gateway::start(&policy).await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/verysecret")).await.status, 200);
        let locks = get_json(&gateway, "/api/v1/locks").await;
        assert_eq!(locks["held"], json!(1));
        for path in ["/api/v1/locks", "/api/v1/contention", "/api/v1/locks/account%2Fverysecret"] {
            let text = get_json(&gateway, path).await.to_string();
            assert_eq!(text.contains("verysecret"), visible, "{shown} {path}: {text}");
        }
        if shown == "hash" {
            let number = locks["locks"][0]["key"].as_str().expect("a name").replace('#', "%23");
            for gone in ["/api/v1/locks/%230123456789abcdef", "/api/v1/locks?after=%230123456789abcdef"] {
                assert_eq!(
                    gateway.admin(gone).await.status,
                    409,
                    "{gone}: paging would begin anew, for ever"
                );
            }
            assert_eq!(
                get_json(&gateway, &format!("/api/v1/locks/{number}")).await["here"]["held"][0]["route"],
                "pay"
            );
        }
    }
}

/// A drain over the admin API finishes the requests in flight and ends the process with success, as SIGTERM does.
#[tokio::test]
async fn drain_finishes_requests_and_ends_process() {
    let site = TestSite::fresh().await;
    let gateway = site.gateway("gw-1").await;
    let running = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let (status, told) = post_json(&gateway, "/api/v1/drain", &json!({})).await;
    assert_eq!((status, &told["draining"]), (202, &json!(true)));
    gateway.wait_unready().await;
    assert_eq!(running.finish().await.status, 200);
    assert!(gateway.exit().await.success());
}
