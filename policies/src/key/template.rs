//! Reads a key template such as `order/{path.order_id | lower}`, and refuses one whose keys could collide.

use std::{fmt, ops::Range};

use super::{Pointer, ResourceKey};
use crate::path::{is_name, is_unreserved};

/// A parsed key template. Two sets of (filtered) values never give one key: see [`Why::Unseparated`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Box<str>),
    Variable(Variable),
}

/// One `{...}` of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub source: Source,
    /// Applied to the value, first to last.
    pub filters: Vec<Filter>,
    /// Where the source stands in the text of the template, for carets.
    pub span: Span,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A variable of the route's path template.
    Path(Box<str>),
    /// A query parameter; its name as it is once decoded.
    Query(Box<str>),
    /// A header field; its name in lower case.
    Header(Box<str>),
    /// The host without its port.
    Host,
    /// A string, an integer or a boolean in a JSON body.
    Body(Pointer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// ASCII letters to lower case. Only ASCII: Unicode's tables grow, and gateways of two versions must agree.
    Lower,
    /// Spaces off both ends.
    Trim,
    /// A whole number of at most 39 digits, without leading zeros.
    Int,
}

/// Part of a template's text, in bytes.
pub type Span = Range<usize>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadKeyTemplate {
    pub span: Span,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("{0}")]
    Syntax(&'static str),
    #[error("there is no source `{0}` of values")]
    UnknownSource(String),
    #[error("there is no filter `{0}`")]
    UnknownFilter(String),
    /// Between two variables stands nothing that cannot be part of a value, so `a`, `bc` and `ab`, `c` are one key.
    #[error("two different pairs of values give the same key")]
    Unseparated,
}

impl KeyTemplate {
    pub fn parse(text: &str) -> Result<Self, BadKeyTemplate> {
        if text.is_empty() {
            return Err(syntax(0..0, "a key is not empty"));
        }
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let (part, end) = match text[at..].starts_with('{') {
                true => variable(text, at)?,
                false => literal(text, at)?,
            };
            if matches!(part, Part::Variable(_)) && !separated(&parts) {
                return Err(BadKeyTemplate { span: at..end, why: Why::Unseparated });
            }
            parts.push(part);
            at = end;
        }
        Ok(Self { parts })
    }

    /// False if even the shortest values make a key that is too long.
    pub(crate) fn can_fit(&self) -> bool {
        let shortest = self.parts.iter().map(|part| match part {
            Part::Literal(literal) => literal,
            Part::Variable(_) => "x",
        });
        ResourceKey::new(shortest.collect()).is_some()
    }

    /// The same for two templates that some values give one key, as far as that can be seen without the values.
    pub(crate) fn shape(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(literal) => literal,
            Part::Variable(_) => "{}",
        });
        parts.collect()
    }

    /// True of every key that some values give, and of a few others: values are not looked at, only what stands before
    /// and behind all of them.
    pub fn may_give(&self, key: &ResourceKey) -> bool {
        let key = key.as_str();
        let literal = |part: Option<&Part>| match part {
            Some(Part::Literal(literal)) => literal.to_string(),
            _ => String::new(),
        };
        if self.variables().next().is_none() {
            return key == literal(self.parts.first());
        }
        let (before, behind) = (literal(self.parts.first()), literal(self.parts.last()));
        key.len() >= before.len() + behind.len() && key.starts_with(&before) && key.ends_with(&behind)
    }

    /// Left to right.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Variable(variable) => Some(variable),
        })
    }

    /// What the key takes from a JSON body.
    pub fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.variables().filter_map(|variable| match &variable.source {
            Source::Body(pointer) => Some(pointer),
            _ => None,
        })
    }
}

impl Source {
    /// The words before the dot or colon.
    pub const WORDS: [&str; 5] = ["path", "query", "header", "host", "body"];
}

impl Filter {
    pub const WORDS: [&str; 3] = ["lower", "trim", "int"];

    fn parse(word: &str) -> Option<Self> {
        match word {
            "lower" => Some(Self::Lower),
            "trim" => Some(Self::Trim),
            "int" => Some(Self::Int),
            _ => None,
        }
    }
}

/// True if a variable may follow `parts`: none went before, or the literal between has a character that no escaped
/// value has. A reader of the key then knows where the value ends.
fn separated(parts: &[Part]) -> bool {
    match parts {
        [.., Part::Variable(_)] => false,
        [.., Part::Variable(_), Part::Literal(between)] => between.bytes().any(|byte| !is_unreserved(byte)),
        _ => true,
    }
}

/// The literal that begins at `at`, and where it ends.
fn literal(text: &str, at: usize) -> Result<(Part, usize), BadKeyTemplate> {
    let end = text[at..].find('{').map_or(text.len(), |length| at + length);
    for (index, char) in text[at..end].char_indices() {
        let why = match char {
            // `%` marks an escaped byte of a value.
            '%' => "a literal has no `%`",
            '}' => "a `}` without its `{`",
            '!'..='~' => continue,
            _ => "a literal has printable ASCII characters only, and no spaces",
        };
        let start = at + index;
        return Err(syntax(start..start + char.len_utf8(), why));
    }
    Ok((Part::Literal(text[at..end].into()), end))
}

