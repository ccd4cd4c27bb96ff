//! The text as a tree of mappings, lists and scalars, each of which knows its place.

use std::{borrow::Cow, collections::HashSet, fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    Error, Location, Options, Spanned, alias_limits,
    options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy},
};

use super::{
    Faults,
    environment::{Environment, Filling},
};
use crate::diagnose::{Code, Diagnostic, Place};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Nothing after the colon, or `null`: the same as not writing the field.
    Nothing,
    /// What should stand here could not be told; a fault has said why.
    Unset,
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) place: Place,
}

/// A single value, as text: what it means is decided by the field that it is for, so `007` is a good name.
#[derive(Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) place: Place,
    /// Characters from the place to the text (a quote), where the text stands in the file just as it is.
    verbatim: Option<usize>,
}

/// As the parser hands it over.
enum Raw {
    Nothing,
    /// Its text; `None` where the parser has made a number of it, so that only the file still has the text.
    Scalar(Option<String>),
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

/// Reads the tree of one file.
struct Reader<'t> {
    text: &'t str,
    filling: Filling<'t>,
    faults: &'t Faults,
}

const LARGEST: usize = 8 << 20;

/// `None` where the text is not one YAML document of a sane size; a fault then says so.
pub(super) fn parse(text: &str, environment: &Environment, faults: &Faults) -> Option<Node> {
    if text.len() > LARGEST {
        faults.push(Diagnostic::new(Code::TooMuch, "the file is larger than 8 MiB"));
        return None;
    }
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options()) {
        Ok(raw) => Some(Reader { text, filling: Filling::of(environment), faults }.node(raw)),
        Err(error) => {
            faults.push(refused(&error, text));
            None
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        // Repeated fields are reported with all other mistakes, and never accepted.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // `<<` hides which fields a mapping has; as an ordinary field it is an unknown one.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        reject_unsupported_tags: true,
        with_snippet: false,
        // A few lines of aliases of aliases must not become a tree of millions.
        alias_limits: alias_limits! { max_total_replayed_events: 20_000 },
        budget: serde_saphyr::budget! { max_depth: 32, max_nodes: 1_000_000 },
    }
}

fn refused(error: &Error, text: &str) -> Diagnostic {
    let diagnostic = match error {
        Error::AliasError { error, .. } => refused(error, text),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => {
            Diagnostic::new(Code::TooMuch, "the file is deeper or more repetitive than any policy")
        }
        Error::MultipleDocuments { .. } => {
            Diagnostic::new(Code::Syntax, "a policy is one YAML document, and here begins a second one")
        }
        other => {
            let message = other.to_string();
            // The place is shown by itself.
            let message = match message.split(" at line ").next().unwrap_or_default() {
                // In words of another language.
                other if other.contains("recursive references") => "an alias stands within itself",
                other => other,
            };
            let diagnostic = Diagnostic::new(Code::Syntax, format!("the file is not YAML: {message}"));
            match slip(message) {
                Some(remedy) => diagnostic.remedy(remedy),
                None => diagnostic,
            }
        }
    };
    let at = error.location().filter(|location| *location != Location::UNKNOWN);
    let Some(at) = at.map(|location| place(&location, 1)) else { return diagnostic };
    match culprit(text, at) {
        Some((culprit, remedy)) => diagnostic.at(culprit).remedy(remedy),
        None => diagnostic.at(at),
    }
}

/// What a parser cannot know: it stumbles over what comes after a slip, or before it.
fn culprit(text: &str, at: Place) -> Option<(Place, &'static str)> {
    let indented_by_tab = |line: &str| {
        let indentation = line.len() - line.trim_start().len();
        line[..indentation].find('\t').filter(|_| indentation < line.len())
    };
    let mut near = text.lines().enumerate().skip(at.line.saturating_sub(1)).take(2);
    if let Some((line, tab)) = near.find_map(|(line, text)| Some((line + 1, indented_by_tab(text)?))) {
        return Some((Place { line, column: tab + 1, width: 1 }, TABS));
    }
    // Where a quote was never closed, the next one closes it, and what follows makes no sense.
    let before = text.lines().enumerate().take(at.line);
    let open = before.filter(|(_, line)| has_open_quote(line)).last();
    open.map(|(line, text)| {
        let column = text.find('"').map_or(1, |quote| text[..quote].chars().count() + 1);
        (Place { line: line + 1, column, width: 1 }, "close the quote that is opened here, in the same line")
    })
}

const TABS: &str = "indent with spaces: YAML takes no tabs there";

/// An odd number of double quotes, not counting what a comment or single quotes have.
fn has_open_quote(line: &str) -> bool {
    let (mut double, mut single, mut before) = (false, false, ' ');
    for char in line.chars() {
        match char {
            '"' if !single && before != '\\' => double = !double,
            '\'' if !double && (single || !before.is_alphanumeric()) => single = !single,
            '#' if !double && !single && before.is_whitespace() => break,
            _ => {}
        }
        before = char;
    }
    double
}

