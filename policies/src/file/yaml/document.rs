//! The text as a tree of mappings, lists and scalars, each of which knows its place.

use std::ops::Range;

use crate::diagnose::Place;

#[derive(Debug)]
pub(in crate::file) struct Node {
    pub(in crate::file) place: Place,
    pub(in crate::file) value: Value,
}

#[derive(Debug)]
pub(in crate::file) enum Value {
    /// Nothing after the colon, or `null`: the same as not writing the field.
    Nothing,
    /// What should stand here could not be told; a fault has said why.
    Unset,
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(in crate::file) struct Key {
    pub(in crate::file) text: String,
    pub(in crate::file) place: Place,
}

/// A single value, as text: what it means is decided by the field that it is for, so `007` is a good name.
#[derive(Debug)]
pub(in crate::file) struct Scalar {
    pub(in crate::file) text: String,
    pub(in crate::file) place: Place,
    /// Characters from the place to the text (a quote), where the text stands in the file just as it is.
    pub(super) verbatim: Option<usize>,
}

impl Scalar {
    /// The place of a part of the text, given in bytes; the whole scalar where the file spells it differently.
    pub(in crate::file) fn part(&self, span: Range<usize>) -> Place {
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
