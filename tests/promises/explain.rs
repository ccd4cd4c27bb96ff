//! What `explain` says of a request is what a running gateway does with it.

use std::{collections::BTreeSet, thread};

use bytes::Bytes;
use fencegate::explain::{self, Ask, Explained};
use fencegate_policies::{file, plan};
use fencegate_tests::{
    client::Raw,
    gateway::{Gateway, command, write_policy},
    origin::Record,
    policy::Policy,
    scratch,
    site::Site,
    wire::Message,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const MINIMAL: &str = include_str!("../../policies/examples/minimal.yaml");
const PAYMENTS: &str = include_str!("../../policies/examples/payments.yaml");
const INVENTORY: &str = include_str!("../../policies/examples/inventory.yaml");

/// An example, where this test has its servers. Who compares tokens is the recording upstream, not a guard.
fn local(example: &str, upstream: &str, site: &Site) -> Policy {
    let place = |field: &str| format!("/upstreams/{upstream}/{field}");
    let endpoint = format!("http://{}", site.origin.door("gw-1"));
    Policy::of_yaml(example)
        .with("/name", "gw-1")
        .with("/listeners/public/address", "127.0.0.1:0")
        .with("/admin", json!({"address": "127.0.0.1:0"}))
        .with("/zookeeper/servers", json!([site.zookeeper.to_string()]))
        .with("/zookeeper/root", site.root.as_str())
        .with("/zookeeper/session_timeout", "4s")
        .with("/zookeeper/tick", "200ms")
        .with("/zookeeper/safety_margin", Value::Null)
        .with("/state_dir", Value::Null)
        .with("/tickets", Value::Null)
        .with(&place("endpoints"), json!([endpoint]))
        .with(&place("fencing"), "upstream")
        .with(&place("direct"), Value::Null)
}

/// SplitMix64: the same requests in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).expect("fewer than sides")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

/// A request as it is spelled on the wire.
#[derive(Debug)]
struct Spelled {
    line: String,
    fields: Vec<String>,
    body: &'static str,
}

const METHODS: [&str; 12] =
    ["POST", "POST", "POST", "POST", "GET", "GET", "HEAD", "PUT", "DELETE", "post", "OPTIONS", "TRACE"];
const VALUES: [&str; 18] = [
    "42", "42", "%34%32", "A7", "a7", "%C3%A9", "a%20b", "a@b", "a%40b", "a%2Fb", "a;b", "..", "%2e%2e", "",
    "%zz", "x%00", "%ff", "a%252Fb",
];
const TAILS: [&str; 10] =
    ["", "", "", "", "/", "?currency=EUR", "?currency=%65ur", "?currency=a&currency=b", "?a;b", "?currency="];
const FIELDS: [&str; 17] = [
    "x-merchant-id: M1",
    "x-merchant-id:  m1 ",
    "X-Merchant-Id: M2",
    "x_merchant_id: M2",
    "connection: x-merchant-id, close-not",
    "fencing-token: v1-ffff",
    "Fencing_Key: order/1",
    "idempotency-key: ",
    "idempotency-key: \"quoted\"",
    "prefer: wait=1",
    "te: trailers",
    "keep-alive: timeout=5",
    "expect: 200-ok",
    "trailer: x",
    "host: Shop.Example.",
    "host: shop.example, other",
    "accept: */*",
];
const BODIES: [&str; 8] = [
    "",
    r#"{"sku": "A7", "from": "berlin", "to": "turin"}"#,
    r#"{"sku": "a7", "from": "turin", "to": "berlin", "pieces": 3}"#,
    r#"{"sku": "A7", "from": "turin", "to": "turin"}"#,
    r#"{"sku": 7, "from": null, "to": "turin"}"#,
    r#"{"Sku": "A7", "from": "berlin", "to": "turin"}"#,
    r#"{"sku": "A7", "sku": "A8", "from": "x", "to": "y"}"#,
    "from=berlin&to=turin",
];

/// Most of them plain, so that enough requests get as far as a lock.
fn value(dice: &mut Dice) -> &'static str {
    if dice.roll(4) > 0 { dice.one(&VALUES[..4]) } else { dice.one(&VALUES) }
}

