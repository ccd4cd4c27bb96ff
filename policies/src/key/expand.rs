//! Puts the values of one request into a key template.

#[cfg(test)]
mod tests;

use super::{
    json::Leaf,
    no_key::{BadKey, BadValue, NOT_UTF8, RESPELLED, TWICE},
    query,
    resource::ResourceKey,
    template::{Filter, KeyTemplate, Part, Source, Variable},
    values::{Field, Values},
};
use crate::path::{is_unreserved, percent_encoded};

impl KeyTemplate {
    /// Makes the key of a request. The same values give the same key, and different values give different keys.
    pub fn expand(&self, values: &dyn Values) -> Result<ResourceKey, BadKey> {
        let mut key = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => key.push_str(literal),
                Part::Variable(variable) => push_escaped(&variable.value(values)?, &mut key),
            }
        }
        ResourceKey::new(key).ok_or(BadKey::TooLong)
    }
}

/// The value of a header field; `None` where it is absent or empty.
pub(crate) fn header(values: &dyn Values, name: &str) -> Result<Option<String>, BadKey> {
    Variable::plain(Source::Header(name.into())).present(values)
}

/// The value of a parameter of the query; `None` where it is absent or empty.
pub(crate) fn parameter(values: &dyn Values, name: &str) -> Result<Option<String>, BadKey> {
    Variable::plain(Source::Query(name.into())).present(values)
}

impl Variable {
    fn plain(source: Source) -> Self {
        Self { source, filters: Vec::new(), span: 0..0 }
    }

    fn present(&self, values: &dyn Values) -> Result<Option<String>, BadKey> {
        match self.value(values) {
            Ok(value) => Ok(Some(value)),
            Err(BadKey::Missing { .. }) => Ok(None),
            Err(bad) => Err(bad),
        }
    }

    pub(super) fn value(&self, values: &dyn Values) -> Result<String, BadKey> {
        let value = self.source.value(values).and_then(|value| self.filters.iter().try_fold(value, apply));
        match value {
            Ok(value) if !value.is_empty() => Ok(value),
            Ok(_) => Err(self.bad(BadValue::Missing)),
            Err(bad) => Err(self.bad(bad)),
        }
    }

    pub(super) fn bad(&self, bad: BadValue) -> BadKey {
        let variable = self.source.to_string();
        match bad {
            BadValue::Missing => BadKey::Missing { variable },
            BadValue::Invalid(why) => BadKey::Invalid { variable, why },
        }
    }
}

impl Source {
    pub(super) fn value(&self, values: &dyn Values) -> Result<String, BadValue> {
        let value = match self {
            Self::Path(name) => values.path(name).ok_or(BadValue::Missing)?.to_owned(),
            Self::Query(name) => query::parameter(values.query().unwrap_or_default(), name)?,
            Self::Header(name) => match values.header(name) {
                Field::Absent => return Err(BadValue::Missing),
                Field::Several => return Err(BadValue::Invalid(TWICE)),
                Field::Respelled => return Err(BadValue::Invalid(RESPELLED)),
                Field::One(bytes) => text(bytes.to_vec())?,
            },
            Self::Host => values.host().ok_or(BadValue::Missing)?.to_owned(),
            Self::Body(pointer) => match values.body().and_then(|body| body.at(pointer)) {
                None | Some(Leaf::Null) => return Err(BadValue::Missing),
                Some(Leaf::Value(value)) => value.clone(),
                Some(Leaf::Unfit(why)) => return Err(BadValue::Invalid(why)),
            },
        };
        if value.chars().any(char::is_control) {
            return Err(BadValue::Invalid("has a control character"));
        }
        Ok(value)
    }
}

pub(super) fn apply(value: String, filter: &Filter) -> Result<String, BadValue> {
    match filter {
        Filter::Lower => Ok(value.to_ascii_lowercase()),
        Filter::Trim => Ok(value.trim_matches(' ').to_owned()),
        Filter::Int => whole_number(&value),
    }
}

/// 39 digits hold any number of 128 bits.
fn whole_number(value: &str) -> Result<String, BadValue> {
    if value.is_empty() {
        return Err(BadValue::Missing);
    }
    if !value.bytes().all(|byte| byte.is_ascii_digit()) || value.len() > 39 {
        return Err(BadValue::Invalid("is not a whole number of at most 39 digits"));
    }
    let digits = value.trim_start_matches('0');
    Ok(if digits.is_empty() { "0".into() } else { digits.to_owned() })
}

fn text(bytes: Vec<u8>) -> Result<String, BadValue> {
    String::from_utf8(bytes).map_err(|_| BadValue::Invalid(NOT_UTF8))
}

/// Appends a value to the key, escaped: no character of a separator is left in it, so its end can be seen in the key.
pub(super) fn push_escaped(value: &str, key: &mut String) {
    for byte in value.bytes() {
        if is_unreserved(byte) {
            key.push(char::from(byte));
        } else {
            key.extend(percent_encoded(byte));
        }
    }
}
