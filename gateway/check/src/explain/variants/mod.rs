//! The requests that are spelled next to a sample. Servers, frameworks and databases take many of them for the same request, and
//! a gateway must give them the same key or refuse them.

mod body;
mod fields;
mod form;
mod json;
mod multipart;
mod parameters;
mod query;
mod target;
#[cfg(test)]
mod tests;
mod texts;
mod variant;

use std::collections::HashSet;

use fencegate_policies::key::SourceValue;

pub(super) use self::variant::RequestVariant;
use super::sample::SampleRequest;

/// The spellings next to `sample`, each once. `sources`: the values of which its keys are made. Parts of the
/// request that are in no key get other spellings only if these can take the request to another route.
pub(super) fn nearby_requests(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let mut values: Vec<SourceValue> = Vec::new();
    for value in sources {
        // A list has a value for each item. The spellings of one item are enough.
        if !values.iter().any(|other| other.source == value.source) {
            values.push(value.clone());
        }
    }
    let path = target::path_variants(sample, &values);
    let query = query::query_variants(sample, &values);
    let fields = fields::field_variants(sample, &values);
    let body = body::body_variants(sample, &values).into_iter().chain(form::form_variants(sample, &values));
    let mut seen = HashSet::from([sample.target.clone()]);
    let all = path.into_iter().chain(method_variants(sample)).chain(query).chain(fields).chain(body);
    all.filter(|variant| seen.insert(variant.written.clone())).collect()
}

/// The spellings of the method. Methods compare exactly, and a HEAD is answered as the GET would be.
fn method_variants(sample: &SampleRequest) -> Vec<RequestVariant> {
    let mut methods = vec![("method in other case", texts::swap_case(&sample.method))];
    match &*sample.method {
        "GET" => methods.push(("HEAD in the place of GET", "HEAD".into())),
        "HEAD" => methods.push(("GET in the place of HEAD", "GET".into())),
        _ => {}
    }
    let variant = |(spelling, method): (&str, String)| RequestVariant {
        spelling: spelling.to_owned(),
        written: method.clone(),
        request: SampleRequest { method, ..sample.clone() },
    };
    methods.into_iter().map(variant).collect()
}