/// What most often leads to such a message.
fn slip(message: &str) -> Option<&'static str> {
    const SLIPS: [(&str, &str); 6] = [
        ("within itself", "write its fields out where the alias stands"),
        ("tabs disallowed", TABS),
        (
            "parsing a flow",
            "within `{}` and `[]`, put quotes around a value with one of `{}[],`: `path: \"/v1/{id}\"`",
        ),
        (
            "parsing a block",
            "begin it in the same column as its neighbours, and close every quote and bracket above",
        ),
        ("mapping values are not allowed", "put quotes around a value that has `: ` in it"),
        (
            "cannot start any token",
            "put quotes around a value that begins with one of `@`, `%` and the backquote",
        ),
    ];
    SLIPS.iter().find(|(part, _)| message.contains(part)).map(|(_, remedy)| *remedy)
}

fn place(location: &Location, width: usize) -> Place {
    let number = |given: u64| usize::try_from(given).unwrap_or(usize::MAX);
    Place { line: number(location.line()), column: number(location.column()), width }
}

impl Reader<'_> {
    fn node(&self, raw: Spanned<Raw>) -> Node {
        let source = self.source(&raw.defined);
        let place = self.place(&raw);
        let value = match raw.value {
            Raw::Nothing => Value::Nothing,
            Raw::Scalar(text) => {
                let text = text.unwrap_or_else(|| source.to_owned());
                // The places inside an alias are those of another line.
                let here = raw.defined == raw.referenced;
                let verbatim = here.then(|| quotes(source, &text)).flatten();
                self.filled(Scalar { text, place, verbatim })
            }
            Raw::List(items) => Value::List(items.into_iter().map(|item| self.node(item)).collect()),
            Raw::Mapping(entries) => Value::Mapping(self.entries(entries)),
        };
        Node { place, value }
    }

    /// The name of a field, in which no variable of the environment counts; `None` where it is none.
    fn word(&self, key: Spanned<Raw>) -> Option<String> {
        let source = self.source(&key.defined);
        match key.value {
            Raw::Scalar(text) => Some(text.unwrap_or_else(|| source.to_owned())),
            _ => None,
        }
    }

    fn place(&self, raw: &Spanned<Raw>) -> Place {
        let first_line = self.source(&raw.defined).lines().next().unwrap_or_default();
        place(&raw.referenced, first_line.chars().count().max(1))
    }

    fn filled(&self, scalar: Scalar) -> Value {
        match self.filling.filled(&scalar.text) {
            Ok(Cow::Borrowed(_)) => Value::Scalar(scalar),
            // Parts of it stand nowhere in the file.
            Ok(Cow::Owned(text)) => Value::Scalar(Scalar { text, verbatim: None, ..scalar }),
            Err(fault) => {
                self.faults.push(fault.at(scalar.place));
                Value::Unset
            }
        }
    }

    fn entries(&self, raw: Vec<(Spanned<Raw>, Spanned<Raw>)>) -> Vec<(Key, Node)> {
        let (mut seen, mut entries) = (HashSet::new(), Vec::new());
        for (key, value) in raw {
            let (place, value) = (self.place(&key), self.node(value));
            let Some(text) = self.word(key) else {
                let message = "the name of a field is a single word";
                self.faults.push(Diagnostic::new(Code::WrongShape, message).at(place));
                continue;
            };
            if seen.insert(text.clone()) {
                entries.push((Key { text, place }, value));
            } else {
                let message = format!("`{text}` is there twice");
                self.faults.push(Diagnostic::new(Code::DuplicateField, message).at(place));
            }
        }
        entries
    }

    /// The part of the file that a value was read from.
    fn source(&self, location: &Location) -> &str {
        let span = location.span();
        let part = || {
            let start = usize::try_from(span.byte_offset()?).ok()?;
            let length = usize::try_from(span.byte_len()?).ok()?;
            self.text.get(start..start.checked_add(length)?)
        };
        part().unwrap_or_default()
    }
}

/// How many quotes stand before the text, or `None` where the source does not have the text just as it is.
fn quotes(source: &str, text: &str) -> Option<usize> {
    let unquoted = || source.get(1..source.len().checked_sub(1)?);
    match () {
        () if source == text => Some(0),
        () if unquoted() == Some(text) => Some(1),
        () => None,
    }
}

impl Scalar {
    /// The place of a part of the text, given in bytes; the whole scalar where the file spells it differently.
    pub(super) fn part(&self, span: Range<usize>) -> Place {
        let (Some(quotes), Some(before), Some(part)) =
            (self.verbatim, self.text.get(..span.start), self.text.get(span.clone()))
        else {
            return self.place;
        };
        Place {
            line: self.place.line,
            column: self.place.column + quotes + before.chars().count(),
            width: part.chars().count().max(1),
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyYaml)
    }
}

struct AnyYaml;

impl<'de> Visitor<'de> for AnyYaml {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list or a single value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Some(text.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(None))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Scalar(None))
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Scalar(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(None))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Raw::Mapping(mapping))
    }
}
