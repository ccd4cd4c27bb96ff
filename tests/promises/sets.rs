//! A request for several resources holds all of them or none, whatever sources its keys are derived from.
//!
//! The keys come from path, query, header and body. 800 transfers in both directions over three gateways, and 10,000
//! among the faults, neither deadlock nor lose a cent.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use fencegate_tests::{
    client::{FencingOutcome, Http1Client, TestRequest},
    effort::effort,
    gateway::Gateway,
    history::History,
    ledger::Ledger,
    site::TestSite,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn swap_route() -> Value {
    json!({
        "name": "swap",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/swap/{one}"},
        "fence": {
            "keys": [
                "account/{path.one}",
                "account/{query.two}",
                "account/{header.x-three}",
                "account/{body:/items/0/id}",
                "account/{body:/last}",
            ],
            "only": 1,
        },
    })
}

fn ask(one: &str, two: &str, three: &str, body: &Value) -> TestRequest {
    let ask = TestRequest::post(&format!("/swap/{one}?two={two}")).field("X-Three", three);
    ask.field("Content-Type", "application/json").body(body.to_string())
}

/// Keys come from path, query, header and body, and all of them are held under one token.
#[tokio::test]
async fn set_holds_keys_from_all_sources() {
    let site = TestSite::fresh().await;
    let policy = |name| site.policy(name).with("/routes/0/fence/wait", "0s").with_route(swap_route());
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    let tree = site.tree().await;
    let latch = site.origin.hold("/swap/e?two=d");
    // One value is a number, the others are texts. The key `d` occurs twice.
    let body = json!({"items": [{"id": 42}], "last": "d"});
    let swapping = one.begin(ask("e", "d", "c", &body));
    let record = site.origin.wait_for_request("/swap/e?two=d", 1).await;

    assert_eq!(record.key(), Some("account/42, account/c, account/d, account/e"), "sorted, each once");
    assert_eq!(record.expect_token().sequence(), 0);
    let locks = tree.locks().await;
    assert_eq!(locks.len(), 4, "{locks:?}");
    for lock in &locks {
        assert_eq!(
            tree.created_zxid(lock).await,
            record.expect_token().number(),
            "one transaction made all of them"
        );
    }
    for gateway in [&one, &two] {
        for account in ["42", "c", "d", "e"] {
            let refused = gateway.send(&TestRequest::post(&format!("/pay/{account}"))).await;
            assert_eq!(
                (refused.status, refused.outcome()),
                (423, Some(FencingOutcome::NotDispatched)),
                "{account}"
            );
        }
        assert_eq!(gateway.send(&TestRequest::post("/pay/b")).await.status, 200, "not in the set");
    }
    latch.release();
    assert_eq!(swapping.answer().await.status, 200);
    tree.assert_no_locks().await;
    for account in ["42", "c", "d", "e"] {
        let answer = two.send(&TestRequest::post(&format!("/pay/{account}"))).await;
        assert_eq!(answer.status, 200);
        assert!(answer.token() > Some(record.expect_token()), "{account}");
    }
}

/// A set that lacks a value is refused before any lock.
#[tokio::test]
async fn incomplete_set_is_refused_before_locking() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1").with_route(swap_route())).await;
    for (body, status, reason) in [
        (json!({"items": [], "last": "d"}), 400, "key-missing"),
        (json!({"items": [{"id": null}], "last": "d"}), 400, "key-missing"),
        (json!({"items": [{"id": 1.5}], "last": "d"}), 400, "key-invalid"),
        (json!({"Last": "x", "items": [{"id": 1}], "last": "d"}), 400, "key-invalid"),
    ] {
        let refused = gateway.send(&ask("a", "b", "c", &body)).await;
        assert_eq!((refused.status, refused.reason().as_str()), (status, reason), "{body}");
        assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{body}");
    }
    assert_eq!(site.origin.log().records.len(), 0);
    assert_eq!(site.tree().await.locks().await, [""; 0]);
}

/// A set waits for its last key and gives up as a whole.
///
/// The set takes its other keys while it waits for one. When it gives up, none of its nodes stays.
#[tokio::test]
async fn waiting_set_gives_up_whole() {
    let site = TestSite::fresh().await;
    let policy =
        site.policy_without_janitor("gw-1").with_route(swap_route()).with("/routes/2/fence/wait", "500ms");
    let (one, two) = tokio::join!(Gateway::start(&policy), site.gateway("gw-2"));
    let tree = site.tree().await;
    let held = site.origin.hold_request(&two, TestRequest::post("/pay/c")).await;

    let body = json!({"items": [{"id": "d"}], "last": "e"});
    let waiting = one.begin(ask("a", "b", "c", &body));
    tree.wait_locks("the holder and five of the set", |locks| locks.len() == 6).await;
    let refused = waiting.answer().await;
    assert_eq!((refused.status, refused.reason().as_str()), (423, "locked"));
    tree.wait_waiters(0).await;

    let waiting = one.begin(ask("a", "b", "c", &body));
    tree.wait_locks("the holder and five of the set", |locks| locks.len() == 6).await;
    assert_eq!(held.finish().await.status, 200);
    assert_eq!(waiting.answer().await.status, 200);
    tree.assert_no_locks().await;
}

