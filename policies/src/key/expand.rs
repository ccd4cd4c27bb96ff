//! Puts the values of one request into a key template.

#[cfg(test)]
mod tests;

use super::{
    error::{KeyError, NOT_UTF8, RESPELLED, TWICE, ValueError},
    json::JsonScalar,
    query,
    resource::ResourceKey,
    template::{KeyTemplate, KeyTemplatePart, TemplateVariable, ValueFilter, ValueSource},
    values::{HeaderField, RequestValues},
};
use crate::path::{is_unreserved, percent_encode};

impl KeyTemplate {
    /// Makes the key of a request. The same values give the same key, and different values give different keys.
    pub fn expand(&self, values: &dyn RequestValues) -> Result<ResourceKey, KeyError> {
        let mut key = String::new();
        for part in &self.parts {
            match part {
                KeyTemplatePart::Literal(literal) => key.push_str(literal),
                KeyTemplatePart::Variable(variable) => push_escaped(&variable.value(values)?, &mut key),
            }
        }
        ResourceKey::new(key).ok_or(KeyError::TooLong)
    }
}

/// The value of a header field; `None` where it is absent or empty.
pub(crate) fn header_value(values: &dyn RequestValues, name: &str) -> Result<Option<String>, KeyError> {
    TemplateVariable::without_filters(ValueSource::Header(name.into())).optional_value(values)
}

/// The value of a parameter of the query; `None` where it is absent or empty.
pub(crate) fn query_value(values: &dyn RequestValues, name: &str) -> Result<Option<String>, KeyError> {
    TemplateVariable::without_filters(ValueSource::Query(name.into())).optional_value(values)
}

impl TemplateVariable {
    fn without_filters(source: ValueSource) -> Self {
        Self { source, filters: Vec::new(), span: 0..0 }
    }

    fn optional_value(&self, values: &dyn RequestValues) -> Result<Option<String>, KeyError> {
        match self.value(values) {
            Ok(value) => Ok(Some(value)),
            Err(KeyError::Missing { .. }) => Ok(None),
            Err(bad) => Err(bad),
        }
    }

    pub(super) fn value(&self, values: &dyn RequestValues) -> Result<String, KeyError> {
        let value =
            self.source.value(values).and_then(|value| self.filters.iter().try_fold(value, apply_filter));
        match value {
            Ok(value) if !value.is_empty() => Ok(value),
            Ok(_) => Err(self.error(ValueError::Missing)),
            Err(bad) => Err(self.error(bad)),
        }
    }

    pub(super) fn error(&self, bad: ValueError) -> KeyError {
        let variable = self.source.to_string();
        match bad {
            ValueError::Missing => KeyError::Missing { variable },
            ValueError::Invalid(why) => KeyError::Invalid { variable, why },
        }
    }
}

impl ValueSource {
    pub(super) fn value(&self, values: &dyn RequestValues) -> Result<String, ValueError> {
        let value = match self {
            Self::Path(name) => values.path(name).ok_or(ValueError::Missing)?.to_owned(),
            Self::Query(name) => query::parameter_value(values.query().unwrap_or_default(), name)?,
            Self::Header(name) => match values.header(name) {
                HeaderField::Absent => return Err(ValueError::Missing),
                HeaderField::Several => return Err(ValueError::Invalid(TWICE)),
                HeaderField::Respelled => return Err(ValueError::Invalid(RESPELLED)),
                HeaderField::One(bytes) => into_utf8(bytes.to_vec())?,
            },
            Self::Host => values.host().ok_or(ValueError::Missing)?.to_owned(),
            Self::Body(pointer) => match values.body().and_then(|body| body.value_at(pointer)) {
                None | Some(JsonScalar::Null) => return Err(ValueError::Missing),
                Some(JsonScalar::Value(value)) => value.clone(),
                Some(JsonScalar::Unfit(reason)) => return Err(ValueError::Invalid(reason)),
            },
        };
        if value.chars().any(char::is_control) {
            return Err(ValueError::Invalid("has a control character"));
        }
        Ok(value)
    }
}

pub(super) fn apply_filter(value: String, filter: &ValueFilter) -> Result<String, ValueError> {
    match filter {
        ValueFilter::Lower => Ok(value.to_ascii_lowercase()),
        ValueFilter::Trim => Ok(value.trim_matches(' ').to_owned()),
        ValueFilter::Int => whole_number(&value),
    }
}

/// 39 digits hold any number of 128 bits.
fn whole_number(value: &str) -> Result<String, ValueError> {
    if value.is_empty() {
        return Err(ValueError::Missing);
    }
    if !value.bytes().all(|byte| byte.is_ascii_digit()) || value.len() > 39 {
        return Err(ValueError::Invalid("is not a whole number of at most 39 digits"));
    }
    let digits = value.trim_start_matches('0');
    Ok(if digits.is_empty() { "0".into() } else { digits.to_owned() })
}

fn into_utf8(bytes: Vec<u8>) -> Result<String, ValueError> {
    String::from_utf8(bytes).map_err(|_| ValueError::Invalid(NOT_UTF8))
}

/// Appends a value to the key, escaped: no character of a separator is left in it, so its end can be seen in the key.
pub(super) fn push_escaped(value: &str, key: &mut String) {
    for byte in value.bytes() {
        if is_unreserved(byte) {
            key.push(char::from(byte));
        } else {
            key.extend(percent_encode(byte));
        }
    }
}
