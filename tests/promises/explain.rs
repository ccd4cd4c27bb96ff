//! `explain` reports for a request exactly what a running gateway does with it.
//!
//! It also explains the spellings next to the one in the request.

mod compare;
mod served;
mod spelled;
mod variants;

use std::{
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fencegate_check::explain::{self, RequestExplanation, SampleRequest};
use fencegate_policies::{file, plan};
use fencegate_tests::{
    client::{self, RawClient},
    gateway::PolicyFile,
    gateway::{Gateway, command},
    policy::TestPolicy,
    site::TestSite,
    wire::HttpWireMessage,
};
use serde_json::{Value, json};

use self::spelled::HOST;

const MINIMAL: &str = include_str!("../../policies/examples/minimal.yaml");
const PAYMENTS: &str = include_str!("../../policies/examples/payments.yaml");
const INVENTORY: &str = include_str!("../../policies/examples/inventory.yaml");

/// Runs `explain` on a thread of its own, because it starts its own runtime.
pub(super) fn run_explain(plan: &plan::GatewayPlan, request: &SampleRequest) -> RequestExplanation {
    let explanation = thread::scope(|scope| scope.spawn(|| explain::explain(plan, request)).join());
    explanation.expect("no panic").expect("a runtime")
}

/// Sends the request in these bytes, and returns the answer. `has_body`: whether a body follows the answer's head.
pub(super) async fn send_bytes(gateway: &Gateway, bytes: Vec<u8>, has_body: bool) -> HttpWireMessage {
    let mut connection = RawClient::connect(gateway.public).await.expect("a connection");
    connection.send(bytes).await.expect("sent");
    let mut answer = connection.read_head().await.expect("an answer");
    // A 204 and an answer to HEAD have no body, although their fields may announce one.
    if has_body && answer.word(1) != "204" {
        connection.read_body(&mut answer).await.expect("a whole answer");
    }
    answer
}

/// The gateway waits, refuses and queues as `explain` reports for a request whose lock another request has.
#[tokio::test]
async fn explained_wait_matches_gateway() {
    let site = TestSite::alone().await;
    let policy =
        site.policy("gw-1").with("/routes/0/fence/wait", "2s").with("/routes/0/fence/locked_status", 409);
    let policy = policy.with("/routes/0/fence/queue", 1);
    let plan = file::load(&policy.to_string()).plan.expect("sound");
    let gateway = Gateway::start(&policy).await;
    // Each case has a key of its own. A request that waited in vain keeps its place in the queue until the gateway has
    // been notified that the node is gone.
    for (path, field, wait, least) in [("/pay/7", None, "2s", 2000), ("/pay/8", Some("wait=0"), "0s", 0)] {
        let holder = site.origin.hold_request(&gateway, client::TestRequest::post(path)).await;
        let fields: Vec<String> = field.iter().map(|field| format!("prefer: {field}")).collect();
        let line = format!("POST {path}");
        let sample = SampleRequest::new(&line, HOST, &fields, Bytes::new()).expect("a request");
        let explanation = run_explain(&plan, &sample);
        let lock = explanation.lock.expect("a lock");
        assert_eq!((lock.wait.as_str(), lock.locked_status, lock.queue), (wait, 409, 1));
        let begun = Instant::now();
        let request = client::TestRequest::post(path);
        let answer =
            gateway.send(&field.iter().fold(request, |request, field| request.field("prefer", field))).await;
        assert_eq!(answer.status, lock.locked_status);
        let waited = Duration::from_millis(least);
        assert!(
            (waited..waited + Duration::from_secs(2)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(holder.finish().await.status, 200);
    }
    let holder = site.origin.hold_request(&gateway, client::TestRequest::post("/pay/9")).await;
    let waiting = gateway.begin(client::TestRequest::post("/pay/9"));
    gateway.wait_gauge("fencegate_lock_waiters", 1.0).await;
    assert_eq!(
        gateway.send(&client::TestRequest::post("/pay/9")).await.status,
        429,
        "the queue has one place"
    );
    assert_eq!(holder.finish().await.status, 200);
    drop(waiting);
}

/// `explain` reports forwarding only where it can happen: not for reads, large bodies, upgrades, strict grants or with
/// `forward: never`.
#[tokio::test]
async fn forwarding_is_explained_where_possible() {
    let site = TestSite::fresh().await;
    let sending = site
        .policy("gw-1")
        .with("/peer", json!({"address": "127.0.0.1:9910"}))
        .with("/defaults", json!({"forward": "holder"}))
        .with("/listeners/public/limits", json!({"max_body": "8B"}))
        .with("/routes/0/fence/large_bodies", "stream")
        .with("/routes/0/upgrade", json!(["websocket"]))
        .with("/routes/0/match/methods", json!(["POST", "GET"]))
        .with("/routes/0/fence/mode", "by-method");
    let forward_of = |policy: &TestPolicy, line: &str, fields: &[&str], body: &'static str| {
        let plan = file::load(&policy.to_string()).plan.expect("sound");
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        let sample =
            SampleRequest::new(line, HOST, &fields, Bytes::from_static(body.as_bytes())).expect("a request");
        let explanation = run_explain(&plan, &sample);
        let text = explanation.to_string().contains("sent on to that one");
        let lock = serde_json::to_value(explanation.lock.expect("a lock")).expect("JSON");
        assert_eq!(lock.get("forward").is_some(), text);
        lock.get("forward").and_then(Value::as_str).map(str::to_owned)
    };
    assert_eq!(forward_of(&sending, "POST /pay/7", &[], "{}").as_deref(), Some("holder"));
    let asks = ["connection: upgrade", "upgrade: websocket"];
    for (line, fields, body) in
        [("GET /pay/7", &[][..], ""), ("POST /pay/7", &[], "123456789"), ("POST /pay/7", &asks, "")]
    {
        assert_eq!(forward_of(&sending, line, fields, body), None, "{line} {fields:?} {body}");
    }
    let strict = sending.clone().with("/defaults/hold", json!({"mode": "strict"}));
    let never = sending.with("/routes/0/fence/forward", "never");
    assert_eq!(
        (forward_of(&strict, "POST /pay/7", &[], ""), forward_of(&never, "POST /pay/7", &[], "")),
        (None, None)
    );
}

/// `explain` reports whether a route accepts or requires a lease.
#[tokio::test]
async fn lease_rule_is_explained() {
    let principal = json!({"name": "a", "bearer": {"file": "/a"}, "keys": ["account/*"]});
    let policy = TestSite::fresh().await.policy("gw-1").with("/leases", json!({"principals": [principal]}));
    for (lease, says) in
        [(None, None), (Some("optional"), Some("runs under that lease")), (Some("required"), Some("428"))]
    {
        let policy =
            lease.map_or_else(|| policy.clone(), |lease| policy.clone().with("/routes/0/fence/lease", lease));
        let plan = file::load(&policy.to_string()).plan.expect("sound");
        let sample = SampleRequest::new("POST /pay/7", HOST, &[], Bytes::new()).expect("a request");
        let explanation = run_explain(&plan, &sample);
        let text = explanation.to_string();
        assert_eq!(text.contains("  lease "), lease.is_some(), "{text}");
        assert!(says.is_none_or(|says| text.contains(says)), "{text}");
        assert_eq!(explanation.lock.expect("a lock").lease, lease);
    }
}

#[tokio::test]
async fn command_prints_text_and_json() {
    let file = PolicyFile::new(PAYMENTS);
    let arguments =
        ["explain", "-c", &file, "POST /v1/orders/%34%32/capture", "-H", "Idempotency-Key: a", "-d", "{}"];
    let output = command(&arguments).await.expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in [
        "capture",
        "/fencegate/payments/locks/",
        "/order%2F42",
        "2s, then 423",
        "fencing-ticket: <ticket>",
        "`a`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("  source    path.order_id | int: \"42\"\n"), "{text}");
    let output = command(&[&arguments[..], &["--format", "json"]].concat()).await.expect("started");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["lock"]["keys"][0]["key"], "order/42", "{json}");
    assert_eq!(json["sent"]["target"], "/v1/orders/42/capture", "{json}");
    assert_eq!(json.get("variants"), None, "{json}");
}

