const JSON: ContentDeclaration<'static> =
    ContentDeclaration { kind: HeaderLookup::One(b"application/json"), coding: HeaderLookup::Absent };

use proptest::{prelude::*, sample::subsequence};

use super::*;
use crate::{
    key::HeaderLookup,
    plan::{ClientOperationName, IdempotencyStore, OperationQuota},
};

struct FixedRequestValues<'a>(&'a BodyValues);

impl RequestValues for FixedRequestValues<'_> {
    fn request_host(&self) -> Option<&str> {
        Some("a.example")
    }
    fn body(&self) -> Option<&BodyValues> {
        Some(self.0)
    }
}

fn fence_with_keys(keys: &[impl AsRef<str>]) -> FenceRule {
    let keys = keys.iter().map(|key| KeyTemplate::parse(key.as_ref()).expect("a template"));
    FenceRule { set: true, hold: LockReusePolicy::Strict, ..FenceRule::with_defaults(keys.collect()) }
}

fn keys(fence: &FenceRule, body: &str) -> Result<Vec<String>, ExtractKeyError> {
    let body = fence.parse_body(&JSON, body.as_bytes()).expect("JSON");
    let keys = fence.expand_all(&FixedRequestValues(&body))?;
    Ok(keys.iter().map(ToString::to_string).collect())
}

/// The keys of a set are sorted, each once.
#[test]
fn key_set_is_sorted_and_unique() {
    let transfer = fence_with_keys(&["account/{body:/from}", "account/{body:/to | lower}"]);
    let two = |from, to| keys(&transfer, &format!(r#"{{"from": "{from}", "to": "{to}"}}"#));
    assert_eq!(two("b", "a").as_deref(), Ok(&["account/a".to_owned(), "account/b".into()][..]));
    assert_eq!(two("b", "a"), two("a", "b"));
    assert_eq!(two("a", "A").as_deref(), Ok(&["account/a".to_owned()][..]));
}

/// If one key of a set is missing, the request has no keys.
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
    assert!(fence_with_keys(&["{host}", "{form.a}"]).reads_body());
    assert!(!fence_with_keys(&["{host}", "a/{query.body}"]).reads_body());
}

/// A body for form keys is read in the form encoding that the request declares, and in no other format.
#[test]
fn form_keys_need_declared_form() {
    let transfer = fence_with_keys(&["account/{form.from}", "account/{form.to}"]);
    let said = |kind: &'static str| ContentDeclaration {
        kind: HeaderLookup::One(kind.as_bytes()),
        coding: HeaderLookup::Absent,
    };
    let form = said("application/x-www-form-urlencoded");
    let body = transfer.parse_body(&form, b"from=b&to=a").expect("a form");
    let keys = transfer.expand_all(&FixedRequestValues(&body)).expect("keys");
    assert_eq!(keys.iter().map(ResourceKey::as_str).collect::<Vec<_>>(), ["account/a", "account/b"]);
    assert_eq!(transfer.parse_body(&JSON, b"from=b&to=a"), Err(ParseBodyError::NoForm));
    let parts = said("multipart/form-data; boundary=b");
    assert_eq!(transfer.parse_body(&parts, b"from=b&to=a"), Err(ParseBodyError::UnclearParts));
}

/// With `exact_numbers`, every integer of 64 bits can be in a key.
#[test]
fn exact_numbers_are_values() {
    let fence = |exact_numbers| FenceRule { exact_numbers, ..fence_with_keys(&["order/{body:/id}"]) };
    let body = r#"{"id": 9007199254740993}"#;
    assert_eq!(keys(&fence(true), body), Ok(vec!["order/9007199254740993".into()]));
    assert!(matches!(keys(&fence(false), body), Err(ExtractKeyError::Invalid { .. })));
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
    assert_eq!(operation, Ok(Some(ClientOperationName { name: "7".into(), principal: "x".into() })));
    assert!(fence.once_rule("GET").is_none());
}

