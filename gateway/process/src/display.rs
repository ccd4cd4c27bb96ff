//! Texts for people: an error with its causes on one line, a short duration, and a text of a user without hidden or
//! reordered characters.

use std::{error::Error, fmt, time::Duration};

/// An error with its causes, on one line.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        // Some errors already have their cause in their text.
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

/// A duration with few digits: `12s`, `1.5s`, `33.9ms`, `2m 5s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormattedDuration(pub Duration);

impl fmt::Display for FormattedDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(duration) = *self;
        if duration >= Duration::from_secs(60) {
            return humantime::format_duration(Duration::from_secs(duration.as_secs())).fmt(f);
        }
        let (value, unit) = match duration.as_nanos() {
            0 => (0.0, "s"),
            nanos @ 1..1_000_000 => (nanos as f64 / 1e3, "us"),
            nanos @ 1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
            nanos => (nanos as f64 / 1e9, "s"),
        };
        // A trailing `.0` is left out: `12s`, not `12.0s`.
        let text = format!("{value:.1}");
        write!(f, "{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// Joins several values for one field of the log.
pub fn join_display<T: fmt::Display>(several: impl IntoIterator<Item = T>) -> String {
    several.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

/// Whether a text is a single line whose characters are shown in the order in which they stand.
pub fn is_single_line(text: &str) -> bool {
    !text.contains(is_control_or_bidi_char)
}

/// Replaces control sequences for a terminal, and characters that would make the line look like another text.
pub fn sanitize(text: &str) -> String {
    text.chars()
        .map(
            |character| {
                if is_control_or_bidi_char(character) { char::REPLACEMENT_CHARACTER } else { character }
            },
        )
        .collect()
}

/// Control characters, and characters that change the direction of a text, end a line, or are invisible (Unicode, UAX
/// 9 and UTR 36). Joiners (U+200C, U+200D) are not among them: words of some languages need them.
fn is_control_or_bidi_char(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot listen at {at}: {source}")]
    struct TestListenError {
        at: &'static str,
        source: io::Error,
    }

    #[test]
    fn error_chain_repeats_no_cause() {
        let taken = TestListenError { at: "127.0.0.1:80", source: io::Error::other("address in use") };
        assert_eq!(error_chain(&taken), "cannot listen at 127.0.0.1:80: address in use");
        let outer = io::Error::other(taken);
        assert_eq!(error_chain(&outer), "cannot listen at 127.0.0.1:80: address in use");
    }

    #[test]
    fn duration_is_short_with_unit() {
        for (nanos, expected) in [
            (0, "0s"),
            (33_916, "33.9us"),
            (1_500_000, "1.5ms"),
            (12_000_000_000, "12s"),
            (29_999_991_155, "30s"),
            (125_700_000_000, "2m 5s"),
        ] {
            assert_eq!(FormattedDuration(Duration::from_nanos(nanos)).to_string(), expected);
        }
    }

    /// `sanitize` replaces each character that ends a line, starts an escape sequence, changes the direction of the
    /// text or is invisible.
    #[test]
    fn sanitize_replaces_misleading_characters() {
        for good in [
            "",
            "10.0.0.1:80",
            "caf\u{e9} 支付",
            "\u{6a9}\u{62a}\u{627}\u{628}\u{200c}\u{647}\u{627}",
            "👩\u{200d}💻",
        ] {
            assert!(is_single_line(good) && sanitize(good) == good, "{good}");
        }
        for bad in [
            '\n',
            '\u{1b}',
            '\u{85}',
            '\u{202e}',
            '\u{2066}',
            '\u{200f}',
            '\u{61c}',
            '\u{2028}',
            '\u{200b}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            let text = format!("a{bad}b");
            assert!(!is_single_line(&text), "{bad:?}");
            assert_eq!(sanitize(&text), "a\u{fffd}b");
        }
    }
}
