const JSON: ContentDeclaration<'static> =
    ContentDeclaration { kind: HeaderLookup::One(b"application/json"), coding: HeaderLookup::Absent };

use proptest::{prelude::*, sample::subsequence};

use super::*;
use crate::{
    key::HeaderLookup,
    plan::{IdempotencyStore, OperationName, OperationQuota},
};

struct FixedRequestValues<'a>(&'a BodyValues);

impl RequestValues for FixedRequestValues<'_> {
    fn host(&self) -> Option<&str> {
        Some("a.example")
    }
    fn body(&self) -> Option<&BodyValues> {
        Some(self.0)
    }
}

fn fence_with_keys(keys: &[impl AsRef<str>]) -> FenceRule {
    let keys = keys.iter().map(|key| KeyTemplate::parse(key.as_ref()).expect("a template"));
    FenceRule { set: true, hold: HoldPolicy::Strict, ..FenceRule::with_defaults(keys.collect()) }
}

fn keys(fence: &FenceRule, body: &str) -> Result<Vec<String>, ExtractKeyError> {
    let body = fence.parse_body(&JSON, body.as_bytes()).expect("JSON");
    let keys = fence.expand_all(&FixedRequestValues(&body))?;
    Ok(keys.iter().map(ToString::to_string).collect())
}

/// A set is sorted and has each key once.
#[test]
fn key_set_is_sorted_and_unique() {
    let transfer = fence_with_keys(&["account/{body:/from}", "account/{body:/to | lower}"]);
    let two = |from, to| keys(&transfer, &format!(r#"{{"from": "{from}", "to": "{to}"}}"#));
    assert_eq!(two("b", "a").as_deref(), Ok(&["account/a".to_owned(), "account/b".into()][..]));
    assert_eq!(two("b", "a"), two("a", "b"));
    assert_eq!(two("a", "A").as_deref(), Ok(&["account/a".to_owned()][..]));
}

/// A set without one of its keys has none.
#[test]
fn missing_key_empties_set() {
    let transfer = fence_with_keys(&["account/{body:/from}", "account/{body:/to}"]);
    let missing = Err(ExtractKeyError::Missing { variable: "body:/to".into() });
    assert_eq!(keys(&transfer, r#"{"from": "a"}"#), missing);
}

/// A fence reads the body only if one of its keys needs it.
#[test]
fn only_body_keys_read_body() {
    assert!(fence_with_keys(&["{host}", "{body:/a}"]).reads_body());
    assert!(!fence_with_keys(&["{host}", "a/{query.body}"]).reads_body());
}

/// The body is also read for the name and the principal of an operation.
#[test]
fn operation_name_reads_body() {
    let template = |text| KeyTemplate::parse(text).expect("a template");
    let once = IdempotencyRule {
        store: IdempotencyStore::Guard,
        key: template("{body:/id}"),
        principal: Some(template("{body:/shop}")),
        scope: String::new(),
        required: true,
        keep: IdempotencyRule::KEEP,
        finals: Vec::new(),
        memory: OperationQuota { route: IdempotencyRule::SHARE, client: None },
    };
    let fence = FenceRule { once: Some(once), mode: LockModeRule::ByMethod, ..fence_with_keys(&["{host}"]) };
    assert!(fence.reads_body());
    let body = fence.parse_body(&JSON, br#"{"id": 7, "shop": "x"}"#).expect("JSON");
    let operation = fence.once_rule("POST").expect("operations").operation_name(&FixedRequestValues(&body));
    assert_eq!(operation, Ok(Some(OperationName { name: "7".into(), principal: "x".into() })));
    assert!(fence.once_rule("GET").is_none());
}

/// By method, GET and HEAD are shared, and every other method is exclusive.
#[test]
fn by_method_shares_safe_methods() {
    for method in ["GET", "HEAD"] {
        assert_eq!(LockModeRule::ByMethod.mode(method), LockMode::Shared, "{method}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND", "get", ""] {
        assert_eq!(LockModeRule::ByMethod.mode(method), LockMode::Exclusive, "{method}");
    }
    assert_eq!(LockModeRule::Shared.mode("POST"), LockMode::Shared);
    assert_eq!(LockModeRule::Exclusive.mode("GET"), LockMode::Exclusive);
}

const TEMPLATES: [&str; 5] =
    ["a/{body:/a}", "a/{body:/b}", "a/{body:/c | lower}", "the-one-lock", "{host}/{body:/c}"];

proptest! {
    #[test]
    fn order_of_set_is_irrelevant(
        (one, other) in subsequence(TEMPLATES.to_vec(), 1..=5)
            .prop_flat_map(|one| (Just(one.clone()), Just(one).prop_shuffle())),
        values in prop::collection::vec("[aA/]", 3),
    ) {
        let body = format!(r#"{{"a": "{}", "b": "{}", "c": "{}"}}"#, values[0], values[1], values[2]);
        let found = keys(&fence_with_keys(&one), &body);
        prop_assert_eq!(&found, &keys(&fence_with_keys(&other), &body));
        let found = found.expect("every value is there");
        prop_assert!(found.is_sorted_by(|key, next| key < next) && !found.is_empty());
    }
}
