//! Orders of 1 to 16 items of one stock, over two gateways of which one is killed in between: no update of an item is lost, whether the
//! service compares tokens or a guard does, whether requests take the locks or clients hold them as leases. Orders that cross each
//! other never wait for each other in a circle.
//!
//! Thirty orders run at once, and a gateway is killed with an order in flight. The levels are `upstream` and `guard`.
//! 300 orders cross each other in each run, and 10,000 among the faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    client::{FencingOutcome, Http1Client, TestRequest},
    effort::effort,
    gateway::Gateway,
    guarded::GuardedSite,
    held_request::HeldRequest,
    leases::{ClientLease, LeaseTokens, acquire_request},
    origin::{OriginLog, RequestRecord},
    policy::TestPolicy,
    site::TestSite,
};
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinSet;

use super::lists::{inventory_route, inventory_skus, order_body, order_request, ordered_skus};

/// One order as the service executed it.
#[derive(Debug, Clone)]
struct OrderExecution {
    skus: BTreeSet<String>,
    /// The number of the order's token.
    number: u64,
    began: Instant,
    ended: Instant,
}

/// The state of the stock after all orders.
#[derive(Debug, Default, PartialEq, Eq)]
struct StockCount {
    /// The number of written updates that a later write has overwritten.
    lost: u64,
    /// The number of orders that a comparing service refused, when they came or before they wrote.
    refused: usize,
    written: usize,
}

/// Whether the service compares numbers of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StockService {
    Plain,
    Comparing,
}

impl StockService {
    /// Replays the orders at a service that reads each item, works, and writes each item one less than it has read. A
    /// comparing service claims the numbers of all items before it reads, and again with the write, each time in one
    /// transaction (the number form of `deploy/upstream`).
    fn replay(self, orders: &[OrderExecution]) -> StockCount {
        let mut events: Vec<(Instant, bool, usize)> = Vec::new();
        for (at, order) in orders.iter().enumerate() {
            events.extend([(order.began, false, at), (order.ended, true, at)]);
        }
        events.sort_unstable();
        let mut marks = BTreeMap::<&str, u64>::new();
        let mut taken = BTreeMap::<&str, u64>::new();
        let mut ordered = BTreeMap::<&str, u64>::new();
        let mut read = vec![None; orders.len()];
        let mut count = StockCount::default();
        for (_, is_end, at) in events {
            let OrderExecution { skus, number, .. } = &orders[at];
            let is_stale = skus.iter().any(|sku| marks.get(&**sku).is_some_and(|mark| mark > number));
            if self == Self::Comparing && is_stale {
                // An order that is refused at its beginning has nothing to write at its end.
                count.refused += usize::from(!is_end || read[at].is_some());
                read[at] = None;
                continue;
            }
            if is_end {
                let Some(found) = read[at].take() else { continue };
                let found: BTreeMap<&str, u64> = found;
                for (sku, found) in found {
                    taken.insert(sku, found + 1);
                    *ordered.entry(sku).or_default() += 1;
                }
                count.written += 1;
            } else {
                marks.extend(skus.iter().map(|sku| (&**sku, *number)));
                let found = skus.iter().map(|sku| (&**sku, taken.get(&**sku).copied().unwrap_or_default()));
                read[at] = Some(found.collect());
            }
        }
        count.lost = ordered.values().sum::<u64>() - taken.values().sum::<u64>();
        count
    }
}

/// The execution of the order in this record, or `None` if the service did not finish it.
fn order_execution(record: &RequestRecord) -> Option<OrderExecution> {
    Some(OrderExecution {
        skus: ordered_skus(record),
        number: record.expect_token().number(),
        began: record.arrived,
        ended: record.ended?,
    })
}

fn order_executions(log: &OriginLog) -> Vec<OrderExecution> {
    let is_order = |record: &&RequestRecord| record.path().starts_with("/orders") && record.whole.is_some();
    let orders = log.records.iter().filter(is_order);
    orders.map(|record| order_execution(record).expect("worked on to its end")).collect()
}

/// The model of the service loses what overlaps, and refuses what is stale.
#[test]
fn stock_model_shows_lost_updates() {
    let start = Instant::now();
    let order = |skus: &[&str], number, began, ended| OrderExecution {
        skus: skus.iter().map(|sku| (*sku).to_owned()).collect(),
        number,
        began: start + Duration::from_millis(began),
        ended: start + Duration::from_millis(ended),
    };
    let count = |lost, refused, written| StockCount { lost, refused, written };
    let after = [order(&["a", "b"], 1, 0, 10), order(&["b", "c"], 2, 11, 20)];
    assert_eq!(StockService::Plain.replay(&after), count(0, 0, 2));
    assert_eq!(StockService::Comparing.replay(&after), count(0, 0, 2));
    let overlapping = [order(&["a", "b"], 1, 0, 10), order(&["b", "c"], 2, 5, 20)];
    assert_eq!(StockService::Plain.replay(&overlapping), count(1, 0, 2));
    assert_eq!(StockService::Comparing.replay(&overlapping), count(0, 1, 1));
    let late = [order(&["a"], 2, 0, 10), order(&["a", "b"], 1, 11, 20)];
    assert_eq!(StockService::Comparing.replay(&late), count(0, 1, 1));
    let apart = [order(&["a"], 1, 0, 10), order(&["b"], 2, 5, 20)];
    assert_eq!(StockService::Plain.replay(&apart), count(0, 0, 2));
}

