//! Tests which values are found in a body, and which texts are refused as a body.

use std::iter;

use proptest::prelude::*;

use super::*;

fn parse(json: impl AsRef<[u8]>, pointers: &[&str]) -> Result<JsonValues, ParseBodyError> {
    parse_up_to(json, pointers, JsonValues::LARGEST_IN_DOUBLE)
}

fn parse_up_to(
    json: impl AsRef<[u8]>,
    pointers: &[&str],
    largest: u64,
) -> Result<JsonValues, ParseBodyError> {
    let pointers: Vec<JsonPointer> =
        pointers.iter().map(|text| JsonPointer::parse(text).expect("a pointer")).collect();
    JsonValues::parse(json.as_ref(), pointers.iter(), iter::empty(), largest)
}

fn scalar_at(json: &str, pointer: &str) -> Option<JsonScalar> {
    let body = parse(json, &[pointer]).expect(json);
    body.value_at(&JsonPointer::parse(pointer).expect("a pointer")).cloned()
}

fn value(text: &str) -> Option<JsonScalar> {
    Some(JsonScalar::Text(text.into()))
}

fn integer(text: &str) -> Option<JsonScalar> {
    Some(JsonScalar::Integer(text.into()))
}

#[test]
fn pointer_finds_value_at_any_depth() {
    let json = r#"{"id": "a b", "n": {"": 7, "a/b": -1, "m~n": "yes"}, "o": {"0": "zero"}, "s": [1],
        "l": [1, ["x"], {"k": null}], "m": [0, ["x"]]}"#;
    for (pointer, leaf) in [
        ("/id", value("a b")),
        ("/n/", integer("7")),
        ("/n/a~1b", integer("-1")),
        ("/n/m~0n", value("yes")),
        ("/o/0", value("zero")),
        ("/s/0", integer("1")),
        ("/m/1/0", value("x")),
        ("/l/2/k", Some(JsonScalar::Null)),
        ("/l/3", None),
        ("/l/-", None),
        ("/s/00", None),
        ("/l/+0", None),
        ("/id/0", None),
        ("/none", None),
        ("/n", Some(JsonScalar::Unfit(UNFIT_SHAPE))),
        ("/m/1", Some(JsonScalar::Unfit(UNFIT_SHAPE))),
        ("/l", Some(JsonScalar::Unfit(UNFIT_SHAPE))),
    ] {
        assert_eq!(scalar_at(json, pointer), leaf, "{pointer}");
    }
}

