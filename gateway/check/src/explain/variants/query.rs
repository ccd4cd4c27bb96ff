//! Other spellings of the parameters of the query, and parameters beside a value that stands elsewhere.

use fencegate_policies::key::{SourceValue, TemplateValueSource};

use super::{parameters::ParameterList, target::TargetParts, variant::RequestVariant};
use crate::explain::sample::SampleRequest;

pub(super) fn query_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let Some(target) = TargetParts::parse(&sample.target) else { return Vec::new() };
    let parameters = ParameterList { text: target.query.unwrap_or_default(), noun: "parameter" };
    let variants = sources.iter().flat_map(|value| match &value.source {
        TemplateValueSource::Query(name) => parameters.respelled_parameters(name, value, false),
        TemplateValueSource::QueryList(name) => parameters.respelled_parameters(name, value, true),
        TemplateValueSource::Path(name) | TemplateValueSource::Form(name) => {
            parameters.with_parameter_added(name, value)
        }
        TemplateValueSource::Body(pointer) => match &*pointer.names().collect::<Vec<_>>() {
            [Some(name)] => parameters.with_parameter_added(name, value),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    });
    variants
        .map(|(spelling, query)| RequestVariant::with_target(sample, spelling, target.with_query(&query)))
        .collect()
}
