//! The pattern that a value in a key has to match.

use std::{collections::BTreeSet, fmt};

use regex::bytes::{Regex, RegexBuilder};
use regex_automata::{
    Anchored,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson,
    util::{start, syntax},
};

/// A regular expression that matches a value as a whole, in a time that is linear in its length.
///
/// Classes, case and words are those of ASCII: `\d` is `[0-9]`, because only some readers take the digits of other
/// scripts for the same numbers. Characters beyond ASCII match only if the pattern writes them, or by `.`, which
/// matches one byte.
#[derive(Debug, Clone)]
pub struct ValuePattern {
    text: Box<str>,
    whole: Regex,
}

/// A part of a text, for the question whether a pattern can match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PatternProbePart {
    /// Exactly this text.
    Literal(String),
    /// Any text of at least one character, without slashes.
    Any,
    /// Any text of at least one character, without slashes and dots.
    AnyWithoutDot,
}

impl ValuePattern {
    /// The longest pattern, in bytes.
    pub const LONGEST: usize = 256;

    /// The most bytes of memory for the compiled pattern, and for its cache while it matches.
    const MOST_MEMORY: usize = 256 * 1024;

    /// The deepest nesting of groups and classes in a pattern.
    const DEEPEST: u32 = 32;

    /// Compiles a pattern.
    ///
    /// # Errors
    /// Returns the reason if the text is no pattern, or too large a one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > Self::LONGEST {
            return Err(format!("a pattern has at most {} bytes", Self::LONGEST));
        }
        // The pattern is compiled alone before it is put into a group, because a parenthesis in it could close that
        // group.
        compile(text).map_err(|error| reason(&error))?;
        let whole = compile(&whole_pattern(text)).map_err(|error| reason(&error))?;
        Ok(Self { text: text.into(), whole })
    }

    pub(super) fn is_match(&self, value: &str) -> bool {
        self.whole.is_match(value.as_bytes())
    }

    /// Whether the pattern keeps to ASCII: false if the flag `(?u)` switches to the tables of Unicode. A class then
    /// matches several spellings of a digit or letter.
    pub(super) fn is_ascii(&self) -> bool {
        let sets_flag = |flags: &str| {
            let end = flags.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(flags.len());
            flags[..end].contains('u')
        };
        !self.text.split("(?").skip(1).any(sets_flag)
    }

    /// Whether the pattern matches some text that consists of `parts`, in this order. Also true if it would take too
    /// much memory to find out.
    pub(crate) fn can_match(&self, parts: &[PatternProbePart]) -> bool {
        self.reaches_match(parts).unwrap_or(true)
    }

    /// As [`Self::can_match`]; `None` if it would take too much memory.
    fn reaches_match(&self, parts: &[PatternProbePart]) -> Option<bool> {
        // The states found so far would be invalid after the cache is cleared, so it is never cleared.
        let config = DFA::config()
            .cache_capacity(4 * Self::MOST_MEMORY)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(0));
        let dfa = DFA::builder()
            .configure(config)
            .syntax(syntax::Config::new().unicode(false).utf8(false).nest_limit(Self::DEEPEST + 1))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(Self::MOST_MEMORY)))
            .build(&whole_pattern(&self.text))
            .ok()?;
        let mut cache = dfa.create_cache();
        let start = start::Config::new().anchored(Anchored::Yes);
        let mut states = BTreeSet::from([dfa.start_state(&mut cache, &start).ok()?]);
        for part in parts {
            states = match part {
                PatternProbePart::Literal(text) => text.bytes().try_fold(states, |states, byte| {
                    step(&dfa, &mut cache, &states, |other| other == byte)
                })?,
                PatternProbePart::Any => closure(&dfa, &mut cache, &states, |byte| byte != b'/')?,
                PatternProbePart::AnyWithoutDot => {
                    closure(&dfa, &mut cache, &states, |byte| byte != b'/' && byte != b'.')?
                }
            };
        }
        for state in states {
            if dfa.next_eoi_state(&mut cache, state).ok()?.is_match() {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// The states after one byte that `takes` accepts. Control characters are left out, because no value contains one.
fn step(
    dfa: &DFA,
    cache: &mut Cache,
    states: &BTreeSet<LazyStateID>,
    takes: impl Fn(u8) -> bool,
) -> Option<BTreeSet<LazyStateID>> {
    let mut behind = BTreeSet::new();
    for state in states {
        for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_control() && takes(*byte)) {
            let next = dfa.next_state(cache, *state, byte).ok()?;
            if !next.is_dead() {
                behind.insert(next);
            }
        }
    }
    Some(behind)
}

/// The states after one or more bytes that `takes` accepts.
fn closure(
    dfa: &DFA,
    cache: &mut Cache,
    states: &BTreeSet<LazyStateID>,
    takes: impl Fn(u8) -> bool,
) -> Option<BTreeSet<LazyStateID>> {
    let mut reached = step(dfa, cache, states, &takes)?;
    let mut latest = reached.clone();
    while !latest.is_empty() {
        latest = &step(dfa, cache, &latest, &takes)? - &reached;
        reached.extend(&latest);
    }
    Some(reached)
}

fn whole_pattern(text: &str) -> String {
    format!(r"\A(?:{text})\z")
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .unicode(false)
        .size_limit(ValuePattern::MOST_MEMORY)
        .dfa_size_limit(ValuePattern::MOST_MEMORY)
        .nest_limit(ValuePattern::DEEPEST)
        .build()
}

/// The last line of an error of `regex`, which gives the reason. The lines before it draw the pattern.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large when it is compiled".into(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            if last.starts_with("Unicode not allowed") {
                return "a class of a pattern has characters of ASCII only, unless it begins with `(?u)`"
                    .into();
            }
            format!("the pattern is malformed: {last}")
        }
    }
}

