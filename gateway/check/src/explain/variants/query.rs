//! Other spellings of the parameters of the query, and parameters beside a value that stands elsewhere.

use fencegate_policies::key::{SourceValue, TemplateValueSource};

use super::{
    target::{TargetParts, decode, encode, escape_first},
    texts::{other_value, spellings, swap_case},
    variant::RequestVariant,
};
use crate::explain::sample::SampleRequest;

pub(super) fn query_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let Some(target) = TargetParts::parse(&sample.target) else { return Vec::new() };
    let parameters = QueryParameters { target: &target };
    let variants = sources.iter().flat_map(|value| match &value.source {
        TemplateValueSource::Query(name) => parameters.respelled(name, value, false),
        TemplateValueSource::QueryList(name) => parameters.respelled(name, value, true),
        TemplateValueSource::Path(name) => parameters.beside(name, value),
        TemplateValueSource::Body(pointer) => match &*pointer.names().collect::<Vec<_>>() {
            [Some(name)] => parameters.beside(name, value),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    });
    variants
        .map(|(spelling, query)| RequestVariant::with_target(sample, spelling, target.with_query(&query)))
        .collect()
}

struct QueryParameters<'t> {
    target: &'t TargetParts<'t>,
}

/// Another query, and what is spelled differently in it.
type SpelledQuery = (String, String);

impl QueryParameters<'_> {
    /// As they were written, each with its name and the rest.
    fn pairs(&self) -> Vec<(&str, &str)> {
        let pairs = self.target.query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect()
    }

    /// The position of the first parameter with that name.
    fn position(&self, name: &str) -> Option<usize> {
        self.pairs().iter().position(|(written, _)| decode(&written.replace('+', " ")) == name)
    }

    /// The query with one more parameter.
    fn with_parameter(&self, name: &str, value: &str) -> String {
        let before = self.target.query.filter(|query| !query.is_empty());
        let before = before.map(|query| format!("{query}&")).unwrap_or_default();
        format!("{before}{name}={value}")
    }

    /// The query with another parameter in the place of the one at `at`.
    fn replaced(&self, at: usize, name: &str, value: &str) -> String {
        let pairs = self.pairs().into_iter().enumerate();
        let written = pairs.map(|(other, pair)| if other == at { (name, value) } else { pair });
        written.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }

    /// Spellings of a parameter of which a key is made.
    fn respelled(&self, name: &str, value: &SourceValue, is_list: bool) -> Vec<SpelledQuery> {
        let Some(at) = self.position(name) else { return Vec::new() };
        let (written, text) = self.pairs()[at];
        let raw = value.raw.as_deref().unwrap_or_default();
        let other = encode_value(&other_value(raw));
        let (twice, other_twice) = match is_list {
            true => ("item twice in", "list longer by one,"),
            false => ("parameter twice,", "parameter twice with another value,"),
        };
        let mut found = vec![
            (format!("{twice} `{name}`"), self.with_parameter(written, text)),
            (format!("{other_twice} `{name}`"), self.with_parameter(written, &other)),
            (format!("other case of the name `{name}`"), self.replaced(at, &swap_case(written), text)),
            (format!("brackets behind the name `{name}`"), self.replaced(at, &format!("{written}[]"), text)),
        ];
        if let Some((escaped, _)) = escape_first(written) {
            found.push((format!("name `{name}` percent-encoded"), self.replaced(at, &escaped, text)));
        }
        if let Some((escaped, _)) = escape_first(text) {
            found.push((format!("`{raw}` percent-encoded"), self.replaced(at, written, &escaped)));
        }
        found.extend(spellings(raw).into_iter().map(|spelling| {
            let query = self.replaced(at, written, &encode_value(&spelling.text));
            (format!("{} of `{raw}`", spelling.name), query)
        }));
        found
    }

    /// A parameter with the name of a value that stands elsewhere in the request.
    fn beside(&self, name: &str, value: &SourceValue) -> Vec<SpelledQuery> {
        let Some(raw) = value.raw.as_deref().filter(|_| self.position(name).is_none()) else {
            return Vec::new();
        };
        let written = encode_value(name);
        vec![
            (format!("`{name}` also in the query"), self.with_parameter(&written, &encode_value(raw))),
            (
                format!("`{name}` also in the query, with another value"),
                self.with_parameter(&written, &encode_value(&other_value(raw))),
            ),
        ]
    }
}

/// The text as the name or value of a parameter.
fn encode_value(text: &str) -> String {
    encode(text, b"-._~")
}
