//! Texts of users that other users see: each becomes one line without hidden or reordered characters.

/// Whether a text is one line, in the order in which it is read.
pub fn is_single_line(text: &str) -> bool {
    !text.contains(is_misleading)
}

/// Replaces control sequences for a terminal, and characters that would make another text of the line.
pub fn sanitize(text: &str) -> String {
    text.chars()
        .map(|character| if is_misleading(character) { char::REPLACEMENT_CHARACTER } else { character })
        .collect()
}

/// Control characters, and characters that change the direction of a text, end a line, or are invisible (Unicode, UAX
/// 9 and UTR 36). Joiners (U+200C, U+200D) are not among them: words of some languages need them.
fn is_misleading(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line has no character that ends it, starts an escape sequence, turns its direction or is invisible.
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
