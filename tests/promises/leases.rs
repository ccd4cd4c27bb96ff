//! Clients hold locks through a gateway for work that is no request. A key has one holder at a time, through whichever
//! gateway, each holder has a larger token, and nothing runs under a lease that is over.
//!
//! No request runs under a lease whose gateway was killed or slept past its time, also where wall clocks are set or
//! the machine of the gateway sleeps. After a read by the new holder a guard refuses a late write by the holder
//! before it. Waiting clients get the key in the order of their arrival. A repeated request gets the lease of the
//! first one, also while the first one waits or after its client has gone. Operators list, revoke and break leases.
//! An election reports its leader, and only to clients that may lead or oversee. Many followers of elections, and
//! invented lease IDs, cost ZooKeeper few requests.

mod after_reload;
mod at_a_guard;
mod beside_requests;
mod clocks;
mod kept;
mod repeats;
mod unlike_plans;
mod without_a_right;

use std::time::{Duration, Instant};

use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::Gateway,
    leases::{CLIENT, ClientLease, LeaseTokens, OPERATOR, OTHER, acquire_request, json_body},
    site::TestSite,
};
use serde_json::json;
use tokio::time::sleep;

async fn start_one() -> (TestSite, LeaseTokens, Gateway) {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    (site, tokens, gateway)
}

async fn start_two() -> (TestSite, LeaseTokens, Gateway, Gateway) {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let policies = ["gw-1", "gw-2"].map(|name| tokens.policy(&site, name));
    let (one, other) = Gateway::start_both(&policies[0], &policies[1]).await;
    (site, tokens, one, other)
}

fn pay() -> TestRequest {
    TestRequest::post("/pay/7")
}

/// Waits until a gateway reports that the lease is over, and returns the reason.
async fn wait_lease_over(lease: &ClientLease, gateway: &Gateway) -> String {
    let why = async {
        loop {
            let answer = lease.get(gateway).await;
            if answer.status == 412 {
                return "unknown".to_owned();
            }
            let told = json_body(&answer);
            if told["state"] == "over" {
                return told["why"].as_str().expect("a word").to_owned();
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until("the end of the lease", why, || "it goes on").await
}

/// Requests that show a held lease pass under its grant and other requests are locked out; after the release it is
/// stale.
#[tokio::test]
async fn requests_run_under_held_lease() {
    let (site, _tokens, gateway) = start_one().await;
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    assert_eq!(lease.document["state"], "held");
    assert_eq!(lease.token().dispatch(), 1);
    let held_for = lease.document["held_for_ms"].as_u64().expect("a number");
    assert!((1..=2000).contains(&held_for), "below the session's own time: {held_for}");

    let [first, second] =
        [gateway.send(&lease.with_lease(pay())).await, gateway.send(&lease.with_lease(pay())).await];
    for (answer, number) in [(&first, 2), (&second, 3)] {
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        let token = answer.token().expect("a token");
        assert!(token.same_grant(lease.token()) && token.dispatch() == number, "{token}");
    }
    // A request without the lease does not get the lock meanwhile.
    let refused = gateway.send(&pay().field("prefer", "wait=0")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (423, "locked"));
    assert_eq!(site.origin.count("/pay/7"), 2);

    assert_eq!(lease.release(&gateway).await.status, 204);
    assert_eq!(lease.release(&gateway).await.status, 204, "again");
    assert_eq!(gateway.send(&pay()).await.status, 200);
    let late = gateway.send(&lease.with_lease(pay())).await;
    assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"));
    assert_eq!(late.outcome(), Some(FencingOutcome::NotDispatched));
    assert_eq!(site.origin.count("/pay/7"), 3);
}

/// A client that sleeps past its TTL gets `stale-token` from every gateway, and nothing reaches the service.
#[tokio::test]
async fn expired_lease_dispatches_nothing() {
    let (site, _tokens, one, other) = start_two().await;
    let first = ClientLease::acquire(&one, json!({"keys": ["account/7"], "ttl_ms": 300})).await;
    // The client does not renew the lease, so it expires.
    let second = ClientLease::acquire_exclusive(&other, "account/7").await;
    assert!(second.token() > first.token());
    let written = other.send(&second.with_lease(pay())).await;
    assert_eq!(written.status, 200);
    let before = site.origin.count("/pay/7");
    for gateway in [&one, &other] {
        let late = gateway.send(&first.with_lease(pay())).await;
        assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"));
        assert_eq!(late.outcome(), Some(FencingOutcome::NotDispatched));
    }
    assert_eq!(site.origin.count("/pay/7"), before, "the service has seen it");
    assert_eq!(wait_lease_over(&first, &one).await, "expired");
}

/// Any gateway serves, renews and releases a lease, and requests under it run one at a time, also across gateways.
#[tokio::test]
async fn any_gateway_serves_lease_in_turn() {
    let (site, _tokens, one, other) = start_two().await;
    let lease = ClientLease::acquire_exclusive(&one, "account/7").await;
    let latch = site.origin.hold("/pay/7");
    let first = one.begin(lease.with_lease(pay()));
    site.origin.wait_for_request("/pay/7", 1).await;
    let second = other.begin(lease.with_lease(pay()));
    assert_eq!(json_body(&lease.get(&other).await)["state"], "held");
    assert!(!second.is_over());
    latch.release();
    let tokens = [first.answer().await, second.answer().await].map(|answer| {
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)));
        answer.token().expect("a token").dispatch()
    });
    assert_eq!(tokens, [2, 3]);
    let renewed = lease.renew(&other).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(lease.release(&other).await.status, 204);
    assert_eq!(wait_lease_over(&lease, &one).await, "released");
    let late = other.send(&lease.with_lease(pay())).await;
    assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"));
}

