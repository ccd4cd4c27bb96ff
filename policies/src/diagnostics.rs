//! Describes a mistake in a policy file: the rule that it breaks, its place in the file, and its remedy.

mod code;
mod mistake_example;
mod render;

pub use code::{DiagnosticCode, Severity};
pub use mistake_example::MistakeExample;

/// One mistake in a file, or one setting that may not be what its author wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: DiagnosticCode,
    pub severity: Severity,
    /// One sentence without a full stop. Names from the file are in backquotes.
    pub message: String,
    /// The place in the file; `None` if no part of the file is at fault.
    pub place: Option<SourceSpan>,
    /// How to correct the mistake.
    pub remedy: Option<String>,
}

/// A part of one line of the file, counted in characters from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceSpan {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

impl Diagnostic {
    pub fn new(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self { code, severity: code.severity(), message: message.into(), place: None, remedy: None }
    }

    #[must_use]
    pub fn at(self, place: SourceSpan) -> Self {
        Self { place: Some(place), ..self }
    }

    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Adds a remedy for a word that is not among `known`: it names the known word that was probably meant, or lists
    /// the known words.
    #[must_use]
    pub(crate) fn suggest<S: AsRef<str>>(
        self,
        written: &str,
        known: &[S],
        around: fn(&str) -> String,
    ) -> Self {
        let quoted = |word: &str| format!("`{}`", around(word));
        if let Some(near) = nearest_match(written, known) {
            return self.with_remedy(format!("did you mean {}?", quoted(near)));
        }
        const SHOWN: usize = 16;
        let all: Vec<String> = known.iter().take(SHOWN).map(|word| quoted(word.as_ref())).collect();
        match all.as_slice() {
            [] => self,
            [one] => self.with_remedy(format!("there is only {one}")),
            _ if known.len() > SHOWN => self.with_remedy(format!("there are {} and more", all.join(", "))),
            _ => self.with_remedy(format!("there are {}", all.join(", "))),
        }
    }
}

/// The known word that `written` probably misspells: at most a third of its letters differ. One wrong letter is
/// always allowed.
fn nearest_match<'k, S: AsRef<str>>(written: &str, known: &'k [S]) -> Option<&'k str> {
    // The distance costs the product of both lengths. A text that is longer than this is not a misspelling.
    const LONGEST: usize = 64;
    if let Some(whole) = known.iter().find(|word| is_abbreviation(written, word.as_ref())) {
        return Some(whole.as_ref());
    }
    let allowed = (written.chars().count() / 3).max(1);
    known
        .iter()
        .filter(|word| written.len().max(word.as_ref().len()) <= LONGEST)
        .map(|word| (strsim::osa_distance(written, word.as_ref()), word.as_ref()))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// True for `cert_file` and `certificate_file`: both have the same number of words, and each word begins with the
/// shorter one.
fn is_abbreviation(written: &str, word: &str) -> bool {
    let short = written.split('_');
    let long = word.split('_');
    let alike = |(short, long): (&str, &str)| short.len() >= 3 && long.starts_with(short);
    short.clone().count() == long.clone().count() && short.zip(long).all(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(written: &str, known: &[&str]) -> Option<String> {
        Diagnostic::new(DiagnosticCode::UnknownField, "").suggest(written, known, str::to_owned).remedy
    }

    /// A misspelled word names the word that was meant.
    #[test]
    fn typo_suggests_intended_word() {
        assert_eq!(remedy("orderid", &["id", "order_id"]).as_deref(), Some("did you mean `order_id`?"));
        let files = ["key_file", "certificate_file"];
        assert_eq!(remedy("cert_file", &files).as_deref(), Some("did you mean `certificate_file`?"));
        assert_eq!(remedy("hwo", &["how", "who"]).as_deref(), Some("did you mean `how`?"));
    }

    /// A word that resembles no known word gets a list of the known words.
    #[test]
    fn unrelated_word_lists_alternatives() {
        assert_eq!(remedy("tls", &["address", "limits"]).as_deref(), Some("there are `address`, `limits`"));
        assert_eq!(remedy("tls", &["address"]).as_deref(), Some("there is only `address`"));
        assert_eq!(remedy("tls", &[]), None);
    }
}
