//! Parses a key template, and refuses one whose keys could collide.

use super::{
    filter::{ParseTemplateFilterError, TemplateValueFilter},
    ignored_characters::is_blank,
    pointer::JsonPointer,
    template::{ByteSpan, KeyTemplate, KeyTemplatePart, TemplateValueSource, TemplateVariable},
};
use crate::{
    header_name::is_http_token,
    path::{is_unreserved, is_variable_name},
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ParseKeyTemplateError {
    pub span: ByteSpan,
    pub why: KeyTemplateErrorKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyTemplateErrorKind {
    #[error("{0}")]
    Syntax(&'static str),
    #[error("there is no source `{0}` of values")]
    UnknownSource(String),
    #[error("there is no filter `{0}`")]
    UnknownFilter(String),
    #[error("{0}")]
    MalformedFilter(String),
    /// Between two variables there is no character that a value cannot contain, so the values `a`, `bc` and `ab`,
    /// `c` would give the same key.
    #[error("two different pairs of values give the same key")]
    NotSeparated,
}

impl KeyTemplate {
    pub fn parse(text: &str) -> Result<Self, ParseKeyTemplateError> {
        if text.is_empty() {
            return Err(syntax_error(0..0, "a key is not empty"));
        }
        let mut parts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let (part, end) = match text[at..].starts_with('{') {
                true => parse_variable(text, at)?,
                false => parse_literal(text, at)?,
            };
            if matches!(part, KeyTemplatePart::Variable(_)) && !can_variable_follow(&parts) {
                return Err(ParseKeyTemplateError { span: at..end, why: KeyTemplateErrorKind::NotSeparated });
            }
            parts.push(part);
            at = end;
        }
        Ok(Self { parts })
    }
}

/// Whether a variable may follow `parts`: if another variable is before it, the literal between them must contain a
/// character that no escaped value has. Then the end of the first value is visible in the key.
fn can_variable_follow(parts: &[KeyTemplatePart]) -> bool {
    match parts {
        [.., KeyTemplatePart::Variable(_)] => false,
        [.., KeyTemplatePart::Variable(_), KeyTemplatePart::Literal(between)] => {
            between.bytes().any(|byte| !is_unreserved(byte))
        }
        _ => true,
    }
}

/// Parses the literal that begins at `at`. Returns it with its end.
fn parse_literal(text: &str, at: usize) -> Result<(KeyTemplatePart, usize), ParseKeyTemplateError> {
    let end = text[at..].find('{').map_or(text.len(), |length| at + length);
    for (index, char) in text[at..end].char_indices() {
        let why = match char {
            // `%` begins an escaped byte of a value, so a literal cannot contain it.
            '%' => "a literal has no `%`",
            '}' => "a `}` without its `{`",
            '!'..='~' => continue,
            _ => "a literal has printable ASCII characters only, and no spaces",
        };
        let start = at + index;
        return Err(syntax_error(start..start + char.len_utf8(), why));
    }
    Ok((KeyTemplatePart::Literal(text[at..end].into()), end))
}

/// Parses the `{...}` that begins at `at`. Returns it with its end.
pub(super) fn parse_variable(
    text: &str,
    at: usize,
) -> Result<(KeyTemplatePart, usize), ParseKeyTemplateError> {
    let Some(length) =
        positions_outside_quotes(&text[at..]).find_map(|(at, char)| (char == '}').then_some(at))
    else {
        return Err(syntax_error(at..text.len(), "a `{` without its `}`"));
    };
    let end = at + length + 1;
    let mut words = trim_words(text, at + 1..end - 1);
    let span = words.next().expect("splitting gives at least one part");
    let source = parse_source(&text[span.clone()], if span.is_empty() { at..end } else { span.clone() })?;
    let filters = words.map(|span| parse_filter(&text[span.clone()], span)).collect::<Result<_, _>>()?;
    Ok((KeyTemplatePart::Variable(TemplateVariable { source, filters, span }), end))
}

/// The characters of a variable that are not in quotes. Only a filter has quotes; the name of a source may contain
/// one.
fn positions_outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut in_filters = false;
    let mut quoted = false;
    text.char_indices().filter(move |(_, char)| {
        match char {
            '\'' if in_filters => quoted = !quoted,
            '|' => in_filters = true,
            _ => {}
        }
        !quoted
    })
}

/// The positions of the words between the bars, without surrounding spaces.
fn trim_words(text: &str, inside: ByteSpan) -> impl Iterator<Item = ByteSpan> {
    let mut ends: Vec<usize> = positions_outside_quotes(&text[inside.clone()])
        .filter_map(|(at, char)| (char == '|').then_some(inside.start + at))
        .collect();
    ends.push(inside.end);
    let mut at = inside.start;
    ends.into_iter().map(move |end| {
        let word = &text[at..end];
        let start = at + (word.len() - word.trim_start().len());
        at = end + 1;
        start..start + word.trim().len()
    })
}

fn parse_source(word: &str, span: ByteSpan) -> Result<TemplateValueSource, ParseKeyTemplateError> {
    let end = word.find(['.', ':']).unwrap_or(word.len());
    let (kind, name) = word.split_at(end);
    if !TemplateValueSource::WORDS.contains(&kind) {
        let kind_span = span.start..span.start + kind.len().max(1);
        return Err(ParseKeyTemplateError {
            span: kind_span,
            why: KeyTemplateErrorKind::UnknownSource(kind.to_owned()),
        });
    }
    if kind == "body" {
        let pointer = name.strip_prefix(':').unwrap_or_default();
        return JsonPointer::parse(pointer)
            .map(TemplateValueSource::Body)
            .map_err(|why| syntax_error(span, why));
    }
    if kind == "jwt" {
        let pointer = name.strip_prefix(':').unwrap_or_default();
        return JsonPointer::parse(pointer).map(TemplateValueSource::Jwt).map_err(|why| {
            let unnamed = "a claim is named by a pointer, such as `jwt:/sub`";
            syntax_error(span, if pointer.starts_with('/') { why } else { unnamed })
        });
    }
    match (kind, name.strip_prefix('.')) {
        ("host", _) if name.is_empty() => Ok(TemplateValueSource::Host),
        ("host", _) => Err(syntax_error(span, "`host` has no parts")),
        ("client", Some("name")) => Ok(TemplateValueSource::ClientName),
        ("client", _) => Err(syntax_error(span, "of a client only its name is known: `client.name`")),
        ("path", Some(name)) if is_variable_name(name) => Ok(TemplateValueSource::Path(name.into())),
        ("query", Some(name)) if is_valid_parameter_name(name) => Ok(match name.strip_suffix('*') {
            Some("") | None => TemplateValueSource::Query(name.into()),
            Some(name) => TemplateValueSource::QueryList(name.into()),
        }),
        ("form", Some(name)) if is_valid_parameter_name(name) => Ok(match name.strip_suffix('*') {
            Some("") | None => TemplateValueSource::Form(name.into()),
            Some(name) => TemplateValueSource::FormList(name.into()),
        }),
        ("header", Some(name)) if is_http_token(name) => {
            let name = name.to_ascii_lowercase();
            Ok(match name.strip_suffix('*') {
                Some("") | None => TemplateValueSource::Header(name.into()),
                Some(name) => TemplateValueSource::HeaderList(name.into()),
            })
        }
        _ => Err(syntax_error(span, "a source has a name after a dot, such as `path.order_id`")),
    }
}

fn parse_filter(word: &str, span: ByteSpan) -> Result<TemplateValueFilter, ParseKeyTemplateError> {
    TemplateValueFilter::parse(word).map_err(|bad| ParseKeyTemplateError {
        span: span.start..span.end.max(span.start + 1),
        why: match bad {
            ParseTemplateFilterError::Unknown => KeyTemplateErrorKind::UnknownFilter(word.to_owned()),
            ParseTemplateFilterError::Malformed(reason) => KeyTemplateErrorKind::MalformedFilter(reason),
        },
    })
}

fn is_valid_parameter_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|char: char| is_blank(char) || char.is_control())
}