/// When the gateway of a lease is killed, the next holder has a larger token, and the earlier lease is stale.
#[tokio::test]
async fn lease_ends_with_its_killed_gateway() {
    let (site, _tokens, one, other) = start_two().await;
    let first = ClientLease::acquire_exclusive(&one, "account/7").await;
    assert_eq!(one.send(&first.with_lease(pay())).await.status, 200);
    one.signal(Signal::KILL);
    let second = ClientLease::acquire_exclusive(&other, "account/7").await;
    assert!(second.token() > first.token());
    assert_eq!(other.send(&second.with_lease(pay())).await.status, 200);
    let before = site.origin.count("/pay/7");
    let late = other.send(&first.with_lease(pay())).await;
    assert_eq!((late.status, late.reason().as_str()), (412, "stale-token"));
    assert_eq!(first.renew(&other).await.status, 412);
    assert_eq!(site.origin.count("/pay/7"), before);
}

/// After a gateway is frozen, the next holder begins when the promised `held_for_ms` is over, and the resumed gateway
/// sends nothing under the earlier lease.
#[tokio::test]
async fn frozen_gateway_refuses_expired_lease() {
    let (site, _tokens, one, other) = start_two().await;
    let asked = Instant::now();
    let first = ClientLease::acquire_exclusive(&one, "account/7").await;
    let held_for = Duration::from_millis(first.document["held_for_ms"].as_u64().expect("a number"));
    one.signal(Signal::STOP);
    let second = ClientLease::acquire_exclusive(&other, "account/7").await;
    assert!(asked.elapsed() > held_for, "another one held after {:?} of {held_for:?}", asked.elapsed());
    assert_eq!(other.send(&second.with_lease(pay())).await.status, 200);
    one.signal(Signal::CONT);
    // Until the gateway notices that its session is over, it answers 503, because it has no valid proof.
    let told = async {
        loop {
            let late = one.send(&first.with_lease(pay())).await;
            assert_eq!(late.outcome(), Some(FencingOutcome::NotDispatched), "{late:?}");
            match late.status {
                412 => return,
                status => assert_eq!(status, 503),
            }
        }
    };
    wait_until("that the lease is over", told, || "it is not told").await;
    assert_eq!(site.origin.count("/pay/7"), 1);
}

