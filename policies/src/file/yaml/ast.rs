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
    /// Nothing after the colon, or `null`: the same as not writing the field.
    Nothing,
    /// The value could not be determined; a fault has reported why.
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
    /// A text to YAML; otherwise a number or a truth value, which stands there without quotes.
    pub(in crate::file) is_text: bool,
    /// How many characters stand between the place and the text, such as a quote. `None` where the file spells the
    /// text in another way.
    pub(super) verbatim: Option<usize>,
}

impl YamlScalar {
    /// The place of a part of the text, given in bytes; the whole scalar where the file spells it differently.
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
