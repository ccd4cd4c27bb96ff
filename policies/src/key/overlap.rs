//! Tells whether two templates can give the same text, or a text of one can lie below a text of the other.

use std::collections::HashSet;

/// All texts that a template can give, and some more: of a value only its permitted characters are known.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    tokens: Vec<Token>,
    of_a_value: fn(char) -> bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    This(char),
    /// One character of a value.
    One,
    /// Any number of characters of a value.
    Any,
    /// One digit.
    Digit,
    /// Any number of digits.
    Digits,
}

impl Token {
    /// The token may stand for several characters, or for none.
    fn repeats(self) -> bool {
        matches!(self, Self::Any | Self::Digits)
    }
}

/// The relation of two globs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    Never,
    /// Both can give the same text.
    Same,
    /// One can give a text that is a text of the other, then a slash and more.
    Below,
}

impl Glob {
    /// `parts`: literals, and `None` for each value; a value is not empty.
    pub(crate) fn of(parts: impl Iterator<Item = Option<String>>, of_a_value: fn(char) -> bool) -> Self {
        let tokens = parts.flat_map(|part| match part {
            Some(literal) => literal.chars().map(Token::This).collect(),
            None => vec![Token::One, Token::Any],
        });
        Self { tokens: tokens.collect(), of_a_value }
    }

    /// The same glob with `mark` and a number at its end.
    pub(crate) fn numbered(mut self, mark: char) -> Self {
        self.tokens.extend([Token::This(mark), Token::Digit, Token::Digits]);
        self
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::of([Some(text.to_owned())].into_iter(), |_| false)
    }

    /// `begin`, and all texts that begin with it.
    pub(crate) fn beginning_with(begin: &str) -> Self {
        let tokens = begin.chars().map(Token::This).chain([Token::Any]).collect();
        Self { tokens, of_a_value: |_| true }
    }

    /// Compares two globs. Visits every pair of positions that one text can reach in both.
    pub(crate) fn meets(&self, other: &Self) -> Meeting {
        let (mut seen, mut open) = (HashSet::from([(0, 0)]), vec![(0, 0)]);
        let mut found = Meeting::Never;
        while let Some((here, there)) = open.pop() {
            let (one, two) = (self.tokens.get(here).copied(), other.tokens.get(there).copied());
            match (one, two) {
                (None, None) => return Meeting::Same,
                (None, Some(Token::This('/'))) | (Some(Token::This('/')), None) => found = Meeting::Below,
                _ => {}
            }
            let mut next = Vec::new();
            next.extend(one.is_some_and(Token::repeats).then_some((here + 1, there)));
            next.extend(two.is_some_and(Token::repeats).then_some((here, there + 1)));
            if let (Some(one), Some(two)) = (one, two)
                && self.agree(one, other, two)
            {
                let on = |token: Token, place| if token.repeats() { place } else { place + 1 };
                next.push((on(one, here), on(two, there)));
            }
            open.extend(next.into_iter().filter(|pair| seen.insert(*pair)));
        }
        found
    }

    /// Some character fits both tokens.
    fn agree(&self, one: Token, other: &Self, two: Token) -> bool {
        match (one, two) {
            (Token::This(one), Token::This(two)) => one == two,
            (Token::This(this), Token::Digit | Token::Digits)
            | (Token::Digit | Token::Digits, Token::This(this)) => this.is_ascii_digit(),
            (Token::This(one), _) => (other.of_a_value)(one),
            (_, Token::This(two)) => (self.of_a_value)(two),
            // A value may consist of digits.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A glob in which `*` stands for a value.
    fn glob(text: &str) -> Glob {
        let parts = text.split_inclusive('*').flat_map(|part| match part.strip_suffix('*') {
            Some(literal) => vec![Some(literal.to_owned()), None],
            None => vec![Some(part.to_owned())],
        });
        Glob::of(parts.collect::<Vec<_>>().into_iter(), |character| character != '/')
    }

    #[test]
    fn two_templates_meet_where_one_text_is_of_both() {
        for (one, other, meeting) in [
            ("/a/*", "/a/*", Meeting::Same),
            ("/a/*", "/a/b", Meeting::Same),
            ("/a/*", "/*/b", Meeting::Same),
            ("/a/*-x", "/a/y-*", Meeting::Same),
            ("/a/*-x", "/a/*-y", Meeting::Never),
            ("/a/*", "/a/", Meeting::Never),
            ("/a/*", "/b/*", Meeting::Never),
            ("/a", "/a/*", Meeting::Below),
            ("/a/*/c", "/a/*", Meeting::Below),
            ("/a/*", "/a/b/c/d", Meeting::Below),
            ("/ab", "/a/b", Meeting::Never),
        ] {
            assert_eq!(glob(one).meets(&glob(other)), meeting, "{one} {other}");
            assert_eq!(glob(other).meets(&glob(one)), meeting, "{other} {one}");
        }
        assert_eq!(Glob::text("/a").meets(&glob("/*")), Meeting::Same);
        for (begin, other, meeting) in [
            ("/a", "/a", Meeting::Same),
            ("/a", "/a/b/c", Meeting::Same),
            ("", "/*", Meeting::Same),
            ("/a/b", "/*/bc", Meeting::Same),
            ("/b", "/a/*", Meeting::Never),
        ] {
            assert_eq!(Glob::beginning_with(begin).meets(&glob(other)), meeting, "{begin} {other}");
        }
    }

    #[test]
    fn a_number_behind_meets_what_can_end_in_one() {
        for (one, other, meeting) in [
            ("a", "a#7", Meeting::Same),
            ("a", "a#", Meeting::Never),
            ("a", "a#x", Meeting::Never),
            ("a", "a#7x", Meeting::Never),
            ("a", "a#*", Meeting::Same),
            ("a", "*", Meeting::Same),
            ("a/*", "a/b#12", Meeting::Same),
            ("a/*", "b/*#1", Meeting::Never),
            ("a", "a", Meeting::Never),
        ] {
            assert_eq!(glob(one).numbered('#').meets(&glob(other)), meeting, "{one} {other}");
            assert_eq!(glob(other).meets(&glob(one).numbered('#')), meeting, "{other} {one}");
        }
    }
}
