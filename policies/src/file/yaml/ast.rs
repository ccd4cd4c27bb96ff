//! The text as a tree of mappings, lists and scalars, each of which has its place.

use std::ops::Range;

use crate::diagnostics::SourceSpan;

#[derive(Debug)]
pub(in crate::file) struct YamlNode {
    pub(in crate::file) place: SourceSpan,
    pub(in crate::file) value: YamlNodeValue,
}

#[derive(Debug)]
pub(in crate::file) enum YamlNodeValue {
    /// No value after the colon, or `null`. The field counts as absent.
    Nothing,
    /// A value that could not be determined; this has been reported.
    Unset,
    Scalar(YamlScalar),
    List(Vec<YamlNode>),
    Mapping(Vec<(YamlMappingKey, YamlNode)>),
}

#[derive(Debug)]
pub(in crate::file) struct YamlMappingKey {
    pub(in crate::file) text: String,
    pub(in crate::file) place: SourceSpan,
}

/// A single value as text. The field decides what the text means, so `007` is a good name.
#[derive(Debug)]
pub(in crate::file) struct YamlScalar {
    pub(in crate::file) text: String,
    pub(in crate::file) place: SourceSpan,
    /// True for a text by the rules of YAML; false for a number or truth value, which is written without quotes.
    pub(in crate::file) is_text: bool,
    /// The number of characters between the place and the text, such as 1 for a quote. `None` if the file spells
    /// the text in another way, with escapes or variables.
    pub(super) verbatim: Option<usize>,
}

impl YamlScalar {
    /// The place of a part of the text, which is given in bytes; the place of the whole scalar if the file spells
    /// the text in another way.
    pub(in crate::file) fn part(&self, span: Range<usize>) -> SourceSpan {
        let (Some(quotes), Some(before), Some(part)) =
            (self.verbatim, self.text.get(..span.start), self.text.get(span.clone()))
        else {
            return self.place;
        };
        SourceSpan {
            line: self.place.line,
            column: self.place.column + quotes + before.chars().count(),
            width: part.chars().count().max(1),
        }
    }
}
