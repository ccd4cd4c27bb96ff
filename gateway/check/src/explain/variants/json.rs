//! A JSON body in the order and with the spelling of its author, so that one part of it can be written differently.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A part of a JSON text. Names that are there twice are there twice here, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonNode {
    Object(Vec<(String, JsonNode)>),
    List(Vec<JsonNode>),
    /// A string, a number, a boolean or null, as it was written.
    Scalar(String),
}

/// One step of a pointer: the name of a member or the number of an item; `None` for the first item of a list.
pub(super) type JsonStep<'p> = Option<&'p str>;

impl JsonNode {
    /// The most objects and lists within each other. A deeper body has no spellings.
    const DEEPEST: usize = 64;

    /// Parses a JSON text. `None` if it is no JSON, or too deep.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::parse_value(serde_json::from_str(text).ok()?, Self::DEEPEST)
    }

    fn parse_value(value: &RawValue, depth: usize) -> Option<Self> {
        let text = value.get();
        match text.as_bytes().first()? {
            b'{' => {
                let depth = depth.checked_sub(1)?;
                let RawJsonMembers(members) = serde_json::from_str(text).ok()?;
                let member =
                    |(name, value): (String, &RawValue)| Some((name, Self::parse_value(value, depth)?));
                members.into_iter().map(member).collect::<Option<_>>().map(Self::Object)
            }
            b'[' => {
                let depth = depth.checked_sub(1)?;
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                items
                    .into_iter()
                    .map(|item| Self::parse_value(item, depth))
                    .collect::<Option<_>>()
                    .map(Self::List)
            }
            _ => Some(Self::Scalar(text.to_owned())),
        }
    }

    pub(super) fn from_text(text: &str) -> Self {
        Self::Scalar(quote(text))
    }

    /// The part to which the steps lead.
    pub(super) fn at_mut(&mut self, steps: &[JsonStep]) -> Option<&mut Self> {
        steps.iter().try_fold(self, |node, step| match (node, step) {
            (Self::Object(members), Some(name)) => {
                members.iter_mut().find(|(other, _)| other == name).map(|(_, member)| member)
            }
            (Self::List(items), None) => items.first_mut(),
            (Self::List(items), Some(number)) => items.get_mut(number.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The text of a string, or of a number as it was written.
    pub(super) fn text(&self) -> Option<String> {
        let Self::Scalar(written) = self else { return None };
        match written.as_bytes().first()? {
            b'"' => serde_json::from_str(written).ok(),
            b'-' | b'0'..=b'9' => Some(written.clone()),
            _ => None,
        }
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self, Self::Scalar(written) if written.starts_with('"'))
    }
}

fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

impl fmt::Display for JsonNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(written) => f.write_str(written),
            Self::Object(members) => {
                f.write_str("{")?;
                for (at, (name, member)) in members.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{member}", quote(name))?;
                }
                f.write_str("}")
            }
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The members of an object in their order, repeated ones as well.
struct RawJsonMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawJsonMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawMembersVisitor)
    }
}

struct RawMembersVisitor;

impl<'de> Visitor<'de> for RawMembersVisitor {
    type Value = RawJsonMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawJsonMembers<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = entries.next_entry()? {
            members.push(member);
        }
        Ok(RawJsonMembers(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unedited parts stay as they were written: the order, repeated names, and numbers that no integer holds.
    #[test]
    fn unedited_parts_keep_spelling() {
        let text = r#"{"b":1.50,"a":[{"x":123456789012345678901234567890},null,true],"b":"é\n"}"#;
        let mut node = JsonNode::parse(text).expect("JSON");
        assert_eq!(node.to_string(), text);
        let value = node.at_mut(&[Some("a"), None, Some("x")]).expect("there");
        assert_eq!(value.text().as_deref(), Some("123456789012345678901234567890"));
        *value = JsonNode::from_text("q\"");
        assert_eq!(node.to_string(), r#"{"b":1.50,"a":[{"x":"q\""},null,true],"b":"é\n"}"#);
        assert!(node.at_mut(&[Some("a"), Some("7")]).is_none() && node.at_mut(&[Some("c")]).is_none());
    }

    /// A text that is no JSON, or that is nested too deep, has no tree.
    #[test]
    fn broken_and_deep_texts_have_no_tree() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["", "{", "a=b", "{} {}", &deep] {
            assert_eq!(JsonNode::parse(text), None, "{}", &text[..text.len().min(20)]);
        }
    }
}
