//! Puts the values of one request into a key template.

#[cfg(test)]
mod tests;

use super::{
    body::BodyValues,
    error::{ExtractKeyError, ExtractValueError, NOT_UTF8, RESPELLED, TWICE},
    filter::TemplateValueFilter,
    json::JsonScalar,
    query::{Parameters, single_value},
    resource::ResourceKey,
    template::{KeyTemplate, KeyTemplatePart, TemplateValueSource, TemplateVariable},
    values::{HeaderLookup, RequestValues},
};
use crate::path::{is_unreserved, percent_encode};

impl KeyTemplate {
    /// Makes the key of a request. The same values give the same key, and different values give different keys.
    ///
    /// # Errors
    /// A value is missing or cannot be part of a key. The value of a list is missing here: see [`KeyTemplate::expand_all`].
    pub fn expand(&self, values: &dyn RequestValues) -> Result<ResourceKey, ExtractKeyError> {
        self.expand_with(values, &[])
    }

    /// `item`: the values of the variables that take one of an item, left to right.
    pub(super) fn expand_with(
        &self,
        values: &dyn RequestValues,
        item: &[String],
    ) -> Result<ResourceKey, ExtractKeyError> {
        let mut item = item.iter();
        let mut key = String::new();
        for part in &self.parts {
            match part {
                KeyTemplatePart::Literal(literal) => key.push_str(literal),
                KeyTemplatePart::Variable(variable) if variable.source.is_list() => {
                    let value = item.next().ok_or_else(|| variable.error(ExtractValueError::Missing))?;
                    push_escaped(value, &mut key);
                }
                KeyTemplatePart::Variable(variable) => push_escaped(&variable.value(values)?, &mut key),
            }
        }
        ResourceKey::new(key).ok_or(ExtractKeyError::TooLong)
    }
}

/// The value of a header field; `None` where it is absent or empty.
pub(crate) fn header_value(
    values: &dyn RequestValues,
    name: &str,
) -> Result<Option<String>, ExtractKeyError> {
    TemplateVariable::without_filters(TemplateValueSource::Header(name.into())).optional_value(values)
}

/// The value of a parameter of the query; `None` where it is absent or empty.
pub(crate) fn query_value(values: &dyn RequestValues, name: &str) -> Result<Option<String>, ExtractKeyError> {
    TemplateVariable::without_filters(TemplateValueSource::Query(name.into())).optional_value(values)
}

impl TemplateVariable {
    pub(super) fn without_filters(source: TemplateValueSource) -> Self {
        Self { source, filters: Vec::new(), span: 0..0 }
    }

    fn optional_value(&self, values: &dyn RequestValues) -> Result<Option<String>, ExtractKeyError> {
        match self.value(values) {
            Ok(value) => Ok(Some(value)),
            Err(ExtractKeyError::Missing { .. }) => Ok(None),
            Err(bad) => Err(bad),
        }
    }

    pub(super) fn value(&self, values: &dyn RequestValues) -> Result<String, ExtractKeyError> {
        let value =
            self.source.value(values).and_then(|value| self.filters.iter().try_fold(value, apply_filter));
        match value {
            Ok(value) if !value.is_empty() => Ok(self.source.qualify(value, values)),
            Ok(_) => Err(self.error(ExtractValueError::Missing)),
            Err(bad) => Err(self.error(bad)),
        }
    }

    pub(super) fn error(&self, bad: ExtractValueError) -> ExtractKeyError {
        let variable = self.source.to_string();
        match bad {
            ExtractValueError::Missing => ExtractKeyError::Missing { variable },
            ExtractValueError::Invalid(why) => ExtractKeyError::Invalid { variable, why },
            ExtractValueError::NoClientName => ExtractKeyError::NoClientName,
            ExtractValueError::NoToken => ExtractKeyError::NoToken,
        }
    }
}

impl TemplateValueSource {
    pub(super) fn value(&self, values: &dyn RequestValues) -> Result<String, ExtractValueError> {
        let value = match self {
            Self::Path(name) => values.path(name).ok_or(ExtractValueError::Missing)?.to_owned(),
            Self::Query(name) => Parameters::Query(values.query().unwrap_or_default()).value(name)?,
            Self::Form(name) => {
                let form = values.body().and_then(BodyValues::form).ok_or(ExtractValueError::Missing)?;
                single_value(form.values(name)?)?
            }
            Self::Header(name) => match values.header(name) {
                HeaderLookup::Absent => return Err(ExtractValueError::Missing),
                HeaderLookup::Several => return Err(ExtractValueError::Invalid(TWICE)),
                HeaderLookup::Respelled => return Err(ExtractValueError::Invalid(RESPELLED)),
                HeaderLookup::One(bytes) => into_utf8(bytes.to_vec())?,
            },
            Self::Host => values.request_host().ok_or(ExtractValueError::Missing)?.to_owned(),
            // Filters are about the name alone.
            Self::ClientName => {
                values.client_name().ok_or(ExtractValueError::NoClientName)?.without_kind().to_owned()
            }
            Self::QueryList(_) | Self::FormList(_) | Self::HeaderList(_) => {
                return Err(ExtractValueError::Missing);
            }
            Self::Body(pointer) => {
                let found = values.body().and_then(BodyValues::json).and_then(|body| body.value_at(pointer));
                json_text(found)?
            }
            Self::Jwt(claim) => {
                json_text(values.claims().ok_or(ExtractValueError::NoToken)?.value_at(claim))?
            }
        };
        check_printable(value)
    }

    /// What the filters have made of the value. The name of a client gets its kind back, so that names of two kinds never make
    /// one key.
    pub(super) fn qualify(&self, value: String, values: &dyn RequestValues) -> String {
        match (self, values.client_name()) {
            (Self::ClientName, Some(name)) if !name.prefix().is_empty() => name.prefix().to_owned() + &value,
            _ => value,
        }
    }
}

/// The text of a value that was found in JSON.
fn json_text(found: Option<&JsonScalar>) -> Result<String, ExtractValueError> {
    found.ok_or(ExtractValueError::Missing)?.key_text().map(str::to_owned)
}

/// The value, unless it has a control character.
pub(super) fn check_printable(value: String) -> Result<String, ExtractValueError> {
    if value.chars().any(char::is_control) {
        return Err(ExtractValueError::Invalid("has a control character"));
    }
    Ok(value)
}

pub(super) fn apply_filter(value: String, filter: &TemplateValueFilter) -> Result<String, ExtractValueError> {
    filter.apply(value)
}

pub(super) fn into_utf8(bytes: Vec<u8>) -> Result<String, ExtractValueError> {
    String::from_utf8(bytes).map_err(|_| ExtractValueError::Invalid(NOT_UTF8))
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
