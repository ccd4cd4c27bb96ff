//! A request about a list holds the lock of each of its items or is refused: a part of a list is never locked alone.
//!
//! Orders of three items are refused by a route that has keys for two. Thirty orders at once, of 1 to 16 items, lose
//! no update over two gateways. A policy whose keys are made of a part of a list is refused.

use std::{collections::BTreeSet, time::Duration};

use fencegate_policies::key::ResourceKey;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch, PolicyFile, command},
    guarded::GuardedSite,
    origin::{OriginAction, OriginReply, RequestRecord},
    site::TestSite,
};
use futures_util::future::join_all;
use serde_json::{Value, json};

/// A route for orders of two items.
fn order_route() -> Value {
    let keys = ["sku/{body:/items/0/sku}", "sku/{body:/items/1/sku}"];
    json!({
        "name": "order",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/orders"},
        "fence": {"keys": keys, "only": 2, "wait": "20s"},
    })
}

pub(super) fn order_request(body: &Value) -> TestRequest {
    TestRequest::post("/orders").field("Content-Type", "application/json").body(body.to_string())
}

pub(super) fn order_body(skus: &[&str]) -> Value {
    json!({"items": skus.iter().map(|sku| json!({"sku": sku})).collect::<Vec<_>>()})
}

/// The items in the body of an order, whatever the gateway has locked.
pub(super) fn ordered_skus(record: &RequestRecord) -> BTreeSet<String> {
    let body: Value = serde_json::from_slice(&record.request.body).expect("JSON");
    let items = body["items"].as_array().expect("a list");
    items.iter().map(|item| item["sku"].as_str().expect("a text").to_owned()).collect()
}

/// The number of lost updates: of two overlapping executions with a common item, the later one overwrites the earlier.
fn lost_updates(records: &[RequestRecord]) -> usize {
    let overlap = |one: &RequestRecord, other: &RequestRecord| {
        let ended = |record: &RequestRecord| record.ended.expect("answered");
        one.arrived < ended(other)
            && other.arrived < ended(one)
            && !ordered_skus(one).is_disjoint(&ordered_skus(other))
    };
    let later = |(at, record): (usize, &RequestRecord)| {
        records[..at].iter().filter(|other| overlap(record, other)).count()
    };
    records.iter().enumerate().map(later).sum()
}

/// Orders of three items are refused by a route with keys for two, and no update of the shared item is lost.
#[tokio::test]
async fn list_longer_than_keys_is_refused() {
    let site = TestSite::fresh().await;
    let policy = |name| site.policy(name).with_route(order_route());
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    site.origin.set_default_action(OriginAction::Answer(Duration::from_millis(20), OriginReply::ok()));
    let three = |n: usize| order_request(&order_body(&[&format!("A{n}"), &format!("B{n}"), "S7"]));
    let two_of = |n: usize| order_request(&order_body(&[&format!("A{n}"), "S7"]));
    let ask = |n: usize| {
        let gateway = if n.is_multiple_of(2) { &one } else { &two };
        async move { (gateway.send(&three(n)).await, gateway.send(&two_of(n)).await) }
    };
    let answers = join_all((0..30).map(ask)).await;
    let records = site.origin.log().records.clone();
    let passed = answers.iter().filter(|(answer, _)| answer.status == 200).count();
    assert_eq!(
        (passed, lost_updates(&records)),
        (0, 0),
        "orders of three that passed; updates that were lost"
    );
    for (refused, served) in &answers {
        assert_eq!((refused.status, refused.reason().as_str()), (400, "key-invalid"), "{refused:?}");
        assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
        assert_eq!((served.status, served.outcome()), (200, Some(FencingOutcome::Done)), "{served:?}");
    }
    assert_eq!(records.len(), 30);
    assert!(records.iter().all(|record| record.key().is_some_and(|key| key.ends_with(", sku/S7"))));
}