const ACCOUNTS: u32 = 12;
/// The number of transfers in each run, and in a long run.
const TRANSFERS: [usize; 2] = [800, 10_000];
/// After this time a busy machine may stop before all transfers are done.
const LONG_ENOUGH: Duration = Duration::from_secs(150);
/// The least number of transfers that count as a test, in each run and in a long run.
const LEAST_TRANSFERS: [usize; 2] = [400, 1000];
const CLIENTS: usize = 24;

/// Two random accounts and an amount in cents.
fn random_transfer() -> (u32, u32, u32) {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).expect("the kernel has randomness");
    let number = |n: usize| u32::from_ne_bytes(bytes[4 * n..][..4].try_into().expect("four"));
    let from = number(0) % ACCOUNTS;
    let to = (from + 1 + number(1) % (ACCOUNTS - 1)) % ACCOUNTS;
    (from, to, 1 + number(2) % 100)
}

async fn transfer(gateway: SocketAddr, client: usize, end: Instant) -> Vec<String> {
    let mut connection = Http1Client::connect(gateway).await.expect("listens");
    let mut operations = Vec::new();
    for n in (0..effort(TRANSFERS[0], TRANSFERS[1]).div_ceil(CLIENTS)).take_while(|_| Instant::now() < end) {
        let (from, to, amount) = random_transfer();
        let operation = format!("{client}-{n}");
        let body = json!({
            "operation": operation, "from": from.to_string(), "to": to.to_string(), "amount": amount,
        });
        let ask = TestRequest::post("/v1/transfers")
            .field("Content-Type", "application/json")
            .body(body.to_string());
        let answer = connection.send(&ask).await.expect("answered");
        assert_eq!(
            (answer.status, answer.outcome()),
            (200, Some(FencingOutcome::Done)),
            "{operation}: {answer:?}"
        );
        operations.push(operation);
    }
    operations
}

/// Transfers in both directions over three gateways end without a deadlock or a lost cent.
///
/// The ledger compares the token with the marks of both accounts, in the transaction that moves the money. A single
/// stale transfer fails this test.
#[tokio::test]
async fn transfers_never_deadlock_or_lose_money() {
    let site = TestSite::fresh().await;
    let ledger = Ledger::start().await;
    let route = json!({
        "name": "transfer",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/v1/transfers"},
        "fence": {"keys": ["account/{body:/from}", "account/{body:/to}"], "wait": "15s"},
    });
    let policy = |name| {
        let endpoints = json!([format!("http://{}", ledger.address)]);
        site.policy(name).with_route(route.clone()).with("/upstreams/ledger/endpoints", endpoints)
    };
    let policies = ["gw-1", "gw-2", "gw-3"].map(policy);
    let (one, two, three) = tokio::join!(
        Gateway::start(&policies[0]),
        Gateway::start(&policies[1]),
        Gateway::start(&policies[2])
    );
    let doors = [one.public, two.public, three.public];
    let begun = Instant::now();
    let mut clients: JoinSet<_> =
        (0..CLIENTS).map(|n| transfer(doors[n % doors.len()], n, begun + LONG_ENOUGH)).collect();
    let mut asked = BTreeSet::new();
    while let Some(client) = clients.join_next().await {
        asked.extend(client.expect("every transfer is answered with 200"));
    }
    println!("{} transfers took {:?}", asked.len(), begun.elapsed());
    let least = effort(LEAST_TRANSFERS[0], LEAST_TRANSFERS[1]);
    assert!(asked.len() >= least, "not exercised: {} transfers", asked.len());

    let executions = ledger.executions().await;
    assert_eq!(ledger.read("/v1/refusals").await["stale"], 0);
    assert_eq!(executions.len(), 2 * asked.len(), "none executed twice");
    let mut sums = BTreeMap::<&str, i64>::new();
    let mut last = BTreeMap::<&str, (&str, i64)>::new();
    let mut done = BTreeMap::<&str, usize>::new();
    for execution in &executions {
        let text = |field: &str| execution[field].as_str().expect("a text");
        let number = |field: &str| execution[field].as_i64().expect("a number");
        *sums.entry(text("key")).or_default() += number("change");
        *done.entry(text("operation")).or_default() += 1;
        if let Some((token, end)) = last.insert(text("key"), (text("token"), number("end_ns"))) {
            assert!(token < text("token") && end <= number("begin_ns"), "{execution}");
        }
    }
    assert!(done.keys().copied().eq(asked.iter().map(String::as_str)));
    assert!(done.values().all(|times| *times == 2), "a row for each account");
    let mut total = 0;
    for account in 0..ACCOUNTS {
        let balance = ledger.balance(&account.to_string()).await;
        assert_eq!(balance, 1_000_000 + sums[format!("account/{account}").as_str()], "account {account}");
        total += balance;
    }
    assert_eq!(total, i64::from(ACCOUNTS) * 1_000_000);
    site.tree().await.assert_no_locks().await;
    assert!(History::from_log(&site.origin.log()).executions.is_empty(), "all went to the ledger");
}