fn order(skus: &[String]) -> String {
    let items: Vec<_> = skus.iter().map(|sku| format!(r#"{{"sku": "{sku}"}}"#)).collect();
    format!(r#"{{"items": [{}]}}"#, items.join(", "))
}

fn skus(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("S{number:05}")).collect()
}

/// A request has a key for each item of its list, and at most `max_keys` keys from all lists of its fence.
#[test]
fn list_gives_key_for_each_item() {
    let reserve = fence_with_keys(&["sku/{body:/items/*/sku | lower}", "all/{host}"]);
    let three = keys(&reserve, &order(&["B".into(), "a".into(), "b".into()]));
    assert_eq!(three, Ok(vec!["all/a.example".into(), "sku/a".into(), "sku/b".into()]));
    let of = |count: usize, max_keys: usize| {
        keys(&FenceRule { max_keys, ..fence_with_keys(&["sku/{body:/items/*/sku}"]) }, &order(&skus(count)))
    };
    assert_eq!(of(16, 16).map(|keys| keys.len()), Ok(16));
    assert_eq!(of(64, 64).map(|keys| keys.len()), Ok(64));
    for (count, most) in [(17, 16), (64, 16), (65, 64), (66, 64), (5000, 64)] {
        assert_eq!(of(count, most), Err(ExtractKeyError::TooManyKeys { count, most }));
    }
}

/// A key template can take several values from each item of a list, and gives a key for each item.
#[test]
fn joined_values_are_of_one_item() {
    let line = fence_with_keys(&["stock/{body:/lines/*/house}:{body:/lines/*/sku | lower}"]);
    let body = r#"{"lines": [{"house": "w1", "sku": "A"}, {"sku": "b", "house": "w2"}, {"house": "w1", "sku": "a"}]}"#;
    assert_eq!(keys(&line, body), Ok(vec!["stock/w1:a".into(), "stock/w2:b".into()]));
    let twice = fence_with_keys(&["{body:/lines/*/sku}:{body:/lines/*/sku | lower}:{body:/shop}"]);
    let body = r#"{"shop": 7, "lines": [{"sku": "A"}, {"sku": "b"}]}"#;
    assert_eq!(keys(&twice, body), Ok(vec!["A:a:7".into(), "b:b:7".into()]));
    for (body, variable) in [
        (r#"{"lines": [{"house": "w1"}]}"#, "body:/lines/*/sku"),
        (r#"{"lines": [{"sku": "a"}, {"sku": "b", "house": "w2"}]}"#, "body:/lines/*/house"),
        (r#"{"lines": [{"sku": "a"}, {"house": "w2"}]}"#, "body:/lines/*/house"),
        (r#"{"lines": [{"sku": "a", "house": [1]}]}"#, "body:/lines/*/house"),
    ] {
        let refused = keys(&line, body);
        assert!(
            matches!(&refused, Err(ExtractKeyError::Invalid { variable: named, .. }) if named == variable),
            "{body}: {refused:?}"
        );
    }
    let empty = Err(ExtractKeyError::EmptyList { variable: "body:/lines/*/house".into() });
    assert_eq!(keys(&line, r#"{"lines": []}"#), empty);
    let many: Vec<_> = (0..80)
        .map(|number| format!(r#"{{"house": "w{}", "sku": "s{}"}}"#, number % 8, number / 8))
        .collect();
    let many = format!(r#"{{"lines": [{}]}}"#, many.join(","));
    assert_eq!(keys(&line, &many), Err(ExtractKeyError::TooManyKeys { count: 80, most: 16 }));
}

proptest! {
    /// The keys contain the combination of values of each item, and no other combination, even if items repeat
    /// values of each other.
    #[test]
    fn joined_values_make_no_combinations(items in prop::collection::vec((0..3_u8, 0..3_u8, any::<bool>()), 1..12)) {
        let line = fence_with_keys(&["{body:/l/*/a}:{body:/l/*/b}"]);
        let text = |(a, b, swapped): &(u8, u8, bool)| match swapped {
            true => format!(r#"{{"b": {b}, "a": {a}}}"#),
            false => format!(r#"{{"a": {a}, "b": {b}}}"#),
        };
        let body = format!(r#"{{"l": [{}]}}"#, items.iter().map(text).collect::<Vec<_>>().join(","));
        let mut wanted: Vec<_> = items.iter().map(|(a, b, _)| format!("{a}:{b}")).collect();
        wanted.sort();
        wanted.dedup();
        prop_assert_eq!(keys(&line, &body), Ok(wanted));
    }
}

/// A list that is too long for any set of keys is refused, even if it has only few values after the filters.
#[test]
fn cut_list_is_refused() {
    let reserve = fence_with_keys(&["sku/{body:/items/*/sku | int}"]);
    let spellings: Vec<_> = (1..=80).map(|zeros| format!("{}7", "0".repeat(zeros % 38))).collect();
    assert_eq!(keys(&reserve, &order(&spellings)), Ok(vec!["sku/7".into()]), "38 spellings");
    let more: Vec<_> = (0..100).map(|number| format!("{number}")).collect();
    assert_eq!(keys(&reserve, &order(&more)), Err(ExtractKeyError::TooManyKeys { count: 100, most: 16 }));
    let lower = fence_with_keys(&["sku/{body:/items/*/sku | lower}"]);
    let cases: Vec<_> = (0..128_usize)
        .map(|bits| (0..7).map(|at| if bits >> at & 1 == 0 { 'a' } else { 'A' }).collect::<String>())
        .collect();
    assert_eq!(keys(&lower, &order(&cases)), Err(ExtractKeyError::TooManyKeys { count: 128, most: 16 }));
}

/// The keys of one request must fit into one header field.
#[test]
fn total_length_of_set_is_limited() {
    let reserve = FenceRule { max_keys: 64, ..fence_with_keys(&["{body:/items/*/sku}"]) };
    let long = |count: usize, length: usize| -> Vec<String> {
        (0..count).map(|number| format!("{number:0length$}")).collect()
    };
    assert_eq!(keys(&reserve, &order(&long(16, 512))).map(|keys| keys.len()), Ok(16));
    assert_eq!(keys(&reserve, &order(&long(64, 128))).map(|keys| keys.len()), Ok(64));
    assert_eq!(keys(&reserve, &order(&long(64, 129))), Err(ExtractKeyError::SetTooLong { length: 64 * 129 }));
}

/// A request with an empty or absent list has no key, and is refused unless the fence lets it pass.
#[test]
fn empty_list_is_refused_unless_passed() {
    let refusing = fence_with_keys(&["sku/{body:/items/*/sku}"]);
    let passing = FenceRule { empty: EmptyListPolicy::Pass, ..refusing.clone() };
    let beside = FenceRule {
        empty: EmptyListPolicy::Pass,
        ..fence_with_keys(&["sku/{body:/items/*/sku}", "order/{body:/id}"])
    };
    for body in [r#"{"id": 7, "items": []}"#, r#"{"id": 7, "items": null}"#, r#"{"id": 7}"#] {
        let empty = ExtractKeyError::EmptyList { variable: "body:/items/*/sku".into() };
        assert_eq!(keys(&refusing, body), Err(empty), "{body}");
        assert_eq!(keys(&passing, body), Ok(Vec::new()), "{body}");
        assert_eq!(keys(&beside, body), Ok(vec!["order/7".into()]), "{body}");
    }
    for body in [r#"{"items": {}}"#, r#"{"items": [{}]}"#, r#"{"items": "S1"}"#, r#"{"items": [null]}"#] {
        assert!(matches!(keys(&passing, body), Err(ExtractKeyError::Invalid { .. })), "{body}");
    }
}

/// A migrated fence takes both the new and the former key of each item.
#[test]
fn migrated_list_has_both_keys_of_each_item() {
    let former = FormerLock {
        key: KeyTemplate::parse("stock/{body:/items/*/sku}").expect("a template"),
        placing: LockPlacement::Native,
    };
    let fence = FenceRule { former: Some(former), ..fence_with_keys(&["sku/{body:/items/*/sku}"]) };
    let both = keys(&fence, &order(&skus(16))).expect("16 and 16");
    assert_eq!(both.len(), 32);
    assert!(both.is_sorted() && both.contains(&"stock/S00007".into()) && both.contains(&"sku/S00007".into()));
    let count = 17;
    assert_eq!(keys(&fence, &order(&skus(count))), Err(ExtractKeyError::TooManyKeys { count, most: 16 }));
}

/// With `by-method`, GET and HEAD are shared, and every other method is exclusive.
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
    /// Two requests with a common resource have a common key, whatever their other resources are.
    #[test]
    fn common_item_gives_common_key(
        one in prop::collection::vec("[a-f]|[0-9]{1,3}", 1..20),
        other in prop::collection::vec("[a-f]|[0-9]{1,3}", 1..20),
        padded: bool,
    ) {
        let fence = fence_with_keys(&["sku/{body:/items/*/sku}"]);
        let other_body = match padded {
            true => order(&other).replace("[{", "[ {\"qty\": 1, ").replace("}, {", "},\n{"),
            false => order(&other),
        };
        let found = (keys(&fence, &order(&one)), keys(&fence, &other_body));
        if let (Ok(mine), Ok(theirs)) = found {
            let common = one.iter().any(|sku| other.contains(sku));
            prop_assert_eq!(mine.iter().any(|key| theirs.contains(key)), common);
            let is_locked = |sku: &String| mine.contains(&["sku/", sku.as_str()].concat());
            prop_assert!(mine.len() <= 16 && one.iter().all(is_locked));
        }
    }

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
