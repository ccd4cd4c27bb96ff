//! Reads a text into its tree, and replaces variables with values of the environment.

use std::{borrow::Cow, collections::HashSet};

use serde_saphyr::{
    Location, Options, Spanned, alias_limits,
    options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy},
};

use super::{
    ast::{YamlMappingKey, YamlNode, YamlNodeValue, YamlScalar},
    errors::to_diagnostic,
    events::{RawYamlValue, place},
};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    file::{
        diagnostics::Diagnostics,
        environment::{EnvExpander, Environment},
    },
};

/// Reads the tree of one file.
struct YamlNodeReader<'t> {
    text: &'t str,
    filling: EnvExpander<'t>,
    faults: &'t Diagnostics,
}

const LARGEST: usize = 8 << 20;

/// Reads the tree of a text. `None` if the text is not a single YAML document of acceptable size; this has been
/// reported.
pub(in crate::file) fn parse(
    text: &str,
    environment: &Environment,
    faults: &Diagnostics,
) -> Option<YamlNode> {
    if text.len() > LARGEST {
        faults.push(Diagnostic::new(DiagnosticCode::TooMuch, "the file is larger than 8 MiB"));
        return None;
    }
    match serde_saphyr::from_str_with_options::<Spanned<RawYamlValue>>(text, options()) {
        Ok(raw) => Some(YamlNodeReader { text, filling: EnvExpander::new(environment), faults }.node(raw)),
        Err(error) => {
            faults.push(to_diagnostic(&error, text));
            None
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        // Accepted here; repeated fields are reported later, together with all other mistakes.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // A merge key `<<` would hide the fields of a mapping. Read as an ordinary field, it is reported as unknown.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        reject_unsupported_tags: true,
        with_snippet: false,
        // Bounds what nested aliases expand to: a few lines could otherwise become a tree of millions of values.
        alias_limits: alias_limits! { max_total_replayed_events: 20_000 },
        // The size limit of the file already bounds the comments; many commented lines are no mistake.
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_nodes: 1_000_000,
            max_buffered_comment_events: LARGEST,
        },
    }
}

impl YamlNodeReader<'_> {
    fn node(&self, raw: Spanned<RawYamlValue>) -> YamlNode {
        let source = self.source(&raw.defined);
        let place = self.place(&raw);
        let value = match raw.value {
            RawYamlValue::Nothing => YamlNodeValue::Nothing,
            RawYamlValue::Scalar(text) => {
                let is_text = text.is_some();
                let text = text.unwrap_or_else(|| source.to_owned());
                // Inside an alias, positions in the text belong to the line of its anchor, so no part of it has a
                // place of its own.
                let here = raw.defined == raw.referenced;
                let verbatim = here.then(|| opening_quote_len(source, &text)).flatten();
                self.expand_scalar(YamlScalar { text, place, is_text, verbatim })
            }
            RawYamlValue::List(items) => {
                YamlNodeValue::List(items.into_iter().map(|item| self.node(item)).collect())
            }
            RawYamlValue::Mapping(entries) => YamlNodeValue::Mapping(self.entries(entries)),
        };
        YamlNode { place, value }
    }

    /// The name of a field; `None` if the value cannot be a name. Variables are not replaced in names.
    fn key_text(&self, key: Spanned<RawYamlValue>) -> Option<String> {
        let source = self.source(&key.defined);
        match key.value {
            RawYamlValue::Scalar(text) => Some(text.unwrap_or_else(|| source.to_owned())),
            _ => None,
        }
    }

    fn place(&self, raw: &Spanned<RawYamlValue>) -> SourceSpan {
        let first_line = self.source(&raw.defined).lines().next().unwrap_or_default();
        place(&raw.referenced, first_line.chars().count().max(1))
    }

    fn expand_scalar(&self, scalar: YamlScalar) -> YamlNodeValue {
        match self.filling.expand(&scalar.text) {
            Ok(Cow::Borrowed(_)) => YamlNodeValue::Scalar(scalar),
            // The parts of an expanded text are not in the file, so only the whole has a place.
            Ok(Cow::Owned(text)) => YamlNodeValue::Scalar(YamlScalar { text, verbatim: None, ..scalar }),
            Err(fault) => {
                self.faults.push(fault.at(scalar.place));
                YamlNodeValue::Unset
            }
        }
    }

    fn entries(
        &self,
        raw: Vec<(Spanned<RawYamlValue>, Spanned<RawYamlValue>)>,
    ) -> Vec<(YamlMappingKey, YamlNode)> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        for (key, value) in raw {
            let place = self.place(&key);
            let value = self.node(value);
            let Some(text) = self.key_text(key) else {
                let message = "the name of a field is a single word";
                let remedy = "write the name as one word, followed by `: `; a value in braces needs quotes";
                self.faults
                    .push(Diagnostic::new(DiagnosticCode::WrongShape, message).at(place).with_remedy(remedy));
                continue;
            };
            if seen.insert(text.clone()) {
                entries.push((YamlMappingKey { text, place }, value));
            } else {
                let message = format!("`{text}` is there twice");
                let remedy = "leave one of the two out, or make one of both";
                self.faults.push(
                    Diagnostic::new(DiagnosticCode::DuplicateField, message).at(place).with_remedy(remedy),
                );
            }
        }
        entries
    }

    /// The text in the file from which a value was read.
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

/// The number of quotes before the text; `None` if the file spells the text in another way.
fn opening_quote_len(source: &str, text: &str) -> Option<usize> {
    let unquoted = || source.get(1..source.len().checked_sub(1)?);
    match () {
        () if source == text => Some(0),
        () if unquoted() == Some(text) => Some(1),
        () => None,
    }
}
