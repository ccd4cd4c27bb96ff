//! Other spellings of the path.

use fencegate_policies::{
    key::{SourceValue, TemplateValueSource},
    path::decode_escapes,
};

use super::{
    texts::{spellings, swap_case},
    variant::RequestVariant,
};
use crate::explain::sample::SampleRequest;

/// The parts of a target as it was written.
pub(super) struct TargetParts<'t> {
    /// Scheme and authority; empty if the target begins with its path.
    origin: &'t str,
    pub(super) path: &'t str,
    pub(super) query: Option<&'t str>,
}

impl<'t> TargetParts<'t> {
    /// Takes a target apart. `None` if it has no path, such as `*`.
    pub(super) fn parse(target: &'t str) -> Option<Self> {
        let start = match target.starts_with('/') {
            true => 0,
            false => {
                let authority = target.find("://")? + "://".len();
                authority + target[authority..].find('/')?
            }
        };
        let (origin, rest) = target.split_at(start);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        Some(Self { origin, path, query })
    }

    fn with_path(&self, path: &str) -> String {
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{path}{query}", self.origin)
    }

    pub(super) fn with_query(&self, query: &str) -> String {
        format!("{}{}?{query}", self.origin, self.path)
    }

    /// The target with `spelled` in the place of a segment.
    fn with_segment(&self, at: usize, spelled: &str) -> String {
        let segments = self.segments().enumerate();
        let path: String = segments
            .map(|(other, segment)| format!("/{}", if other == at { spelled } else { segment }))
            .collect();
        self.with_path(&path)
    }

    fn segments(&self) -> impl Iterator<Item = &'t str> {
        self.path.strip_prefix('/').unwrap_or(self.path).split('/')
    }
}

/// Texts behind a segment, each with the name of the spelling.
const BEHIND: [(&str, &str); 9] = [
    (".json", "suffix `.json`"),
    (".xml", "suffix `.xml`"),
    (":cancel", "suffix `:cancel`"),
    ("%2Ejson", "encoded suffix `%2Ejson`"),
    (".", "trailing dot"),
    ("%2E", "encoded trailing dot"),
    ("%2F", "encoded trailing slash"),
    ("%00", "trailing NUL"),
    (";v=1", "parameter `;v=1`"),
];

pub(super) fn path_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let Some(target) = TargetParts::parse(&sample.target) else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |spelling: String, target: String| {
        found.push(RequestVariant::with_target(sample, spelling, target));
    };
    let segments: Vec<_> = target.segments().collect();
    let last = segments.len().saturating_sub(1);
    for (at, segment) in segments.iter().copied().enumerate().filter(|(_, segment)| !segment.is_empty()) {
        let spelled = swap_case_outside_escapes(segment);
        add(format!("other case of `{segment}`"), target.with_segment(at, &spelled));
        if let Some((escaped, twice)) = percent_encode_first(segment) {
            add(format!("`{segment}` percent-encoded"), target.with_segment(at, &escaped));
            add(format!("`{segment}` percent-encoded twice"), target.with_segment(at, &twice));
        }
    }
    let values = values_in_segments(&segments, sources);
    for (at, segment) in segments.iter().copied().enumerate().filter(|(_, segment)| !segment.is_empty()) {
        let value = values.iter().find(|(segment, _)| *segment == at).map(|(_, value)| *value);
        for spelling in value.map(spellings).unwrap_or_default() {
            let value = value.unwrap_or_default();
            let spelled = percent_decode_lossy(segment).replacen(value, &spelling.text, 1);
            add(
                format!("{} of `{value}`", spelling.name),
                target.with_segment(at, &encode_segment(&spelled)),
            );
        }
        if value.is_some() || at == last {
            for (text, name) in BEHIND {
                add(
                    format!("{name} behind `{segment}`"),
                    target.with_segment(at, &format!("{segment}{text}")),
                );
            }
        }
    }
    match target.path.strip_suffix('/') {
        Some(shorter) if !shorter.is_empty() => add("no trailing slash".into(), target.with_path(shorter)),
        Some(_) => {}
        None => add("trailing slash".into(), target.with_path(&format!("{}/", target.path))),
    }
    if let Some((before, last)) = target.path.rsplit_once('/').filter(|(_, last)| !last.is_empty()) {
        for (between, name) in [("//", "doubled slash"), ("/./", "dot segment"), ("/x/../", "parent segment")]
        {
            add(format!("{name} before `{last}`"), target.with_path(&format!("{before}{between}{last}")));
        }
    }
    found
}