/// The order of 16 items that is in flight when its gateway is killed.
fn held_order(round: usize) -> TestRequest {
    let skus: Vec<_> = (0..16).map(|number| format!("S{number:02}")).collect();
    let skus: Vec<_> = skus.iter().map(String::as_str).collect();
    TestRequest::post(&format!("/orders?held-{round}"))
        .field("Content-Type", "application/json")
        .body(order_body(&skus).to_string())
}

/// The way in which a client takes the locks of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderWay {
    Request,
    Lease,
}

impl OrderWay {
    /// True if the order was answered 200.
    async fn order(self, gateway: &Gateway, n: usize) -> bool {
        let skus = inventory_skus(n);
        let body = order_body(&skus.iter().map(String::as_str).collect::<Vec<_>>());
        let ask = order_request(&body);
        if self == Self::Request {
            return gateway.begin(ask).result().await.is_ok_and(|answer| answer.status == 200);
        }
        let keys: BTreeSet<_> = skus.iter().map(|sku| format!("sku/{sku}")).collect();
        let wanted = acquire_request(&json!({"keys": keys, "wait_ms": 15_000, "ttl_ms": 20_000}));
        let Ok(granted) = gateway.begin(wanted).result().await else { return false };
        if granted.status != 201 {
            return false;
        }
        let lease = ClientLease::from_response(&granted);
        let answer = gateway.begin(lease.with_lease(ask)).result().await;
        let is_done = answer.is_ok_and(|answer| answer.status == 200);
        // The answer does not matter: a gateway that was killed answers no release.
        let release = lease.with_lease(TestRequest::with_method(
            "DELETE",
            &format!("/.fencegate/v1/leases/{}", lease.reference),
        ));
        let _answer = gateway.begin(release).result().await;
        is_done
    }
}

/// Sends thirty orders at once over two gateways and kills one of them while an order is in flight, for several rounds.
/// Asserts that no update is lost.
async fn orders_under_kills(
    site: &TestSite,
    service: StockService,
    way: OrderWay,
    policy: impl Fn(&str) -> TestPolicy,
) {
    site.origin.set_work_time(Duration::from_millis(5));
    let survivor = Gateway::start(&policy("survivor")).await;
    let rounds = effort(1, 6);
    let tree = site.tree().await;
    for round in 0..rounds {
        let victim = Gateway::start(&policy(&format!("victim-{round}"))).await;
        let HeldRequest { request: lost, latch, .. } =
            site.origin.hold_request(&victim, held_order(round)).await;
        let held = tree.locks().await;
        assert!(held.len() >= 16, "{held:?}");
        let before = site.origin.log().records.len();
        let kill = async {
            // Meanwhile no orders run, or only orders of the four free items.
            tree.wait_locks("orders that wait", |locks| locks.len() >= held.len() + 20).await;
            victim.signal(Signal::KILL);
            assert!(lost.result().await.is_err(), "nobody is left to answer");
            let is_over = |locks: &[String]| !locks.iter().any(|lock| held.contains(lock));
            tree.wait_locks("the end of the victim's session", is_over).await;
            if service == StockService::Comparing {
                // The service still executes the victim's order. A later order of the same items makes it stale.
                let follows = |log: &OriginLog| {
                    let mut records = log.records.iter().skip(before);
                    records.any(|record| record.key().is_some_and(|key| key.contains("S0"))).then_some(())
                };
                site.origin.wait_for("an order of the same items", follows).await;
            }
            latch.release();
        };
        let ask = |n: usize| {
            let first = if n.is_multiple_of(2) { &survivor } else { &victim };
            let survivor = &survivor;
            async move {
                // The client of a killed gateway sends its order again through the other gateway.
                way.order(first, n).await || way.order(survivor, n).await
            }
        };
        let (done, ()) = tokio::join!(join_all((0..30).map(ask)), kill);
        assert!(done.iter().all(|done| *done), "round {round}: {done:?}");
    }
    tree.assert_no_locks().await;
    let orders = order_executions(&site.origin.log());
    let stock = service.replay(&orders);
    let longest = orders.iter().map(|order| order.ended - order.began).max();
    assert_eq!(
        stock.lost,
        0,
        "updates of {} orders were lost, one of which took {longest:?}: {stock:?}",
        orders.len()
    );
    assert!(stock.written >= rounds * 30, "{stock:?}");
    let refused = if service == StockService::Comparing { rounds } else { 0 };
    assert!(stock.refused >= refused, "not exercised: no late order was refused: {stock:?}");
}

