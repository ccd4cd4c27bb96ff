//! The results of spellings next to a request.

use bytes::Bytes;
use fencegate_policies::file;

use crate::explain::{
    RequestExplanation, RespelledRequestExplanation, RespellingOutcome, SampleRequest, explain_with_variants,
};

const POLICY: &str = r#"
version: 1
listeners:
  public: {address: 127.0.0.1:8080}
zookeeper:
  servers: [127.0.0.1:2181]
upstreams:
  shop:
    endpoints: ["http://127.0.0.1:8000"]
    fencing: none
    response_timeout: 8s
routes:
  - name: order
    upstream: shop
    match: {methods: [POST], path: "/orders/{order_id}"}
    fence: {key: "order/{path.order_id | int}"}
  - name: note
    upstream: shop
    match: {methods: [POST], path: "/notes/{note_id}"}
    fence: {key: "note/{path.note_id}"}
  - name: reserve
    upstream: shop
    match: {methods: [POST], path: /reservations}
    fence: {keys: ["sku/{body:/items/*/sku}", "cart/{body:/cart}"]}
  - name: payout
    upstream: shop
    match: {methods: [POST], path: /payouts}
    fence: {key: "payout/{host}/{header.x-merchant}/{query.currency}"}
  - name: capture
    upstream: shop
    match: {methods: [POST], path: "/captures/{id}"}
    fence: {key: "capture/{path.id | int}", once: {}}
  - name: pay
    upstream: shop
    match: {methods: [POST], path: /pay}
    fence: {keys: ["payer/{form.payer | int}", "sku/{form.sku*}"]}
  - name: rest
    upstream: shop
    match: {path: "/files/{rest...}"}
    fence: none
unmatched: {pass: shop}
"#;

fn explained(line: &str, fields: &[&str], body: &'static str) -> RequestExplanation {
    let plan = file::load(POLICY).plan.expect("a sound policy");
    let fields: Vec<_> = fields.iter().map(|&field| field.to_owned()).collect();
    let sample = SampleRequest::new(line, "shop.example", &fields, Bytes::from_static(body.as_bytes()));
    explain_with_variants(&plan, &sample.expect("a request")).expect("a runtime")
}

fn variant<'e>(explained: &'e RequestExplanation, spelling: &str) -> &'e RespelledRequestExplanation {
    let mut all = explained.variants.iter().flatten();
    let found = all.find(|variant| variant.spelling == spelling);
    found.unwrap_or_else(|| panic!("{spelling} of {:#?}", explained.variants))
}

#[track_caller]
fn assert_outcomes(explained: &RequestExplanation, expected: &[(&str, RespellingOutcome)]) {
    for (spelling, outcome) in expected {
        let variant = variant(explained, spelling);
        assert_eq!(variant.gives, *outcome, "{variant:#?}");
    }
}

/// A number in a path has the same key in each spelling, or is refused; another path is unfenced.
#[test]
fn spellings_of_number_in_path() {
    use RespellingOutcome::{Refused, SameKey, Unfenced};
    let order = explained("POST /orders/42", &[], "");
    assert_outcomes(
        &order,
        &[
            ("leading zero of `42`", SameKey),
            ("`42` percent-encoded", SameKey),
            ("`42` percent-encoded twice", Refused),
            ("trailing letter of `42`", Refused),
            ("suffix `.json` behind `42`", Refused),
            ("suffix `:cancel` behind `42`", Refused),
            ("encoded trailing slash behind `42`", Refused),
            ("doubled slash before `42`", Refused),
            ("other case of `orders`", Unfenced),
            ("`order_id` also in the query", SameKey),
            ("`order_id` also in the query, with another value", Refused),
        ],
    );
    let same = variant(&order, "leading zero of `42`");
    assert_eq!((&*same.written, &*same.keys), ("/orders/042", &["order/42".to_owned()][..]));
    let refused = variant(&order, "trailing letter of `42`");
    assert_eq!(refused.refused.as_ref().and_then(|refused| refused.reason), Some("key-invalid"));
}

/// A free text has another key for each spelling, and the explanation says so.
#[test]
fn spellings_of_free_text_in_path() {
    let note = explained("POST /notes/a7", &[], "");
    let other = variant(&note, "other case of `a7`");
    assert_eq!((other.gives, &*other.keys), (RespellingOutcome::AnotherKey, &["note/A7".to_owned()][..]));
    assert_outcomes(&note, &[("suffix `.json` behind `a7`", RespellingOutcome::AnotherKey)]);
    let text = note.to_string();
    assert!(text.contains("right only if the service takes the spelling for another resource"), "{text}");
    let row = text.lines().find(|line| line.contains("other case of `a7`")).expect("a row");
    assert!(row.contains("/notes/A7") && row.contains("another key") && row.ends_with("note/A7"), "{row}");
}

