//! A service that calls back for the key that it holds gets a response instead of a wait, through either gateway. Only
//! a ticket of a request in flight allows that.
//!
//! The key is strict, cached, or at a guard, and the callback gets the next token of its tenure. After its own
//! response the service gets 412. Two keys are requested in opposite orders 400 times, and 1,000 times among the
//! faults: each request is granted or refused at once. The callback keeps the key when its caller gets its response
//! first. A ticket that no gateway has signed allows nothing.

use std::{path::PathBuf, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_testkit::{scratch, wait::QUIET};
use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    effort::effort,
    gateway::Gateway,
    guarded::{GuardedSite, run_operator},
    held_request::HeldRequest,
    history::History,
    origin::{OriginAction, RequestRecord},
    policy::TestPolicy,
    site::TestSite,
};
use fencegate_ticket::{TicketClaims, TicketSigner, unix_seconds};
use serde_json::json;
use tempfile::TempDir;

mod guarded;

/// The key with which all gateways of a test sign.
struct SigningKeyFile(TempDir);

impl SigningKeyFile {
    async fn new() -> Self {
        let key = Self(scratch::temp_dir());
        run_operator(&["keys", "new", &key.file().display().to_string()]).await;
        key
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("key.json")
    }

    /// Signs a ticket as a gateway would, for an installation and a time.
    fn ticket(&self, ensemble: &str, key: &str, token: FencingToken, at: u64) -> String {
        let keys = [ResourceKey::parse(key).expect("a key")];
        let claims = TicketClaims::new(&keys, token, LockMode::Exclusive, 0, ensemble, "gw-1");
        TicketSigner::from_key_file(&self.file()).expect("just made").sign(&claims, at)
    }
}

/// Three routes of one key: the route of the client, a route that its service calls, and a route that only reads. All
/// three may call back.
fn with_nested_routes(policy: TestPolicy, key: &SigningKeyFile) -> TestPolicy {
    let peer = json!({"address": "127.0.0.1:0", "advertise": "127.0.0.1:1"});
    let also = |name: &str, mode: &str| {
        let fence = json!({"key": "account/{path.account}", "wait": "5s", "queue": 50, "mode": mode});
        let path = format!("/{name}/{{account}}");
        let methods = json!(["POST"]);
        json!({"name": name, "upstream": "ledger", "match": {"methods": methods, "path": path}, "fence": fence})
    };
    policy
        .with("/peer", peer)
        .with("/tickets", json!({"signing_key_file": key.file()}))
        .with("/defaults/nested", "allow")
        .with_route(also("call", "exclusive"))
        .with_route(also("look", "shared"))
}

async fn start_two(
    site: &TestSite,
    key: &SigningKeyFile,
    shape: fn(TestPolicy) -> TestPolicy,
) -> (Gateway, Gateway) {
    let policy = |name| shape(with_nested_routes(site.policy(name), key));
    let gateways = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    tokio::join!(gateways.0.wait_ready(), gateways.1.wait_ready());
    gateways
}

fn strict(policy: TestPolicy) -> TestPolicy {
    policy
}

fn with_cached_hold(policy: TestPolicy) -> TestPolicy {
    policy.with_linger("60s")
}

/// Adds the ticket and token of the received request, as a service does when it calls back.
fn with_ticket_of(ask: TestRequest, record: &RequestRecord) -> TestRequest {
    let shown = |name| record.request.field(name).unwrap_or_else(|| panic!("no {name}: {record:?}"));
    ask.field("Fencing-Ticket", shown("fencing-ticket")).field("Fencing-Token", shown("fencing-token"))
}

fn status_and_reason(answer: &ClientResponse) -> (u16, String) {
    (answer.status, if answer.status < 400 { String::new() } else { answer.reason() })
}

fn expected_refusal(status: u16, reason: &str) -> (u16, String) {
    (status, reason.to_owned())
}

fn assert_later_dispatch(record: &RequestRecord, answer: &ClientResponse) {
    let caller = record.expect_token();
    let called = answer.token().expect("a token");
    assert!(called.same_grant(caller) && called > caller, "{called} is called from {caller}");
}

