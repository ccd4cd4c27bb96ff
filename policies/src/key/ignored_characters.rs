//! Characters that some readers of a request remove from a name or a value, or at which they end it.

/// U+FEFF, which some readers leave out.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// True for a character that some reader removes from both ends of a name or a value.
pub(crate) fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == BYTE_ORDER_MARK
}

/// Whether a text contains a character that some reader leaves out, or at which some reader ends the text.
pub(crate) fn has_unprintable(text: &str) -> bool {
    text.chars().any(|character| character.is_control() || character == BYTE_ORDER_MARK)
}