/// Spellings of values in a JSON body: in lists, and of members that are there twice or in another place.
#[test]
fn spellings_of_values_in_body() {
    use RespellingOutcome::{AnotherKey, MoreKeys, Refused, SameKey};
    let body = r#"{"cart": 7, "items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]}"#;
    let reserve = explained("POST /reservations", &["content-type: application/json"], body);
    assert_outcomes(
        &reserve,
        &[
            ("item twice in `/items/*/sku`", SameKey),
            ("list longer by one, `/items/*/sku`", MoreKeys),
            ("other case of `/items/*/sku`", AnotherKey),
            ("`/items/*/sku` twice, with another value", Refused),
            ("string in the place of `/cart`", SameKey),
            ("fraction of `/cart`", Refused),
            ("`/cart` also in other case, with another value", Refused),
            ("`/cart` also below another member, with another value", Refused),
            ("`cart` also in the query, with another value", Refused),
        ],
    );
    let longer = variant(&reserve, "list longer by one, `/items/*/sku`");
    let last = r#"{"cart":7,"items":[{"sku":"a","n":1},{"sku":"b","n":2},{"sku":"ax","n":2}]}"#;
    assert_eq!(longer.written, last);
    assert_eq!(longer.keys, ["cart/7", "sku/a", "sku/ax", "sku/b"]);
}

/// Spellings of header fields, of parameters and of the host.
#[test]
fn spellings_of_fields_and_parameters() {
    use RespellingOutcome::{AnotherKey, Refused, SameKey};
    let payout = explained("POST /payouts?currency=eur", &["x-merchant: m1"], "");
    assert_outcomes(
        &payout,
        &[
            ("field twice, `x-merchant`", Refused),
            ("underscores in the name `x-merchant`", Refused),
            ("other case of `m1`", AnotherKey),
            ("parameter twice, `currency`", Refused),
            ("other case of `eur`", AnotherKey),
            ("`eur` percent-encoded", SameKey),
            ("other case of the host", SameKey),
            ("host with a port", SameKey),
        ],
    );
}

/// Fields of a form have the spellings that parameters of a query have.
#[test]
fn spellings_of_form_fields() {
    use RespellingOutcome::{AnotherKey, MoreKeys, Refused, SameKey};
    let kind = "content-type: application/x-www-form-urlencoded";
    let pay = explained("POST /pay", &[kind], "payer=7&sku=a");
    assert_outcomes(
        &pay,
        &[
            ("leading zero of `7`", SameKey),
            ("`7` percent-encoded", SameKey),
            ("trailing letter of `7`", Refused),
            ("field twice, `payer`", Refused),
            ("other case of the name `payer`", Refused),
            ("`payer` also in the query, with another value", Refused),
            ("other case of `a`", AnotherKey),
            ("item twice in `sku`", SameKey),
            ("list longer by one, `sku`", MoreKeys),
        ],
    );
    assert_eq!(variant(&pay, "list longer by one, `sku`").written, "payer=7&sku=a&sku=ax");
}

/// Parts of a multipart form have the spellings that fields of a form have.
#[test]
fn spellings_of_parts() {
    use RespellingOutcome::{AnotherKey, MoreKeys, Refused, SameKey};
    const PARTS: &str = "--b\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\npayer\r\n\
        --b\r\nContent-Disposition: form-data; name=\"payer\"\r\n\r\n7\r\n\
        --b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\na\r\n--b--\r\n";
    let pay = explained("POST /pay", &["content-type: multipart/form-data; boundary=b"], PARTS);
    assert_outcomes(
        &pay,
        &[
            ("leading zero of `7`", SameKey),
            ("trailing letter of `7`", Refused),
            ("part twice, `payer`", Refused),
            ("other case of the name `payer`", Refused),
            ("brackets behind the name `payer`", Refused),
            ("other case of `a`", AnotherKey),
            ("item twice in `sku`", SameKey),
            ("list longer by one, `sku`", MoreKeys),
        ],
    );
    let another = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nax\r\n--b--";
    let longer = PARTS.replace("--b--", another);
    assert_eq!(variant(&pay, "list longer by one, `sku`").written, longer);
}

/// Another spelling of the name of an operation is no repeat of it, although it takes the same lock.
#[test]
fn spellings_of_operation_name() {
    use RespellingOutcome::{AnotherOperation, Refused, SameKey};
    let capture = explained("POST /captures/7", &["idempotency-key: a"], "");
    assert_outcomes(
        &capture,
        &[
            ("other case of `a`", AnotherOperation),
            ("field twice, `idempotency-key`", Refused),
            ("leading zero of `7`", SameKey),
        ],
    );
}

/// A request without a lock has spellings as well, and no advice about keys.
#[test]
fn unfenced_request_has_variants() {
    let read = explained("GET /files/a", &[], "");
    assert_outcomes(&read, &[("suffix `.xml` behind `a`", RespellingOutcome::Unfenced)]);
    assert!(!read.to_string().contains("right only if"));
    assert!(explained("OPTIONS *", &[], "").variants.is_some());
}

/// Each spelling is there once, and none is the request itself.
#[test]
fn spellings_are_distinct() {
    for (line, body) in
        [("POST /orders/42?order_id=42", ""), ("POST /notes/n/", "{}"), ("POST /notes/%6e", "")]
    {
        let all = explained(line, &[], body);
        let written: Vec<_> = all.variants.iter().flatten().map(|variant| &variant.written).collect();
        let distinct: std::collections::HashSet<_> = written.iter().collect();
        assert_eq!(written.len(), distinct.len(), "{written:?}");
        assert!(written.iter().all(|written| **written != all.target && **written != all.method));
    }
}