/// `explain --variants` prints a table, and with `-o json` the same for programs: the values of keys as they came and
/// as the filters leave them.
#[tokio::test]
async fn command_prints_variants() {
    let file = PolicyFile::new(MINIMAL);
    let arguments = ["explain", "-c", &file, "POST /orders/042", "--variants"];
    let output = command(&arguments).await.expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("  source    path.order_id | int: \"042\" is \"42\"\n"), "{text}");
    let row = text.lines().find(|line| line.contains("plus sign of `042`")).expect("a row");
    assert!(row.contains("/orders/+042") && row.ends_with("400 key-invalid"), "{row}");
    let output = command(&[&arguments[..], &["-o", "json"]].concat()).await.expect("started");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let sources = json!([{"source": "path.order_id", "filters": ["int"], "raw": "042", "canonical": "42", "error": null}]);
    assert_eq!(json["sources"], sources, "{json}");
    let variants = json["variants"].as_array().expect("a list");
    let gives = |spelling: &str| {
        let variant = variants.iter().find(|variant| variant["spelling"] == spelling);
        variant.unwrap_or_else(|| panic!("{spelling}: {json:#}"))["gives"].clone()
    };
    assert_eq!(gives("leading zero of `042`"), "same-key");
    assert_eq!(gives("trailing letter of `042`"), "refused");
    assert_eq!(gives("other case of `orders`"), "refused");
}

