//! Finds the members of the outermost object of a JSON body that have a wanted name, and the values to which pointers
//! lead inside of another member.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{json::fold_name, pointer::PointerStep};

/// The name of the parameter in which Rails has a JSON body that is no object.
pub(super) const ROOT: &str = "_json";

/// The value of a member, as far as it can be compared with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonMemberValue {
    Null,
    /// A string, an integer or a boolean.
    Text(String),
    /// A fraction, an object or a list.
    Other,
}

/// Calls `found` with the name and value of each member whose name `asks` accepts. A body that is no object counts as a
/// member [`ROOT`].
///
/// # Errors
/// Returns an error if the body is not JSON in UTF-8.
pub(super) fn visit_members(
    body: &[u8],
    asks: impl Fn(&str) -> bool,
    found: impl FnMut(&str, JsonMemberValue),
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(body);
    json.deserialize_any(JsonMembersVisitor { asks, found })?;
    json.end()
}

struct JsonMembersVisitor<A, F> {
    asks: A,
    found: F,
}

impl<A: Fn(&str) -> bool, F: FnMut(&str, JsonMemberValue)> JsonMembersVisitor<A, F> {
    /// Reports the body as a value, because it is no object.
    fn report_root_value<E>(mut self, value: JsonMemberValue) -> Result<(), E> {
        if (self.asks)(ROOT) {
            (self.found)(ROOT, value);
        }
        Ok(())
    }
}

