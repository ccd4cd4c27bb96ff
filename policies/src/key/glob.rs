//! Decides whether two templates can give the same text, or whether a text of one can be a path below a text
//! of the other.

use std::collections::HashSet;

/// A pattern that matches all texts that a template can give, and some more: it only knows which characters a
/// value may contain.
#[derive(Debug, Clone)]
pub(crate) struct TemplateGlob {
    tokens: Vec<GlobToken>,
    of_a_value: fn(char) -> bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GlobToken {
    Literal(char),
    /// One character of a value.
    One,
    /// Any number of characters of a value.
    Any,
    /// One digit.
    Digit,
    /// Any number of digits.
    Digits,
}

impl GlobToken {
    /// Whether the token stands for any number of characters, or for none.
    fn is_variable_length(self) -> bool {
        matches!(self, Self::Any | Self::Digits)
    }
}

/// The relation of two globs, as sets of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobRelation {
    Disjoint,
    /// Both match some text.
    Overlapping,
    /// One matches a text that consists of a text of the other, a slash, and more.
    Nested,
}

impl TemplateGlob {
    /// Makes a glob. `parts`: the literals, with `None` for each value, which is not empty. `of_a_value`: the
    /// characters of values.
    pub(crate) fn from_parts(
        parts: impl Iterator<Item = Option<String>>,
        of_a_value: fn(char) -> bool,
    ) -> Self {
        let tokens = parts.flat_map(|part| match part {
            Some(literal) => literal.chars().map(GlobToken::Literal).collect(),
            None => vec![GlobToken::One, GlobToken::Any],
        });
        Self { tokens: tokens.collect(), of_a_value }
    }

    /// Appends `separator` and a number to the glob.
    pub(crate) fn with_number(mut self, separator: char) -> Self {
        self.tokens.extend([GlobToken::Literal(separator), GlobToken::Digit, GlobToken::Digits]);
        self
    }

    pub(crate) fn literal(text: &str) -> Self {
        Self::from_parts([Some(text.to_owned())].into_iter(), |_| false)
    }

    /// A glob of `begin` and all texts that begin with it.
    pub(crate) fn with_prefix(begin: &str) -> Self {
        let tokens = begin.chars().map(GlobToken::Literal).chain([GlobToken::Any]).collect();
        Self { tokens, of_a_value: |_| true }
    }

    /// Compares two globs. Visits every pair of positions that some text can reach in both.
    pub(crate) fn relation_to(&self, other: &Self) -> GlobRelation {
        let mut seen = HashSet::from([(0, 0)]);
        let mut open = vec![(0, 0)];
        let mut found = GlobRelation::Disjoint;
        while let Some((here, there)) = open.pop() {
            let one = self.tokens.get(here).copied();
            let two = other.tokens.get(there).copied();
            match (one, two) {
                (None, None) => return GlobRelation::Overlapping,
                (None, Some(GlobToken::Literal('/'))) | (Some(GlobToken::Literal('/')), None) => {
                    found = GlobRelation::Nested
                }
                _ => {}
            }
            let mut next = Vec::new();
            next.extend(one.is_some_and(GlobToken::is_variable_length).then_some((here + 1, there)));
            next.extend(two.is_some_and(GlobToken::is_variable_length).then_some((here, there + 1)));
            if let (Some(one), Some(two)) = (one, two)
                && self.tokens_overlap(one, other, two)
            {
                let on = |token: GlobToken, place| if token.is_variable_length() { place } else { place + 1 };
                next.push((on(one, here), on(two, there)));
            }
            open.extend(next.into_iter().filter(|pair| seen.insert(*pair)));
        }
        found
    }

    /// Whether some character fits both tokens.
    fn tokens_overlap(&self, one: GlobToken, other: &Self, two: GlobToken) -> bool {
        match (one, two) {
            (GlobToken::Literal(one), GlobToken::Literal(two)) => one == two,
            (GlobToken::Literal(this), GlobToken::Digit | GlobToken::Digits)
            | (GlobToken::Digit | GlobToken::Digits, GlobToken::Literal(this)) => this.is_ascii_digit(),
            (GlobToken::Literal(one), _) => (other.of_a_value)(one),
            (_, GlobToken::Literal(two)) => (self.of_a_value)(two),
            // Two tokens of values always overlap, because a value may consist of digits.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A glob for tests, in which `*` stands for a value.
    fn glob(text: &str) -> TemplateGlob {
        let parts = text.split_inclusive('*').flat_map(|part| match part.strip_suffix('*') {
            Some(literal) => vec![Some(literal.to_owned()), None],
            None => vec![Some(part.to_owned())],
        });
        TemplateGlob::from_parts(parts.collect::<Vec<_>>().into_iter(), |character| character != '/')
    }

    /// Two templates overlap if some text matches both.
    #[test]
    fn templates_overlap_in_common_text() {
        for (one, other, meeting) in [
            ("/a/*", "/a/*", GlobRelation::Overlapping),
            ("/a/*", "/a/b", GlobRelation::Overlapping),
            ("/a/*", "/*/b", GlobRelation::Overlapping),
            ("/a/*-x", "/a/y-*", GlobRelation::Overlapping),
            ("/a/*-x", "/a/*-y", GlobRelation::Disjoint),
            ("/a/*", "/a/", GlobRelation::Disjoint),
            ("/a/*", "/b/*", GlobRelation::Disjoint),
            ("/a", "/a/*", GlobRelation::Nested),
            ("/a/*/c", "/a/*", GlobRelation::Nested),
            ("/a/*", "/a/b/c/d", GlobRelation::Nested),
            ("/ab", "/a/b", GlobRelation::Disjoint),
        ] {
            assert_eq!(glob(one).relation_to(&glob(other)), meeting, "{one} {other}");
            assert_eq!(glob(other).relation_to(&glob(one)), meeting, "{other} {one}");
        }
        assert_eq!(TemplateGlob::literal("/a").relation_to(&glob("/*")), GlobRelation::Overlapping);
        for (begin, other, meeting) in [
            ("/a", "/a", GlobRelation::Overlapping),
            ("/a", "/a/b/c", GlobRelation::Overlapping),
            ("", "/*", GlobRelation::Overlapping),
            ("/a/b", "/*/bc", GlobRelation::Overlapping),
            ("/b", "/a/*", GlobRelation::Disjoint),
        ] {
            assert_eq!(
                TemplateGlob::with_prefix(begin).relation_to(&glob(other)),
                meeting,
                "{begin} {other}"
            );
        }
    }

    /// A template with a number at its end overlaps one that can end in a number.
    #[test]
    fn number_overlaps_possible_suffix() {
        for (one, other, meeting) in [
            ("a", "a#7", GlobRelation::Overlapping),
            ("a", "a#", GlobRelation::Disjoint),
            ("a", "a#x", GlobRelation::Disjoint),
            ("a", "a#7x", GlobRelation::Disjoint),
            ("a", "a#*", GlobRelation::Overlapping),
            ("a", "*", GlobRelation::Overlapping),
            ("a/*", "a/b#12", GlobRelation::Overlapping),
            ("a/*", "b/*#1", GlobRelation::Disjoint),
            ("a", "a", GlobRelation::Disjoint),
        ] {
            assert_eq!(glob(one).with_number('#').relation_to(&glob(other)), meeting, "{one} {other}");
            assert_eq!(glob(other).relation_to(&glob(one).with_number('#')), meeting, "{other} {one}");
        }
    }
}