/// Waiters get the key in the order of their arrival; a waiter that hangs up leaves no lock node.
#[tokio::test]
async fn waiters_acquire_in_order() {
    let (site, _tokens, gateway) = start_one().await;
    let holder = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    let tree = site.tree().await;
    let body = json!({"keys": ["job/1"], "wait_ms": 15_000});
    let mut waiting = Vec::new();
    for behind in 1..=3 {
        waiting.push(gateway.begin(acquire_request(&body)));
        tree.wait_locks("one more waits", |locks| locks.len() == behind + 1).await;
    }
    waiting.remove(1).hang_up();
    tree.wait_locks("it has gone", |locks| locks.len() == 3).await;
    assert_eq!(holder.release(&gateway).await.status, 204);
    let first = ClientLease::from_response(&waiting.remove(0).answer().await);
    assert!(!waiting[0].is_over(), "two hold at once");
    assert_eq!(first.release(&gateway).await.status, 204);
    let second = ClientLease::from_response(&waiting.remove(0).answer().await);
    assert!(holder.token() < first.token() && first.token() < second.token());
    assert_eq!(second.release(&gateway).await.status, 204);
    tree.wait_locks("nothing is left", |locks| locks.is_empty()).await;
}

/// Shared leases are held together and allow no writing request; an exclusive lease is granted only after their
/// release.
#[tokio::test]
async fn readers_share_key_and_exclude_writer() {
    let (_site, _tokens, one, other) = start_two().await;
    let shared = |key: &str| json!({"keys": [key], "mode": "shared"});
    let readers = [
        ClientLease::acquire(&one, shared("account/7")).await,
        ClientLease::acquire(&other, shared("account/7")).await,
    ];
    let refused = one.send(&acquire_request(&json!({"keys": ["account/7"]}))).await;
    assert_eq!((refused.status, refused.reason().as_str()), (423, "locked"));
    let refused = one.send(&readers[0].with_lease(pay())).await;
    assert_eq!((refused.status, refused.reason().as_str()), (403, "lease-forbidden"), "it only reads");
    for reader in &readers {
        assert_eq!(reader.release(&one).await.status, 204);
    }
    ClientLease::acquire_exclusive(&one, "account/7").await;
}

