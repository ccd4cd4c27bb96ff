//! Other spellings of the fields of a form of which a key is made.

use fencegate_policies::key::{SourceValue, TemplateValueSource};
use hyper::header::CONTENT_TYPE;

use super::{parameters::ParameterText, variant::RequestVariant};
use crate::explain::sample::SampleRequest;

/// A form with parts (`multipart/form-data`) has no spellings: there each part stands as it is.
pub(super) fn form_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let kind = sample.fields.get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    let is_form = kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded"));
    let Some(text) = std::str::from_utf8(&sample.body).ok().filter(|_| is_form) else { return Vec::new() };
    let fields = ParameterText { text, noun: "field" };
    let variants = sources.iter().flat_map(|value| match &value.source {
        TemplateValueSource::Form(name) => fields.respelled(name, value, false),
        TemplateValueSource::FormList(name) => fields.respelled(name, value, true),
        _ => Vec::new(),
    });
    variants.map(|(spelling, body)| RequestVariant::with_body(sample, spelling, body)).collect()
}