impl Spelled {
    fn roll(dice: &mut Dice, number: usize, paths: &[&str]) -> Self {
        let path = dice.one(paths).replace("{}", value(dice)).replace("{2}", value(dice));
        let mut fields: Vec<String> = (0..dice.roll(4)).map(|_| dice.one(&FIELDS).to_owned()).collect();
        if dice.roll(3) > 0 {
            fields.push(format!("idempotency-key: key {number}"));
        }
        if dice.roll(2) > 0 {
            fields.push("x-merchant-id: M3".to_owned());
        }
        fields.push(format!("x-number: {number}"));
        let tail = if dice.roll(2) > 0 { "" } else { dice.one(&TAILS) };
        let line = format!("{} {path}{tail}", dice.one(&METHODS));
        Self { line, fields, body: dice.one(&BODIES) }
    }

    fn ask(&self, host: &str) -> Ask {
        Ask::new(&self.line, host, &self.fields, Bytes::from_static(self.body.as_bytes())).expect("a request")
    }

    fn bytes(&self, host: &str) -> Vec<u8> {
        let mut head = format!("{} HTTP/1.1\r\n", self.line);
        if !self.fields.iter().any(|field| field.starts_with("host:")) {
            head.push_str(&format!("host: {host}\r\n"));
        }
        for field in &self.fields {
            head.push_str(&format!("{field}\r\n"));
        }
        if !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        format!("{head}\r\n{}", self.body).into_bytes()
    }
}

async fn answer(gateway: &Gateway, spelled: &Spelled) -> Message {
    let mut connection = Raw::connect(gateway.public).await.expect("a connection");
    connection.say(spelled.bytes("gw.example")).await.expect("sent");
    let mut answer = connection.head().await.expect("an answer");
    if !spelled.line.starts_with("HEAD ") {
        connection.body(&mut answer).await.expect("a whole answer");
    }
    answer
}

/// What was said and what came, in the same words.
fn compare(said: &Explained, spelled: &Spelled, came: &Message, record: Option<&Record>) {
    let context = || format!("{spelled:?}\nsaid {said:#?}\ncame {came:?}\nrecorded {record:?}");
    let status: u16 = came.word(1).parse().expect("a status");
    match (&said.refused, said.answered, &said.sent) {
        (Some(refused), ..) => {
            assert_eq!((status, record.is_none()), (refused.status, true), "{}", context());
            if let (Some(reason), false) = (refused.reason, came.body.is_empty()) {
                let problem: Value = serde_json::from_slice(&came.body).expect("a problem");
                assert_eq!(problem["reason"], reason, "{}", context());
                assert_eq!(problem["outcome"], refused.outcome, "{}", context());
            }
        }
        (None, Some(answered), _) => {
            assert_eq!((status, record.is_none()), (answered, true), "{}", context());
        }
        (None, None, Some(sent)) => {
            let record = record.unwrap_or_else(|| panic!("nothing arrived\n{}", context()));
            assert_eq!(status, 200, "{}", context());
            assert_eq!(record.request.start, format!("{} {} HTTP/1.1", sent.method, sent.target));
            let keys =
                said.lock.as_ref().map(|lock| lock.keys.iter().map(|held| held.key.as_str()).collect());
            let keys: Option<Vec<&str>> = keys;
            assert_eq!(record.key(), keys.map(|keys| keys.join(", ")).as_deref(), "{}", context());
            assert_eq!(fields_of(record), expected(said, spelled), "{}", context());
        }
        (None, None, None) => panic!("said nothing: {}", context()),
    }
}

/// Lower case; a token counts as a token whichever it is.
fn fields_of(record: &Record) -> BTreeSet<(String, String)> {
    let plain = |(name, value): &(String, String)| match name.to_lowercase().as_str() {
        name @ "fencing-token" => (name.to_owned(), "<token>".to_owned()),
        name @ "fencing-number" => (name.to_owned(), "<number>".to_owned()),
        name @ "via" => (name.to_owned(), "<via>".to_owned()),
        name @ "x-forwarded-for" => (name.to_owned(), "<client>".to_owned()),
        name @ "traceparent" => (name.to_owned(), "<trace>".to_owned()),
        name @ "x-request-id" => (name.to_owned(), "<request>".to_owned()),
        name => (name.to_owned(), value.clone()),
    };
    record.request.fields.iter().map(plain).collect()
}

