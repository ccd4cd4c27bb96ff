//! Percent-escapes, and the characters that need none (RFC 3986, 2.1 and 2.3).

/// The byte that two hexadecimal digits stand for, and what follows them.
pub(crate) fn decode_escape(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).expect("two hexadecimal digits make one byte");
    Some((byte, rest))
}

/// The characters that mean the same with and without an escape (RFC 3986, 2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// `%2F` for a slash: upper-case digits, as RFC 3986 wants them.
pub(crate) fn percent_encode(byte: u8) -> [char; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    ['%', digit(byte >> 4), digit(byte & 0xF)]
}
