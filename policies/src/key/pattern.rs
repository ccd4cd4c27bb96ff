//! The pattern that a value of a key has to match.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// A regular expression that matches a value as a whole, in a time that is linear in its length.
#[derive(Debug, Clone)]
pub struct ValuePattern {
    text: Box<str>,
    whole: Regex,
}

impl ValuePattern {
    /// The longest pattern, in bytes.
    pub const LONGEST: usize = 256;

    /// Memory of the compiled pattern, and of what it remembers while it matches.
    const MOST_MEMORY: usize = 256 * 1024;

    /// # Errors
    /// It is no pattern, or too large a one; the text says why.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > Self::LONGEST {
            return Err(format!("a pattern has at most {} bytes", Self::LONGEST));
        }
        // First by itself: a parenthesis in it could end the group that stands around it.
        compile(text).map_err(|error| reason(&error))?;
        let whole = compile(&format!(r"\A(?:{text})\z")).map_err(|error| reason(&error))?;
        Ok(Self { text: text.into(), whole })
    }

    pub(super) fn is_match(&self, value: &str) -> bool {
        self.whole.is_match(value)
    }
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .size_limit(ValuePattern::MOST_MEMORY)
        .dfa_size_limit(ValuePattern::MOST_MEMORY)
        .nest_limit(32)
        .build()
}

/// The last line of an error says what is wrong; the lines before it draw the pattern.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large when it is compiled".into(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("the pattern is malformed: {}", last.trim_start_matches("error: "))
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
