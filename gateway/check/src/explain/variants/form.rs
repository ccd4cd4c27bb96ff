//! Other spellings of the fields of a form of which a key is made.

use fencegate_policies::key::{SourceValue, TemplateValueSource};
use hyper::header::CONTENT_TYPE;

use super::{
    multipart::MultipartText,
    parameters::{ParameterText, SpelledParameters},
    variant::RequestVariant,
};
use crate::explain::sample::SampleRequest;

pub(super) fn form_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let kind = sample.fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(&sample.body) else { return Vec::new() };
    let variants = sources.iter().flat_map(|value| match &value.source {
        TemplateValueSource::Form(name) => respelled(kind, text, name, value, false),
        TemplateValueSource::FormList(name) => respelled(kind, text, name, value, true),
        _ => Vec::new(),
    });
    variants.map(|(spelling, body)| RequestVariant::with_body(sample, spelling, body)).collect()
}

fn respelled(
    content_type: &str,
    text: &str,
    name: &str,
    value: &SourceValue,
    is_list: bool,
) -> Vec<SpelledParameters> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        ParameterText { text, noun: "field" }.respelled(name, value, is_list)
    } else if let Some(parts) = MultipartText::new(content_type, text) {
        parts.respelled(name, value, is_list)
    } else {
        Vec::new()
    }
}
