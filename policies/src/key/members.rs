//! Finds the members of the outermost object of a JSON body, and the values of those with a wanted name.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// The value of a member, as far as it can be compared with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonMemberValue {
    Null,
    /// A string, an integer or a boolean.
    Text(String),
    /// A fraction, an object or a list.
    Other,
}

/// Calls `found` with the value of each member whose name `asks` accepts. A body that is no object has no members.
///
/// # Errors
/// The body is not JSON in UTF-8.
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

impl<'de, A: Fn(&str) -> bool, F: FnMut(&str, JsonMemberValue)> Visitor<'de> for JsonMembersVisitor<A, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<(), S::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
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

/// The name of a member. It is copied only if it has escapes.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        for broken in ["", "{", r#"{"id":1}x"#, r#"{"id":1,}"#, r#"{id:1}"#] {
            assert_eq!(ids(broken), None, "{broken}");
        }
    }
}
