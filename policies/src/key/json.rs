//! Reads a JSON body once, and keeps the few values of it that keys ask for.
//!
//! A body that two readers could take for different values has no key. That is one with two members of one name, at
//! any depth; one that has the member asked for in a second spelling, as some readers do not care about case; one
//! with a number, where it is asked for, that not every reader takes for the same.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::Pointer;

/// The values of one body that the keys of one fence ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    leaves: Vec<(Pointer, Leaf)>,
}

/// What stands where a pointer points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leaf {
    Null,
    /// A string; or an integer or a boolean in its only spelling.
    Value(String),
    /// And why it cannot be part of a key.
    Unfit(&'static str),
}

/// Why no key can be taken from a body. The client is at fault; no message repeats what the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body has an object with two members of one name")]
    Twice,
    #[error(
        "the body has a member that a key asks for in a second spelling, which some servers take for the same"
    )]
    Respelled,
    #[error("the body is nested deeper than {DEEPEST} levels")]
    TooDeep,
}

/// Objects and lists within each other. Nothing that names a resource is deeper, and a reader that calls itself for
/// each level has to stop somewhere.
pub(super) const DEEPEST: usize = 32;

impl Body {
    /// Memory is bounded by the member names and by what `pointers` ask for, however many values there are.
    pub(crate) fn parse<'p>(
        bytes: &[u8],
        pointers: impl Iterator<Item = &'p Pointer>,
    ) -> Result<Self, BadBody> {
        let mut findings = Findings { body: Self::default(), bad: None };
        let root = Walk { asked: pointers.collect(), depth: 0, findings: &mut findings };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        match root.deserialize(&mut json).and_then(|()| json.end()) {
            Ok(()) => Ok(findings.body),
            Err(_) => Err(findings.bad.unwrap_or(BadBody::NotJson)),
        }
    }

    /// `None` where nothing stands there, or nobody asked for it when the body was read.
    pub(super) fn at(&self, pointer: &Pointer) -> Option<&Leaf> {
        self.leaves.iter().find(|(known, _)| known == pointer).map(|(_, leaf)| leaf)
    }
}

/// What has been found so far.
struct Findings {
    body: Body,
    /// Why the walk was given up, where it was not the parser that gave up.
    bad: Option<BadBody>,
}

/// One value on its way through the parser.
struct Walk<'w, 'p> {
    /// The pointers that lead here, or on from here.
    asked: Vec<&'p Pointer>,
    /// How many of their names have been followed.
    depth: usize,
    findings: &'w mut Findings,
}

impl<'p> Walk<'_, 'p> {
    /// Keeps the value if a pointer ends here.
    fn keep(self, leaf: impl FnOnce() -> Leaf) {
        if let Some(pointer) = self.asked.into_iter().find(|pointer| pointer.names().len() == self.depth) {
            self.findings.body.leaves.push((pointer.clone(), leaf()));
        }
    }

    fn within(&mut self, asked: Vec<&'p Pointer>) -> Walk<'_, 'p> {
        Walk { asked, depth: self.depth + 1, findings: self.findings }
    }

    /// The pointers that go on with `name`, and whether one goes on with another spelling of it.
    fn asked_for(&self, name: &str) -> (Vec<&'p Pointer>, bool) {
        let next = |pointer: &&&'p Pointer| pointer.names().get(self.depth).map(|next| &**next);
        let asked = self.asked.iter().filter(|pointer| next(pointer) == Some(name)).copied().collect();
        let other = |next: &str| next != name && folded(next).eq(folded(name));
        (asked, self.asked.iter().any(|pointer| next(&pointer).is_some_and(other)))
    }

    fn give_up<E: Error>(self, why: BadBody) -> E {
        self.findings.bad = Some(why);
        E::custom(why)
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.keep(|| Leaf::Null);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.keep(|| Leaf::Value(value.to_string()));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.keep(|| integer(value, value.to_string()));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.keep(|| integer(value.unsigned_abs(), value.to_string()));
        Ok(())
    }

    /// A fraction, an exponent, `-0`, or more than 64 bits.
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.keep(|| Leaf::Unfit(UNFIT_NUMBER));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.keep(|| Leaf::Value(value.to_owned()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(self.give_up(BadBody::TooDeep));
        }
        for index in 0_usize.. {
            let asked = match self.asked.is_empty() {
                true => Vec::new(),
                false => self.asked_for(&index.to_string()).0,
            };
            if items.next_element_seed(self.within(asked))?.is_none() {
                break;
            }
        }
        self.keep(|| Leaf::Unfit(UNFIT_SHAPE));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        if self.depth == DEEPEST {
            return Err(self.give_up(BadBody::TooDeep));
        }
        let mut names = HashSet::new();
        while let Some(Name(name)) = members.next_key()? {
            let (asked, respelled) = self.asked_for(&name);
            if respelled {
                return Err(self.give_up(BadBody::Respelled));
            }
            if !names.insert(name) {
                return Err(self.give_up(BadBody::Twice));
            }
            members.next_value_seed(self.within(asked))?;
        }
        self.keep(|| Leaf::Unfit(UNFIT_SHAPE));
        Ok(())
    }
}