/// With `Prefer: respond-async` a waiting lease reports its queue position, and a watch reports its grant.
#[tokio::test]
async fn async_lease_reports_queue_position() {
    let (_site, _tokens, gateway) = start_one().await;
    let holder = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    let answer =
        gateway.send(&acquire_request(&json!({"keys": ["job/1"]})).field("prefer", "respond-async")).await;
    assert_eq!(answer.status, 202);
    let waiter = ClientLease::from_response(&answer);
    assert_eq!(waiter.document["state"], "waiting");
    let refused = gateway.send(&waiter.with_lease(pay())).await;
    assert_eq!(refused.status, 403, "its key is another one");
    let behind = async {
        while json_body(&waiter.get(&gateway).await)["ahead"] != 1 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until("one stands before it", behind, || "none").await;
    let seen = waiter.document["revision"].as_u64().expect("a number");
    let watch = TestRequest::get(&format!("/.fencegate/v1/leases/{}?watch=10&seen={seen}", waiter.reference));
    let watching = gateway.begin(waiter.with_lease(watch));
    assert_eq!(holder.release(&gateway).await.status, 204);
    let told = json_body(&watching.answer().await);
    assert_eq!(told["state"], "held", "{told}");
    assert!(told["token"].is_string());
}

/// An operator lists leases without their secrets, revokes one with a reason that its client receives, and breaks it.
#[tokio::test]
async fn operator_revokes_and_breaks_lease() {
    let (_site, _tokens, gateway) = start_one().await;
    let lease = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    let operator = |ask: TestRequest| ask.field("authorization", &format!("Bearer {OPERATOR}"));
    let list = json_body(&gateway.send(&operator(TestRequest::get("/.fencegate/v1/leases"))).await);
    assert_eq!(list["leases"][0]["reference"], lease.reference.as_str());
    assert!(!list.to_string().contains(&lease.id), "a secret");
    let place = |verb: &str| format!("/.fencegate/v1/leases/{}/{verb}", lease.reference);
    let why = json!({"why": "the database is being moved"}).to_string();
    let watching = gateway.begin(lease.with_lease(TestRequest::get(&format!(
        "/.fencegate/v1/leases/{}?watch=10&seen={}",
        lease.reference,
        json_body(&lease.get(&gateway).await)["revision"]
    ))));
    assert_eq!(gateway.send(&operator(TestRequest::post(&place("revoke"))).body(why)).await.status, 200);
    assert_eq!(json_body(&watching.answer().await)["revocation"], "the database is being moved");
    assert_eq!(json_body(&lease.renew(&gateway).await)["revocation"], "the database is being moved");
    assert_eq!(gateway.send(&operator(TestRequest::post(&place("break")))).await.status, 200);
    assert_eq!(wait_lease_over(&lease, &gateway).await, "broken");
    assert_eq!(lease.renew(&gateway).await.status, 412);
    assert_eq!(gateway.metrics().await.sum("fencegate_leases_ended_total", &["why=\"broken\""]), 1.0);
    assert!(
        !gateway.log().contains(lease.id.rsplit('.').next().expect("a secret")),
        "the log has the secret"
    );
}

/// A key that no request can derive is refused with FG0626 and the spelling that requests have.
///
/// A lock of such a key would exclude no request.
#[tokio::test]
async fn noncanonical_key_refused_with_correct_spelling() {
    let (_site, _tokens, gateway) = start_one().await;
    let asked = |key: &str| {
        let ask =
            TestRequest::post("/.fencegate/v1/leases").field("authorization", &format!("Bearer {CLIENT}"));
        ask.body(json!({"keys": [key]}).to_string())
    };
    for (key, right) in [
        ("account/a%2fb", "account/a%2Fb"),
        ("account/%37", "account/7"),
        ("account/%", "account/%25"),
        ("account/caf\u{e9}", "account/caf%C3%A9"),
        ("account/a b", "account/a%20b"),
        // Routes alone refuse this one: a key template may have this character between its values.
        ("account/x@y", "account/x%40y"),
    ] {
        let refused = gateway.send(&asked(key)).await;
        assert_eq!((refused.status, refused.reason().as_str()), (400, "key-invalid"), "{key}");
        let told = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(
            told.contains(&format!("FG0626: no request has a key that is written so; write `{right}`")),
            "{told}"
        );
        assert_eq!(gateway.send(&asked(right)).await.status, 201, "{right}");
        if let Some(escaped) = key.strip_prefix("account/").filter(|key| key.contains('%')) {
            let path = format!("/api/v1/locks/account%2F{}", escaped.replace('%', "%25"));
            let looked = gateway.admin(&path).await;
            let told = String::from_utf8_lossy(&looked.body).into_owned();
            assert!(looked.status == 400 && told.contains(&format!("write `{right}`")), "{path}: {told}");
        }
    }
}

/// A note with a bidirectional override, a line separator or a zero-width space is refused.
///
/// An operator reads notes in tables and on a page, where such characters could make them deceptive.
#[tokio::test]
async fn note_with_deceptive_characters_refused() {
    let (_site, _tokens, gateway) = start_one().await;
    for (note, status) in [
        ("10.0.0.1:80 \u{645}\u{6cc}\u{200c}\u{6a9}", 201),
        ("a\u{202e}b", 400),
        ("a\u{2028}b", 400),
        ("a\u{200b}b", 400),
    ] {
        let ask =
            TestRequest::post("/.fencegate/v1/leases").field("authorization", &format!("Bearer {CLIENT}"));
        let answer = gateway.send(&ask.body(json!({"keys": ["account/7"], "note": note}).to_string())).await;
        assert_eq!(answer.status, status, "{note:?}: {answer:?}");
    }
}

/// Requests without credentials, rights or a valid form and forged lease ids are refused, and the lease stays held.
#[tokio::test]
async fn unauthorized_lease_requests_are_refused() {
    let (site, _tokens, gateway) = start_one().await;
    let ask = || TestRequest::post("/.fencegate/v1/leases").body(json!({"keys": ["account/7"]}).to_string());
    let bearer = |token: &str| ask().field("authorization", &format!("Bearer {token}"));
    for (ask, status, reason) in [
        (ask(), 401, "lease-credentials"),
        (bearer("nobody-0123456789abcdef"), 401, "lease-credentials"),
        (bearer(OTHER), 403, "lease-forbidden"),
        (bearer(OPERATOR), 403, "lease-forbidden"),
        (bearer(CLIENT).body("{"), 400, "malformed"),
        (bearer(CLIENT).body(json!({"keys": []}).to_string()), 400, "malformed"),
        (bearer(CLIENT).body(json!({"keys": ["a b"]}).to_string()), 400, "key-invalid"),
        (bearer(CLIENT).body(json!({"keys": ["job/1#0"]}).to_string()), 400, "key-invalid"),
        (bearer(CLIENT).body(json!({"keys": ["job/1"], "ttl_ms": 31_000}).to_string()), 400, "malformed"),
        (bearer(CLIENT).body(json!({"keys": ["job/1"], "wait_ms": 21_000}).to_string()), 400, "malformed"),
        (bearer(CLIENT).body(json!({"keys": ["job/1"], "tll_ms": 1000}).to_string()), 400, "malformed"),
        (
            bearer(CLIENT).body(json!({"keys": ["election/1"], "mode": "shared"}).to_string()),
            403,
            "lease-forbidden",
        ),
        (bearer(CLIENT).field("origin", "https://elsewhere.example"), 403, "lease-forbidden"),
        (TestRequest::with_method("PUT", "/.fencegate/v1/leases"), 405, "method"),
        (TestRequest::get("/.fencegate/v1/leases/x/y/z"), 404, "no-route"),
        (TestRequest::get("/.fencegate/v1/leases/0123456789abcdef"), 428, "lease-required"),
    ] {
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{ask:?}");
    }
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    let secret = lease.id.rsplit('.').next().expect("a secret").to_owned();
    let forged: String = secret.chars().rev().collect();
    let forged = ClientLease { id: lease.id.replace(&secret, &forged), ..lease.clone() };
    for ask in [
        forged.with_lease(pay()),
        lease.with_lease(TestRequest::post("/pay/8")),
        pay().field("fencing-lease", "x"),
        forged.with_lease(TestRequest::with_method(
            "DELETE",
            &format!("/.fencegate/v1/leases/{}", lease.reference),
        )),
    ] {
        let answer = gateway.send(&ask).await;
        assert_eq!((answer.status, answer.reason().as_str()), (403, "lease-forbidden"), "{ask:?}");
    }
    assert_eq!(site.origin.log().records.len(), 0);
    assert_eq!(json_body(&lease.get(&gateway).await)["state"], "held");
}

/// A route with `lease: required` refuses requests without a lease; a route without `lease` refuses requests with
/// one.
#[tokio::test]
async fn route_requires_or_forbids_lease() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let route = |name: &str, lease: Option<&str>| {
        let mut route = json!({"name": name, "upstream": "ledger", "match": {"methods": ["POST"], "path": format!("/{name}/{{id}}")},
               "fence": {"key": "account/{path.id}"}});
        if let Some(lease) = lease {
            route["fence"]["lease"] = lease.into();
        }
        route
    };
    let policy = tokens
        .policy(&site, "gw-1")
        .with_route(route("wants", Some("required")))
        .with_route(route("never", None));
    let gateway = Gateway::start(&policy).await;
    let answer = gateway.send(&TestRequest::post("/wants/7")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (428, "lease-required"));
    let lease = ClientLease::acquire_exclusive(&gateway, "account/7").await;
    assert_eq!(gateway.send(&lease.with_lease(TestRequest::post("/wants/7"))).await.status, 200);
    let answer = gateway.send(&lease.with_lease(TestRequest::post("/never/7"))).await;
    assert_eq!((answer.status, answer.reason().as_str()), (403, "lease-forbidden"));
}