/// A call back for the held key is served through either gateway, one at a time, and is stale after its caller's end.
#[tokio::test]
async fn callback_is_served_through_either_gateway() {
    let key = SigningKeyFile::new().await;
    for shape in [strict, with_cached_hold] {
        let site = TestSite::fresh().await;
        let (one, two) = start_two(&site, &key, shape).await;
        let outer = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
        for gateway in [&one, &two, &one] {
            let answer = gateway.send(&with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
            assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
            assert_later_dispatch(&outer.record, &answer);
        }
        // The called request can call back, too. From now on only this innermost request may do so.
        let inner =
            site.origin.hold_request(&two, with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
        assert_eq!(inner.record.gateway, "gw-1", "whoever has the lock sends");
        let beside = one.send(&with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
        assert_eq!(status_and_reason(&beside), expected_refusal(409, "deadlock-avoided"), "{beside:?}");
        assert_eq!(beside.outcome(), Some(FencingOutcome::NotDispatched));
        let innermost = two.send(&with_ticket_of(TestRequest::post("/call/7"), &inner.record)).await;
        assert_later_dispatch(&inner.record, &innermost);
        assert_eq!(inner.finish().await.status, 200);
        let again = one.send(&with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
        assert_eq!(again.status, 200, "{again:?}");

        let record = outer.record.clone();
        assert_eq!(outer.finish().await.status, 200);
        let executed = site.origin.count("/call/7");
        for gateway in [&one, &two] {
            let late = gateway.send(&with_ticket_of(TestRequest::post("/call/7"), &record)).await;
            assert_eq!(status_and_reason(&late), expected_refusal(412, "stale-token"), "{late:?}");
            assert_eq!(late.outcome(), Some(FencingOutcome::NotDispatched));
        }
        assert_eq!(site.origin.count("/call/7"), executed, "not sent");
        assert_eq!(two.send(&TestRequest::post("/pay/7")).await.status, 200, "the key is free");
    }
}

/// A call back that outlives its caller keeps the key; one with an unknown outcome retires the grant.
#[tokio::test]
async fn callback_outliving_caller_keeps_key() {
    let key = SigningKeyFile::new().await;
    let site = TestSite::fresh().await;
    let (one, two) = start_two(&site, &key, with_cached_hold).await;
    let outer = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let inner =
        site.origin.hold_request(&one, with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
    let late = outer.record.clone();
    assert_eq!(outer.finish().await.status, 200);
    let waiting = [one.begin(TestRequest::post("/pay/7")), two.begin(TestRequest::post("/pay/7"))];
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.origin.count("/pay/7"), 1, "what was called still runs");
    let answer = one.send(&with_ticket_of(TestRequest::post("/call/7"), &late)).await;
    assert_eq!(status_and_reason(&answer), expected_refusal(412, "stale-token"));
    assert_eq!(inner.finish().await.status, 200);
    for request in waiting {
        assert_eq!(request.answer().await.status, 200);
    }

    let outer = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    site.origin.script("/call/7", [OriginAction::CloseInHead]);
    let unknown = one.send(&with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
    assert_eq!(unknown.outcome(), Some(FencingOutcome::Unknown), "{unknown:?}");
    let refused_ = one.send(&with_ticket_of(TestRequest::post("/call/7"), &outer.record)).await;
    assert_eq!(
        status_and_reason(&refused_),
        expected_refusal(412, "stale-token"),
        "nothing more is sent under it"
    );
    let before = outer.record.expect_token();
    assert_eq!(outer.finish().await.status, 200);
    let next = one.send(&TestRequest::post("/pay/7")).await;
    assert!(next.token().expect("a token").number() > before.number(), "another tenure");
}

/// A write under a reader is refused at once; a read under a writer belongs to the writer's grant.
#[tokio::test]
async fn reader_callback_never_waits_to_write() {
    let key = SigningKeyFile::new().await;
    let site = TestSite::fresh().await;
    let (one, two) = start_two(&site, &key, with_cached_hold).await;
    let readers = [
        site.origin.hold_request(&one, TestRequest::post("/look/7")).await,
        site.origin.hold_request(&one, TestRequest::post("/look/7")).await,
    ];
    for (gateway, reader) in [&one, &two].into_iter().zip(&readers) {
        let answer = gateway.send(&with_ticket_of(TestRequest::post("/call/7"), &reader.record)).await;
        assert_eq!(status_and_reason(&answer), expected_refusal(409, "deadlock-avoided"), "{answer:?}");
        let read = gateway.send(&with_ticket_of(TestRequest::post("/look/7"), &reader.record)).await;
        assert_later_dispatch(&reader.record, &read);
    }
    for reader in readers {
        assert_eq!(reader.finish().await.status, 200);
    }
    let writer = site.origin.hold_request(&one, TestRequest::post("/pay/7")).await;
    let inner =
        site.origin.hold_request(&one, with_ticket_of(TestRequest::post("/look/7"), &writer.record)).await;
    assert_eq!(inner.record.request.field("fencing-mode"), Some("exclusive"));
    for held in [inner, writer] {
        assert_eq!(held.finish().await.status, 200);
    }
}

/// Sends requests that hold `first`, and whose service asks for `second`. Returns the number of times that `second` was
/// granted.
async fn run_crossing(
    site: &TestSite,
    gateways: [&Gateway; 2],
    first: &str,
    second: &str,
    rounds: usize,
) -> usize {
    let mut granted = 0;
    for round in 0..rounds {
        let outer = format!("/pay/{first}");
        let called = format!("/call/{second}");
        let outer = site.origin.hold_request(gateways[round % 2], TestRequest::post(&outer)).await;
        let answer =
            gateways[round / 2 % 2].send(&with_ticket_of(TestRequest::post(&called), &outer.record)).await;
        match (answer.status, answer.outcome()) {
            (200, Some(FencingOutcome::Done)) => granted += 1,
            (409, Some(FencingOutcome::NotDispatched)) => assert_eq!(answer.reason(), "deadlock-avoided"),
            _ => panic!("{answer:?}"),
        }
        assert!(answer.took() < Duration::from_secs(4), "it waited: {answer:?}");
        assert_eq!(outer.finish().await.status, 200);
    }
    granted
}

/// Two requests whose services ask for each other's key never deadlock.
#[tokio::test]
async fn opposite_key_orders_never_deadlock() {
    let rounds = effort(200, 500);
    let key = SigningKeyFile::new().await;
    let site = TestSite::fresh().await;
    // The session timeout is long enough that a busy machine does not end a session.
    let shape = |policy: TestPolicy| policy.with_cached_hold().with("/zookeeper/session_timeout", "20s");
    let (one, two) = start_two(&site, &key, shape).await;
    let gateways = [&one, &two];
    let granted = tokio::join!(
        run_crossing(&site, gateways, "a", "b", rounds),
        run_crossing(&site, gateways, "b", "a", rounds)
    );
    println!("granted: {granted:?} of {rounds} each");
    History::from_log(&site.origin.log()).assert_holds();
    // Both keys are free again.
    for account in ["a", "b"] {
        assert_eq!(one.send(&TestRequest::post(&format!("/pay/{account}"))).await.status, 200);
    }
}

/// The installation that the ticket of this request names.
fn ensemble(held: &HeldRequest) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let ticket = held.record.request.field("fencing-ticket").expect("a ticket");
    let claims = URL_SAFE_NO_PAD.decode(ticket.split('.').nth(1).expect("a JWS")).expect("base64url");
    let claims: serde_json::Value = serde_json::from_slice(&claims).expect("JSON");
    claims["ensemble"].as_str().expect("a name").to_owned()
}

/// A ticket that no gateway signed is ignored; an expired one or one of no live dispatch gets `stale-token`.
#[tokio::test]
async fn forged_and_expired_tickets_are_rejected() {
    let key = SigningKeyFile::new().await;
    let stranger = SigningKeyFile::new().await;
    let site = TestSite::fresh().await;
    let (one, two) = start_two(&site, &key, with_cached_hold).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let seven = site.origin.hold_request(&one, TestRequest::post("/pay/7").field("traceparent", trace)).await;
    let eight = site.origin.hold_request(&two, TestRequest::post("/pay/8")).await;
    let installation = ensemble(&seven);
    let token = seven.record.expect_token();
    let at = |ticket: &str, token: FencingToken| {
        let ask = TestRequest::post("/call/7").field("Prefer", "wait=0").field("Fencing-Ticket", ticket);
        ask.field("Fencing-Token", &token.to_string())
    };
    let good = seven.record.request.field("fencing-ticket").expect("a ticket");
    let signature = good.rfind('.').expect("a JWS") + 1;
    let mut broken = good.to_owned();
    let digit = if broken.as_bytes()[signature] == b'A' { "B" } else { "A" };
    broken.replace_range(signature..=signature, digit);
    for (what, ticket) in [
        ("signed by a stranger", stranger.ticket(&installation, "account/7", token, unix_seconds())),
        (
            "of another installation",
            key.ticket("00112233445566778899aabbccddeeff", "account/7", token, unix_seconds()),
        ),
        ("from the future", key.ticket(&installation, "account/7", token, unix_seconds() + 600)),
        ("with a broken signature", broken),
        ("no ticket at all", "x".to_owned()),
    ] {
        let answer = one.send(&at(&ticket, token)).await;
        assert_eq!(
            status_and_reason(&answer),
            expected_refusal(423, "locked"),
            "{what}: as if it showed nothing"
        );
    }
    let other = eight.record.expect_token();
    let eights = eight.record.request.field("fencing-ticket").expect("a ticket");
    let guessed = FencingToken::new(token.number(), token.sequence(), token.dispatch() + 1).expect("small");
    for (what, ask) in [
        ("expired", at(&key.ticket(&installation, "account/7", token, unix_seconds() - 600), token)),
        ("of another tenure than the token", at(good, other)),
        ("with a token that is not in flight", at(good, guessed)),
        ("without a token", TestRequest::post("/call/7").field("Fencing-Ticket", good)),
        (
            "of a tenure that nobody has",
            at(&key.ticket(&installation, "account/7", other, unix_seconds()), other),
        ),
    ] {
        for gateway in [&one, &two] {
            let answer = gateway.send(&ask).await;
            assert_eq!(
                status_and_reason(&answer),
                expected_refusal(412, "stale-token"),
                "{what}: {answer:?}"
            );
        }
    }
    // A ticket is good for its own key only.
    let foreign = one.send(&at(eights, other)).await;
    assert_eq!(status_and_reason(&foreign), expected_refusal(409, "deadlock-avoided"), "{foreign:?}");
    // This request shows no ticket, so it waits for its own caller, as the documents say.
    let silent = TestRequest::post("/call/7").field("Prefer", "wait=1");
    for (trace, told) in [(None, false), (Some(trace), true)] {
        let ask = trace.map_or(silent.clone(), |trace| silent.clone().field("traceparent", trace));
        let answer = one.send(&ask).await;
        assert_eq!(status_and_reason(&answer), expected_refusal(423, "locked"));
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("a problem");
        assert_eq!(problem["detail"].as_str().is_some_and(|said| said.contains("Fencing-Ticket")), told);
    }
    assert_eq!(site.origin.count("/call/7"), 0, "none of them was sent");
    for held in [seven, eight] {
        assert_eq!(held.finish().await.status, 200);
    }
}

/// A route with `nested: ignore` accepts no ticket and sends none.
#[tokio::test]
async fn route_without_nesting_ignores_tickets() {
    let key = SigningKeyFile::new().await;
    let site = TestSite::fresh().await;
    let policy = with_nested_routes(site.policy("gw-1"), &key).with("/routes/2/fence/nested", "ignore");
    let gateway = Gateway::start(&policy.with_linger("60s")).await;
    let outer = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let answer = gateway
        .send(&with_ticket_of(TestRequest::post("/call/7").field("Prefer", "wait=0"), &outer.record))
        .await;
    assert_eq!(status_and_reason(&answer), expected_refusal(423, "locked"));
    assert_eq!(outer.finish().await.status, 200);
    let plain = site.origin.hold_request(&gateway, TestRequest::post("/call/7")).await;
    assert_eq!(plain.record.request.field("fencing-ticket"), None);
    assert_eq!(plain.finish().await.status, 200);
}
