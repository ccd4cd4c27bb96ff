//! Other spellings of the fields of a form of which a key is made.

use fencegate_policies::key::{SourceValue, TemplateValueSource};
use hyper::header::CONTENT_TYPE;

use super::{
    multipart::MultipartForm,
    parameters::{ParameterList, RespelledParameters},
    variant::RequestVariant,
};
use crate::explain::sample::SampleRequest;

pub(super) fn form_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let kind = sample.fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(&sample.body) else { return Vec::new() };
    let variants = sources.iter().flat_map(|value| match &value.source {
        TemplateValueSource::Form(name) => respelled_form_fields(kind, text, name, value, false),
        TemplateValueSource::FormList(name) => respelled_form_fields(kind, text, name, value, true),
        _ => Vec::new(),
    });
    variants.map(|(spelling, body)| RequestVariant::with_body(sample, spelling, body)).collect()
}

fn respelled_form_fields(
    content_type: &str,
    text: &str,
    name: &str,
    value: &SourceValue,
    is_list: bool,
) -> Vec<RespelledParameters> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    match &*kind.trim().to_ascii_lowercase() {
        "application/x-www-form-urlencoded" => {
            ParameterList { text, noun: "field" }.respelled_parameters(name, value, is_list)
        }
        "multipart/form-data" => {
            let form = MultipartForm::parse(parameters, text);
            form.map(|form| form.respelled_parts(name, value, is_list)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
