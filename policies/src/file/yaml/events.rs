//! The values that the YAML parser returns, before they are placed in the tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::diagnostics::SourceSpan;

/// A value of the YAML parser.
pub(super) enum RawYamlValue {
    Nothing,
    /// A scalar with its text. `None` if the parser has made it a number or boolean; the text is then only in
    /// the file.
    Scalar(Option<String>),
    List(Vec<Spanned<RawYamlValue>>),
    Mapping(Vec<(Spanned<RawYamlValue>, Spanned<RawYamlValue>)>),
}

impl<'de> Deserialize<'de> for RawYamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawYamlValueVisitor)
    }
}

struct RawYamlValueVisitor;

impl<'de> Visitor<'de> for RawYamlValueVisitor {
    type Value = RawYamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list or a single value")
    }

    fn visit_str<E>(self, text: &str) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(Some(text.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(None))
    }

    fn visit_u128<E>(self, _: u128) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(None))
    }

    fn visit_i128<E>(self, _: i128) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Scalar(None))
    }

    fn visit_unit<E>(self) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Nothing)
    }

    fn visit_none<E>(self) -> Result<RawYamlValue, E> {
        Ok(RawYamlValue::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawYamlValue, D::Error> {
        RawYamlValue::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawYamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawYamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawYamlValue, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(RawYamlValue::Mapping(mapping))
    }
}

/// The place of a value by the location of the parser. `width`: in characters.
pub(super) fn place(location: &Location, width: usize) -> SourceSpan {
    let number = |given: u64| usize::try_from(given).unwrap_or(usize::MAX);
    SourceSpan { line: number(location.line()), column: number(location.column()), width }
}