/// Candidates lead one after another with growing tokens, and every gateway reports the leader's note and token.
#[tokio::test]
async fn election_candidates_lead_in_turn() {
    let (_site, _tokens, one, other) = start_two().await;
    let stand = |address: &str| json!({"keys": ["election/primary"], "note": address, "wait_ms": 15_000});
    let leads = async |gateway: &Gateway| {
        gateway.send(&TestRequest::get("/.fencegate/v1/elections/primary/leader")).await.status
    };
    let election = |gateway: &Gateway| {
        let ask = TestRequest::get("/.fencegate/v1/elections/primary")
            .field("authorization", &format!("Bearer {CLIENT}"));
        gateway.begin(ask)
    };
    assert_eq!([leads(&one).await, leads(&other).await], [404, 404]);
    let first = ClientLease::acquire(&one, stand("10.0.0.1:80")).await;
    let waiting = other.begin(acquire_request(&stand("10.0.0.2:80")));
    for gateway in [&one, &other] {
        let told = json_body(&election(gateway).answer().await);
        assert_eq!(told["leader"]["note"], "10.0.0.1:80", "{told}");
        assert_eq!(told["leader"]["token"], first.document["token"]);
    }
    assert_eq!([leads(&one).await, leads(&other).await], [200, 404]);
    one.signal(Signal::KILL);
    let second = ClientLease::from_response(&waiting.answer().await);
    assert!(second.token() > first.token());
    assert_eq!(leads(&other).await, 200);
    assert_eq!(json_body(&election(&other).answer().await)["leader"]["note"], "10.0.0.2:80");
}