/// A list is locked only if each of its items has a key; a longer, shorter or malformed one is refused before any
/// lock.
#[tokio::test]
async fn list_with_unnamed_item_is_refused() {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1").with_route(order_route())).await;
    for (body, reason) in [
        (order_body(&["a", "b", "c"]), "key-invalid"),
        (json!({"items": [{"sku": "a"}, {"sku": "b"}, null]}), "key-invalid"),
        // PHP reads this object and a list as the same array.
        (json!({"items": {"0": {"sku": "a"}, "1": {"sku": "b"}, "2": {"sku": "c"}}}), "key-invalid"),
        (json!({"items": {"0": {"sku": "a"}, "1": {"sku": "b"}, "x": 1}}), "key-invalid"),
        (order_body(&["a"]), "key-missing"),
        (order_body(&[]), "key-missing"),
        (json!({"items": [{"sku": "a"}, {"id": "b"}]}), "key-missing"),
    ] {
        let refused = gateway.send(&order_request(&body)).await;
        assert_eq!((refused.status, refused.reason().as_str()), (400, reason), "{body}");
    }
    let config: Value = serde_json::from_slice(&gateway.admin("/api/v1/config").await.body).expect("JSON");
    assert_eq!(config["routes"][2]["fence"]["only"], 2, "{config}");
    assert_eq!(site.origin.log().records.len(), 0);
    assert_eq!(site.tree().await.locks().await, [""; 0]);
    for (body, key) in [
        (order_body(&["b", "a"]), "sku/a, sku/b"),
        (order_body(&["a", "a"]), "sku/a"),
        (
            json!({"items": [{"sku": "a", "parts": [1, 2, 3]}, {"sku": "b"}], "notes": [1, 2, 3]}),
            "sku/a, sku/b",
        ),
    ] {
        let before = site.origin.count("/orders");
        assert_eq!(gateway.send(&order_request(&body)).await.status, 200, "{body}");
        assert_eq!(site.origin.wait_for_request("/orders", before + 1).await.key(), Some(key), "{body}");
    }
}

/// A route for orders of any number of items.
pub(super) fn inventory_route() -> Value {
    json!({
        "name": "order",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/orders"},
        "fence": {"key": "sku/{body:/items/*/sku}", "wait": "20s", "queue": 100},
    })
}

/// The items of order `n`: 1 to 16 of a stock of 20, in an order of its own, and one of them twice.
pub(super) fn inventory_skus(n: usize) -> Vec<String> {
    let count = 1 + n % 16;
    let mut skus: Vec<_> = (0..count).map(|item| format!("S{:02}", (7 * n + 3 * item) % 20)).collect();
    skus.push(skus[0].clone());
    if n.is_multiple_of(2) {
        skus.reverse();
    }
    skus
}