/// Killed gateways lose no update of an item, where the service compares tokens.
#[tokio::test]
async fn killed_gateways_lose_no_update_upstream() {
    let site = TestSite::fresh().await;
    let policy = |name: &str| site.policy(name).with_route(inventory_route());
    orders_under_kills(&site, StockService::Comparing, OrderWay::Request, policy).await;
}

/// Killed gateways lose no update of an item where a guard compares for a service that does not. An order that runs for
/// longer than the guard's `max_execution`, 9 s here, may lose updates, so a failure names the longest order.
#[tokio::test]
async fn killed_gateways_lose_no_update_at_guard() {
    let guarded = GuardedSite::new(TestSite::fresh().await).await;
    let guard = guarded.guard().await;
    let policy = |name: &str| guarded.policy(name, &[guard.public]).with_route(inventory_route());
    orders_under_kills(&guarded.site, StockService::Plain, OrderWay::Request, policy).await;
}

/// The policy of a gateway that also grants leases of items.
fn leasing(tokens: &LeaseTokens, policy: TestPolicy) -> TestPolicy {
    tokens
        .add_to(policy.with_route(inventory_route()))
        .with("/routes/2/fence/lease", "optional")
        .with("/leases/principals/0/keys", json!(["sku/*"]))
}

/// Killed gateways lose no update of an item that clients hold by leases.
#[tokio::test]
async fn killed_gateways_lose_no_update_under_leases() {
    let tokens = LeaseTokens::default();
    let site = TestSite::fresh().await;
    let policy = |name: &str| leasing(&tokens, site.policy(name));
    orders_under_kills(&site, StockService::Comparing, OrderWay::Lease, policy).await;

    let guarded = GuardedSite::new(TestSite::fresh().await).await;
    let guard = guarded.guard().await;
    let policy = |name: &str| leasing(&tokens, guarded.policy(name, &[guard.public]));
    orders_under_kills(&guarded.site, StockService::Plain, OrderWay::Lease, policy).await;
}

/// Sends `orders` orders of up to 16 of 20 items from thirty clients over two gateways. Asserts that none waits until
/// its time is over, as it would in a deadlock, and that none is lost.
async fn crossing_orders(site: &TestSite, one: &Gateway, two: &Gateway, orders: usize) {
    const CLIENTS: usize = 30;
    site.origin.set_work_time(Duration::ZERO);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let address = if client.is_multiple_of(2) { one.public } else { two.public };
        clients.spawn(async move {
            let mut connection = Http1Client::connect(address).await.expect("listens");
            for n in (client..orders).step_by(CLIENTS) {
                let skus = inventory_skus(n);
                let body = order_body(&skus.iter().map(String::as_str).collect::<Vec<_>>());
                let answer = connection.send(&order_request(&body)).await.expect("answered");
                let outcome = answer.outcome();
                assert_eq!((answer.status, outcome), (200, Some(FencingOutcome::Done)), "{n}: {answer:?}");
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("each order is done");
    }
    let executed = order_executions(&site.origin.log());
    let stock = StockService::Plain.replay(&executed);
    assert_eq!(stock, StockCount { lost: 0, refused: 0, written: orders });
    site.tree().await.assert_no_locks().await;
}

/// Orders with overlapping sets of items do not deadlock.
#[tokio::test]
async fn crossing_orders_do_not_deadlock() {
    let site = TestSite::fresh().await;
    let policy = |name| site.policy(name).with_route(inventory_route());
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    crossing_orders(&site, &one, &two, effort(300, 10_000)).await;
}

/// Leases of overlapping sets of items do not deadlock.
#[tokio::test]
async fn crossing_leases_do_not_deadlock() {
    let tokens = LeaseTokens::default();
    let site = TestSite::fresh().await;
    site.origin.set_work_time(Duration::ZERO);
    let policy = |name| leasing(&tokens, site.policy(name));
    let (one, two) = Gateway::start_both(&policy("gw-1"), &policy("gw-2")).await;
    let orders = effort(90, 3000);
    for first in (0..orders).step_by(30) {
        let ask = |n: usize| {
            let gateway = if n.is_multiple_of(2) { &one } else { &two };
            OrderWay::Lease.order(gateway, n)
        };
        let done = join_all((first..first + 30).map(ask)).await;
        assert!(done.iter().all(|done| *done), "{done:?}");
    }
    let stock = StockService::Plain.replay(&order_executions(&site.origin.log()));
    assert_eq!(stock, StockCount { lost: 0, refused: 0, written: orders });
}