/// The `{...}` that begins at `at`, and where it ends.
fn variable(text: &str, at: usize) -> Result<(Part, usize), BadKeyTemplate> {
    let Some(length) = text[at..].find('}') else {
        return Err(syntax(at..text.len(), "a `{` without its `}`"));
    };
    let end = at + length + 1;
    let mut words = trimmed_words(text, at + 1..end - 1);
    let span = words.next().expect("splitting gives at least one part");
    let source = source(&text[span.clone()], if span.is_empty() { at..end } else { span.clone() })?;
    let filters = words.map(|span| filter(&text[span.clone()], span)).collect::<Result<_, _>>()?;
    Ok((Part::Variable(Variable { source, filters, span }), end))
}

/// What stands between the bars, without the spaces around it.
fn trimmed_words(text: &str, inside: Span) -> impl Iterator<Item = Span> {
    let mut at = inside.start;
    text[inside].split('|').map(move |word| {
        let start = at + (word.len() - word.trim_start().len());
        at += word.len() + 1;
        start..start + word.trim().len()
    })
}

fn source(word: &str, span: Span) -> Result<Source, BadKeyTemplate> {
    let end = word.find(['.', ':']).unwrap_or(word.len());
    let (kind, name) = word.split_at(end);
    if !Source::WORDS.contains(&kind) {
        let kind_span = span.start..span.start + kind.len().max(1);
        return Err(BadKeyTemplate { span: kind_span, why: Why::UnknownSource(kind.to_owned()) });
    }
    if kind == "body" {
        let pointer = name.strip_prefix(':').unwrap_or_default();
        return Pointer::parse(pointer).map(Source::Body).map_err(|why| syntax(span, why));
    }
    match (kind, name.strip_prefix('.')) {
        ("host", _) if name.is_empty() => Ok(Source::Host),
        ("host", _) => Err(syntax(span, "`host` has no parts")),
        ("path", Some(name)) if is_name(name) => Ok(Source::Path(name.into())),
        ("query", Some(name)) if is_parameter(name) => Ok(Source::Query(name.into())),
        ("header", Some(name)) if is_token(name) => Ok(Source::Header(name.to_ascii_lowercase().into())),
        _ => Err(syntax(span, "a source has a name after a dot, such as `path.order_id`")),
    }
}

fn filter(word: &str, span: Span) -> Result<Filter, BadKeyTemplate> {
    let why = || Why::UnknownFilter(word.to_owned());
    Filter::parse(word)
        .ok_or_else(|| BadKeyTemplate { span: span.start..span.end.max(span.start + 1), why: why() })
}

fn is_parameter(name: &str) -> bool {
    !name.is_empty() && !name.contains(|char: char| char.is_whitespace() || char.is_control())
}

/// A header field name or method (RFC 9110, 5.6.2).
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn syntax(span: Span, why: &'static str) -> BadKeyTemplate {
    BadKeyTemplate { span, why: Why::Syntax(why) }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Literal(literal) => f.write_str(literal),
            Part::Variable(variable) => {
                write!(f, "{{{}", variable.source)?;
                variable.filters.iter().try_for_each(|filter| write!(f, " | {filter}"))?;
                f.write_str("}")
            }
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(name) => write!(f, "path.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Host => f.write_str("host"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower",
            Self::Trim => "trim",
            Self::Int => "int",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_written_in_one_way() {
        for (text, written) in [
            ("order/{path.order_id}", "order/{path.order_id}"),
            ("{host}/{ header.X-Account|trim|lower }", "{host}/{header.x-account | trim | lower}"),
            ("{query.account-id | int}", "{query.account-id | int}"),
            ("the-one-lock", "the-one-lock"),
            ("a{path.a}-x:y-{path.b}z", "a{path.a}-x:y-{path.b}z"),
            ("{body:/a.b/0/c:d e~1f|int}/{body:/}", "{body:/a.b/0/c:d e~1f | int}/{body:/}"),
        ] {
            assert_eq!(KeyTemplate::parse(text).expect(text).to_string(), written);
        }
    }

    #[test]
    fn a_template_is_found_by_every_key_that_it_gives() {
        for (template, key, may) in [
            ("account/{path.id}", "account/7", true),
            ("account/{path.id}", "konto/7", false),
            ("a/{path.id}/{path.b}/z", "a/1/2/z", true),
            ("a/{path.id}/z", "a/z", false),
            ("{host}", "anything", true),
            ("one-lock", "one-lock", true),
            ("one-lock", "one-lock/7", false),
        ] {
            let (template, key) = (KeyTemplate::parse(template).expect(template), ResourceKey::parse(key));
            assert_eq!(template.may_give(&key.expect("a key")), may, "{template}");
        }
    }

    #[test]
    fn a_variable_knows_where_its_source_stands() {
        let span =
            |text: &str| KeyTemplate::parse(text).expect(text).variables().next().expect("one").span.clone();
        assert_eq!(span("a/{path.b}"), 3..9);
        assert_eq!(span("a/{ path.b | lower}"), 4..10);
    }

    #[test]
    fn a_bad_template_says_where_and_why() {
        use Why::*;
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
            ("{query:a}", 1..8, "a source has a name after a dot, such as `path.order_id`"),
            ("{host.x}", 1..7, "`host` has no parts"),
            ("{host:80}", 1..8, "`host` has no parts"),
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
            ("{path.a}{path.b}", 8..16, Unseparated),
            ("{path.a}-{path.b}", 9..17, Unseparated),
        ] {
            let bad = KeyTemplate::parse(text).expect_err(text);
            assert_eq!((bad.span, bad.why), (span, why), "{text}");
        }
    }
}
