//! What an answer of the service makes of an operation, and what its repeats are told, with either store.

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome, TestRequest},
    gateway::Gateway,
    guard::Guard,
    guarded::{GuardedSite, with_short_times},
    origin::{Act, OriginReply},
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
    async fn with(store: OperationStore, once: &Value) -> Self {
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

    fn answers_once(&self, path: &str, status: u16) {
        let reply = OriginReply::with_body("no").status(status).field("Retry-After", "1");
        self.site.origin.script(path, [Act::now(reply)]);
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
fn assert_told(store: OperationStore, repeat: &ClientResponse, recorded: u16) {
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

#[tokio::test]
async fn what_the_service_did_not_take_up_is_no_end_of_the_operation() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::with(store, &json!({})).await;
        for status in [401, 403, 408, 421, 425, 429] {
            let path = format!("/pay/{status}");
            it.answers_once(&path, status);
            let first = it.one.send(&pay(status)).await;
            assert_eq!((first.status, first.field("retry-after")), (status, Some("1")), "{first:?}");
            let second = it.two.send(&pay(status)).await;
            assert_eq!(
                (second.status, second.outcome()),
                (200, Some(FencingOutcome::Done)),
                "{store:?} {second:?}"
            );
            assert_told(store, &it.one.send(&pay(status)).await, 200);
            assert_eq!(it.site.origin.count(&path), 2);
        }
    }
}

/// A stranger without the right to pay guesses the name before its owner uses it.
#[tokio::test]
async fn a_name_is_not_spoilt_by_who_was_turned_away() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::with(store, &json!({})).await;
        it.answers_once("/pay/7", 401);
        assert_eq!(it.one.send(&pay(7).body("a million")).await.status, 401);
        let owner = it.two.send(&pay(7)).await;
        assert_eq!((owner.status, owner.outcome()), (200, Some(FencingOutcome::Done)), "{store:?} {owner:?}");
    }
}

#[tokio::test]
async fn a_repeat_is_told_the_status_that_was_recorded() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::with(store, &json!({})).await;
        for status in [201, 303, 400, 402, 404, 409, 422] {
            let path = format!("/pay/{status}");
            it.answers_once(&path, status);
            let first = it.one.send(&pay(status)).await;
            assert_eq!((first.status, first.outcome()), (status, Some(FencingOutcome::Done)));
            for gateway in [&it.two, &it.one] {
                assert_told(store, &gateway.send(&pay(status)).await, status);
            }
            assert_eq!(it.site.origin.count(&path), 1);
        }
    }
}

#[tokio::test]
async fn a_route_can_say_which_other_statuses_are_an_end() {
    for store in [OperationStore::Guard, OperationStore::ZooKeeper] {
        let it = GatewayPair::with(store, &json!({"final": [401, 403, 408, 421, 425, 429, 503]})).await;
        for status in [401, 403, 408, 421, 425, 429, 503] {
            let path = format!("/pay/{status}");
            it.answers_once(&path, status);
            assert_eq!(it.one.send(&pay(status)).await.status, status);
            assert_told(store, &it.two.send(&pay(status)).await, status);
            assert_eq!(it.site.origin.count(&path), 1);
        }
        it.answers_once("/pay/500", 500);
        assert_eq!(it.one.send(&pay(500)).await.status, 500);
        let unknown = it.two.send(&pay(500)).await;
        assert_eq!((unknown.status, unknown.outcome()), (409, Some(FencingOutcome::Unknown)), "{unknown:?}");
    }
}