impl<'de, A: Fn(&str) -> bool, F: FnMut(&str, JsonMemberValue)> Visitor<'de> for JsonMembersVisitor<A, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.report_root_value(JsonMemberValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.report_root_value(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.report_root_value(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.report_root_value(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.report_root_value(JsonMemberValue::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.report_root_value(JsonMemberValue::Text(value.to_owned()))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<(), S::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        self.report_root_value(JsonMemberValue::Other)
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut members: M) -> Result<(), M::Error> {
        while let Some(JsonMemberName(name)) = members.next_key()? {
            if (self.asks)(&name) {
                let member = members.next_value_seed(JsonMemberValueSeed)?;
                (self.found)(&name, member);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The name of a member. It is copied only if it contains escapes.
#[derive(Deserialize)]
struct JsonMemberName<'a>(#[serde(borrow)] Cow<'a, str>);

struct JsonMemberValueSeed;

impl<'de> DeserializeSeed<'de> for JsonMemberValueSeed {
    type Value = JsonMemberValue;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<JsonMemberValue, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonMemberValueSeed {
    type Value = JsonMemberValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonMemberValue, E> {
        Ok(JsonMemberValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonMemberValue, E> {
        Ok(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonMemberValue, E> {
        Ok(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonMemberValue, E> {
        Ok(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonMemberValue, E> {
        Ok(JsonMemberValue::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonMemberValue, E> {
        Ok(JsonMemberValue::Text(value.to_owned()))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<JsonMemberValue, S::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(JsonMemberValue::Other)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<JsonMemberValue, M::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(JsonMemberValue::Other)
    }
}

/// Looks for wrapped values: applies `pointers` to each member of the outermost object that is an object itself. Calls
/// `found` with the index of a pointer and the value to which it leads. The member that the pointer itself names first
/// is left out. If the pointer leads through a value of another shape, the value is [`JsonMemberValue::Other`].
///
/// # Errors
/// Returns an error if the body is not JSON in UTF-8.
pub(super) fn visit_wrapped(
    body: &[u8],
    pointers: &[&[PointerStep]],
    found: &mut dyn FnMut(usize, JsonMemberValue),
) -> Result<(), serde_json::Error> {
    let left = pointers.iter().copied().enumerate().collect();
    let mut json = serde_json::Deserializer::from_slice(body);
    WrappedPointerMatchSeed { left, level: WrapperLevel::Outermost, found }.deserialize(&mut json)?;
    json.end()
}

/// The position of a value relative to an object that may wrap others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrapperLevel {
    /// The body itself.
    Outermost,
    /// A member of the body.
    Member,
    Inside,
}

/// One value that the parser visits.
struct WrappedPointerMatchSeed<'f, 'p> {
    /// The pointers that lead to this value: the index of each, and its remaining steps.
    left: Vec<(usize, &'p [PointerStep])>,
    level: WrapperLevel,
    found: &'f mut dyn FnMut(usize, JsonMemberValue),
}

impl WrappedPointerMatchSeed<'_, '_> {
    /// Reports a value that is neither an object nor a list.
    fn report_scalar<E>(self, value: JsonMemberValue) -> Result<(), E> {
        if self.level == WrapperLevel::Inside {
            for (pointer, left) in self.left {
                let member = match left.is_empty() || value == JsonMemberValue::Null {
                    true => value.clone(),
                    false => JsonMemberValue::Other,
                };
                (self.found)(pointer, member);
            }
        }
        Ok(())
    }
}

/// The steps after the first one, if the first one leads to the member with this name.
fn steps_behind_name<'p>(left: &'p [PointerStep], name: &str) -> Option<&'p [PointerStep]> {
    let (first, rest) = left.split_first()?;
    first.json_member_name().is_some_and(|first| fold_name(first).eq(fold_name(name))).then_some(rest)
}

/// The steps after the first one, if the first one leads to the item with this index.
fn steps_behind_item(left: &[PointerStep], index: usize) -> Option<&[PointerStep]> {
    let (first, rest) = left.split_first()?;
    (*first == PointerStep::EveryItem || first.index() == Some(index)).then_some(rest)
}

impl<'de> DeserializeSeed<'de> for WrappedPointerMatchSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.left.is_empty() {
            true => json.deserialize_ignored_any(IgnoredAny).map(|_| ()),
            false => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for WrappedPointerMatchSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.report_scalar(JsonMemberValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.report_scalar(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.report_scalar(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.report_scalar(JsonMemberValue::Text(value.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.report_scalar(JsonMemberValue::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.report_scalar(JsonMemberValue::Text(value.to_owned()))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<(), S::Error> {
        let Self { left, level, found } = self;
        // Only an object wraps members, so a list at a higher level is skipped.
        let left = if level == WrapperLevel::Inside { left } else { Vec::new() };
        for (pointer, _) in left.iter().filter(|(_, left)| !leads_to_item(left)) {
            found(*pointer, JsonMemberValue::Other);
        }
        for index in 0_usize.. {
            let inside = left
                .iter()
                .filter_map(|&(pointer, left)| Some((pointer, steps_behind_item(left, index)?)))
                .collect();
            let item =
                WrappedPointerMatchSeed { left: inside, level: WrapperLevel::Inside, found: &mut *found };
            if items.next_element_seed(item)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        let Self { left, level, found } = self;
        if level == WrapperLevel::Inside {
            let leads_to_name =
                |left: &[PointerStep]| left.first().is_some_and(|first| first.json_member_name().is_some());
            for (pointer, _) in left.iter().filter(|(_, left)| !leads_to_name(left)) {
                found(*pointer, JsonMemberValue::Other);
            }
        }
        while let Some(JsonMemberName(name)) = members.next_key()? {
            let named =
                left.iter().filter_map(|&(pointer, left)| Some((pointer, steps_behind_name(left, &name)?)));
            let (inside, level) = match level {
                WrapperLevel::Outermost => {
                    let others = left.iter().filter(|(_, left)| steps_behind_name(left, &name).is_none());
                    (others.copied().collect(), WrapperLevel::Member)
                }
                WrapperLevel::Member | WrapperLevel::Inside => (named.collect(), WrapperLevel::Inside),
            };
            members.next_value_seed(WrappedPointerMatchSeed { left: inside, level, found: &mut *found })?;
        }
        Ok(())
    }
}

/// Whether the first step leads to an item of a list.
fn leads_to_item(left: &[PointerStep]) -> bool {
    left.first().is_some_and(|first| *first == PointerStep::EveryItem || first.index().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::JsonPointer;

    fn ids(body: &str) -> Option<Vec<JsonMemberValue>> {
        let mut found = Vec::new();
        let read = visit_members(body.as_bytes(), |name| name == "id", |_, member| found.push(member));
        read.ok().map(|()| found)
    }

    #[test]
    fn requested_members_are_found_with_values() {
        let text = |text: &str| JsonMemberValue::Text(text.into());
        for (body, wanted) in [
            (r#"{"id":42,"x":[{"id":1}],"id":"a"}"#, vec![text("42"), text("a")]),
            (r#"{"\u0069d":-1}"#, vec![text("-1")]),
            (r#"{"id":1234567890123456789}"#, vec![text("1234567890123456789")]),
            (r#"{"id":null}"#, vec![JsonMemberValue::Null]),
            (r#"{"id":true}"#, vec![text("true")]),
            (r#"{"id":4.2}"#, vec![JsonMemberValue::Other]),
            (r#"{"id":["2"]}"#, vec![JsonMemberValue::Other]),
            (r#"{"id":{"id":2}}"#, vec![JsonMemberValue::Other]),
            (r#"[{"id":2}]"#, vec![]),
            (r#""id""#, vec![]),
        ] {
            assert_eq!(ids(body), Some(wanted), "{body}");
        }
        for (body, wanted) in [
            (r#"[{"id":2}]"#, vec![JsonMemberValue::Other]),
            ("7", vec![text("7")]),
            ("null", vec![JsonMemberValue::Null]),
            (r#"{"_json":1}"#, vec![text("1")]),
            (r#"{"id":1}"#, vec![]),
        ] {
            let mut found = Vec::new();
            let read = visit_members(body.as_bytes(), |name| name == ROOT, |_, member| found.push(member));
            assert_eq!((read.is_ok(), found), (true, wanted), "{body}");
        }
        for broken in ["", "{", r#"{"id":1}x"#, r#"{"id":1,}"#, r#"{id:1}"#] {
            assert_eq!(ids(broken), None, "{broken}");
        }
    }

    /// A pointer finds its value inside of any member that is an object.
    #[test]
    fn wrapped_values_are_found() {
        let text = |text: &str| JsonMemberValue::Text(text.into());
        let other = || JsonMemberValue::Other;
        for (pointer, body, wanted) in [
            ("/id", r#"{"id":1,"order":{"id":2,"x":3},"shop":{"ID":"a"}}"#, vec![text("2"), text("a")]),
            ("/id", r#"{"id":1,"order":{"id":null}}"#, vec![JsonMemberValue::Null]),
            ("/id", r#"{"id":1,"order":{"id":{"id":2}}}"#, vec![other()]),
            ("/id", r#"{"id":1,"a":{"b":{"id":2}},"l":[{"id":2}],"s":"id"}"#, vec![]),
            ("/id", r#"{"id":{"id":2},"ID":{"id":2}}"#, vec![]),
            ("/id", r#"[{"id":2}]"#, vec![]),
            (
                "/a/id",
                r#"{"a":{"id":1,"a":{"id":4}},"o":{"a":{"id":2}},"p":{"a":3}}"#,
                vec![text("2"), other()],
            ),
            (
                "/items/*/sku",
                r#"{"items":[{"sku":"a"}],"order":{"items":[{"sku":"b"},{"n":1},{"sku":["c"]},"d"]}}"#,
                vec![text("b"), other(), other()],
            ),
            ("/items/*/sku", r#"{"order":{"items":{"0":{"sku":"b"}}}}"#, vec![other()]),
            ("/items/*/sku", r#"{"order":{"items":null}}"#, vec![JsonMemberValue::Null]),
            ("/items/0/sku", r#"{"order":{"items":[{"sku":"b"},{"sku":"c"}]}}"#, vec![text("b")]),
            ("/*/sku", r#"{"order":{"items":[{"sku":"b"}]}}"#, vec![]),
        ] {
            let pointer = JsonPointer::parse(pointer).expect(pointer);
            let mut found = Vec::new();
            let read =
                visit_wrapped(body.as_bytes(), &[pointer.steps()], &mut |_, member| found.push(member));
            assert_eq!((read.is_ok(), found), (true, wanted), "{pointer} {body}");
        }
        assert!(visit_wrapped(b"{", &[], &mut |_, _| ()).is_err());
    }
}