/// With several permits each permit has a key of its own at the service, so tokens of different permits are never stale
/// beside each other.
#[tokio::test]
async fn permits_held_together_with_own_watermarks() {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let policy = tokens
        .policy(&site, "gw-1")
        .with("/routes/0/fence/permits", 2)
        .with("/routes/0/fence/hold", json!({"mode": "strict"}));
    let gateway = Gateway::start(&policy).await;
    let slots = json!({"keys": ["account/7"], "permits": 2});
    let [one, other] = [
        ClientLease::acquire(&gateway, slots.clone()).await,
        ClientLease::acquire(&gateway, slots.clone()).await,
    ];
    let permits = [&one, &other].map(|lease| lease.document["permit"].as_u64().expect("a permit"));
    assert_eq!(permits.iter().sum::<u64>(), 1, "{permits:?}");
    let refused = gateway.send(&acquire_request(&slots)).await;
    assert_eq!((refused.status, refused.reason().as_str()), (423, "locked"));
    let unlike = gateway.send(&acquire_request(&json!({"keys": ["account/7"], "permits": 3}))).await;
    assert_eq!((unlike.status, unlike.reason().as_str()), (409, "permits-differ"));
    // Two tokens of different permits are not stale beside each other.
    for (lease, permit) in [(&other, permits[1]), (&one, permits[0])] {
        let answer = gateway.send(&lease.with_lease(pay())).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let key = site
            .origin
            .log()
            .requests_for("/pay/7")
            .last()
            .and_then(|record| record.request.field("fencing-key").map(str::to_owned));
        assert_eq!(key, Some(format!("account/7#{permit}")));
    }
    assert_eq!(one.release(&gateway).await.status, 204);
    let third =
        ClientLease::acquire(&gateway, json!({"keys": ["account/7"], "permits": 2, "wait_ms": 5000})).await;
    assert_eq!(third.document["permit"].as_u64(), Some(permits[0]));
    assert!(third.token() > other.token() && third.token() > one.token());
    // No route names this key. The first client decides how many permits there are.
    let job = json!({"keys": ["job/1"], "permits": 3});
    for _ in 0..3 {
        ClientLease::acquire(&gateway, job.clone()).await;
    }
    assert_eq!(gateway.send(&acquire_request(&job)).await.status, 423);
}
