//! The response of the service decides what becomes of an operation and what its repeats get, with either store.
//!
//! A 401 and similar statuses use up no name. A repeat gets the recorded status. A route can name further statuses
//! that end an operation.

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::Guard,
    guarded::{GuardedSite, with_short_times},
    origin::{OriginAction, OriginReply},
    site::TestSite,
};
use serde_json::{Value, json};

/// Two gateways that share a store.
struct GatewayPair {
    site: TestSite,
    one: Gateway,
    two: Gateway,
    _guard: Option<Guard>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationStore {
    Guard,
    ZooKeeper,
}

impl GatewayPair {
    async fn new(store: OperationStore, once: &Value) -> Self {
        let guarded = GuardedSite::fresh().await;
        let guard = match store {
            OperationStore::Guard => Some(with_short_times(guarded.launch().await).start().await),
            OperationStore::ZooKeeper => None,
        };
        let start = |name| {
            let policy = match &guard {
                Some(guard) => guarded.policy(name, &[guard.public]),
                None => guarded.site.policy(name),
            };
            let policy = policy.with("/routes/0/fence/once", once.clone());
            async move { Gateway::start(&policy).await }
        };
        let (one, two) = tokio::join!(start("gw-1"), start("gw-2"));
        Self { site: guarded.site, one, two, _guard: guard }
    }

    fn script_answer(&self, path: &str, status: u16) {
        let reply = OriginReply::with_body("no").status(status).field("Retry-After", "1");
        self.site.origin.script(path, [OriginAction::now(reply)]);
    }
}

fn pay(account: u16) -> TestRequest {
    TestRequest::post(&format!("/pay/{account}"))
        .field("Idempotency-Key", &format!("op-{account}"))
        .body("ten")
}

fn problem(answer: &ClientResponse) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

#[track_caller]
fn assert_repeat_answered(store: OperationStore, repeat: &ClientResponse, recorded: u16) {
    match store {
        OperationStore::Guard => {
            assert_eq!(
                (repeat.status, repeat.outcome()),
                (recorded, Some(FencingOutcome::Replayed)),
                "{repeat:?}"
            );
        }
        // ZooKeeper keeps the status and nothing else.
        OperationStore::ZooKeeper => {
            let (status, reason, outcome) = match recorded {
                ..400 => (409, "already-done", FencingOutcome::Done),
                _ => (recorded, "already-refused", FencingOutcome::Replayed),
            };
            let told = (repeat.status, repeat.reason(), repeat.outcome());
            assert_eq!(told, (status, reason.to_owned(), Some(outcome)), "{repeat:?}");
            assert_eq!(problem(repeat)["recorded_status"], recorded);
        }
    }
    assert_eq!(repeat.field("retry-after"), None, "waiting would change nothing");
}

/// Statuses such as 401 or 429, by which the service refuses to begin a request, do not end the operation.
#[tokio::test]
async fn rejected_request_does_not_end_operation() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::new(store, &json!({})).await;
        for status in [401, 403, 408, 421, 425, 429] {
            let path = format!("/pay/{status}");
            it.script_answer(&path, status);
            let first = it.one.send(&pay(status)).await;
            assert_eq!((first.status, first.field("retry-after")), (status, Some("1")), "{first:?}");
            let second = it.two.send(&pay(status)).await;
            assert_eq!(
                (second.status, second.outcome()),
                (200, Some(FencingOutcome::Done)),
                "{store:?} {second:?}"
            );
            assert_repeat_answered(store, &it.one.send(&pay(status)).await, 200);
            assert_eq!(it.site.origin.count(&path), 2);
        }
    }
}

/// A request that the service turned away does not use up the `Idempotency-Key`.
///
/// A client without the right to pay uses the key before its owner does.
#[tokio::test]
async fn rejected_stranger_does_not_consume_key() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::new(store, &json!({})).await;
        it.script_answer("/pay/7", 401);
        assert_eq!(it.one.send(&pay(7).body("a million")).await.status, 401);
        let owner = it.two.send(&pay(7)).await;
        assert_eq!((owner.status, owner.outcome()), (200, Some(FencingOutcome::Done)), "{store:?} {owner:?}");
    }
}

#[tokio::test]
async fn repeat_gets_recorded_status() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::new(store, &json!({})).await;
        for status in [201, 303, 400, 402, 404, 409, 422] {
            let path = format!("/pay/{status}");
            it.script_answer(&path, status);
            let first = it.one.send(&pay(status)).await;
            assert_eq!((first.status, first.outcome()), (status, Some(FencingOutcome::Done)));
            for gateway in [&it.two, &it.one] {
                assert_repeat_answered(store, &gateway.send(&pay(status)).await, status);
            }
            assert_eq!(it.site.origin.count(&path), 1);
        }
    }
}

/// With `once.final` a route names further statuses that end an operation; other errors stay unknown.
#[tokio::test]
async fn route_configures_final_statuses() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::new(store, &json!({"final": [401, 403, 408, 421, 425, 429, 503]})).await;
        for status in [401, 403, 408, 421, 425, 429, 503] {
            let path = format!("/pay/{status}");
            it.script_answer(&path, status);
            assert_eq!(it.one.send(&pay(status)).await.status, status);
            assert_repeat_answered(store, &it.two.send(&pay(status)).await, status);
            assert_eq!(it.site.origin.count(&path), 1);
        }
        it.script_answer("/pay/500", 500);
        assert_eq!(it.one.send(&pay(500)).await.status, 500);
        let unknown = it.two.send(&pay(500)).await;
        assert_eq!((unknown.status, unknown.outcome()), (409, Some(FencingOutcome::Unknown)), "{unknown:?}");
    }
}
