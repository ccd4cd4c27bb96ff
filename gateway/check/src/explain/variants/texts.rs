//! Other spellings of a value, each of which some database or framework takes for the same value.

use unicode_normalization::UnicodeNormalization;

/// Another spelling of a value.
pub(super) struct TextSpelling {
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// The spellings of `text`, none of which is `text` itself.
pub(super) fn spellings(text: &str) -> Vec<TextSpelling> {
    let mut found = Vec::new();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        found.extend([
            ("leading zero", format!("0{text}")),
            ("plus sign", format!("+{text}")),
            ("fraction", format!("{text}.0")),
            ("trailing letter", format!("{text}x")),
        ]);
    }
    found.push(("other case", swap_case(text)));
    if let Some(digits) = uuid_digits(text) {
        let hyphened = with_hyphens(&digits);
        found.extend([
            ("UUID without hyphens", digits),
            ("UUID in braces", format!("{{{hyphened}}}")),
            ("UUID as URN", format!("urn:uuid:{hyphened}")),
            ("UUID with hyphens", hyphened),
        ]);
    }
    found.extend([
        ("composed letters", text.nfc().collect()),
        ("decomposed letters", text.nfd().collect()),
        ("trailing space", format!("{text} ")),
        ("leading space", format!(" {text}")),
    ]);
    let other = found.into_iter().filter(|(_, spelled)| spelled != text);
    other.map(|(name, text)| TextSpelling { name, text }).collect()
}

/// A value that is not `text`, and would be accepted in its place.
pub(super) fn other_value(text: &str) -> String {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{text}1"),
        false => format!("{text}x"),
    }
}

/// ASCII letters in the other case.
pub(super) fn swap_case(text: &str) -> String {
    let swap = |char: char| match char.is_ascii_lowercase() {
        true => char.to_ascii_uppercase(),
        false => char.to_ascii_lowercase(),
    };
    text.chars().map(swap).collect()
}

/// The digits of a UUID in lower case; `None` for another text.
fn uuid_digits(text: &str) -> Option<String> {
    let digits: String = match text.len() {
        32 => text.to_ascii_lowercase(),
        36 if [8, 13, 18, 23].into_iter().all(|at| text.as_bytes().get(at) == Some(&b'-')) => {
            text.to_ascii_lowercase().replace('-', "")
        }
        _ => return None,
    };
    (digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

/// The UUID with hyphens. `digits` are its 32 ASCII characters.
fn with_hyphens(digits: &str) -> String {
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups.map(|group| digits.get(group).unwrap_or_default()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &str) -> Vec<String> {
        spellings(of).into_iter().map(|spelling| spelling.text).collect()
    }

    /// A number, a UUID and a word have the spellings of their kind.
    #[test]
    fn spellings_fit_kind_of_value() {
        assert_eq!(texts("42"), ["042", "+42", "42.0", "42x", "42 ", " 42"]);
        assert_eq!(texts("Ab-1"), ["aB-1", "Ab-1 ", " Ab-1"]);
        assert_eq!(texts("\u{e9}"), ["e\u{301}", "\u{e9} ", " \u{e9}"]);
        let uuid = "0F8FAD5B-D9CB-469F-A165-70867728950E";
        let plain = "0f8fad5bd9cb469fa16570867728950e";
        let hyphened = uuid.to_ascii_lowercase();
        let expected =
            [hyphened.clone(), plain.to_owned(), format!("{{{hyphened}}}"), format!("urn:uuid:{hyphened}")];
        assert_eq!(texts(uuid)[..4], expected);
        assert!(texts(plain).contains(&hyphened));
        assert!(!texts(&uuid.replace('-', "_")).iter().any(|text| text.starts_with("urn:")));
    }
}