fn inventory_order(n: usize) -> TestRequest {
    let skus = inventory_skus(n);
    order_request(&order_body(&skus.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Sends thirty orders at once over two gateways. Asserts that each one holds the keys of all its items while it runs,
/// and that no update is lost.
async fn assert_no_update_lost(site: &TestSite, one: &Gateway, two: &Gateway) {
    site.origin.set_default_action(OriginAction::Answer(Duration::from_millis(20), OriginReply::ok()));
    let ask = |n: usize| async move {
        let gateway = if n.is_multiple_of(2) { one } else { two };
        gateway.send(&inventory_order(n)).await
    };
    let answers = join_all((0..30).map(ask)).await;
    let records = site.origin.log().records.clone();
    assert_eq!((lost_updates(&records), records.len()), (0, 30), "updates that were lost; orders that ran");
    for served in &answers {
        assert_eq!((served.status, served.outcome()), (200, Some(FencingOutcome::Done)), "{served:?}");
    }
    for record in &records {
        let keys: Vec<_> = ordered_skus(record).iter().map(|sku| format!("sku/{sku}")).collect();
        assert_eq!(record.key(), Some(&*keys.join(", ")), "sorted, each once, and all of them");
    }
    site.tree().await.assert_no_locks().await;
}

/// An order holds the lock of each of its items and no update is lost, whether the service or a guard compares tokens.
#[tokio::test]
async fn each_item_of_list_is_locked() {
    let site = TestSite::fresh().await;
    let policy = |name| site.policy(name).with_route(inventory_route());
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    assert_no_update_lost(&site, &one, &two).await;

    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let policy = |name| guarded.policy(name, &[guard.public]).with_route(inventory_route());
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    assert_no_update_lost(&guarded.site, &one, &two).await;
}

/// A set with the largest number of keys and bytes is locked, also where its keys are migrated. A set with one byte
/// more is refused.
#[tokio::test]
async fn largest_set_is_locked() {
    let site = TestSite::fresh().await;
    let route = |name: &str, fence: Value| {
        json!({
            "name": name,
            "upstream": "ledger",
            "match": {"methods": ["POST"], "path": format!("/{name}")},
            "fence": fence,
        })
    };
    let policy = site
        .policy("gw-1")
        .with_route(route("set", json!({"key": "sku/{body:/skus/*}", "max_keys": 64})))
        .with_route(route(
            "migrated",
            json!({"key": "new/{body:/skus/*}", "max_keys": 32, "migrate_from": "old/{body:/skus/*}"}),
        ));
    let gateway = Gateway::start(&policy).await;
    let send = async |path: &str, skus: &[String]| {
        let body = json!({"skus": skus}).to_string();
        gateway.send(&TestRequest::post(path).field("Content-Type", "application/json").body(body)).await
    };
    // Each SKU has 124 bytes, and `sku/` before it makes a key of 128 bytes.
    let skus: Vec<_> = (0..ResourceKey::MOST_IN_SET).map(|number| format!("{number:0124}")).collect();
    for (path, count) in [("/set", 64), ("/migrated", 32)] {
        let answer = send(path, &skus[..count]).await;
        assert_eq!((answer.status, answer.outcome()), (200, Some(FencingOutcome::Done)), "{answer:?}");
        let record = site.origin.wait_for_request(path, 1).await;
        let keys = ResourceKey::parse_list(record.key().expect("keys")).expect("in their form");
        let length: usize = keys.iter().map(|key| key.as_str().len()).sum();
        assert_eq!(
            (keys.len(), length),
            (ResourceKey::MOST_IN_SET, ResourceKey::MOST_BYTES_IN_SET),
            "{path}"
        );
    }
    let mut longer = skus.clone();
    longer[0].push('x');
    let refused = send("/set", &longer).await;
    assert_eq!((refused.status, refused.reason().as_str()), (413, "too-many-keys"), "{refused:?}");
    site.tree().await.assert_no_locks().await;
}

/// A list that is empty, too long, or not wholly readable is refused before any lock, and nothing is dispatched. With
/// `empty: pass` an empty one passes without a lock.
#[tokio::test]
async fn unreadable_list_is_refused_before_locking() {
    let site = TestSite::fresh().await;
    let passing = json!({
        "name": "passing",
        "upstream": "ledger",
        "match": {"methods": ["POST"], "path": "/passing"},
        "fence": {"key": "sku/{query.sku*}", "empty": "pass", "max_keys": 2},
    });
    let policy = site.policy("gw-1").with_route(inventory_route()).with_route(passing);
    let gateway = Gateway::start(&policy).await;
    let skus: Vec<_> = (0..17).map(|n| format!("S{n}")).collect();
    let many = order_body(&skus.iter().map(String::as_str).collect::<Vec<_>>());
    for (body, status, reason) in [
        (many, 413, "too-many-keys"),
        (order_body(&[]), 400, "key-missing"),
        (json!({}), 400, "key-missing"),
        (json!({"items": null}), 400, "key-missing"),
        (json!({"items": [{"sku": "a"}, {}]}), 400, "key-invalid"),
        (json!({"items": [{"sku": "a"}, "b"]}), 400, "key-invalid"),
        (json!({"items": {"0": {"sku": "a"}}}), 400, "key-invalid"),
        (json!({"items": [{"sku": "a"}], "Items": [{"sku": "b"}]}), 400, "key-invalid"),
    ] {
        let refused = gateway.send(&order_request(&body)).await;
        assert_eq!((refused.status, refused.reason().as_str()), (status, reason), "{body}");
        assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched), "{body}");
    }
    let merged = TestRequest::post("/orders?items%5B%5D%5Bsku%5D=c")
        .field("Content-Type", "application/json")
        .body(order_body(&["a", "b"]).to_string());
    assert_eq!(gateway.send(&merged).await.reason().as_str(), "key-invalid", "Rails would take `c`");
    let three = gateway.send(&TestRequest::post("/passing?sku=a&sku=b&sku=c")).await;
    assert_eq!((three.status, three.reason().as_str()), (413, "too-many-keys"));
    assert_eq!(site.origin.log().records.len(), 0);
    assert_eq!(site.tree().await.locks().await, [""; 0]);

    assert_eq!(gateway.send(&TestRequest::post("/passing")).await.status, 200);
    let unfenced = site.origin.wait_for_request("/passing", 1).await;
    assert_eq!(unfenced.key(), None);
    assert_eq!(gateway.send(&TestRequest::post("/passing?sku=b&sku=a&sku=b")).await.status, 200);
    let fenced = site.origin.wait_for_request("/passing?sku=b&sku=a&sku=b", 1).await;
    assert_eq!(fenced.key(), Some("sku/a, sku/b"));
}

/// A pointer to a part of a list (`-`, `[]`, `0`) is refused by `check` and at the start with FG0236.
#[tokio::test]
async fn partial_list_key_is_policy_error() {
    let site = TestSite::fresh().await;
    for pointer in ["-/sku", "[]/sku", "#/sku", "0/sku", "0"] {
        let fence = json!({"key": format!("sku/{{body:/items/{pointer}}}")});
        let policy = site.policy("gw-1").with_route(order_route()).with("/routes/2/fence", fence);
        let file = PolicyFile::new(&policy);
        let checked = command(&["check", &file]).await.expect("started");
        let said =
            String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.code() != Some(0) && said.contains("error[FG0236]"), "{pointer}: {said}");
        let failed = GatewayLaunch::new(&policy).expect_start_failure().await;
        assert!(failed.contains("FG0236"), "{pointer}: {failed}");
    }
}