/// The name of a member, copied only where it has escapes.
#[derive(PartialEq, Eq, Hash, Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

const UNFIT_NUMBER: &str = "is a number that not every reader of JSON takes for the same integer";
const UNFIT_SHAPE: &str = "is an object or a list";

/// Readers whose numbers are doubles take integers beyond this for their neighbours (RFC 7493, 2.2).
const EXACT: u64 = (1 << 53) - 1;

fn integer(magnitude: u64, text: String) -> Leaf {
    if magnitude <= EXACT { Leaf::Value(text) } else { Leaf::Unfit(UNFIT_NUMBER) }
}

/// Equal for names that a reader without regard to case takes for one.
fn folded(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(json: impl AsRef<[u8]>, pointers: &[&str]) -> Result<Body, BadBody> {
        let pointers: Vec<Pointer> =
            pointers.iter().map(|text| Pointer::parse(text).expect("a pointer")).collect();
        Body::parse(json.as_ref(), pointers.iter())
    }

    fn at(json: &str, pointer: &str) -> Option<Leaf> {
        let body = parse(json, &[pointer]).expect(json);
        body.at(&Pointer::parse(pointer).expect("a pointer")).cloned()
    }

    fn value(text: &str) -> Option<Leaf> {
        Some(Leaf::Value(text.into()))
    }

    #[test]
    fn a_pointer_finds_its_value_wherever_it_is() {
        let json = r#"{"id": "a b", "n": {"": 7, "a/b": -1, "m~n": true, "0": "zero"}, "l": [1, ["x"], {"k": null}]}"#;
        for (pointer, leaf) in [
            ("/id", value("a b")),
            ("/n/", value("7")),
            ("/n/a~1b", value("-1")),
            ("/n/m~0n", value("true")),
            ("/n/0", value("zero")),
            ("/l/0", value("1")),
            ("/l/1/0", value("x")),
            ("/l/2/k", Some(Leaf::Null)),
            ("/l/3", None),
            ("/l/-", None),
            ("/l/00", None),
            ("/l/+0", None),
            ("/id/0", None),
            ("/none", None),
            ("/n", Some(Leaf::Unfit(UNFIT_SHAPE))),
            ("/l/1", Some(Leaf::Unfit(UNFIT_SHAPE))),
        ] {
            assert_eq!(at(json, pointer), leaf, "{pointer}");
        }
    }

    #[test]
    fn several_pointers_are_followed_at_once() {
        let body = parse(r#"{"a": {"b": 1, "c": 2}, "d": 3}"#, &["/a/c", "/d", "/a", "/a/c"]).expect("JSON");
        let leaf = |pointer| body.at(&Pointer::parse(pointer).expect("a pointer")).cloned();
        assert_eq!((leaf("/a/c"), leaf("/d")), (value("2"), value("3")));
        assert_eq!((leaf("/a"), leaf("/a/b")), (Some(Leaf::Unfit(UNFIT_SHAPE)), None));
    }

    #[test]
    fn only_numbers_that_all_readers_agree_on_are_values() {
        for number in ["0", "-1", "42", "9007199254740991", "-9007199254740991"] {
            assert_eq!(at(&format!("[{number}]"), "/0"), value(number));
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
            assert_eq!(at(&format!("[{number}]"), "/0"), Some(Leaf::Unfit(UNFIT_NUMBER)), "{number}");
        }
    }

    #[test]
    fn what_nobody_asks_for_may_be_any_json() {
        let json = r#"{"x": [1.5, -0, 1e300, {"y": null}], "X": {}, "id": 1, "": "\u0000\ud83d\ude00"}"#;
        assert_eq!(at(json, "/id"), value("1"));
        assert_eq!(parse(" 7\n", &["/a"]), Ok(Body::default()));
    }

    #[test]
    fn a_body_that_is_not_json_has_no_values() {
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
            assert_eq!(parse(json, &["/a"]), Err(BadBody::NotJson), "{}", json.escape_ascii());
        }
    }

    #[test]
    fn two_members_of_one_name_are_refused_wherever_they_are() {
        for json in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": 1, "b": [{"c": {"d": 1, "e": 2, "d": 3}}]}"#,
            r#"{"a": 1, "b": 2, "\u0061": 3}"#,
            r#"{"\u0062": 2, "b": 3}"#,
            r#"{"": 2, "": 3}"#,
        ] {
            assert_eq!(parse(json, &["/a"]), Err(BadBody::Twice), "{json}");
        }
        assert!(parse(r#"[{"a": 1}, {"a": {"a": 2}}]"#, &["/0/a"]).is_ok());
    }

    #[test]
    fn a_second_spelling_of_what_is_asked_for_is_refused() {
        for json in [
            r#"{"kind": {"id": 1}, "Kind": {}}"#,
            r#"{"KIND": 1}"#,
            r#"{"kind": {"ID": 1, "id": 2}}"#,
            // U+212A is the Kelvin sign, which is a `k` to a reader without regard to case.
            r#"{"\u212Aind": 1}"#,
        ] {
            assert_eq!(parse(json, &["/kind/id"]), Err(BadBody::Respelled), "{json}");
        }
        assert!(parse(r#"{"kind": {"id": 1}, "x": {"Kind": 1, "ID": 2, "id": 3}}"#, &["/kind/id"]).is_ok());
    }

    fn nested(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn a_body_that_is_too_deep_is_given_up() {
        assert!(parse(nested(DEEPEST), &["/a"]).is_ok());
        assert_eq!(at(&nested(DEEPEST).replace("[]", "[1]"), &"/0".repeat(DEEPEST)), value("1"));
        for depth in [DEEPEST + 1, 100, 1_000_000] {
            assert_eq!(parse(nested(depth), &["/a"]), Err(BadBody::TooDeep), "{depth}");
        }
        assert_eq!(parse("{\"a\":".repeat(100_000), &["/a"]), Err(BadBody::TooDeep));
    }

    #[test]
    fn a_wide_body_leaves_nothing_but_what_was_asked_for() {
        let wide = format!("[{}7]", "0,".repeat(1 << 19));
        let body = parse(&wide, &[&format!("/{}", 1 << 19)]).expect("JSON");
        assert_eq!(body.leaves.len(), 1);
    }

    /// Nothing in it is refused: small integers, and names in lower case.
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
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            if let Ok(body) = parse(&bytes, &["/a", "/0/a"]) {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
                prop_assert!(body.leaves.len() <= 2);
            }
        }

        #[test]
        fn anything_like_json_is_read_without_a_panic(
            text in "([\\[\\]{},:]|\"[aA0\\\\]{0,2}\"|-?[0-9]{1,2}(\\.[0-9])?(e[0-9])?|null|true| ){0,40}",
        ) {
            let sound = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let parsed = parse(&text, &["/a", "/0/a"]);
            let consistent = if sound { parsed != Err(BadBody::NotJson) } else { parsed.is_err() };
            prop_assert!(consistent, "{:?}", parsed);
        }

        /// What a pointer means is not ours to decide.
        #[test]
        fn a_pointer_finds_what_others_find(
            json in any_json(),
            pointer in "(/([a-z]|~0|~1|[0-3]){0,2}){1,3}",
            pretty: bool,
        ) {
            let text = if pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) };
            let wanted = json.pointer(&pointer).map(|value| match value {
                serde_json::Value::Null => Leaf::Null,
                serde_json::Value::String(text) => Leaf::Value(text.clone()),
                serde_json::Value::Array(_) | serde_json::Value::Object(_) => Leaf::Unfit(UNFIT_SHAPE),
                other => Leaf::Value(other.to_string()),
            });
            prop_assert_eq!(at(&text.expect("written"), &pointer), wanted);
        }
    }
}