/// `check --request` shows the explanation of a request beside the findings. `--variants` without `--request` is a
/// usage error, and so is `--request` for the file of a guard.
#[tokio::test]
async fn check_explains_request() {
    let file = PolicyFile::new(MINIMAL);
    let arguments = ["check", &file, "--request", "POST /orders/42", "--variants"];
    let output = command(&arguments).await.expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("  key       order/42\n") && text.contains("  variants  spelling"), "{text}");
    assert!(text.ends_with(": good\n"), "{text}");
    let output = command(&[&arguments[..], &["-o", "json"]].concat()).await.expect("started");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["request"]["lock"]["keys"][0]["key"], "order/42", "{json}");
    let guard = PolicyFile::new(include_str!("../../policies/examples/guard.yaml"));
    for arguments in [&["check", &file, "--variants"][..], &["check", &guard, "--request", "POST /orders/42"]]
    {
        let output = command(arguments).await.expect("started");
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
    }
    let broken = PolicyFile::new("version: 1\n");
    let output = command(&["check", &broken, "--request", "POST /orders/42"]).await.expect("started");
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}

/// `explain` lists the other routes that can lock the key of a request.
#[tokio::test]
async fn routes_with_same_key_are_listed() {
    let file = PolicyFile::new(INVENTORY);
    let arguments = ["explain", "-c", &file, "GET /warehouses/berlin/skus/A7/count"];
    let text = String::from_utf8(command(&arguments).await.expect("started").stdout).expect("text");
    assert!(text.contains("also by   reserve, record, transfer"), "{text}");
    let output = command(&[&arguments[..], &["--format", "json"]].concat()).await.expect("started");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["lock"]["also"], json!(["reserve", "record", "transfer"]));
}

/// `explain` prints the reason behind a diagnostic code; an unknown code or a malformed request is a usage error.
#[tokio::test]
async fn code_is_explained_and_nonsense_refused() {
    let output = command(&["explain", "fg0203"]).await.expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("FG0203: ") && text.contains("\nWhy: "), "{text}");
    let file = PolicyFile::new(MINIMAL);
    let nonsense: [&[&str]; 4] = [
        &["explain", "FG9999"],
        &["explain", "GET /"],
        &["explain", "-c", &file, "one two three"],
        &["explain", "-c", &file, "/", "-H", "no colon"],
    ];
    for arguments in nonsense {
        let output = command(arguments).await.expect("started");
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
    }
}
