//! Reads a text into its tree, and fills in what it takes from the environment.

use std::{borrow::Cow, collections::HashSet};

use serde_saphyr::{
    Location, Options, Spanned, alias_limits,
    options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy},
};

use super::{
    document::{Key, Node, Scalar, Value},
    events::{Raw, place},
    slips::refused,
};
use crate::{
    diagnose::{Code, Diagnostic, Place},
    file::{
        environment::{Environment, Filling},
        faults::Faults,
    },
};

/// Reads the tree of one file.
struct Reader<'t> {
    text: &'t str,
    filling: Filling<'t>,
    faults: &'t Faults,
}

const LARGEST: usize = 8 << 20;

/// `None` where the text is not one YAML document of a sane size; a fault then says so.
pub(in crate::file) fn parse(text: &str, environment: &Environment, faults: &Faults) -> Option<Node> {
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
        // Repeated fields are refused later, together with all other mistakes.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // `<<` hides the fields of a mapping. Read as an ordinary field, it is reported as unknown.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        reject_unsupported_tags: true,
        with_snippet: false,
        // A few lines of nested aliases must not become a tree of millions of values.
        alias_limits: alias_limits! { max_total_replayed_events: 20_000 },
        budget: serde_saphyr::budget! { max_depth: 32, max_nodes: 1_000_000 },
    }
}

impl Reader<'_> {
    fn node(&self, raw: Spanned<Raw>) -> Node {
        let source = self.source(&raw.defined);
        let place = self.place(&raw);
        let value = match raw.value {
            Raw::Nothing => Value::Nothing,
            Raw::Scalar(text) => {
                let text = text.unwrap_or_else(|| source.to_owned());
                // Places inside an alias belong to the line of its anchor.
                let here = raw.defined == raw.referenced;
                let verbatim = here.then(|| quotes(source, &text)).flatten();
                self.filled(Scalar { text, place, verbatim })
            }
            Raw::List(items) => Value::List(items.into_iter().map(|item| self.node(item)).collect()),
            Raw::Mapping(entries) => Value::Mapping(self.entries(entries)),
        };
        Node { place, value }
    }

    /// The name of a field; `None` where the value cannot be a name. Variables of the environment are not replaced in
    /// names.
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
            // Parts of an expanded text stand nowhere in the file.
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
                let remedy = "write the name as one word, followed by `: `; a value in braces needs quotes";
                self.faults.push(Diagnostic::new(Code::WrongShape, message).at(place).remedy(remedy));
                continue;
            };
            if seen.insert(text.clone()) {
                entries.push((Key { text, place }, value));
            } else {
                let message = format!("`{text}` is there twice");
                let remedy = "leave one of the two out, or make one of both";
                self.faults.push(Diagnostic::new(Code::DuplicateField, message).at(place).remedy(remedy));
            }
        }
        entries
    }

    /// The text of the file from which a value was read.
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

/// How many quotes stand before the text; `None` where the file spells the text in another way.
fn quotes(source: &str, text: &str) -> Option<usize> {
    let unquoted = || source.get(1..source.len().checked_sub(1)?);
    match () {
        () if source == text => Some(0),
        () if unquoted() == Some(text) => Some(1),
        () => None,
    }
}
