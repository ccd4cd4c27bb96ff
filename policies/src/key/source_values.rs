//! The values that a request has for the variables of templates, before and after their filters, for display. Keys are
//! made by [`KeyTemplate::expand_all`](super::KeyTemplate).

use std::fmt::Display;

use serde::{Serialize, Serializer};

use super::{
    error::{ExtractKeyError, ExtractValueError},
    expand::apply_filter,
    filter::TemplateValueFilter,
    template::{TemplateValueSource, TemplateVariable},
    values::RequestValues,
};

/// One value of a variable. A variable of a list has one for each item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceValue {
    /// The source as a template writes it: `path.order_id`.
    #[serde(serialize_with = "serialize_text")]
    pub source: TemplateValueSource,
    /// The filters of the variable as a template writes them, in the order in which they are applied.
    pub filters: Vec<String>,
    /// The decoded value in the request, before the filters. `None` if there is none, or none that can be read.
    pub raw: Option<String>,
    /// The value after the filters, before it is escaped for a key.
    pub canonical: Option<String>,
    /// The reason for which there is no canonical value.
    pub error: Option<String>,
}

fn serialize_text<S: Serializer>(source: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

impl TemplateVariable {
    /// The values that a request has for the variable, at least one. A variable without a value has an entry with the
    /// reason.
    pub fn source_values(&self, values: &dyn RequestValues) -> Vec<SourceValue> {
        let read = match self.source.is_list() {
            true => self.raw_items(values),
            false => self.source.value(values).map(|value| vec![value]),
        };
        match read {
            Ok(raw) if raw.is_empty() => {
                let reason = ExtractKeyError::EmptyList { variable: self.source.to_string() };
                vec![self.source_value(None, Err(reason))]
            }
            Ok(raw) => raw.into_iter().map(|raw| self.filtered_source_value(raw)).collect(),
            Err(bad) => vec![self.source_value(None, Err(self.error(bad)))],
        }
    }

    fn filtered_source_value(&self, raw: String) -> SourceValue {
        let filtered = self.filters.iter().try_fold(raw.clone(), apply_filter);
        let canonical = match filtered {
            Ok(value) if value.is_empty() => Err(self.error(ExtractValueError::Missing)),
            filtered => filtered.map_err(|bad| self.error(bad)),
        };
        self.source_value(Some(raw), canonical)
    }

    fn source_value(&self, raw: Option<String>, canonical: Result<String, ExtractKeyError>) -> SourceValue {
        let (canonical, error) = match canonical {
            Ok(canonical) => (Some(canonical), None),
            Err(reason) => (None, Some(reason.to_string())),
        };
        SourceValue {
            source: self.source.clone(),
            filters: self.filters.iter().map(TemplateValueFilter::to_string).collect(),
            raw,
            canonical,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{HeaderLookup, KeyTemplate, RespelledHeaderError};

    struct Sample;

    impl RequestValues for Sample {
        fn path(&self, name: &str) -> Option<&str> {
            match name {
                "id" => Some("0042"),
                "bell" => Some("4\u{7}2"),
                _ => None,
            }
        }

        fn header_lines<'a>(&'a self, _: &str) -> Result<Vec<&'a [u8]>, RespelledHeaderError> {
            Ok(vec![b"b, A"])
        }

        fn header<'a>(&'a self, _: &str) -> HeaderLookup<'a> {
            HeaderLookup::Several
        }
    }

    fn shown(template: &str) -> Vec<(Option<String>, Option<String>, Option<String>)> {
        let template = KeyTemplate::parse(template).expect("a key");
        let values = template.variables().flat_map(|variable| variable.source_values(&Sample));
        values.map(|value| (value.raw, value.canonical, value.error)).collect()
    }

    /// Each value is shown before and after the filters, or with the reason for which it gives no key.
    #[test]
    fn values_have_raw_and_canonical_form() {
        let text = |text: &str| Some(text.to_owned());
        for (template, raw, canonical, error) in [
            ("a/{path.id | int}", text("0042"), text("42"), None),
            ("a/{path.id}", text("0042"), text("0042"), None),
            ("a/{path.id | uuid}", text("0042"), None, text("`path.id` is not a UUID")),
            ("a/{path.bell}", None, None, text("`path.bell` has a control character")),
            ("a/{path.none}", None, None, text("`path.none` has no value")),
            ("a/{header.x}", None, None, text("`header.x` is there more than once")),
            ("a/{query.sku*}", None, None, text("`query.sku*` is an empty list")),
        ] {
            assert_eq!(shown(template), [(raw, canonical, error)], "{template}");
        }
        let items = shown("a/{header.x* | lower}");
        assert_eq!(items, [(text("b"), text("b"), None), (text("A"), text("a"), None)]);
    }

    /// The source and the filters are named as in a policy.
    #[test]
    fn source_is_named_as_in_policy() {
        let template = KeyTemplate::parse("a/{path.id | int}").expect("a key");
        let [value] = &*template.variables().next().expect("one").source_values(&Sample) else {
            panic!("one value");
        };
        let json = serde_json::to_value(value).expect("JSON");
        assert_eq!(json["source"], "path.id");
        assert_eq!(json["filters"][0], "int");
    }
}
