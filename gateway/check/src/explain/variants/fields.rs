//! Other spellings of header fields of which a key is made, and of the host.

use fencegate_policies::key::{SourceValue, TemplateValueSource};
use hyper::{
    HeaderMap,
    header::{HOST, HeaderName, HeaderValue},
};

use super::{
    texts::{other_value, spellings, swap_case},
    variant::RequestVariant,
};
use crate::explain::sample::SampleRequest;

pub(super) fn field_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let edits = sources.iter().flat_map(|value| match &value.source {
        TemplateValueSource::Header(name) => field_edits(sample, name, value, false),
        TemplateValueSource::HeaderList(name) => field_edits(sample, name, value, true),
        TemplateValueSource::Host => host_edits(sample),
        _ => Vec::new(),
    });
    edits.filter_map(|edit| edit.apply(sample)).collect()
}

/// A line in another spelling.
struct HeaderRespelling {
    spelling: String,
    name: HeaderName,
    value: String,
    /// The field that is removed; `None` if the line is added to the others.
    removed: Option<HeaderName>,
}

impl HeaderRespelling {
    /// The sample with this edit. `None` if no client can send such a line.
    fn apply(self, sample: &SampleRequest) -> Option<RequestVariant> {
        let Self { spelling, name, value, removed } = self;
        let written = format!("{name}: {value}");
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        let mut fields: HeaderMap = sample.fields.clone();
        if let Some(removed) = removed {
            fields.remove(removed);
        }
        fields.append(name, value);
        Some(RequestVariant { spelling, written, request: SampleRequest { fields, ..sample.clone() } })
    }
}

fn field_edits(
    sample: &SampleRequest,
    name: &str,
    value: &SourceValue,
    is_list: bool,
) -> Vec<HeaderRespelling> {
    let Ok(own) = HeaderName::from_bytes(name.as_bytes()) else { return Vec::new() };
    let line = sample.fields.get(&own).and_then(|line| line.to_str().ok());
    let (Some(line), Some(raw)) = (line, value.raw.as_deref()) else { return Vec::new() };
    let edit = |spelling: String, value: String, removed: Option<&HeaderName>| HeaderRespelling {
        spelling,
        name: own.clone(),
        value,
        removed: removed.cloned(),
    };
    let (twice, other_twice) = match is_list {
        true => ("item twice in", "list longer by one,"),
        false => ("field twice,", "field twice with another value,"),
    };
    let mut edits = vec![
        edit(format!("{twice} `{name}`"), raw.to_owned(), None),
        edit(format!("{other_twice} `{name}`"), other_value(raw), None),
    ];
    if let Ok(respelled) = HeaderName::from_bytes(name.replace('-', "_").as_bytes())
        && respelled != own
    {
        let spelling = format!("underscores in the name `{name}`");
        let removed = Some(own.clone());
        edits.push(HeaderRespelling { spelling, name: respelled, value: line.to_owned(), removed });
    }
    let respelled = spellings(raw).into_iter();
    edits.extend(respelled.map(|spelling| {
        let line = line.replacen(raw, &spelling.text, 1);
        edit(format!("{} of `{raw}`", spelling.name), line, Some(&own))
    }));
    edits
}

fn host_edits(sample: &SampleRequest) -> Vec<HeaderRespelling> {
    let Some(host) = sample.fields.get(HOST).and_then(|host| host.to_str().ok()) else { return Vec::new() };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, Some(port)),
        _ => (host, None),
    };
    let behind = port.map(|port| format!(":{port}")).unwrap_or_default();
    let edits = [
        ("other case of the host", swap_case(host)),
        ("dot behind the host", format!("{name}.{behind}")),
        match port {
            Some(_) => ("host without its port", name.to_owned()),
            None => ("host with a port", format!("{host}:8080")),
        },
    ];
    let edit = |(spelling, value): (&str, String)| HeaderRespelling {
        spelling: spelling.to_owned(),
        name: HOST,
        value,
        removed: Some(HOST),
    };
    edits.into_iter().map(edit).collect()
}