fn syntax_error(span: ByteSpan, why: &'static str) -> ParseKeyTemplateError {
    ParseKeyTemplateError { span, why: KeyTemplateErrorKind::Syntax(why) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The error of an invalid template has its place and its reason.
    #[test]
    fn template_error_has_place_and_reason() {
        use KeyTemplateErrorKind::*;
        for (text, span, why) in [
            ("", 0..0, "a key is not empty"),
            ("a b", 1..2, "a literal has printable ASCII characters only, and no spaces"),
            ("é", 0..2, "a literal has printable ASCII characters only, and no spaces"),
            ("a%2F", 1..2, "a literal has no `%`"),
            ("a}", 1..2, "a `}` without its `{`"),
            ("a{path.b", 1..8, "a `{` without its `}`"),
            ("{path}", 1..5, "a source has a name after a dot, such as `path.order_id`"),
            ("{path.}", 1..6, "a source has a name after a dot, such as `path.order_id`"),
            ("{path.a b}", 1..9, "a source has a name after a dot, such as `path.order_id`"),
            ("{header.a:b}", 1..11, "a source has a name after a dot, such as `path.order_id`"),
            ("{query.\u{feff}a}", 1..11, "a source has a name after a dot, such as `path.order_id`"),
            ("{form.\u{feff}a}", 1..10, "a source has a name after a dot, such as `path.order_id`"),
            ("{query:a}", 1..8, "a source has a name after a dot, such as `path.order_id`"),
            ("{form:/a}", 1..8, "a source has a name after a dot, such as `path.order_id`"),
            ("{host.x}", 1..7, "`host` has no parts"),
            ("{host:80}", 1..8, "`host` has no parts"),
            ("{client}", 1..7, "of a client only its name is known: `client.name`"),
            ("{client.cn}", 1..10, "of a client only its name is known: `client.name`"),
            ("{jwt}", 1..4, "a claim is named by a pointer, such as `jwt:/sub`"),
            ("{jwt.sub}", 1..8, "a claim is named by a pointer, such as `jwt:/sub`"),
            ("{jwt:/~}", 1..7, "within a pointer `~` is written `~0`, and a slash of a name `~1`"),
            ("{body}", 1..5, "a pointer begins with a slash, such as `body:/order/id`"),
            ("{body.id}", 1..8, "a pointer begins with a slash, such as `body:/order/id`"),
            ("{body:id | int}", 1..8, "a pointer begins with a slash, such as `body:/order/id`"),
            ("{body:/~}", 1..8, "within a pointer `~` is written `~0`, and a slash of a name `~1`"),
        ] {
            let bad = KeyTemplate::parse(text).expect_err(text);
            assert_eq!((bad.span, bad.why), (span, Syntax(why)), "{text}");
        }
        for (text, span, why) in [
            ("{}", 0..1, UnknownSource("".into())),
            ("{paht.x}", 1..5, UnknownSource("paht".into())),
            ("{bdy:/a}", 1..4, UnknownSource("bdy".into())),
            ("{:/a}", 1..2, UnknownSource("".into())),
            ("{path.a|upper}", 8..13, UnknownFilter("upper".into())),
            ("{path.a|}", 8..9, UnknownFilter("".into())),
            ("{path.a|int('x')}", 8..16, MalformedFilter("`int` takes no arguments".into())),
            ("{path.a}{path.b}", 8..16, NotSeparated),
            ("{path.a}-{path.b}", 9..17, NotSeparated),
        ] {
            let bad = KeyTemplate::parse(text).expect_err(text);
            assert_eq!((bad.span, bad.why), (span, why), "{text}");
        }
    }

    proptest! {
        /// Any text is a template that is displayed as it was read, or an error with its place.
        #[test]
        fn template_round_trips_or_fails_in_place(
            text in "\\PC{0,20}|([a-c/:%}]|\\{|\\{(path|query|form|header)\\.[a-z]{1,2}|\\{host|\\{client\\.name|\\{(body|jwt):(/[a-z~01]{0,2}){0,2}| ?\\| ?(lower|trim|int|uuid|match\\('[a-z}|]{0,3}'\\)|without\\('[.x]{0,2}'\\))|\\}){0,9}",
        ) {
            match KeyTemplate::parse(&text) {
                Ok(template) => {
                    let written = template.to_string();
                    let again = KeyTemplate::parse(&written);
                    prop_assert_eq!(again.map(|template| template.to_string()), Ok(written));
                }
                Err(bad) => prop_assert!(text.get(bad.span.clone()).is_some(), "{:?} in {:?}", bad, text),
            }
        }
    }
}
