//! Tests the promises of the service over its HTTP interface.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;

struct TestClient(Router);

impl TestClient {
    fn new(compare: TokenComparison, work_time: Duration) -> Self {
        let book = LedgerStore::temporary(work_time).expect("a temporary database");
        let fields = FieldSettings {
            token: "fencing-token".parse().unwrap(),
            number: "fencing-number".parse().unwrap(),
            clock_error: None,
        };
        Self(router(Arc::new(book), compare, fields))
    }

    async fn send(&self, request: Request<Body>) -> (Response<()>, Value) {
        let (head, body) = self.0.clone().oneshot(request).await.expect("infallible").into_parts();
        let bytes = body.collect().await.expect("a body in memory").to_bytes();
        (Response::from_parts(head, ()), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await.1
    }

    async fn post(&self, path: &str, stamp: (&str, &str), body: Value) -> (Response<()>, Value) {
        let request = Request::post(path).header(stamp.0, stamp.1).body(Body::from(body.to_string()));
        self.send(request.unwrap()).await
    }

    async fn debit(&self, operation: &str, token: (&str, &str), amount: i64) -> StatusCode {
        let body = json!({ "operation": operation, "amount": amount });
        self.post("/v1/accounts/alice/debit", token, body).await.0.status()
    }

    async fn executions(&self) -> Vec<String> {
        let list = self.get("/v1/executions").await;
        let operations = list["executions"].as_array().expect("a list").iter();
        operations.map(|execution| execution["operation"].as_str().unwrap().to_owned()).collect()
    }
}

fn token(epoch: u64, dispatch: u32) -> String {
    format!("v1-{epoch:016x}-00000000-{dispatch:08x}")
}

/// A request with a stale token is refused, and leaves no trace but the record of its refusal.
#[tokio::test]
async fn stale_token_is_refused_without_trace() {
    let ledger = TestClient::new(TokenComparison::Token, Duration::ZERO);
    let old = token(5, 1);
    let new = token(6, 1);
    assert_eq!(ledger.debit("new", ("fencing-token", &new), 100).await, StatusCode::OK);

    let body = json!({ "operation": "old", "amount": 1 });
    let (refusal, problem) = ledger.post("/v1/accounts/alice/debit", ("fencing-token", &old), body).await;
    assert_eq!(refusal.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(refusal.headers()["fencing-refusal"], "stale");
    assert_eq!(refusal.headers()["content-type"], "application/problem+json");
    assert_eq!(problem["reason"], "stale");

    assert_eq!(ledger.get("/v1/accounts/alice").await["balance"], 999_900);
    assert_eq!(ledger.executions().await, ["new"]);
    let refusals = ledger.get("/v1/refusals").await;
    assert_eq!(refusals["stale"], 1);
    assert_eq!(
        refusals["latest"],
        json!({ "operation": "old", "key": "account/alice", "presented": old, "newest": new })
    );
}

/// A token is accepted once for each key, and every key has its own fence.
#[tokio::test]
async fn token_is_accepted_once_per_key() {
    let ledger = TestClient::new(TokenComparison::Token, Duration::ZERO);
    let one = token(5, 1);
    assert_eq!(ledger.debit("a", ("fencing-token", &one), 1).await, StatusCode::OK);
    assert_eq!(ledger.debit("a", ("fencing-token", &one), 1).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(ledger.debit("b", ("fencing-token", &token(5, 2)), 1).await, StatusCode::OK);
    let body = json!({ "operation": "c", "amount": 1 });
    let (other, _) = ledger.post("/v1/accounts/bob/credit", ("fencing-token", &one), body).await;
    assert_eq!(other.status(), StatusCode::OK);
    assert_eq!(ledger.get("/v1/accounts/bob").await["balance"], 1_000_001);
}

#[tokio::test]
async fn equal_number_passes_smaller_is_refused() {
    let ledger = TestClient::new(TokenComparison::Number, Duration::ZERO);
    for (number, expected) in [("9", 200), ("9", 200), ("10", 200), ("9", 412), ("10", 200)] {
        let status = ledger.debit(number, ("fencing-number", number), 1).await;
        assert_eq!(status.as_u16(), expected, "{number}");
    }
    assert_eq!(ledger.get("/v1/refusals").await["stale"], 1);
}

/// Readers share a key in any order. A reader or writer older than the newest token of the other kind is refused.
#[tokio::test]
async fn readers_share_key_unless_late() {
    for (compare, field) in
        [(TokenComparison::Token, "fencing-token"), (TokenComparison::Number, "fencing-number")]
    {
        let ledger = TestClient::new(compare, Duration::ZERO);
        let said = |epoch: u64| match compare {
            TokenComparison::Token => token(epoch, 1),
            _ => epoch.to_string(),
        };
        let read = async |epoch| {
            let request = Request::get("/v1/accounts/alice").header(field, said(epoch)).body(Body::empty());
            ledger.send(request.unwrap()).await.0.status().as_u16()
        };
        let write = async |epoch| ledger.debit("a", (field, &said(epoch)), 1).await.as_u16();
        assert_eq!((read(7).await, read(5).await), (200, 200), "readers do not refuse each other");
        assert_eq!((write(6).await, write(8).await), (412, 200));
        assert_eq!((read(7).await, read(9).await), (412, 200));
        assert_eq!(ledger.get("/v1/accounts/alice").await["balance"], 999_999, "looking needs no token");
    }
}

/// A request without a readable token of the compared kind is refused with 400, and not executed.
#[tokio::test]
async fn unreadable_token_executes_nothing() {
    let ledger = TestClient::new(TokenComparison::Token, Duration::ZERO);
    for stamp in [("x-other", "1"), ("fencing-token", "5"), ("fencing-number", "5")] {
        assert_eq!(ledger.debit("a", stamp, 1).await, StatusCode::BAD_REQUEST, "{stamp:?}");
    }
    assert!(ledger.executions().await.is_empty());
}

/// Fifty debits at once give the exact balance, and their executions do not overlap.
#[tokio::test]
async fn concurrent_debits_are_exact_without_overlap() {
    const CLIENTS: u32 = 50;
    let ledger = Arc::new(TestClient::new(TokenComparison::Token, Duration::from_millis(1)));
    let mut clients = tokio::task::JoinSet::new();
    for dispatch in 1..=CLIENTS {
        let ledger = Arc::clone(&ledger);
        clients.spawn(async move {
            // Requests arrive in any order. A stale one is tried again with a newer token, as the gateway does.
            for epoch in 1.. {
                let token = token(epoch, dispatch);
                match ledger.debit(&dispatch.to_string(), ("fencing-token", &token), 7).await {
                    StatusCode::OK => return,
                    status => assert_eq!(status, StatusCode::PRECONDITION_FAILED),
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no panic");
    }
    assert_eq!(ledger.get("/v1/accounts/alice").await["balance"], 1_000_000 - 7 * i64::from(CLIENTS));
    let list = ledger.get("/v1/executions").await;
    let list = list["executions"].as_array().expect("a list");
    assert_eq!(list.len(), CLIENTS as usize);
    for pair in list.windows(2) {
        assert!(pair[0]["end_ns"].as_i64() <= pair[1]["begin_ns"].as_i64(), "{pair:?}");
        assert!(pair[0]["token"].as_str() < pair[1]["token"].as_str(), "{pair:?}");
    }
}

/// Without comparison a stale request is executed, and one of two concurrent updates is lost.
#[tokio::test]
async fn naive_service_executes_stale_request() {
    let ledger = TestClient::new(TokenComparison::Off, Duration::from_millis(100));
    let old = token(5, 1);
    let new = token(6, 1);
    assert_eq!(ledger.debit("new", ("fencing-token", &new), 100).await, StatusCode::OK);
    assert_eq!(ledger.debit("old", ("fencing-token", &old), 100).await, StatusCode::OK);
    assert_eq!(ledger.executions().await, ["new", "old"]);

    let both = (ledger.debit("a", ("x-none", ""), 100), ledger.debit("b", ("x-none", ""), 100));
    let (a, b) = tokio::join!(both.0, both.1);
    assert_eq!((a, b), (StatusCode::OK, StatusCode::OK));
    assert_eq!(ledger.get("/v1/accounts/alice").await["balance"], 999_700, "four debits of 100, one lost");
}

/// A refusal for lack of stock raises the watermark: an older request is stale afterwards.
#[tokio::test]
async fn insufficient_stock_raises_watermark() {
    let ledger = TestClient::new(TokenComparison::Token, Duration::ZERO);
    let take = async |operation: &str, epoch, quantity| {
        let body = json!({ "operation": operation, "quantity": quantity });
        ledger.post("/v1/skus/lamp/reservations", ("fencing-token", &token(epoch, 1)), body).await
    };
    let (refusal, problem) = take("too many", 6, 1001).await;
    assert_eq!(
        (refusal.status(), &problem["reason"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("insufficient"))
    );
    assert_eq!(take("older", 5, 1).await.0.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(take("newer", 7, 1000).await.0.status(), StatusCode::OK);
    assert_eq!(ledger.get("/v1/skus/lamp").await["available"], 0);
    let list = ledger.get("/v1/executions?after=0").await;
    assert_eq!(
        (&list["executions"][0]["effective"], &list["executions"][0]["change"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(ledger.get("/v1/executions?after=1").await["executions"][0]["operation"], "newer");
}

/// A transfer is fenced by both accounts, and happens as a whole or not at all.
#[tokio::test]
async fn transfer_is_fenced_by_both_accounts() {
    let ledger = TestClient::new(TokenComparison::Token, Duration::ZERO);
    let transfer = async |operation: &str, epoch, from: &str, to: &str, amount| {
        let body = json!({ "operation": operation, "from": from, "to": to, "amount": amount });
        ledger.post("/v1/transfers", ("fencing-token", &token(epoch, 1)), body).await
    };
    let (done, told) = transfer("first", 5, "alice", "bob", 100).await;
    assert_eq!(done.status(), StatusCode::OK);
    assert_eq!(told, json!({ "operation": "first", "from": 999_900, "to": 1_000_100, "sequence": 2 }));

    // The token is new for the account that pays, and stale for the one that receives, so nothing may change.
    assert_eq!(transfer("to bob", 5, "carol", "bob", 1).await.0.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(transfer("from bob", 5, "bob", "carol", 1).await.0.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(ledger.get("/v1/refusals").await["latest"]["key"], "account/bob");
    assert_eq!(transfer("carol's mark", 4, "carol", "dave", 1).await.0.status(), StatusCode::OK);

    let (poor, _) = transfer("too much", 6, "bob", "alice", 2_000_000).await;
    assert_eq!(poor.status(), StatusCode::UNPROCESSABLE_ENTITY);
    for (account, balance) in
        [("alice", 999_900), ("bob", 1_000_100), ("carol", 999_999), ("dave", 1_000_001)]
    {
        assert_eq!(ledger.get(&format!("/v1/accounts/{account}")).await["balance"], balance, "{account}");
    }
    assert_eq!(
        ledger.executions().await,
        ["first", "first", "carol's mark", "carol's mark", "too much", "too much"]
    );
    assert_eq!(transfer("older", 5, "bob", "carol", 1).await.0.status(), StatusCode::PRECONDITION_FAILED);
}

/// A malformed order gets 400, and an invalid one gets 422. Neither is executed.
#[tokio::test]
async fn malformed_and_invalid_orders_are_distinguished() {
    let ledger = TestClient::new(TokenComparison::Token, Duration::ZERO);
    let long = "x".repeat(129);
    for (path, body, expected) in [
        ("/v1/accounts/alice/debit", json!({ "operation": "a" }), 400),
        ("/v1/accounts/alice/debit", json!({ "operation": "a", "amount": 1, "extra": 1 }), 400),
        ("/v1/accounts/alice/debit", json!({ "operation": "a", "amount": 1.5 }), 400),
        ("/v1/accounts/alice/debit", json!({ "operation": "a", "amount": 0 }), 422),
        ("/v1/accounts/alice/debit", json!({ "operation": "a", "amount": -1 }), 422),
        ("/v1/accounts/alice/debit", json!({ "operation": "", "amount": 1 }), 422),
        ("/v1/accounts/alice/debit", json!({ "operation": long, "amount": 1 }), 422),
        ("/v1/accounts/a%2Fb/debit", json!({ "operation": "a", "amount": 1 }), 422),
        ("/v1/transfers", json!({ "operation": "a", "from": "b", "to": "b", "amount": 1 }), 422),
        ("/v1/transfers", json!({ "operation": "a", "from": "b", "amount": 1 }), 400),
        ("/v1/nothing", json!({}), 404),
    ] {
        let (answer, problem) = ledger.post(path, ("fencing-token", &token(1, 1)), body.clone()).await;
        assert_eq!(answer.status().as_u16(), expected, "{path} {body}");
        assert_eq!(problem["status"], expected, "{path} {body}");
    }
    assert!(ledger.executions().await.is_empty());
}