#[test]
fn several_pointers_are_followed_at_once() {
    let body = parse(r#"{"a": {"b": 1, "c": 2}, "d": 3}"#, &["/a/c", "/d", "/a", "/a/c"]).expect("JSON");
    let leaf = |pointer| body.value_at(&JsonPointer::parse(pointer).expect("a pointer")).cloned();
    assert_eq!((leaf("/a/c"), leaf("/d")), (integer("2"), integer("3")));
    assert_eq!((leaf("/a"), leaf("/a/b")), (Some(JsonScalar::Unfit(UNFIT_SHAPE)), None));
}

/// Only numbers that all readers of JSON read alike are values.
#[test]
fn only_interoperable_numbers_are_values() {
    for number in ["0", "-1", "42", "9007199254740991", "-9007199254740991"] {
        assert_eq!(scalar_at(&format!("[{number}]"), "/0"), integer(number));
    }
    for number in [
        "-0",
        "1.0",
        "1e0",
        "1E2",
        "0.1",
        "9007199254740992",
        "-9007199254740992",
        "18446744073709551615",
        "18446744073709551616",
        "123456789012345678901234567890",
    ] {
        assert_eq!(
            scalar_at(&format!("[{number}]"), "/0"),
            Some(JsonScalar::Unfit(UNFIT_NUMBER)),
            "{number}"
        );
    }
}

/// With exact numbers every signed integer of 64 bits is a value, and no larger one.
#[test]
fn exact_integers_are_values_in_64_bits() {
    let exact = |number: &str| {
        let body = parse_up_to(format!("[{number}]"), &["/0"], JsonValues::LARGEST_IN_64_BITS).expect(number);
        body.value_at(&JsonPointer::parse("/0").expect("a pointer")).cloned()
    };
    for number in ["42", "9007199254740993", "9223372036854775807", "-9223372036854775807"] {
        assert_eq!(exact(number), integer(number));
    }
    for number in ["9223372036854775808", "-9223372036854775808", "18446744073709551616", "1.0", "-0", "1e3"]
    {
        assert_eq!(exact(number), Some(JsonScalar::Unfit(UNFIT_NUMBER)), "{number}");
    }
}

/// A boolean cannot be part of a key: `true` is the same dictionary key as 1 in Python, and the same text as 1
/// in PHP.
#[test]
fn boolean_is_no_part_of_key() {
    for boolean in ["true", "false"] {
        let found = scalar_at(&format!("[{boolean}]"), "/0").expect("a value");
        assert_eq!(found, JsonScalar::Boolean(boolean == "true"));
        assert!(matches!(found.key_text(), Err(ExtractValueError::Invalid(UNFIT_BOOLEAN))));
        assert_eq!(scalar_at(&format!("[\"{boolean}\"]"), "/0"), value(boolean));
    }
}

/// Values that no pointer names are not restricted.
#[test]
fn unrequested_json_is_unrestricted() {
    let json = r#"{"x": [1.5, -0, 1e300, {"y": null}], "X": {}, "id": 1, "": "\u0000\ud83d\ude00"}"#;
    assert_eq!(scalar_at(json, "/id"), integer("1"));
    assert_eq!(scalar_at(" 7\n", "/a"), None);
}

/// A body that is not JSON has no values.
#[test]
fn invalid_json_has_no_values() {
    for json in [
        &b""[..],
        b"a=1",
        b"{\"a\": 1",
        b"{\"a\": 1} x",
        b"{\"a\": 1}{}",
        b"{\"a\": 01}",
        b"{\"a\": +1}",
        b"{\"a\": 1.}",
        b"{\"a\": NaN}",
        b"{\"a\": 1e999}",
        b"{\"a\": 1,}",
        b"{a: 1}",
        b"{'a': 1}",
        b"// c\n{\"a\": 1}",
        b"{\"a\": \"\xff\"}",
        b"{\"a\": \"\t\"}",
        b"{\"a\": \"\\ud800\"}",
        b"\xef\xbb\xbf{\"a\": 1}",
    ] {
        assert_eq!(parse(json, &["/a"]), Err(ParseBodyError::NotJson), "{}", json.escape_ascii());
    }
}

/// Two members of the same name are refused, at any depth.
#[test]
fn duplicate_member_is_refused_anywhere() {
    for json in [
        r#"{"a": 1, "a": 1}"#,
        r#"{"a": 1, "b": [{"c": {"d": 1, "e": 2, "d": 3}}]}"#,
        r#"{"a": 1, "b": 2, "\u0061": 3}"#,
        r#"{"\u0062": 2, "b": 3}"#,
        r#"{"": 2, "": 3}"#,
    ] {
        assert_eq!(parse(json, &["/a"]), Err(ParseBodyError::DuplicateMember), "{json}");
    }
    assert!(parse(r#"[{"a": 1}, {"a": {"a": 2}}]"#, &["/1/a"]).is_ok());
}

/// A list with more items than its pointers name is refused.
#[test]
fn list_longer_than_pointers_is_refused() {
    let two = ["/l/0/id", "/l/1/id"];
    for json in [
        r#"{"l": [{"id": 1}, {"id": 2}, {"id": 3}]}"#,
        r#"{"l": [{"id": 1}, {"id": 2}, null]}"#,
        // PHP makes an array of these objects, so they count as lists.
        r#"{"l": {"0": {"id": 1}, "1": {"id": 2}, "2": {"id": 3}}}"#,
        r#"{"l": {"0": {"id": 1}, "1": {"id": 2}, "x": 3}}"#,
    ] {
        assert_eq!(parse(json, &two), Err(ParseBodyError::TooLong), "{json}");
    }
    for json in [
        r#"{"l": [{"id": 1}, {"id": 2}], "m": [1, 2, 3]}"#,
        r#"{"l": [{"id": 1, "x": [1, 2, 3]}]}"#,
        r#"{"l": {"0": {"id": 1}, "1": {"id": 2}}}"#,
        r#"{"l": []}"#,
        r#"{"l": "x", "m": {"l": [1, 2, 3]}}"#,
    ] {
        assert!(parse(json, &two).is_ok(), "{json}");
    }
    assert_eq!(parse("[[1, 2]]", &["/0/0"]), Err(ParseBodyError::TooLong));
    assert_eq!(parse("[1, 2]", &["/0"]), Err(ParseBodyError::TooLong));
    // An index that no list reaches names no item, so the list has no limit.
    assert!(parse("[1, 2]", &["/99999999999999999999999"]).is_ok());
}

fn list_at(json: &str, pointer: &str) -> Option<Result<(Vec<String>, usize), &'static str>> {
    let body = parse(json, &[pointer]).expect(json);
    let list = body.list_at(&JsonPointer::parse(pointer).expect("a pointer"))?;
    Some(match list.unfit_item_reason() {
        Some(reason) => Err(reason),
        None => Ok((list.values.iter().cloned().collect(), list.count)),
    })
}

/// A pointer with `*` gives the value of every item, each value once.
#[test]
fn star_leads_to_every_item() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    for (pointer, json, values, count) in [
        (
            "/items/*/sku",
            r#"{"items": [{"sku": "b", "n": 1}, {"sku": 7}, {"sku": "b"}]}"#,
            &["7", "b"][..],
            3,
        ),
        ("/items/*/sku", r#"{"items": []}"#, &[], 0),
        ("/*", r#"["b", "a"]"#, &["a", "b"], 2),
        ("/*/*", r#"[["a"], [], ["b", "c"]]"#, &["a", "b", "c"], 3),
        (
            "/orders/*/lines/*/sku",
            r#"{"orders": [{"lines": [{"sku": "a"}]}, {"lines": []}, {"lines": [{"sku": "b"}, {"sku": "a"}]}]}"#,
            &["a", "b"],
            3,
        ),
        ("/o/lines/*", r#"{"o": {"lines": [1, 2]}, "lines": [3]}"#, &["1", "2"], 2),
    ] {
        assert_eq!(list_at(json, pointer), Some(Ok((texts(values), count))), "{pointer} {json}");
    }
    for json in ["{}", r#"{"items": null}"#, r#"{"other": [{"sku": 1}]}"#, "null"] {
        assert_eq!(list_at(json, "/items/*/sku"), None, "{json}");
    }
}

/// A list in which an item has no value, or a value in the place of a list, gives no values.
#[test]
fn incomplete_list_is_unfit() {
    for json in [
        r#"{"items": [{"sku": "a"}, {}]}"#,
        r#"{"items": [{"sku": "a"}, null]}"#,
        r#"{"items": [{"sku": "a"}, {"sku": null}]}"#,
        r#"{"items": [null]}"#,
    ] {
        assert_eq!(list_at(json, "/items/*/sku"), Some(Err(UNFIT_ITEM)), "{json}");
    }
    for json in [
        r#"{"items": [{"sku": "a"}, "b"]}"#,
        r#"{"items": [{"sku": "a"}, ["b"]]}"#,
        r#"{"items": {"0": {"sku": "a"}}}"#,
        r#"{"items": {}}"#,
        r#"{"items": {"sku": "a"}}"#,
        r#"{"items": "a"}"#,
        r#"{"items": false}"#,
        r#"[{"items": [{"sku": "a"}]}]"#,
        r#""items""#,
    ] {
        assert_eq!(list_at(json, "/items/*/sku"), Some(Err(UNFIT_LIST)), "{json}");
    }
    for (json, reason) in [
        (r#"{"items": [{"sku": 1.5}]}"#, UNFIT_NUMBER),
        (r#"{"items": [{"sku": true}]}"#, UNFIT_BOOLEAN),
        (r#"{"items": [{"sku": ["a"]}]}"#, UNFIT_SHAPE),
        (r#"{"items": [{"sku": {}}]}"#, UNFIT_SHAPE),
    ] {
        assert_eq!(list_at(json, "/items/*/sku"), Some(Err(reason)), "{json}");
    }
    let orders = "/orders/*/lines/*/sku";
    assert_eq!(list_at(r#"{"orders": [{"lines": [{"sku": 1}]}, {}]}"#, orders), Some(Err(UNFIT_ITEM)));
    assert_eq!(list_at(r#"{"orders": [{"lines": null}]}"#, orders), Some(Err(UNFIT_ITEM)));
    assert_eq!(list_at(r#"{"orders": [{"lines": {"sku": 1}}]}"#, orders), Some(Err(UNFIT_LIST)));
    for (json, bad) in [
        (r#"{"items": [{"sku": "a", "SKU": "b"}]}"#, ParseBodyError::Respelled),
        (r#"{"items": [{"sku": "a"}], "Items": []}"#, ParseBodyError::Respelled),
        (r#"{"items": [{"sku": "a"}], "items": []}"#, ParseBodyError::DuplicateMember),
    ] {
        assert_eq!(parse(json, &["/items/*/sku"]), Err(bad), "{json}");
    }
}

/// A value is missing if objects or `null` end the way to it, and blocked if another value does.
#[test]
fn way_through_other_than_object_is_blocked() {
    let pointer = JsonPointer::parse("/order/kind").expect("a pointer");
    for (json, is_blocked) in [
        ("{}", false),
        (r#"{"order": null}"#, false),
        (r#"{"order": {}}"#, false),
        (r#"{"order": {"kind": 1}}"#, false),
        (r#"{"order": {"kind": [1]}}"#, false),
        (r#"{"x": [{"order": 1}]}"#, false),
        (r#"{"order": []}"#, true),
        (r#"{"order": [{"kind": 1}]}"#, true),
        (r#"{"order": "kind"}"#, true),
        (r#"{"order": 7}"#, true),
        (r#"{"order": false}"#, true),
        ("[]", true),
        ("7", true),
    ] {
        assert_eq!(parse(json, &["/order/kind"]).expect(json).is_blocked(&pointer), is_blocked, "{json}");
    }
    let item = JsonPointer::parse("/items/0/sku").expect("a pointer");
    let body = parse(r#"{"items": [{"sku": "a"}]}"#, &["/items/0/sku"]).expect("JSON");
    assert!(!body.is_blocked(&item));
}

fn rows_at(json: &str, pointers: &[&str]) -> (Vec<Vec<String>>, usize) {
    let pointers: Vec<JsonPointer> =
        pointers.iter().map(|text| JsonPointer::parse(text).expect("a pointer")).collect();
    let joined: Vec<&JsonPointer> = pointers.iter().collect();
    let largest = JsonValues::LARGEST_IN_DOUBLE;
    let body = JsonValues::parse(json.as_bytes(), pointers.iter(), iter::once(joined.clone()), largest);
    let body = body.expect(json);
    let rows = body.rows_at(&joined).expect("joined");
    (rows.values.iter().cloned().collect(), rows.count)
}

/// The values of joined pointers stay together for each item, in any order of its members.
#[test]
fn joined_pointers_have_values_of_one_item() {
    let row = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let lines = ["/lines/*/house", "/lines/*/sku/code"];
    let json = r#"{"lines": [{"house": "w1", "sku": {"code": "b"}}, {"sku": {"code": "a"}, "house": "w2"},
        {"house": "w1", "sku": {"code": "b", "n": 2}}]}"#;
    assert_eq!(rows_at(json, &lines), (vec![row(&["w1", "b"]), row(&["w2", "a"])], 3));
    let json = r#"{"orders": [{"lines": [{"a": 1, "b": 2}]}, {"lines": []}, {"lines": [{"b": 1, "a": 2}]}]}"#;
    let nested = ["/orders/*/lines/*/a", "/orders/*/lines/*/b"];
    assert_eq!(rows_at(json, &nested), (vec![row(&["1", "2"]), row(&["2", "1"])], 2));
    // An item that lacks a value leaves none of its values to the next item.
    let json =
        r#"{"lines": [{"sku": {"code": "a"}}, {"house": "w2"}, {"house": "w3", "sku": {"code": "c"}}]}"#;
    assert_eq!(rows_at(json, &lines), (vec![row(&["w3", "c"])], 1));
    assert_eq!(rows_at(r#"{"lines": []}"#, &lines), (Vec::new(), 0));
    let many = (0..1000).map(|number| format!(r#"{{"a": 1, "b": {number}}}"#)).collect::<Vec<_>>().join(",");
    let (rows, count) = rows_at(&format!("[{many}]"), &["/*/a", "/*/b"]);
    assert_eq!((rows.len(), count), (ResourceKey::MOST_IN_SET + 1, 1000));
}

/// Of a list that is too long for a set of keys, only a few values are kept, and all are counted.
#[test]
fn long_list_is_counted() {
    let skus = (0..100_000).map(|number| format!("\"{number}\"")).collect::<Vec<_>>().join(",");
    let (values, count) = list_at(&format!("[{skus}]"), "/*").expect("a list").expect("fit");
    assert_eq!((values.len(), count), (ResourceKey::MOST_IN_SET + 1, 100_000));
}

/// Another spelling of a member that a pointer names is refused.
#[test]
fn respelled_member_is_refused() {
    for json in [
        r#"{"kind": {"id": 1}, "Kind": {}}"#,
        r#"{"KIND": 1}"#,
        r#"{"kind": {"ID": 1, "id": 2}}"#,
        // U+212A is the Kelvin sign, which a case-insensitive reader takes for `k`.
        r#"{"\u212Aind": 1}"#,
        r#"{"kind ": 1}"#,
        r#"{"\ufeffkind": 1}"#,
        r#"{"\u0001kind\n": 1}"#,
    ] {
        assert_eq!(parse(json, &["/kind/id"]), Err(ParseBodyError::Respelled), "{json}");
    }
    assert!(parse(r#"{"kind": {"id": 1}, "x": {"Kind": 1, "ID": 2, "id": 3}}"#, &["/kind/id"]).is_ok());
}

/// A NUL in a name is refused at any depth, because some readers end the name there.
#[test]
fn nul_in_name_is_refused_anywhere() {
    for json in [
        r#"{"kind\u0000x": 2, "kind": {"id": 1}}"#,
        r#"{"kind": {"id": 1}, "kind\u0000x": 2}"#,
        r#"{"kind\u0000": 2}"#,
        r#"{"kind": {"id": 1, "id\u0000x": 2}}"#,
        r#"{"kind": {"id\u0000x": 2, "id": 1}}"#,
        r#"{"kind\u0000": {"id": 2}}"#,
        r#"{"kind": {"id": 1}, "x": [{"\u0000": 2}]}"#,
    ] {
        assert_eq!(parse(json, &["/kind/id"]), Err(ParseBodyError::NulInName), "{json}");
    }
}

fn nested_json(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

/// A body that is nested too deeply is refused.
#[test]
fn too_deep_body_is_refused() {
    assert!(parse(nested_json(DEEPEST), &["/a"]).is_ok());
    assert_eq!(scalar_at(&nested_json(DEEPEST).replace("[]", "[1]"), &"/0".repeat(DEEPEST)), integer("1"));
    for depth in [DEEPEST + 1, 100, 1_000_000] {
        assert_eq!(parse(nested_json(depth), &["/a"]), Err(ParseBodyError::TooDeep), "{depth}");
    }
    assert_eq!(parse("{\"a\":".repeat(100_000), &["/a"]), Err(ParseBodyError::TooDeep));
}

/// Of a body with many members only the requested values are kept.
#[test]
fn wide_body_keeps_requested_values_only() {
    let wide = format!("[{}7]", "0,".repeat(1 << 19));
    let body = parse(&wide, &[&format!("/{}", 1 << 19)]).expect("JSON");
    assert_eq!(body.leaves.len(), 1);
}

/// JSON that is never refused: with small integers, and names in lower case.
fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        "\\PC{0,4}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::hash_map("[a-z~/]{0,2}", inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
        if let Ok(body) = parse(&bytes, &["/a", "/0/a"]) {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
            prop_assert!(body.leaves.len() <= 2);
        }
    }

    #[test]
    fn json_like_text_parses_without_panic(
        text in "([\\[\\]{},:]|\"[aA0\\\\]{0,2}\"|-?[0-9]{1,2}(\\.[0-9])?(e[0-9])?|null|true| ){0,40}",
    ) {
        let sound = serde_json::from_str::<serde_json::Value>(&text).is_ok();
        let parsed = parse(&text, &["/a", "/0/a"]);
        let consistent = if sound { parsed != Err(ParseBodyError::NotJson) } else { parsed.is_err() };
        prop_assert!(consistent, "{:?}", parsed);
    }

    /// The values of a list are those that single pointers find in its items, or the list gives none.
    #[test]
    fn star_agrees_with_single_pointers(json in any_json(), inner: bool) {
        let (pointer, rest) = if inner { ("/a/*/b", "/b") } else { ("/a/*", "") };
        let text = serde_json::Value::Object([("a".to_owned(), json.clone())].into_iter().collect()).to_string();
        let each = json.as_array().map(|items| {
            items.iter().map(|item| item.pointer(rest).and_then(|value| match value {
                serde_json::Value::String(text) => Some(text.clone()),
                serde_json::Value::Number(number) => Some(number.to_string()),
                _ => None,
            })).collect::<Option<Vec<_>>>()
        });
        let found = list_at(&text, pointer);
        match each {
            Some(Some(values)) => {
                let count = values.len();
                let wanted: Vec<_> = BTreeSet::from_iter(values).into_iter().collect();
                prop_assert_eq!(found, Some(Ok((wanted, count))));
            }
            None if json.is_null() => prop_assert_eq!(found, None),
            _ => prop_assert!(matches!(found, Some(Err(_))), "{:?}", found),
        }
    }

    /// A pointer finds the same value as in `serde_json`.
    #[test]
    fn pointer_agrees_with_other_implementation(
        json in any_json(),
        pointer in "(/([a-z]|~0|~1|[0-3]){0,2}){1,3}",
        pretty: bool,
    ) {
        // Whether some list, or an object in its place, has more items than the pointer names.
        let longer = pointer.match_indices('/').any(|(at, _)| {
            let named = JsonPointer::parse(&pointer[at..]).ok().and_then(|rest| rest.steps()[0].index());
            let length = match json.pointer(&pointer[..at]) {
                Some(serde_json::Value::Array(items)) => items.len(),
                Some(serde_json::Value::Object(members)) => members.len(),
                _ => 0,
            };
            named.is_some_and(|named| length > named + 1)
        });
        let text = if pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) };
        let wanted = json.pointer(&pointer).map(|value| match value {
            serde_json::Value::Null => JsonScalar::Null,
            serde_json::Value::String(text) => JsonScalar::Text(text.clone()),
            serde_json::Value::Bool(value) => JsonScalar::Boolean(*value),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => JsonScalar::Unfit(UNFIT_SHAPE),
            other => JsonScalar::Integer(other.to_string()),
        });
        let text = text.expect("written");
        if longer {
            prop_assert_eq!(parse(&text, &[&pointer]), Err(ParseBodyError::TooLong));
        } else {
            prop_assert_eq!(scalar_at(&text, &pointer), wanted);
        }
    }
}