impl PartialEq for ValuePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ValuePattern {}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> ValuePattern {
        ValuePattern::parse(text).unwrap_or_else(|reason| panic!("{text}: {reason}"))
    }

    /// A class contains only ASCII characters, unless a flag says otherwise.
    #[test]
    fn classes_are_those_of_ascii() {
        for (text, value) in [
            (r"\d+", "\u{664}\u{662}"),
            (r"\d+", "\u{ff14}2"),
            (r"\w+", "caf\u{e9}"),
            (r"[[:alpha:]]+", "\u{e9}"),
            (r"a\sb", "a\u{a0}b"),
            (r"(?i)sku", "\u{17f}ku"),
            (r"(?i)k", "\u{212a}"),
            (r"[a-z]+", "\u{212a}"),
        ] {
            assert!(!pattern(text).is_match(value), "{text} {value}");
        }
        for (text, value) in [
            (r"\d+", "42"),
            (r"(?i)sku", "SKU"),
            (r"caf\u{e9}", "caf\u{e9}"),
            ("caf\u{e9}", "caf\u{e9}"),
            (".+", "caf\u{e9}"),
            ("[^x]+", "caf\u{e9}"),
            (r"(?u)\d+", "\u{664}\u{662}"),
            (r"(?u:\p{L}+)", "caf\u{e9}"),
        ] {
            assert!(pattern(text).is_match(value), "{text} {value}");
        }
        for text in [r"\p{L}+", "[\u{e9}]", r"(?i)[a-\u{e9}]"] {
            let reason = ValuePattern::parse(text).expect_err(text);
            assert!(reason.contains("`(?u)`"), "{text}: {reason}");
        }
        for (text, is_ascii) in [
            (r"\d+", true),
            ("(?:a|b)", true),
            ("(?i)a", true),
            ("(?P<u>a)", true),
            ("(?-u:a)", true),
            ("(?u)a", false),
            ("(?iu:a)", false),
            ("a(?u-i:b)", false),
        ] {
            assert_eq!(pattern(text).is_ascii(), is_ascii, "{text}");
        }
    }

    fn literal(text: &str) -> PatternProbePart {
        PatternProbePart::Literal(text.into())
    }

    /// `can_match` is true for texts of each form that the pattern can match, and false for those that it cannot.
    #[test]
    fn matchable_texts_are_found() {
        use PatternProbePart::{Any, AnyWithoutDot};
        for (text, parts, can) in [
            ("[a-z0-9-]{1,40}", vec![Any, literal(":cancel")], false),
            ("[a-z0-9-]{1,40}", vec![Any, literal("-cancel")], true),
            ("[a-z0-9-]{1,7}", vec![Any, literal("-cancel")], false),
            ("[a-z0-9-]{1,8}", vec![Any, literal("-cancel")], true),
            (".+", vec![Any, literal(".json")], true),
            ("[^.]+", vec![Any, literal(".json")], false),
            (r"[0-9]+(\.json)?", vec![Any, literal(".json")], true),
            (r"[0-9]+\.json", vec![Any, literal(".xml")], false),
            ("[a-z.]+", vec![AnyWithoutDot, literal("."), AnyWithoutDot], true),
            (r"[a-z]+\.tar\.[a-z]+", vec![AnyWithoutDot, literal("."), AnyWithoutDot], false),
            ("ord-[0-9]+", vec![literal("Orders("), Any, literal(")")], false),
            (r"\w+\([0-9]\)", vec![literal("Orders("), Any, literal(")")], true),
            ("a?", vec![Any], true),
            ("", vec![Any], false),
            ("a/b", vec![Any], false),
        ] {
            assert_eq!(pattern(text).can_match(&parts), can, "{text} {parts:?}");
        }
    }

    proptest! {
        /// `can_match` is true for every text that the pattern matches.
        #[test]
        fn matched_text_can_be_matched(
            text in prop::sample::select(vec!["[a-c]{1,4}", "(ab|b.)+c?", r"\w+(:x)?", "[^a]*", "a|b|cc"]),
            (before, value, after) in ("[ab]{0,2}", "[abc:x]{1,4}", "[bc:x]{0,2}"),
        ) {
            let pattern = pattern(text);
            let parts = [literal(&before), PatternProbePart::Any, literal(&after)];
            let is_matched = pattern.is_match(&format!("{before}{value}{after}"));
            prop_assert!(pattern.can_match(&parts) || !is_matched);
        }
    }
}
