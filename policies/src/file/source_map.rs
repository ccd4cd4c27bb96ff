//! Finds the place of a field in a file, for mistakes that are found only after the file was read.

use super::{
    diagnostics::Diagnostics,
    yaml::{self, YamlNode, YamlNodeValue},
};
use crate::diagnostics::SourceSpan;

/// A file as a tree of fields with their places.
#[derive(Debug)]
pub struct FieldLocator {
    root: Option<YamlNode>,
}

impl FieldLocator {
    /// Reads a file that was loaded without errors.
    pub fn parse(text: &str) -> Self {
        Self { root: yaml::parse(text, &|_| None, &Diagnostics::default()) }
    }

    /// The place of the field at `path`, or of the deepest part of that path that the file has. Each step is the
    /// name of a field or the index of an item.
    pub fn find(&self, path: &[&str]) -> Option<SourceSpan> {
        let mut node = self.root.as_ref()?;
        let mut place = None;
        for step in path {
            let Some(next) = child(node, step) else { break };
            place = Some(next.place);
            node = next;
        }
        place
    }
}

fn child<'n>(node: &'n YamlNode, step: &str) -> Option<&'n YamlNode> {
    match &node.value {
        YamlNodeValue::Mapping(entries) => {
            entries.iter().find(|(key, _)| key.text == step).map(|(_, node)| node)
        }
        YamlNodeValue::List(items) => items.get(step.parse::<usize>().ok()?),
        YamlNodeValue::Nothing | YamlNodeValue::Unset | YamlNodeValue::Scalar(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that the file has is found at its place. A field that it does not have gets the place of the
    /// deepest field above it.
    #[test]
    fn missing_field_has_place_of_parent() {
        let places = FieldLocator::parse("a:\n  b: [x, {c: \"${NOT_SET}\"}]\n");
        let at = |way: &[&str]| places.find(way).map(|place| (place.line, place.column));
        assert_eq!(at(&["a", "b", "0"]), Some((2, 7)));
        assert_eq!(at(&["a", "b", "1", "c"]), Some((2, 14)));
        assert_eq!(at(&["a", "b", "7"]), at(&["a", "b"]));
        assert_eq!(at(&["a", "z", "0"]), Some((2, 3)));
        assert_eq!((at(&["z"]), at(&[])), (None, None));
        assert_eq!(FieldLocator::parse("[").find(&["a"]), None);
    }
}