/// The client's own fields but for those that end here, and what was added.
fn expected(said: &Explained, spelled: &Spelled) -> BTreeSet<(String, String)> {
    let sent = said.sent.as_ref().expect("it is sent");
    let written = spelled.fields.iter().filter_map(|field| field.split_once(':'));
    let written = written.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    let length =
        (!spelled.body.is_empty()).then(|| ("content-length".to_owned(), spelled.body.len().to_string()));
    let host = ("host".to_owned(), "gw.example".to_owned());
    let named = written.clone().any(|(name, _)| name == "host");
    let kept = written.chain(length).chain((!named).then_some(host));
    let gone =
        |name: &String| sent.removed.contains(name) || sent.added.iter().any(|(added, _)| added == name);
    kept.filter(|(name, _)| !gone(name)).chain(sent.added.iter().cloned()).collect()
}

/// On a thread of its own, because it brings its own runtime.
pub(super) fn explained(plan: &plan::Gateway, ask: &Ask) -> Explained {
    let said = thread::scope(|scope| scope.spawn(|| explain::explain(plan, ask)).join());
    said.expect("no panic").expect("a runtime")
}

/// How many were sent upstream.
async fn agree(example: &str, upstream: &str, paths: &[&str], seed: u64, rolls: usize) -> usize {
    let site = Site::fresh().await;
    let policy = local(example, upstream, &site).with("/routes/0/fence/once/store", Value::Null);
    let policy = if example == PAYMENTS { policy } else { policy.with("/routes/0/fence/once", Value::Null) };
    let loaded = file::load(&policy.to_string());
    let plan: plan::Gateway = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let gateway = Gateway::start(&policy).await;
    let mut dice = Dice(seed);
    let mut sent = 0;
    for number in 0..rolls {
        let spelled = Spelled::roll(&mut dice, number, paths);
        let said = explained(&plan, &spelled.ask("gw.example"));
        let came = answer(&gateway, &spelled).await;
        let record = {
            let log = site.origin.log();
            let number = number.to_string();
            let mut records = log.records.iter();
            records.find(|record| record.request.field("x-number") == Some(&number)).cloned()
        };
        compare(&said, &spelled, &came, record.as_ref());
        sent += usize::from(said.sent.is_some());
    }
    sent
}

#[tokio::test]
async fn payments_are_explained_as_they_are_served() {
    let paths = ["/v1/orders/{}/capture", "/v1/orders/{}/capture", "/v1/payouts", "/v1/{}/{2}", "/{}", "*"];
    let sent = agree(PAYMENTS, "payments", &paths, 1, 80).await;
    assert!((10..=70).contains(&sent), "{sent} of 80 were sent: the dice prove little");
}

#[tokio::test]
async fn the_inventory_is_explained_as_it_is_served() {
    let paths = [
        "/warehouses/{}/skus/{2}/reservations",
        "/warehouses/{}/skus/{2}/count",
        "/warehouses/{}/skus/{2}",
        "/transfers",
        "/transfers",
        "/warehouses/{}/recount",
        "/warehouses/{}/{2}",
        "http://gw.example/warehouses/{}/skus/1",
    ];
    let sent = agree(INVENTORY, "stock", &paths, 2, 80).await;
    assert!((10..=70).contains(&sent), "{sent} of 80 were sent: the dice prove little");
}

#[tokio::test]
async fn the_least_policy_is_explained_as_it_is_served() {
    let sent = agree(MINIMAL, "orders", &["/orders/{}", "/orders/{}", "/orders/{}", "/{}//"], 3, 40).await;
    assert!((5..=35).contains(&sent), "{sent} of 40 were sent: the dice prove little");
}

#[tokio::test]
async fn the_command_says_it_in_text_and_in_json() {
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let file = write_policy(home.path(), PAYMENTS).display().to_string();
    let ask =
        ["explain", "-c", &file, "POST /v1/orders/%34%32/capture", "-H", "Idempotency-Key: a", "-d", "{}"];
    let output = command(&ask).await.expect("started");
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
    let output = command(&[&ask[..], &["--format", "json"]].concat()).await.expect("started");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["lock"]["keys"][0]["key"], "order/42", "{json}");
    assert_eq!(json["sent"]["target"], "/v1/orders/42/capture", "{json}");
}

#[tokio::test]
async fn a_code_has_its_story_and_nonsense_is_a_usage_error() {
    let output = command(&["explain", "fg0203"]).await.expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("FG0203: ") && text.contains("\nWhy: "), "{text}");
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    let file = write_policy(home.path(), MINIMAL).display().to_string();
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
