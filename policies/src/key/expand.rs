//! Replaces the variables of a key template with the values of one request.

#[cfg(test)]
mod tests;

use super::{
    body::BodyValues,
    error::{ExtractKeyError, ExtractValueError, NOT_ASCII, NOT_UTF8, RESPELLED, TWICE},
    filter::TemplateValueFilter,
    json::JsonScalar,
    query::{UrlencodedParameters, single_value},
    resource::ResourceKey,
    template::{KeyTemplate, KeyTemplatePart, TemplateValueSource, TemplateVariable},
    values::{HeaderLookup, RequestValues},
};
use crate::path::{is_unreserved, percent_encode};

impl KeyTemplate {
    /// Makes the key of a request. The same values give the same key, and different values give different keys.
    ///
    /// # Errors
    /// Returns an error if a value is missing or cannot be part of a key. A list counts as missing; use
    /// [`KeyTemplate::expand_all`] for it.
    pub fn expand(&self, values: &dyn RequestValues) -> Result<ResourceKey, ExtractKeyError> {
        self.expand_with(values, &[])
    }

    /// Makes one key. `item`: the values for the variables that stand for list items, from left to right.
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

/// The value of a header field; `None` if it is absent or empty.
pub(crate) fn header_value(
    values: &dyn RequestValues,
    name: &str,
) -> Result<Option<String>, ExtractKeyError> {
    TemplateVariable::without_filters(TemplateValueSource::Header(name.into())).optional_value(values)
}

/// The value of a query parameter; `None` if it is absent or empty.
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
        let value = self.source.value(values).and_then(|value| match &self.source {
            TemplateValueSource::Header(_) => check_ascii(value),
            _ => Ok(value),
        });
        match value.and_then(|value| self.filters.iter().try_fold(value, apply_filter)) {
            Ok(value) if !value.is_empty() => Ok(self.source.restore_client_name_kind(value, values)),
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
            Self::Query(name) => {
                UrlencodedParameters::Query(values.query().unwrap_or_default()).value(name)?
            }
            Self::Form(name) => {
                let form = values.body().and_then(BodyValues::form).ok_or(ExtractValueError::Missing)?;
                single_value(form.values(name)?)?
            }
            Self::Header(name) => match values.header(name) {
                HeaderLookup::Absent => return Err(ExtractValueError::Missing),
                HeaderLookup::Several => return Err(ExtractValueError::Invalid(TWICE)),
                HeaderLookup::Respelled => return Err(ExtractValueError::Invalid(RESPELLED)),
                HeaderLookup::One(bytes) => into_utf8(bytes)?,
            },
            Self::Host => values.request_host().ok_or(ExtractValueError::Missing)?.to_owned(),
            // Filters apply to the name without its kind; `qualify` puts the kind back.
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

    /// Puts the kind of a client's name back before the filtered value, so that names of different kinds never give the
    /// same key. Other values are returned unchanged.
    pub(super) fn restore_client_name_kind(&self, value: String, values: &dyn RequestValues) -> String {
        match (self, values.client_name()) {
            (Self::ClientName, Some(name)) if !name.prefix().is_empty() => name.prefix().to_owned() + &value,
            _ => value,
        }
    }
}

/// The text of a value from JSON, as a part of a key.
fn json_text(found: Option<&JsonScalar>) -> Result<String, ExtractValueError> {
    found.ok_or(ExtractValueError::Missing)?.key_text().map(str::to_owned)
}

/// Returns the value unless it contains a control character.
pub(super) fn check_printable(value: String) -> Result<String, ExtractValueError> {
    if value.chars().any(char::is_control) {
        return Err(ExtractValueError::Invalid("has a control character"));
    }
    Ok(value)
}

pub(super) fn apply_filter(value: String, filter: &TemplateValueFilter) -> Result<String, ExtractValueError> {
    filter.apply(value)
}

pub(super) fn into_utf8(bytes: &[u8]) -> Result<String, ExtractValueError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ExtractValueError::Invalid(NOT_UTF8))
}

/// Returns the value of a header field if it is ASCII, which every server reads in the same way.
pub(super) fn check_ascii(value: String) -> Result<String, ExtractValueError> {
    if value.is_ascii() { Ok(value) } else { Err(ExtractValueError::Invalid(NOT_ASCII)) }
}

/// Appends a value to the key, escaped. An escaped value contains no character of a separator, so its end is visible in
/// the key.
pub(super) fn push_escaped(value: &str, key: &mut String) {
    for byte in value.bytes() {
        if is_unreserved(byte) {
            key.push(char::from(byte));
        } else {
            key.extend(percent_encode(byte));
        }
    }
}