/// The values of path variables, each with the number of its segment.
fn values_in_segments<'s>(segments: &[&str], sources: &'s [SourceValue]) -> Vec<(usize, &'s str)> {
    let is_path = |value: &&SourceValue| matches!(value.source, TemplateValueSource::Path(_));
    let values = sources.iter().filter(is_path).filter_map(|value| value.raw.as_deref());
    let position = |value: &str| {
        let decoded = || segments.iter().map(|segment| percent_decode_lossy(segment));
        let whole = decoded().position(|segment| segment == value);
        // The segment may have other text around the variable.
        whole.or_else(|| decoded().position(|segment| segment.contains(value)))
    };
    values.filter_map(|value| Some((position(value)?, value))).collect()
}

/// The text with its escapes decoded; bytes that are not UTF-8 are replaced.
pub(super) fn percent_decode_lossy(text: &str) -> String {
    String::from_utf8_lossy(&decode_escapes(text)).into_owned()
}

/// The text as a segment of a path (RFC 3986, 3.3).
fn encode_segment(text: &str) -> String {
    percent_encode(text, b"-._~!$&'()*+,=:@")
}

/// The text with escapes for all but ASCII letters, digits and `plain`.
pub(super) fn percent_encode(text: &str, plain: &[u8]) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() || plain.contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The text with its first letter or digit escaped, and the text with the percent sign of that escape escaped,
/// too.
pub(super) fn percent_encode_first(text: &str) -> Option<(String, String)> {
    let first = text.chars().next().filter(char::is_ascii_alphanumeric)?;
    let digits = format!("{:02X}{}", u32::from(first), &text[1..]);
    Some((format!("%{digits}"), format!("%25{digits}")))
}

/// Swaps the case of letters outside of escapes. In an escape the case of digits has no meaning.
fn swap_case_outside_escapes(text: &str) -> String {
    let mut swapped = String::with_capacity(text.len());
    let mut parts = text.split('%');
    swapped.push_str(&swap_case(parts.next().unwrap_or_default()));
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        swapped.push('%');
        swapped.push_str(digits);
        swapped.push_str(&swap_case(rest));
    }
    swapped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target is taken apart and put together again, also one with its origin.
    #[test]
    fn target_keeps_its_other_parts() {
        for (target, path, query, changed) in [
            ("/a/b", "/a/b", None, "/a/X"),
            ("/a/b?c=/d", "/a/b", Some("c=/d"), "/a/X?c=/d"),
            ("http://h/a/b", "/a/b", None, "http://h/a/X"),
        ] {
            let parts = TargetParts::parse(target).expect("a path");
            assert_eq!((parts.path, parts.query), (path, query));
            assert_eq!(parts.with_segment(1, "X"), changed);
        }
        assert!(TargetParts::parse("*").is_none() && TargetParts::parse("http://h").is_none());
    }

    /// Escapes are read and written.
    #[test]
    fn escapes_are_decoded_and_encoded() {
        assert_eq!(percent_decode_lossy("a%2fb%ff"), "a/b\u{fffd}");
        assert_eq!(encode_segment("a {é"), "a%20%7B%C3%A9");
        assert_eq!(percent_encode_first("42"), Some(("%342".into(), "%25342".into())));
        assert_eq!(percent_encode_first("é"), None);
        assert_eq!(swap_case_outside_escapes("aB%2fc%é"), "Ab%2fC%é");
    }
}
